"""What cupy does not offer of the CUDA driver, through cuda-bindings: tensor maps, and launches that overlap."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpucomp.errors import DeviceError
from gpucomp.runtime.tensor_map import TensorMap

ELEMENTS = {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "tf32": "TFLOAT32", "i8": "UINT8"}
SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
MAP_BYTES = 128


def import_driver() -> Any:
    """``cuda.bindings.driver``, or ``DeviceError`` naming the package that brings it."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DeviceError(
            "the model has kernels for the tensor memory accelerator, which need cuda-bindings: "
            "pip install gpucomp[cuda13]",
            code="GPC5002",
        ) from error


def encoded(driver: Any, spec: TensorMap, address: int) -> np.ndarray:
    """The descriptor of ``spec`` for a parameter at ``address``, as cupy passes it by value: one element of 128 bytes.

    Raises ``DeviceError`` when the driver refuses it.
    """
    u32, u64 = driver.cuuint32_t, driver.cuuint64_t
    element = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{ELEMENTS[spec.dtype]}")
    array = (element, len(spec.extents), address + spec.offset, [u64(n) for n in spec.extents])
    strides, steps = [u64(n) for n in spec.strides], [u32(n) for n in spec.steps]
    layout = (
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{SWIZZLES[spec.swizzle]}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if spec.is_im2col:
        status, found = driver.cuTensorMapEncodeIm2col(
            *array, strides, list(spec.lower), list(spec.upper), spec.channels, spec.pixels, steps, *layout
        )
    else:
        status, found = driver.cuTensorMapEncodeTiled(*array, strides, [u32(n) for n in spec.box], steps, *layout)
    if int(status):
        raise DeviceError(f"CUDA: no tensor map of {spec} (error {int(status)})", code="GPC5005")
    return np.array([int(word) for word in found.opaque], np.uint64).view(f"V{MAP_BYTES}")


class OverlappingLaunch:
    """A launch of a kernel that waits itself for the launches before it, so that it may start before they end.

    Made once, with all that it hands to the driver; a call is one launch. ``arguments`` hold the bytes of each parameter
    and are kept, as what they point to must be.
    """

    def __init__(
        self,
        driver: Any,
        function: int,
        groups: Sequence[int],
        items: Sequence[int],
        shared: int,
        stream: int,
        arguments: Sequence[np.ndarray],
    ) -> None:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config = self._config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = groups
        config.blockDimX, config.blockDimY, config.blockDimZ = items
        config.sharedMemBytes, config.hStream = shared, stream
        config.attrs, config.numAttrs = [attribute], 1
        self._driver, self._function, self._arguments = driver, function, tuple(arguments)
        self._pointers = (ctypes.c_void_p * len(arguments))(*(a.ctypes.data for a in self._arguments))

    def __call__(self, overlap: bool = True) -> None:
        """Launch it; without ``overlap`` to start when the launch before it has ended. Raises ``DeviceError``."""
        self._config.numAttrs = int(overlap)
        (status,) = self._driver.cuLaunchKernelEx(self._config, self._function, ctypes.addressof(self._pointers), 0)
        if int(status):
            raise DeviceError(f"CUDA: the launch failed (error {int(status)})", code="GPC5006")
