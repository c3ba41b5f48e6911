"""Turns kernels into source text: CUDA C++ and OpenCL C for GPUs, LLVM IR for the CPU."""
