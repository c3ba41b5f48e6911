"""Benchmarks of gpucomp and the models that they run; nothing here is installed with the package."""
