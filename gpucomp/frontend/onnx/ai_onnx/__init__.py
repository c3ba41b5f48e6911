"""Operators of ONNX's own domain."""
