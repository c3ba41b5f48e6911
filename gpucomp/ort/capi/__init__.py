"""Modules that programs import from below onnxruntime."""
