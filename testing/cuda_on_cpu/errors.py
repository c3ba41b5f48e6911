"""The errors that a CUDA kernel on the CPU can be found to have."""

from testing.cuda_on_cpu.sanitizers import Race


class CudaOnCpuError(Exception):
    """A kernel that does not compile, or that did something that a device does not allow."""


class RaceError(CudaOnCpuError):
    """ThreadSanitizer found data races; ``races`` has each pair of accesses once."""

    def __init__(self, message: str, found: tuple[Race, ...]):
        super().__init__(message)
        self.races = found
