"""Benchmarks of gpucomp and the models they run; nothing here is installed with the package."""
