"""ONNX's own tests, and how one is judged: it matches within ONNX's tolerance, or is refused; never wrong."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from gpucomp.backend import Backend
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx import load
from gpucomp.interpreter import interpret
from gpucomp.ir import verify
from gpucomp.runtime.inputs import flattened, gathered

PASSING = Path(__file__).parent / "frontend" / "onnx_passing.txt"
BF16_ROUNDING = 2.0**-6  # what ONNX's own runner allows for bfloat16: two units in the last place


@functools.cache
def cases() -> dict[str, object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the expected values overflows on purpose here and there
        from onnx.backend.test.loader import load_model_tests

        found = {case.name: case for case in load_model_tests(kind="node")}
        for kind in ("simple", "pytorch-converted", "pytorch-operator"):
            for case in load_model_tests(kind=kind):
                assert case.name not in found
                found[case.name] = case if case.model else read(case)
    return found


def read(case: object) -> SimpleNamespace:
    """A case that lies in files, as those are that are made when they are listed."""
    folder = Path(case.model_dir)
    sets = sorted(folder.glob("test_data_set_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    return SimpleNamespace(
        name=case.name, model=onnx.load(folder / "model.onnx"), rtol=case.rtol, atol=case.atol,
        data_sets=[(_tensors(data, "input"), _tensors(data, "output")) for data in sets],
    )  # fmt: skip


def _tensors(folder: Path, what: str) -> list[object]:
    """Arrays; the bytes of what is none, a sequence say."""
    values: list[object] = []
    for k in range(len(list(folder.glob(f"{what}_*.pb")))):
        tensor = onnx.TensorProto()
        data = (folder / f"{what}_{k}.pb").read_bytes()
        try:
            tensor.ParseFromString(data)
            values.append(numpy_helper.to_array(tensor))
        except (DecodeError, TypeError, ValueError):
            values.append(data)
    return values


def listed(path: Path) -> list[str]:
    """The names in a file, one a line, without its comments."""
    return [name for line in path.read_text().splitlines() if (name := line.split("#")[0].strip())]


def passing() -> set[str]:
    return set(listed(PASSING))


def interpreted(
    model: onnx.ModelProto, target: str, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, np.ndarray]
):
    """Stands in for the compiler: the graph run by its operators' references."""
    graph = load(model, shapes=shapes, constants=constants)
    verify(graph)

    def run(feed):
        results = interpret(graph, flattened(feed, graph.input_containers))
        return gathered(dict(zip(graph.output_names, results, strict=True)), graph.output_containers)

    return run


class InterpreterBackend(Backend):
    compile = staticmethod(interpreted)


def as_array(value: object) -> object:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [as_array(v) for v in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def verdict(case: object, backend: type[Backend] = InterpreterBackend) -> str:
    """ "" when every data set matches, "unsupported: why", or "wrong: how"."""
    for inputs, outputs in case.data_sets:
        given = [as_array(v) for v in inputs]
        expected = [as_array(v) for v in outputs]
        try:
            actual = backend.prepare(case.model).run(given)
        except UnsupportedError as error:
            return f"unsupported: {'; '.join(error.problems)}"
        for position, (a, e) in enumerate(zip(actual, expected, strict=True)):
            if difference := mismatch(a, e, case.rtol, case.atol):
                return f"wrong: output {position}: {difference}"
    return ""


def mismatch(actual: object, expected: object, rtol: float, atol: float) -> str:
    """ "" when equal within the tolerances."""
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return f"{len(expected)} tensors expected, {actual} given"
        found = [mismatch(a, e, rtol, atol) for a, e in zip(actual, expected, strict=True)]
        return next((f"element {k}: {text}" for k, text in enumerate(found) if text), "")
    if expected is None or actual is None:
        return "" if expected is actual else f"{expected} expected, {actual} given"
    if expected.dtype.kind == "U":  # what numpy makes of a list of texts
        expected = expected.astype(object)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{actual.shape}, {expected.dtype}{expected.shape} expected"
    if actual.dtype.kind in "iubO":
        return "" if np.array_equal(actual, expected) else f"{actual} expected {expected}"
    if actual.dtype.name == "bfloat16":
        rtol = max(rtol, BF16_ROUNDING)
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    close = np.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
    return "" if close.all() else f"{a[~close][:4]}, {e[~close][:4]} expected"
