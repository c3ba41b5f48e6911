"""Models as frameworks export them, checked beside onnxruntime: ``python -m bench.exports``."""
