"""CUDA C++ and OpenCL C: prints expressions and statements, and prepares what the templates read."""
