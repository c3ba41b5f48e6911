"""CUDA C++ and OpenCL C: printing of expressions and statements, and what the templates are given."""
