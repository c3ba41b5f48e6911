"""Reads the machine code of fixed kernels: main loops, instruction classes, control codes, and a model of their issue."""
