"""ONNX's own conformance suite on gpucomp: its cases, how one is judged, and the table of what passes where."""
