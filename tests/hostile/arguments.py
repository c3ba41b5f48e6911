"""Wrong and hostile things given to Python's functions: models, shapes, targets, constants, inputs of a run."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.hostile.corpus import OK, Act, add
from tests.onnx_builders import model, node, value

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def relu(shape: Any = (2, 3), dtype: int = TensorProto.FLOAT) -> bytes:
    return model([node("Neg", ["x"], ["y"], name="n")], [value("x", shape, dtype)]).SerializeToString()


def compiling(name: str, code: str, give: Callable[[], Any] | None = None, mention: str = "", **options: Any) -> None:
    """``compile`` of a good model, or of what ``give`` gives, with these options."""

    def prepare(folder: Path) -> Act:
        import gpucomp

        given = relu() if give is None else give()
        return partial(gpucomp.compile, given, **({"target": "cpu"} | options))

    add(f"arguments/{name}", code, prepare, mention)


def opened(name: str, code: str, shape: Any, given: Any, mention: str = "'x'") -> None:
    compiling(name, code, lambda: relu(shape), mention, shapes=given)


compiling("model_of_nothing", "GPC2009", lambda: None)
compiling("model_of_a_number", "GPC2009", lambda: 7)
compiling("model_of_a_list", "GPC2009", lambda: [relu()])
compiling("model_of_an_array", "GPC2009", lambda: np.frombuffer(relu(), np.uint8))
compiling("model_of_an_open_file", "GPC2009", lambda: open(__file__, "rb"))  # noqa: SIM115
compiling("model_path_with_nul", "GPC3001", lambda: "a\0b.onnx")
compiling("model_path_of_a_megabyte", "GPC3001", lambda: "x" * 10**6)
compiling("model_path_empty", "GPC3001", lambda: "")
compiling("model_path_with_surrogates", "GPC3001", lambda: "\udcff.onnx")


def loading(name: str, path: str) -> None:
    def prepare(folder: Path) -> Act:
        import gpucomp

        return partial(gpucomp.load, path)

    add(f"arguments/{name}", "GPC7005", prepare)


for name, path in {"nul": "a\0b", "a_megabyte": "x" * 10**6, "surrogates": "\udcff"}.items():
    compiling(f"exported_path_with_{name}", "GPC3001", lambda path=path: f"{path}.pt2")
    loading(f"artifact_path_with_{name}", f"{path}.gpucomp")
compiling("model_of_memory", OK, lambda: memoryview(relu()))

opened("shapes_nan", "GPC2110", ["N", 3], {"x": (float("nan"), 3)})
opened("shapes_infinity", "GPC2110", ["N", 3], {"x": (float("inf"), 3)})
opened("shapes_fraction", "GPC2110", ["N", 3], {"x": (2.5, 3)})
opened("shapes_text", "GPC2110", ["N", 3], {"x": "23"})
opened("shapes_of_texts", "GPC2110", ["N", 3], {"x": ("2", "3")})
opened("shapes_number", "GPC2110", ["N", 3], {"x": 2})
opened("shapes_nothing", "GPC2110", ["N", 3], {"x": None})
opened("shapes_negative", "GPC2110", ["N", 3], {"x": (-1, 3)})
opened("shapes_least", "GPC2110", ["N", 3], {"x": (-(1 << 63), 3)})
opened("shapes_2_62", "GPC3033", ["N", 3], {"x": (1 << 62, 3)})
opened("shapes_2_200", "GPC3033", ["N", 3], {"x": (1 << 200, 3)})
opened("shapes_that_wrap", "GPC3033", ["N", "M"], {"x": (1 << 32, 1 << 32)})
opened("shapes_of_another_rank", "GPC2110", ["N", 3], {"x": (2, 3, 1)})
opened("shapes_of_rank_a_hundred_thousand", "GPC2110", ["N", 3], {"x": (1,) * 100_000})
opened("shapes_that_contradict", "GPC2110", ["N", "N"], {"x": (2, 3)})
opened("shapes_that_the_model_has_otherwise", "GPC2110", [2, 3], {"x": (2, 4)})
opened("shapes_of_no_input", "GPC2101", ["N", 3], {"q": (2, 3)}, "'q'")
opened("shapes_of_numbers_for_names", "GPC2101", ["N", 3], {7: (2, 3)}, "'7'")
opened("shapes_of_numpy_integers", OK, ["N", 3], {"x": np.array([2, 3], np.int64)}, "")
opened("shapes_of_numpy_floats", "GPC2110", ["N", 3], {"x": np.array([2.0, 3.0])})
opened("shapes_of_true", OK, ["N", 3], {"x": (True, 3)}, "")
compiling("shapes_of_a_list", "GPC2009", shapes=[("x", (2, 3))])
compiling("shapes_of_a_text", "GPC2009", shapes="x:2x3")
compiling("constants_of_a_list", "GPC2009", constants=[X])
compiling("constants_of_objects", "GPC2108", constants={"x": np.array([[None] * 3] * 2)})
compiling("constants_of_texts", "GPC2108", constants={"x": np.array([["a"] * 3] * 2)})
compiling("constants_of_another_type", "GPC2108", constants={"x": X.astype(np.float64)})
compiling("constants_of_another_shape", "GPC2110", constants={"x": X.T})
compiling("constants_of_ragged_lists", "GPC2108", constants={"x": [[1, 2], [3]]})
compiling("constants_of_no_input", "GPC2101", constants={"q": X})
compiling("constants_of_another_byte_order", "GPC2108", constants={"x": X.astype(">f4")})
compiling("target_of_a_number", "GPC2009", target=3)
compiling("target_empty", "GPC2002", target="")
compiling("target_colon", "GPC2002", target="cpu:")
compiling("target_unknown", "GPC2002", target="tpu")
compiling("target_with_newlines", "GPC2010", target="cpu:\n\x1b[31m")
compiling("target_path", "GPC2010", target="cpu:../../secret.bin")
compiling("target_of_a_megabyte", "GPC2002", target="cuda:" + "x" * 10**6)
compiling("precision_unknown", "GPC2011", precision="fp1")
compiling("precision_of_a_number", "GPC2011", precision=16)
compiling("records_missing", "GPC7102", records="none.jsonl")
compiling("records_of_a_number", "GPC2009", records=5)
compiling("records_with_nul", "GPC7102", records="a\0b")
compiling("patterns_that_back_track", "GPC2015", keep_fp32=["*a" * 40 + "b"], precision="bf16")


# --- inputs of a run


class Lying:
    """Says that it can be exported, and cannot."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: object) -> object:
        if self.error is not None:
            raise self.error
        return object()


