"""The module ``onnxruntime_pybind11_state`` by the name that onnxruntime's own modules import it by."""

import sys

from gpucomp.ort.capi import onnxruntime_pybind11_state

sys.modules[__name__] = onnxruntime_pybind11_state  # what ``import`` then gives: one module, with one set of types
