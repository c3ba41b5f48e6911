"""What tests and benchmarks both need: kernels, their oracle and tolerances, CUDA played on the CPU, OpenCL devices.

It imports neither of them and no pytest. The wheel leaves it out: compiling and running a model needs none of it.
"""
