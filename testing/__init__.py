"""Shared by tests and benchmarks: kernels, tolerances, CUDA emulated on the CPU, OpenCL devices.

It imports neither tests nor benchmarks, and no pytest. The wheel does not contain it.
"""
