"""Benchmarks of one kernel: what a specification such as ``gemm:m=512,n=1024,k=768`` asks for, beside vendors' libraries."""
