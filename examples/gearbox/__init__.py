"""A gearbox: the tuner's samplers on a study that has nothing to do with kernels."""
