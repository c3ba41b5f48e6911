"""Compiled models as C projects: ``gpucomp export -o``. Nothing of gpucomp is needed to build or run one."""
