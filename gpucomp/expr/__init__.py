"""Scalar expressions and index maps: the meaning of every algorithm."""
