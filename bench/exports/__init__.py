"""Models as frameworks export them, compared with onnxruntime: ``python -m bench.exports``."""
