"""Random kernels through every engine, compared with float64: ``python -m bench.kernel_sweep``."""
