"""Contractions by dot products of bytes and bfloat16."""
