"""Whole networks on phones' GPUs: ncnn's published times beside what the analytic model predicts for our kernels.

    python -m bench.measured.phones [--precision fp16] [--devices A,B] [--networks A,B] [--table FILE] [--jobs 2] [--json FILE]
                                    [--markdown FILE]

ncnn's times are those of its Vulkan kernels, from its benchmark's page (``ncnn_vulkan.csv``). A network here is the same
architecture from ``bench.models`` for one image. Its prediction is the sum over its kernels, as ``gpucomp bench MODEL --static
--target opencl:...`` prints it, with the GPU's own figures where ``gpucomp.device.catalogue`` has them. For each GPU: the times,
their ratios, and Spearman's coefficient over networks, which is to be 0.95 at least. A library is another kernel than ours: a
ratio of 1 proves nothing, but the order does. How well the order of the other GPUs' published times fits is told beside it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.measured.agreement import File, file_of, spearman
from bench.measured.predict import answers
from bench.options import parser_of
from gpucomp.device.catalogue import find
from gpucomp.kernel_bench.formats import Table, load, time_of
from gpucomp.targets.by_name import target_of

TABLE = Path(__file__).with_name("ncnn_vulkan.csv")
WANTED = 0.95  # of Spearman's coefficient
# by ncnn's names: the architectures of ``bench.models``, and sizes that differ from the published ones there
NETWORKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "squeezenet": ("squeezenet1_1", {"size": 227}),
    "mobilenet": ("mobilenet_v1", {}),
    "mobilenet_v2": ("mobilenet_v2", {}),
    "shufflenet_v2": ("shufflenet_v2", {}),
    "efficientnet_b0": ("efficientnet_b0", {}),
    "resnet18": ("resnet18", {}),
    "resnet50": ("resnet50", {}),
    "vgg16": ("vgg16", {}),
}
Wanted = tuple[str, str]  # a GPU and a network


@dataclass(frozen=True)
class Predicted:
    """A network on a GPU: microseconds of a run, of these for launches, and the number of launches."""

    us: float
    launch_us: float
    launches: int


@dataclass(frozen=True)
class Published:
    """``figures`` names the GPU of the catalogue whose figures the prediction has."""

    device: str
    chip: str
    figures: str
    network: str
    ms: float


def published(table: Table, devices: Sequence[str], networks: Sequence[str], notes: list[str]) -> list[Published]:
    """The rows of these devices and networks, or of all; what is left out is told in ``notes``."""
    found, unknown = [], set()
    for row in table.rows:
        device, known = row["device"], find(row["device"])
        if (devices and device not in devices) or row["network"] not in (networks or NETWORKS):
            continue
        if known is None:
            unknown.add(device)
        else:
            found.append(Published(device, row["chip"], known.device.name, row["network"], time_of(row) / 1e3))
    notes += [f"{device}: nothing is known of it" for device in sorted(unknown)]
    return found


def predicted(device: str, network: str, *, precision: str) -> Predicted:
    """What all kernels of a network are predicted to take on a device."""
    from bench.models import build
    from gpucomp.compiler import lower
    from gpucomp.report import static_opencl

    name, sizes = NETWORKS[network]
    target = target_of(device)
    assert target is not None
    lowered = lower(build(name, **sizes), target, precision=precision)
    costs = static_opencl.estimated(lowered, target)
    us = float(sum(cost.terms.total_us for cost in costs))
    return Predicted(us, float(sum(cost.terms.launch_us for cost in costs)), len(costs))


def predictions(rows: Sequence[Published], precision: str, jobs: int) -> Mapping[Published, Predicted]:
    """The prediction of each row. GPUs with the same figures share one."""
    first: dict[tuple[str, str], Wanted] = {}
    wanted = [first.setdefault((row.figures, row.network), (row.device, row.network)) for row in rows]
    found = answers(partial(predicted, precision=precision), wanted, jobs, chunk=1)
    return {row: found[key] for row, key in zip(rows, wanted, strict=True)}


def groups_of(rows: Sequence[Published]) -> Iterator[list[Published]]:
    """The rows of each device in each chip."""
    for key in dict.fromkeys((row.device, row.chip) for row in rows):
        yield [row for row in rows if (row.device, row.chip) == key]


def agreement(rows: Sequence[Published], found: Mapping[Published, Predicted]) -> File:
    return file_of("ncnn", rows[0].device, "", [found[row].us for row in rows], [1e3 * row.ms for row in rows])


def order_elsewhere(group: Sequence[Published], rows: Sequence[Published]) -> float:
    """Spearman's coefficient of published times and the geometric means of the other GPUs' published times; NaN without others.

    It is what a prediction can be hoped to reach that knows the networks, but nothing of the drivers.
    """
    own = {row.network: row.ms for row in group}
    others = [{row.network: row.ms for row in other} for other in groups_of(rows) if other[0].device != group[0].device]
    whole = [other for other in others if own.keys() <= other.keys()]
    if not whole:
        return math.nan
    means = [sum(math.log(other[network]) for other in whole) for network in own]
    return spearman(means, list(own.values()))


def lines(rows: Sequence[Published], found: Mapping[Published, Predicted]) -> Iterator[str]:
    yield "| GPU | chip | figures of | networks | predicted / published | least to most | Spearman | of other GPUs' times |"
    yield "|" + "---|" * 8
    for group in groups_of(rows):
        one, ratios = agreement(group, found), [found[row].us / (1e3 * row.ms) for row in group]
        ends = f"{min(ratios):.2f} to {max(ratios):.2f}"
        order = f"{one.spearman:.3f}{'' if one.spearman >= WANTED else ' (low)'}"
        figures = f"{group[0].chip} | {group[0].figures} | {len(group)}"
        elsewhere = f"{order_elsewhere(group, rows):.3f}"
        yield f"| {group[0].device} | {figures} | {one.ratio['p50']:.2f} | {ends} | {order} | {elsewhere} |"
    for group in groups_of(rows):
        yield from ("", f"{group[0].device}, {group[0].chip}", "")
        yield "| network | published ms | predicted ms | of these launches | kernels | predicted / published |"
        yield "|" + "---|" * 6
        for row in group:
            it = found[row]
            times = f"{row.ms:.2f} | {it.us / 1e3:.2f} | {it.launch_us / 1e3:.2f} | {it.launches}"
            yield f"| {row.network} | {times} | {it.us / 1e3 / row.ms:.2f} |"


def as_json(rows: Sequence[Published], found: Mapping[Published, Predicted], precision: str) -> dict[str, Any]:
    devices = [{"chip": group[0].chip, **asdict(agreement(group, found))} for group in groups_of(rows)]
    return {
        "precision": precision,
        "devices": [{key: one[key] for key in ("device", "chip", "problems", "ratio", "spearman")} for one in devices],
        "networks": [asdict(row) | {"predicted_ms": found[row].us / 1e3} for row in rows],
    }


def _names(given: str) -> list[str]:
    return [name for name in given.split(",") if name]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.measured.phones", __doc__)
    add: Callable[..., Any] = parser.add_argument
    add("--table", type=Path, default=TABLE, metavar="FILE", help="the published times")
    add("--precision", default="fp16", metavar="P", help="of the predictions; ncnn stores values in 16 bits by default")
    add("--devices", default="", metavar="A,B", help="only these GPUs, as the table names them")
    add("--networks", default="", metavar="A,B", help="only these networks")
    add("--jobs", type=int, default=2, metavar="N", help="number of processes")
    add("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    add("--markdown", type=Path, metavar="FILE", help="also write the tables to this file")
    options = parser.parse_args(arguments)
    networks = _names(options.networks)
    if unknown := [name for name in networks if name not in NETWORKS]:
        parser.error(f"no network {unknown[0]!r}; there are {', '.join(NETWORKS)}")
    notes: list[str] = []
    rows = published(load(options.table), _names(options.devices), networks, notes)
    if not rows:
        parser.error(f"{options.table} has no times of such devices and networks")
    found = predictions(rows, options.precision, options.jobs)
    text = "\n".join(lines(rows, found))
    print(text)
    for note in notes:
        print(f"left out: {note}", file=sys.stderr)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(as_json(rows, found, options.precision), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
