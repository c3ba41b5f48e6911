"""Handwritten digits: a small trained network, the images it has not seen, and how it is made."""
