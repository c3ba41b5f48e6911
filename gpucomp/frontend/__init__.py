"""ONNX to graphs. Start at ``onnx.load_split``; a new operator is a function under ``onnx/ai_onnx/`` with ``@translates``."""
