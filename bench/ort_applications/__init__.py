"""Real applications that were written for onnxruntime, unmodified, on onnxruntime and on ``gpucomp.ort``."""
