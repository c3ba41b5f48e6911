"""Differences between CUDA C++ and OpenCL C as data: types, literals, conversions. Macros are in the templates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpucomp.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

INT32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True)
class Dialect:
    """One C dialect.

    template    the file of the dialect's macros
    values      the C type of an element in registers; f16 and smaller floats are computed in float
    storage     the C type of an element in memory, if it differs
    widen       the function that converts a stored element to a value, if they differ
    narrow      the function that converts a value to a stored element
    long_suffix the suffix of 64-bit literals
    qualifier   text before a helper function
    infinity, nan           literals of float
    float_bits, bits_float  functions that reinterpret a float as an unsigned integer, and back
    converted   types that are stored but not computed with; each access converts, as OpenCL's ``vload_half`` does
    space       text before a pointer to global memory
    single      suffix of the C library's functions for float
    aligned     text before an array that is moved 16 bytes at a time
    vloads      memory is moved by ``vloadN`` and ``vstoreN``; otherwise through pointers to words
    shuffles    lanes can exchange values without memory
    volatiles   data of other work-groups of the launch can be loaded as vectors; otherwise only element by element
    extensions  f64 and device-scope fences depend on the device; a kernel that needs them defines them itself
    prelude     conversions of f16 and bf16 are in a prelude; otherwise in the kernels that need them
    own_vectors its vectors are those of the prelude, ``gc_float4`` and the like; otherwise of the language, as in OpenCL
    """

    name: str
    template: str
    values: Mapping[DType, str]
    storage: Mapping[DType, str]
    widen: Mapping[DType, str]
    narrow: Mapping[DType, str]
    long_suffix: str
    qualifier: str
    infinity: str
    nan: str
    float_bits: str
    bits_float: str
    zeros: str
    converted: frozenset[DType]
    space: str
    single: str
    aligned: str
    vloads: bool
    shuffles: bool
    volatiles: bool
    extensions: bool
    prelude: bool
    own_vectors: bool = False

    def value_type(self, dtype: DType) -> str:
        """The C type of a value of ``dtype`` in a register."""
        return self.values[computed_in(dtype)]

    def storage_type(self, dtype: DType) -> str:
        """The C type of an element of ``dtype`` in memory."""
        return self.storage.get(dtype) or self.values[dtype]

    def moved_type(self, dtype: DType) -> str:
        """The C type of an element that ``fetch`` and ``put`` move: the value's type if the access converts."""
        return self.value_type(dtype) if dtype in self.converted else self.storage_type(dtype)

    def read_pointer(self, dtype: DType) -> str:
        """The C type of a pointer to elements of ``dtype`` in memory that is only read."""
        return f"{self.space}const {self.storage_type(dtype)}*"

    def function(self, name: str, dtype: DType) -> str:
        """The C library's function for ``dtype``: CUDA has ``exp`` and ``expf``, OpenCL overloads ``exp``."""
        return name if dtype is F64 else name + self.single

    def index_type(self, extent: int) -> str:
        """The type of an index below ``extent``."""
        return "int" if extent <= INT32[1] else self.values[I64]

    def copy(self, target: str, source: str, dtype: DType, width: int, guard: str = "") -> list[str]:
        """Statements that move ``width`` stored elements at once between memory and a private array.

        If ``guard`` is given and false at run time, zeros are stored and the source is not read.
        """
        if self.vloads:
            vector = str(width) if width > 1 else ""
            loaded = f"vload{vector}(0, {source})" if vector else f"*({source})"
            if guard:
                loaded = f"{guard} ? {loaded} : ({self.storage_type(dtype)}{vector})(0)"
            return [f"vstore{vector}({loaded}, 0, {target});" if vector else f"*({target}) = {loaded};"]
        words = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"}
        size = min(16, width * dtype.nbytes)
        zeros = {8: "make_uint2(0u, 0u)", 16: "make_uint4(0u, 0u, 0u, 0u)"}.get(size, "0")
        lines = []
        for start in range(0, width, size // dtype.nbytes):
            at = f" + {start}" if start else ""
            if self.own_vectors:  # clang keeps an array in registers through a copy, but not through every cast
                moved = f"gc_move<{size}>({target}{at}, {source}{at}"
                lines.append(f"{moved}, {guard});" if guard else f"{moved});")
                continue
            to, of = (
                f"*reinterpret_cast<{words[size]}*>({target}{at})",
                f"*reinterpret_cast<const {words[size]}*>({source}{at})",
            )
            lines.append(f"{to} = {guard} ? {of} : {zeros};" if guard else f"{to} = {of};")
        return lines

    def fetch(self, array: str, source: str, dtype: DType, width: int, guard: str = "") -> list[str]:
        """Statements that fill an array of ``width`` elements of ``moved_type`` from memory at ``source``.

        If ``guard`` is given and false at run time, the elements are zeros.
        """
        if dtype not in self.converted:
            return self.copy(array, source, dtype, width, guard)
        loaded = f"vload_half{width}(0, {source})"
        if guard:
            loaded = f"{guard} ? {loaded} : ({self.moved_type(dtype)}{width})(0)"
        return [f"vstore{width}({loaded}, 0, {array});"]

    def put(self, target: str, array: str, dtype: DType, width: int) -> list[str]:
        """The reverse of ``fetch``: statements that write an array of ``width`` elements of ``moved_type`` to memory."""
        if dtype not in self.converted:
            return self.copy(target, array, dtype, width)
        return [f"vstore_half{width}_rte(vload{width}(0, {array}), 0, {target});"]

    def leave(self, target: str, source: str) -> str:
        """The statement that stores four sums of 4 bytes for other work-groups of the launch to read."""
        if self.vloads:
            return f"vstore4(vload4(0, {source}), 0, {target});"
        if self.own_vectors:
            return f"gc_move<16>({target}, {source});"
        return f"gc_store16_volatile({target}, *reinterpret_cast<const uint4*>({source}));"

    def found(self, array: str, source: str) -> str:
        """The statement that fills ``array`` with what ``leave`` stored."""
        if self.vloads:
            return f"vstore4(vload4(0, {source}), 0, {array});"
        if self.own_vectors:
            return f"gc_move<16>({array}, {source});"
        return f"*reinterpret_cast<uint4*>({array}) = gc_load16_volatile({source});"

    def vector_type(self, scalar: str, width: int) -> str:
        """The type of a vector of such scalars as ``half`` and ``ushort``; CUDA has none of more than four lanes."""
        return f"gc_{scalar}{width}" if self.own_vectors else f"{scalar}{width}"

    def lane_type(self, scalar: str) -> str:
        """The type of a lane of such a vector."""
        names = {"half": "_Float16", "char": "signed char", "ushort": "unsigned short"}
        return names.get(scalar, scalar) if self.own_vectors else scalar

    def lane(self, vector: str, number: int, dtype: DType) -> str:
        """A lane of a vector of elements as they are stored, as such an element."""
        text = f"{vector}.s{number:x}"
        return f"{self.storage_type(dtype)}{{{text}}}" if self.own_vectors and dtype in self.widen else text

    def vector(self, scalar: str, values: Sequence[str]) -> str:
        """The vector of ``values``."""
        made, lanes = self.vector_type(scalar, len(values)), ", ".join(values)
        return f"{made}{{{lanes}}}" if self.own_vectors else f"({made})({lanes})"

    def splat(self, scalar: str, width: int, value: str) -> str:
        """The vector whose lanes are all ``value``."""
        return f"({self.vector_type(scalar, width)})({value})"

    def concatenated(self, scalar: str, width: int, halves: Sequence[str]) -> str:
        """The vector of ``width`` lanes that starts with the first half."""
        joined = ", ".join(halves)
        return f"gc_concatenated({joined})" if self.own_vectors else f"({self.vector_type(scalar, width)})({joined})"

    def reinterpreted(self, scalar: str, width: int, value: str) -> str:
        """The bits of ``value`` as another vector."""
        made = self.vector_type(scalar, width)
        return f"__builtin_bit_cast({made}, {value})" if self.own_vectors else f"as_{made}({value})"

    def vector_load(self, scalar: str, width: int, pointer: str, guard: str = "") -> str:
        """A load of ``width`` elements as they are stored, aligned as elements; zeros if ``guard`` is given and false."""
        made = self.vector_type(scalar, width)
        if self.own_vectors:
            return f"gc_load<{made}>({pointer}{f', {guard}' if guard else ''})"
        loaded = f"vload{width}(0, {pointer})"
        return f"{guard} ? {loaded} : {self.splat(scalar, width, '0')}" if guard else loaded

    def vector_store(self, scalar: str, values: Sequence[str], pointer: str) -> str:
        """The statement that stores ``values`` of four bytes, aligned as a vector."""
        made, vector = self.vector_type(scalar, len(values)), self.vector(scalar, values)
        if self.own_vectors:
            return f"*reinterpret_cast<{made}*>({pointer}) = {vector};"
        return f"vstore{len(values)}({vector}, 0, {pointer});"

    def aligned_array(self, ctype: str, name: str, width: int, initial: str = "") -> str:
        """The declaration of a private array that ``copy`` can move."""
        return f"{self.aligned}{ctype} {name}[{width}]{initial};"

    def literal(self, value: float | int | bool, dtype: DType) -> str:
        """``value`` as ``dtype`` represents it: the shortest decimal that reads back the same."""
        if dtype is BOOL:
            return "true" if value else "false"
        if dtype.is_float:
            return self._float(float(value), dtype)
        return self._integer(int(value), dtype)

    def _float(self, value: float, dtype: DType) -> str:
        with np.errstate(over="ignore"):
            held = float(np.asarray(value).astype(dtype.numpy))
        is_double = dtype is F64
        if math.isnan(held) or math.isinf(held):
            text = self.nan if math.isnan(held) else self.infinity
            text = f"(double){text}" if is_double else text
            return f"(-{text})" if math.copysign(1.0, held) < 0 and not math.isnan(held) else text
        text = repr(held) if is_double else str(np.float32(held))
        text = text if any(c in text for c in ".e") else f"{text}.0"
        text = text if is_double else f"{text}f"
        return f"({text})" if text.startswith("-") else text

    def _integer(self, value: int, dtype: DType) -> str:
        if dtype is U64:
            return f"{value}U{self.long_suffix}"
        if dtype is U32:
            return f"{value}U"
        if dtype is I64 and not INT32[0] < value <= INT32[1]:
            lowest = -(1 << 63)
            text = f"({lowest + 1}{self.long_suffix} - 1)" if value == lowest else f"{value}{self.long_suffix}"
            return f"({text})" if value < 0 and value != lowest else text
        if value == INT32[0]:
            return "(-2147483647 - 1)"
        return f"({value})" if value < 0 else str(value)


def computed_in(dtype: DType) -> DType:
    """The type whose C type represents a value of ``dtype`` in a register exactly."""
    if dtype.is_float and dtype.bits < 32:
        return F32
    if dtype.storage_only:
        return I8 if dtype.kind == "i" else U8
    return dtype


_F8 = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu", "f4e2m1fn")
_NARROW = {"i4": "signed char", "u4": "unsigned char", "i2": "signed char", "u2": "unsigned char"}


def _eight_bit(kind: str) -> dict[DType, str]:
    from gpucomp.ir.types import DTYPES

    if kind == "storage":
        return {DTYPES[n]: "unsigned char" for n in _F8} | {DTYPES[n]: c for n, c in _NARROW.items()}
    if kind == "narrow":
        return {DTYPES[n]: f"float_to_{n}" for n in _F8}
    return {DTYPES[n]: f"{n}_to_float" for n in _F8} | {DTYPES[n]: f"{n}_to_int" for n in _NARROW}


_COMMON = {F64: "double", F32: "float", I32: "int", I16: "short", I8: "signed char", U8: "unsigned char", BOOL: "bool"}

CUDA = Dialect(
    name="cuda",
    template="dialect/cuda.j2",
    values=_COMMON | {I64: "long long", U64: "unsigned long long", U32: "unsigned int", U16: "unsigned short"},
    storage={F16: "gc_half", BF16: "gc_bf16", BOOL: "unsigned char"} | _eight_bit("storage"),
    widen={F16: "gc_half_to_float", BF16: "gc_bf16_to_float"} | _eight_bit("widen"),
    narrow={F16: "gc_float_to_half", BF16: "gc_float_to_bf16"} | _eight_bit("narrow"),
    long_suffix="LL",
    qualifier="__device__ __forceinline__ ",
    infinity="__int_as_float(0x7f800000)",
    nan="__int_as_float(0x7fc00000)",
    float_bits="__float_as_uint",
    bits_float="__uint_as_float",
    zeros=" = {}",
    converted=frozenset(),
    space="",
    single="f",
    aligned="__align__(16) ",
    vloads=False,
    shuffles=True,
    volatiles=True,
    extensions=False,
    prelude=True,
)

OPENCL = Dialect(
    name="opencl",
    template="dialect/opencl.j2",
    values=_COMMON | {I64: "long", U64: "ulong", U32: "uint", U16: "ushort", I8: "char", U8: "uchar"},
    storage={F16: "half", BF16: "ushort", BOOL: "uchar"}
    | {d: t.replace("unsigned char", "uchar").replace("signed char", "char") for d, t in _eight_bit("storage").items()},
    widen={BF16: "bf16_to_float"} | _eight_bit("widen"),
    narrow={BF16: "float_to_bf16"} | _eight_bit("narrow"),
    long_suffix="L",
    qualifier="",
    infinity="INFINITY",
    nan="NAN",
    float_bits="as_uint",
    bits_float="as_float",
    zeros=" = {0}",
    converted=frozenset({F16}),
    space="__global ",
    single="",
    aligned="",
    vloads=True,
    shuffles=False,
    volatiles=False,
    extensions=True,
    prelude=False,
)

# HIP C++ is CUDA C++: only the prelude and a few macros differ. An AMD GPU's fastest vectors are the compiler's own
HIP = replace(CUDA, name="hip", template="dialect/hip.j2", own_vectors=True)

DIALECTS = {"cuda": CUDA, "opencl": OPENCL, "hip": HIP}
