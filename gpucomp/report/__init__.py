"""Reports about a compiled model: its cost, its machine code, and what became of each node."""
