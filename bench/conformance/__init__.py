"""ONNX's own conformance suite on gpucomp: its cases, the verdict on each, and the table of results on each target."""
