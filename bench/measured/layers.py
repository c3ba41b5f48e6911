"""A model's convolutions, layer by layer: MIOpen's published times of the same sizes beside predictions for HIP.

MIOpen's images are NCHW. The predictions are for NHWC, the layout in which the compiler runs convolutions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.measured.agreement import file_of
from bench.measured.direct import INDIRECT
from bench.measured.kernels import TYPES
from bench.measured.predict import Wanted, answers, predicted_on_hip
from gpucomp.kernel_bench.formats import Table, conv_of, device_of, fastest
from gpucomp.kernel_bench.operations import Conv
from gpucomp.targets.by_name import target_of

MODEL, BATCH = "resnet50", 64


@dataclass(frozen=True)
class Published:
    """A layer as the database has it: its fastest solver and that one's time. ``spec`` has the batch and the type."""

    device: str
    spec: Conv
    solver: str
    us: float

    @property
    def indirect(self) -> bool:
        """Whether the solver multiplies less than a sum of products does."""
        return any(part in self.solver.lower() for part in INDIRECT)


def layers_of(model: Any) -> Counter[Conv]:
    """The distinct convolutions of an ONNX model that the database can have, without batch and type, each with its count."""
    from gpucomp.frontend import onnx as frontend

    found: Counter[Conv] = Counter()
    for node in frontend.load(model).nodes():
        if node.op.name != "Conv" or node.attrs["group"] != 1 or len(node.inputs[1].type.shape) != 4:
            continue
        top, left, bottom, right = node.attrs["pads"]
        if (top, left) == (bottom, right):
            (_, c, h, w), (k, _, r, s) = (value.type.shape for value in node.inputs[:2])
            how = (tuple(node.attrs[name]) for name in ("strides", "dilations"))
            found[Conv(0, c, h, w, k, r, s, (top, left), *how, dtype="")] += 1
    return found


def published(table: Table, layers: Mapping[Conv, int], batch: int) -> list[Published]:
    """The rows of ``layers`` for this batch, on devices of which something is known."""
    found = []
    for row in table.rows:
        spec = conv_of(table, row) if row.get("solvers_ms") else None
        if spec is None or spec.n != batch or spec.dtype not in TYPES or replace(spec, n=0, dtype="") not in layers:
            continue
        if target_of(device := device_of(table, row), "hip") is not None:
            found.append(Published(device, spec, *fastest(row)))
    return found


def predictions(rows: Sequence[Published], jobs: int) -> Mapping[Wanted, float]:
    """The predicted times of the rows' convolutions in NHWC; 0 where no engine takes a layer."""
    compiled = {(row.device, row.spec): (row.device, replace(row.spec, nchw=False)) for row in rows}
    found = answers(predicted_on_hip, compiled.values(), jobs)
    return {row: found[as_compiled] for row, as_compiled in compiled.items()}


def lines(
    layers: Mapping[Conv, int], rows: Sequence[Published], times: Mapping[Wanted, float], batch: int
) -> list[str]:
    """A row for each layer, a column for each device and type: the published time and predicted over published."""
    columns = sorted({(row.device, row.spec.dtype) for row in rows})
    found = {(row.device, row.spec.dtype, replace(row.spec, n=0, dtype="")): row for row in rows}
    said = [
        f"Convolutions of {batch} images in MIOpen's find-db: published us, predicted over published. w: its solver multiplies",
        "less, by Winograd's or Fourier's transforms.",
        "",
        "| layer | in the model | " + " | ".join(f"{device} {dtype}" for device, dtype in columns) + " |",
        "|" + "---|" * (2 + len(columns)),
    ]
    for layer, count in layers.items():
        cells = [_cell(found.get((*column, layer)), times) for column in columns]
        if any(cells):
            said.append(f"| {title(layer)} | {count} | {' | '.join(cell or '-' for cell in cells)} |")
    totals = [
        _totals([row for row in rows if (row.device, row.spec.dtype) == column], layers, times) for column in columns
    ]
    for name, values in zip(("all layers", "median", "Spearman"), zip(*totals, strict=True), strict=True):
        said.append(f"| {name} | | {' | '.join(values)} |")
    missing = sum(1 for layer in layers if not any((*column, layer) in found for column in columns))
    return [*said, *(["", f"{missing} of {len(layers)} layers are not in the database"] if missing else [])]


def title(layer: Conv) -> str:
    stride = f" / {layer.stride[0]}" if layer.stride != (1, 1) else ""
    return f"{layer.c} x {layer.h} x {layer.w}, {layer.r} x {layer.s}{stride}, {layer.k}"


def _cell(row: Published | None, times: Mapping[Wanted, float]) -> str:
    if row is None or not times[row.device, row.spec]:
        return ""
    return f"{row.us:.0f}, {times[row.device, row.spec] / row.us:.2f}{' w' if row.indirect else ''}"


def _totals(
    rows: Sequence[Published], layers: Mapping[Conv, int], times: Mapping[Wanted, float]
) -> tuple[str, str, str]:
    """Predicted over published: of all the model's layers together, the median of distinct layers; Spearman's coefficient."""
    known = [row for row in rows if times[row.device, row.spec]]
    if not known:
        return "-", "-", "-"
    predicted = [times[row.device, row.spec] for row in known]
    counts = [layers[replace(row.spec, n=0, dtype="")] for row in known]
    whole = [sum(n * us for n, us in zip(counts, of, strict=True)) for of in (predicted, [row.us for row in known])]
    one = file_of("", known[0].device, known[0].spec.dtype, predicted, [row.us for row in known])
    return f"{whole[0] / whole[1]:.2f}", f"{one.ratio['p50']:.2f}", f"{one.spearman:.3f}"
