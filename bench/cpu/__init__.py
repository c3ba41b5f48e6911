"""gpucomp beside other engines on the CPU: each in a process and a virtual environment of its own."""
