"""Contractions in register blocks."""
