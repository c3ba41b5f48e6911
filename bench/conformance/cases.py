"""ONNX's own tests, and the verdict on each: it matches within ONNX's tolerance, or is refused; it must never be wrong."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from gpucomp.backend import Backend
from gpucomp.errors import GpucompError, UnsupportedError

PASSING = Path(__file__).with_name("onnx_passing.txt")
BF16_ROUNDING = 2.0**-6  # the tolerance of ONNX's own runner for bfloat16: two units in the last place
F16_UNIT, F32_UNIT = 2.0**-10, 2.0**-23
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

# cases whose expected values are themselves coarsely rounded: (rtol, atol) for that rounding, and its cause
INEXACT = {
    "test_attention_4d_causal_fp16": (2 * F16_UNIT, 0.0, "summed in f16, one rounding per term"),
    "test_attention_4d_causal_fp16_expanded": (2 * F16_UNIT, 0.0, "summed in f16, one rounding per term"),
    "test_dft_inverse": (1e-3, 4 * F32_UNIT, "zeros that an f32 transform leaves as 1.9e-7, compared with atol 1e-7"),
    "test_dft_inverse_opset19": (1e-3, 4 * F32_UNIT, "zeros that an f32 transform leaves as 1.9e-7, with atol 1e-7"),
}
# cases whose expected values are random, "for informational purpose" as their source says: only type, shape and range can
# be checked
RANDOM = {
    f"test_bernoulli{which}{expanded}": "drawn from numpy's global generator, unseeded"
    for which in ("", "_double", "_seed")
    for expanded in ("", "_expanded")
}


@dataclass(frozen=True)
class Case:
    """A model with the inputs and expected outputs of its data sets; ``kind`` is its part of the suite."""

    name: str
    kind: str
    model: onnx.ModelProto
    data_sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float


@functools.cache
def cases() -> dict[str, Case]:
    """All cases of the suite that come with data, by name."""
    found: dict[str, Case] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some expected values overflow on purpose
        from onnx.backend.test.loader import load_model_tests

        for kind in KINDS:
            for case in load_model_tests(kind=kind):
                assert case.name not in found
                found[case.name] = _read(case, kind)
    return found


def _read(case: Any, kind: str) -> Case:
    if case.model:
        return Case(case.name, kind, case.model, case.data_sets, case.rtol, case.atol)
    folder = Path(case.model_dir)  # for cases in files
    model = onnx.load(folder / "model.onnx")
    sets = sorted(folder.glob("test_data_set_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    data = [(_values(s, "input", model.graph.input), _values(s, "output", model.graph.output)) for s in sets]
    return Case(case.name, kind, model, data, case.rtol, case.atol)


def _values(folder: Path, what: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    values: list[Any] = []
    for k in range(len(list(folder.glob(f"{what}_*.pb")))):
        data = (folder / f"{what}_{k}.pb").read_bytes()
        if infos[k].type.HasField("sequence_type"):
            values.append(numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
        elif infos[k].type.HasField("optional_type"):
            values.append(numpy_helper.to_optional(onnx.OptionalProto.FromString(data)))
        else:
            values.append(numpy_helper.to_array(onnx.TensorProto.FromString(data)))
    return values


@functools.cache
def light_cases() -> dict[str, Case]:
    """The nine real networks with invented weights, on the input of ONNX's runner: they take minutes, not seconds."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    found = {}
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(path)
        weights = {w.name for w in model.graph.initializer}
        feeds = []
        for info in model.graph.input:
            if info.name not in weights:
                shape = [d.dim_value or 1 for d in info.type.tensor_type.shape.dim]
                count = int(np.prod(shape))
                feeds.append((np.arange(count).reshape(shape) / count).astype(np.float32))
        outputs = sorted(folder.glob(f"{path.stem}_output_*.pb"))
        expected = [numpy_helper.to_array(onnx.TensorProto.FromString(o.read_bytes())) for o in outputs]
        name = f"test_{path.stem.removeprefix('light_')}"
        found[name] = Case(name, "real", model, [(feeds, expected)], 1e-3, 1e-7)
    return found


def listed(path: Path) -> list[str]:
    """The names in a file, one per line, without comments."""
    return [name for line in path.read_text().splitlines() if (name := line.split("#")[0].strip())]


def passing() -> set[str]:
    return set(listed(PASSING))


def as_array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [as_array(v) for v in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def verdict(case: Any, backend: type[Backend]) -> str:
    """ "" if every data set matches, "unsupported: why", or "wrong: how"."""
    for inputs, outputs in case.data_sets:
        given, expected = [as_array(v) for v in inputs], [as_array(v) for v in outputs]
        try:
            actual = backend.prepare(case.model).run(given)
        except UnsupportedError as error:
            return f"unsupported: {'; '.join(error.problems) or error.message}"
        for position, (a, e) in enumerate(zip(actual, expected, strict=True)):
            differs = (
                unlike_a_draw if case.name in RANDOM else functools.partial(mismatch, rtol=case.rtol, atol=case.atol)
            )
            if difference := differs(a, e):
                return f"wrong: output {position}: {difference}"
    return ""


def unlike_a_draw(actual: np.ndarray, expected: np.ndarray) -> str:
    """Why ``actual`` cannot be random zeros and ones with the type and shape of ``expected``, or ""."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{actual.shape}, {expected.dtype}{expected.shape} expected"
    return "" if np.isin(actual, (0, 1)).all() else f"{actual}, zeros and ones expected"


def mismatch(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    """ "" if they are equal within the tolerances."""
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return f"{len(expected)} tensors expected, {actual} given"
        found = [mismatch(a, e, rtol, atol) for a, e in zip(actual, expected, strict=True)]
        return next((f"element {k}: {text}" for k, text in enumerate(found) if text), "")
    if expected is None or actual is None:
        return "" if expected is actual else f"{expected} expected, {actual} given"
    if expected.dtype.kind == "U":  # numpy's type for a list of strings
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


def backend_for(target: str) -> type[Backend]:
    """ONNX's backend interface on one target; on ``cuda:...`` the kernels are only compiled."""
    from gpucomp import compiler  # imports every target's compiler

    def compiled(
        model: onnx.ModelProto, _: str, shapes: Mapping[str, Any], constants: Mapping[str, Any]
    ) -> Callable[..., Any]:
        return compiler.compile(model, target=target, shapes=shapes, constants=constants).run

    class Chosen(Backend):
        compile = staticmethod(compiled)

    return Chosen


def compiles(case: Any, target: str) -> str:
    """ "" if the kernels of every data set compile for ``target``; they are not run. Otherwise a text as of ``verdict``."""
    for inputs, _ in case.data_sets:
        try:
            backend_for(target).prepare(case.model).executable([as_array(v) for v in inputs])
        except UnsupportedError as error:
            return f"unsupported: {'; '.join(error.problems) or error.message}"
        except GpucompError as error:
            return f"wrong: {error}"
    return ""
