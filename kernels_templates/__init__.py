"""CUDA C++ and OpenCL C from templates, one folder per engine.

Start at ``engines.ENGINES``, which says how to add one.
"""
