"""Contractions on tile registers (AMX)."""
