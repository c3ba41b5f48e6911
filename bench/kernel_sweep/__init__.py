"""Random kernels through every engine, compared with float64: ``python -m bench.kernel_sweep``."""

from bench.gpu import devices as _devices

assert _devices.TESTS.is_dir()  # importing it has put the tests' kernels, oracle and harness on the path
