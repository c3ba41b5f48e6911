"""Small sound files of each kind that a fuzzer mutates, and what is tried on a mutation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gpucomp import config
from gpucomp.errors import GpucompError
from tests.onnx_builders import model, node, value

FOLD_LIMIT = 1 << 22  # bytes: a mutation is about the reader, not about arithmetic
OPERATORS = [
    ("Conv", ["x", "w"], {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    ("ConvTranspose", ["x", "w2"], {"strides": [2, 1], "output_padding": [1, 0]}),
    ("MaxPool", ["x"], {"kernel_shape": [2, 3], "ceil_mode": 1}),
    ("AveragePool", ["x"], {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    ("Resize", ["x", "", "scales"], {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"}),
    ("Reshape", ["x", "shape"], {}),
    ("Slice", ["x", "starts", "ends", "axes", "steps"], {}),
    ("Pad", ["x", "pads"], {"mode": "reflect"}),
    ("Gather", ["x", "starts"], {"axis": 1}),
    ("ScatterND", ["x", "where", "update"], {"reduction": "add"}),
    ("Einsum", ["x", "x"], {"equation": "abcd,abce->de"}),
    ("Split", ["x", "sizes"], {"axis": 1}),
    ("ReduceMean", ["x", "axes"], {"keepdims": 0}),
    ("Softmax", ["x"], {"axis": 2}),
    ("TopK", ["x", "one"], {"axis": 3, "largest": 0}),
    ("Expand", ["x", "shape2"], {}),
    ("Tile", ["x", "shape2"], {}),
    ("OneHot", ["starts", "depth", "values"], {"axis": 0}),
    ("Range", ["zero", "depth", "depth"], {}),
    ("Cast", ["x"], {"to": 10}),
    ("QuantizeLinear", ["x", "scale", "point"], {"axis": 1}),
    ("LayerNormalization", ["x", "row"], {"axis": 3, "epsilon": 1e-5}),
    ("CumSum", ["x", "zero"], {"reverse": 1}),
]


def weights() -> dict[str, np.ndarray]:
    i64 = {
        "shape": [0, -1],
        "starts": [1, 0],
        "ends": [3, 9],
        "axes": [2, 3],
        "steps": [1, 2],
        "pads": [0, 0, 1, 0] * 2,
        "where": [[0, 1], [0, 2]],
        "sizes": [1, 2],
        "one": [1],
        "shape2": [1, 1, 1, 1],
        "depth": 3,
        "zero": 0,
    }
    found: dict[str, np.ndarray] = {name: np.array(numbers, np.int64) for name, numbers in i64.items()}
    rng = np.random.default_rng(0)
    floats = {"w": (2, 3, 3, 2), "w2": (3, 2, 2, 2), "row": (5,), "update": (2, 4, 5)}
    found |= {name: rng.standard_normal(shape).astype(np.float32) for name, shape in floats.items()}
    found |= {"scales": np.array([1, 1, 2, 0.5], np.float32), "values": np.array([0, 1], np.float32)}
    return found | {"scale": np.float32(0.1).reshape(()), "point": np.array(3, np.uint8)}


def of_operator(op: str, inputs: list[str], attributes: Mapping[str, object]) -> bytes:
    known, outputs = weights(), ["y", "z"] if op in ("Split", "TopK") else ["y"]
    made = node(op, inputs, outputs, name="n", **attributes)
    return model(
        [made], [value("x", (1, 3, 4, 5))], weights={n: known[n] for n in inputs if n in known}
    ).SerializeToString()


def of_control_flow() -> bytes:
    """A loop whose body chooses, behind a call of a function, with a sparse and an external initialiser."""
    branch = helper.make_graph([node("Neg", ["s"], ["r"])], "branch", [], [onnx.ValueInfoProto(name="r")])
    inner = [
        node("Identity", ["c"], ["d"]),
        node("If", ["k"], ["q"], then_branch=branch, else_branch=branch),
        node("Twice", ["q"], ["t"], domain="own"),
    ]
    names = [[onnx.ValueInfoProto(name=n) for n in row] for row in (["i", "c", "s"], ["d", "t"])]
    body = helper.make_graph(inner, "body", *names)
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 20)]
    )
    loop = node("Loop", ["m", "", "x"], ["l"], body=body, name="loop")
    found = model(
        [loop, node("Add", ["l", "p"], ["f"]), node("Add", ["f", "e"], ["y"])],
        [value("x", (2, 3))],
        weights={"m": np.array(3), "k": np.array(True)},
        functions=[twice],
        domains=["own"],
    )
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(2, np.float32), "p"), numpy_helper.from_array(np.array([1, 4]), "i"), [2, 3]
    )
    found.graph.sparse_initializer.append(sparse)
    external = onnx.TensorProto(name="e", data_type=1, dims=[3], data_location=onnx.TensorProto.EXTERNAL)
    external.external_data.add(key="location", value="w.bin")
    external.external_data.add(key="offset", value="4")
    found.graph.initializer.append(external)
    return found.SerializeToString()


def models() -> list[bytes]:
    return [of_operator(*row) for row in OPERATORS] + [of_control_flow()]


def artifacts() -> list[bytes]:
    from tests.hostile.artifacts import whole, whole_open

    return [whole(), whole_open()]


def manifests() -> list[bytes]:
    from gpucomp.artifact import manifest, open_model
    from tests.runtime.samples import OPEN_PLAN, PLAN, open_contents

    launch = replace(
        PLAN.launches[0], kernel=-1, host="Odd", attributes={"axes": (1, -2), "raw": b"x", "limit": float("-inf")}
    )
    opened = {"open": open_model.data_of(open_contents().open), "plan": manifest.data_of(OPEN_PLAN.plan)}
    fixed = [manifest.dumps(manifest.data_of(plan)) for plan in (PLAN, replace(PLAN, launches=(launch,)))]
    return [*fixed, manifest.dumps(opened)]


def records() -> list[bytes]:
    from tests.hostile.records import GOOD, t4

    return [(GOOD + "\n" + GOOD).encode(), t4()]


class Folder:
    """A folder in which one file is written again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (self.path / "w.bin").write_bytes(bytes(16))

    def holding(self, name: str, data: bytes) -> Path:
        (self.path / name).write_bytes(data)
        return self.path / name


