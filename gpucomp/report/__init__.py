"""Reports of a compiled model: its cost, and what its machine code says."""
