"""Models of other formats than ONNX: converted by programs that others keep, or refused with what to do instead."""
