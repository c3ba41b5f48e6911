"""onnxruntime's sessions and values under the path where programs import them from."""

from gpucomp.ort.binding import IOBinding
from gpucomp.ort.session import InferenceSession, Session
from gpucomp.ort.values import OrtDevice, OrtValue, SparseTensor, copy_tensors

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "Session", "SparseTensor", "copy_tensors"]
