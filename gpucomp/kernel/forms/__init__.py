"""Recognises the form of kernels, for spaces and emitters. Nothing is printed here."""