class OnGpu:
    __cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (0xDEAD0000, False), "version": 3}  # noqa: RUF012


class Sub(np.ndarray):
    """An array whose shape is said to be right."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, 3)


class BadMapping(dict):
    def __getitem__(self, key: object) -> object:
        return X if key == "x" else super().__getitem__(key)


class Raising:
    """What looks at it raises."""

    def __init__(self, protocol: str, error: BaseException) -> None:
        self.protocol, self.error = protocol, error

    def __getattr__(self, name: str) -> object:
        raise self.error if name == vars(self)["protocol"] else AttributeError(name)


def running(
    name: str,
    code: str,
    give: Callable[[], Any],
    mention: str = "",
    expected: np.ndarray | None = None,
    dtype: int = TensorProto.FLOAT,
) -> None:
    """``run`` of y = -x on what ``give`` gives."""

    def prepare(folder: Path) -> Act:
        import gpucomp

        exe, given = gpucomp.compile(relu(dtype=dtype), target="cpu"), give()

        def act() -> None:
            y = exe.run(given)["y"]
            if expected is not None:
                np.testing.assert_array_equal(y, expected)

        return act

    add(f"arguments/run_{name}", code, prepare, mention)


def one(
    name: str, code: str, give: Callable[[], Any], mention: str = "'x'", expected: np.ndarray | None = None
) -> None:
    running(name, code, lambda: {"x": give()}, mention, expected)


def unaligned() -> np.ndarray:
    raw = np.zeros(X.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(X.tobytes(), np.uint8)
    return raw[1:].view(np.float32).reshape(X.shape)


def frozen() -> np.ndarray:
    found = X.copy()
    found.flags.writeable = False
    return found


one("right", OK, lambda: X, "", -X)
one("not_contiguous", OK, lambda: np.asfortranarray(X), "", -X)
one("backwards", OK, lambda: X[::-1, ::-1], "", -X[::-1, ::-1])
one("every_other", OK, lambda: np.repeat(X, 2, axis=1)[:, ::2], "", -X)
one("of_another_byte_order", OK, lambda: X.astype(">f4"), "", -X)
one("read_only", OK, frozen, "", -X)
one("unaligned", OK, unaligned, "", -X)
one("repeated_by_stride_0", OK, lambda: np.broadcast_to(np.float32(5), (2, 3)), "", np.full((2, 3), -5, np.float32))
one("masked", OK, lambda: np.ma.masked_array(X), "", -X)
one("matrix_of_nan", OK, lambda: np.full((2, 3), np.nan, np.float32), "", np.full((2, 3), np.nan, np.float32))
one("of_a_terabyte_by_stride_0", "GPC2103", lambda: np.broadcast_to(np.float32(5), (1 << 40,)))
one("of_objects", "GPC2105", lambda: np.array([[None] * 3] * 2))
one("of_numbers_as_objects", "GPC2105", lambda: X.astype(object))
one("of_texts", "GPC2105", lambda: np.array([["a"] * 3] * 2))
one("of_dates", "GPC2105", lambda: np.zeros((2, 3), "M8[s]"))
one("of_records", "GPC2105", lambda: np.zeros((2, 3), [("a", "f4")]))
one("of_f64", "GPC2104", lambda: X.astype(np.float64))
one("of_complex", "GPC2104", lambda: X.astype(np.complex64))
one("of_i32", "GPC2104", lambda: X.view(np.int32))
one("transposed", "GPC2103", lambda: X.T.copy())
one("of_another_rank", "GPC2103", lambda: X[None])
one("empty", "GPC2103", lambda: X[:0])
one("scalar", "GPC2103", lambda: np.float32(1))
one("list", "GPC2105", lambda: X.tolist())
one("nothing", "GPC2105", lambda: None)
one("bytes", "GPC2105", lambda: X.tobytes())
one("text", "GPC2105", lambda: "x")
one("type", "GPC2106", lambda: np.ndarray)
one("structure", "GPC2105", lambda: struct.Struct("f"))
one("export_that_is_none", "GPC2106", Lying)
one("export_that_fails", "GPC2106", lambda: Lying(BufferError("no")))
one("export_that_fails_otherwise", "GPC2106", lambda: Lying(ZeroDivisionError("no")))
one("address_on_a_gpu_that_is_not_there", "GPC2106", OnGpu)
one("export_that_has_no_memory", "GPC2106", lambda: Lying(MemoryError("no")))
one("attribute_that_raises", "GPC2106", lambda: Raising("__dlpack__", KeyError("no")))
one("gpu_attribute_that_raises", "GPC2106", lambda: Raising("__cuda_array_interface__", RuntimeError("no")))
one("array_that_lies_about_its_shape", "GPC2103", lambda: np.zeros(1, np.float32).view(Sub))
running("nothing_at_all", "GPC2105", lambda: None)
running("a_list_of_arrays", "GPC2105", lambda: [X])
running("an_array", "GPC2105", lambda: X)
running("no_inputs", "GPC2109", dict, "'x'")
running("another_name", "GPC2101", lambda: {"x": X, "q\n\x1b[31m": X}, "'q")
running("a_number_for_a_name", "GPC2101", lambda: {"x": X, 7: X}, "'7'")
running("a_thousand_names", "GPC2101", lambda: {f"n{k}": X for k in range(1000)}, "'n0'")
running("a_name_of_a_megabyte", "GPC2101", lambda: {"q" * 10**6: X}, "'qqq")


def words(name: str, code: str, give: Callable[[], Any]) -> None:
    """``run`` of a model of strings."""

    def prepare(folder: Path) -> Act:
        import gpucomp

        made = node("StringConcat", ["x", "x"], ["y"], name="n")
        exe = gpucomp.compile(model([made], [value("x", (2,), TensorProto.STRING)]), target="cpu")
        return lambda: exe.run({"x": give()}) and None

    add(f"arguments/run_words_{name}", code, prepare, "'x'" if code != OK else "")


words("right", OK, lambda: ["a\0", "\udcff"])
words("ragged", "GPC2105", lambda: [["a"], ["b", "c"]])
words("of_bytes", "GPC2104", lambda: np.array([b"a", b"b"]))
words("of_numbers", "GPC2104", lambda: np.zeros(2))
words("nothing", "GPC2104", lambda: None)
words("one", "GPC2103", lambda: "ab")
