"""Kernels to source: CUDA C++ and OpenCL C, LLVM IR for the CPU."""