def try_model(folder: Folder, data: bytes) -> None:
    from gpucomp.frontend.onnx import load

    with config.using(fold_limit=FOLD_LIMIT):
        load(folder.holding("m.onnx", data))


def try_artifact(folder: Folder, data: bytes) -> None:
    from gpucomp.runtime import artifact

    artifact.load(folder.holding("m.gpuc", data))


def try_manifest(folder: Folder, data: bytes) -> None:
    """What a file says once its digests are right: they are no obstacle to whoever makes it."""
    from gpucomp.artifact import manifest, open_model

    del folder
    parsed = manifest.loads(data)
    if not isinstance(parsed, dict) or "open" not in parsed:
        manifest.plan_of(parsed)
        return
    model = open_model.model_of(parsed["open"], parsed.get("plan"))
    for shape in model.outputs:
        str(model.shape(shape))
    for n in (1, 2, 3):
        sizes = {name: dim.nearest(n * dim.high // 3) for name, dim in model.shapes.dims.items()}
        model.plan.at(sizes)
        model.plan.objection(sizes)


def try_records(folder: Folder, data: bytes) -> None:
    import warnings

    from gpucomp.schedule import records
    from gpucomp.tuning import recorded

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        records._load.cache_clear()
        records.load(folder.holding("r.jsonl", data))
        with contextlib.suppress(GpucompError):
            recorded.read(folder.holding("r.jsonl", data))
        recorded.read(folder.holding("r.json", data))


def outcome(attempt: Callable[[Folder, bytes], None], folder: Folder, data: bytes) -> str:
    """What becomes of a file: nothing to say, or the message of gpucomp's own error. Anything else is raised."""
    try:
        attempt(folder, data)
    except GpucompError as error:
        if "\n" in str(error):
            raise ValueError(f"a message of two lines: {error}") from error
        return str(error)
    return ""


TARGETS: Mapping[str, tuple[Callable[[], list[bytes]], Callable[[Folder, bytes], None]]] = {
    "loader": (models, try_model),
    "artifact": (artifacts, try_artifact),
    "manifest": (manifests, try_manifest),
    "records": (records, try_records),
}
