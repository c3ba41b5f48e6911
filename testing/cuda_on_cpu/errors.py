"""What a CUDA kernel on the CPU can be found guilty of."""

from testing.cuda_on_cpu.sanitizers import Race


class CudaOnCpuError(Exception):
    """A kernel that does not compile, or that did something a device would not allow."""


class RaceError(CudaOnCpuError):
    """ThreadSanitizer saw data races; ``races`` has each pair of accesses once."""

    def __init__(self, message: str, found: tuple[Race, ...]):
        super().__init__(message)
        self.races = found
