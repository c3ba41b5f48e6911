"""Rewrites a graph and turns it into kernels. ``KERNEL_PASSES`` lists the passes that rewrite kernels, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import reduce
from itertools import count
from typing import Any

from gpucomp.device.target import Target
from gpucomp.ir.graph import Graph
from gpucomp.ir.passes import PassRecord
from gpucomp.kernel.grouping import Policy
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes import (
    fuse_extremes,
    fuse_products,
    fuse_row_statistics,
    fuse_separable,
    lookup_tables,
    merge_groups,
    narrow_integers,
    precision,
    split_attention,
    split_winograd,
)
from gpucomp.kernel.passes.precision import KernelStorage
from gpucomp.kernel.pipeline import KernelPass, Setting, run_kernel_passes
from gpucomp.kernel.repeat import expanded
from gpucomp.kernel.step import KernelStep, Step
from gpucomp.rewrite.bodies import names_in_bodies, with_bodies
from gpucomp.rewrite.pipeline import Pass, run_pipeline
from gpucomp.rewrite.rounding import Rounding
from gpucomp.schedule.choose import Choice
from gpucomp.schedule.expected import Expected
from gpucomp.schedule.scheduled import Scheduled, ScheduledPass, order_depth, pack_bytes, pack_weights
from gpucomp.targets.back_end import back_end


def _on_a_cpu(target: Target, precision: str) -> bool:
    return target.language == "llvm"


def _on_a_gpu(target: Target, precision: str) -> bool:
    return target.language != "llvm"


def _has_no_local_memory(target: Target, precision: str) -> bool:
    """Without local memory, Winograd transforms store their results anyway. The pass needs a model of the device."""
    return "mali" in target.features and target.device is not None


def _is_narrow(target: Target, level: str) -> bool:
    """Merging groups is for 16-bit precisions only: an infinite pixel can spoil the neighbouring groups."""
    return level in precision.NARROW


def _loads_tiles(target: Target, level: str) -> bool:
    """The tensor memory accelerator loads two operands of 16 bits side by side as it loads one."""
    return "tma" in target.features and level in precision.NARROW


def _fuse_depth_first(steps: list[Step], at: Setting) -> list[Step]:
    """Fuses kernels depth first: a few rows of each layer are computed in turn, and no image is stored as a whole.

    Takes  f32 kernels that each read the image of the one before, which nothing else reads: contractions computed by
           rows, and sliding windows
    Gives  one kernel with a layer for each of them, and with packed weights
    Leaves kernels whose images fit in the second-level cache, and layers that are not expected to be faster together
    """
    from gpucomp.codegen.llvm.depth_first.fuse import fuse  # imports all engines of the CPU, which GPUs do not need

    return fuse(steps, at)


KERNEL_PASSES: tuple[KernelPass, ...] = (
    KernelPass("precision", precision.store_narrow),
    KernelPass("narrow-integers", narrow_integers.narrow),
    KernelPass("merge-groups", merge_groups.merge, _is_narrow),
    KernelPass("lookup-tables", lookup_tables.look_up, _on_a_cpu),
    KernelPass("split-attention", split_attention.split, _on_a_cpu),
    KernelPass("fuse-extremes", fuse_extremes.fuse, _on_a_cpu),
    KernelPass("fuse-depth-first", _fuse_depth_first, _on_a_cpu),
    KernelPass("fuse-separable", fuse_separable.fuse, _on_a_gpu),
    KernelPass("fuse-products", fuse_products.fuse, _loads_tiles),
    KernelPass("split-winograd", split_winograd.split, _has_no_local_memory),
    KernelPass("fuse-row-statistics", fuse_row_statistics.join, _on_a_gpu),
)

ADDED_PASSES: list[KernelPass] = []  # by plug-ins

# run after a schedule is chosen for a kernel, before it is rendered
SCHEDULED_PASSES: tuple[ScheduledPass, ...] = (
    ScheduledPass("pack-weights", pack_weights),
    ScheduledPass("pack-bytes", pack_bytes),
    ScheduledPass("order-depth", order_depth),
)


def scheduled(step: KernelStep, choice: Choice) -> Scheduled:
    """``step`` with ``choice``, after ``SCHEDULED_PASSES``."""
    return reduce(lambda one, each: each.run(one), SCHEDULED_PASSES, Scheduled(step, choice, step.kernel))


def wanted_passes(target: Target, precision: str = "fp32") -> tuple[KernelPass, ...]:
    """The passes of ``KERNEL_PASSES`` and of plug-ins that run for ``target`` at ``precision``."""
    return tuple(one for one in (*KERNEL_PASSES, *ADDED_PASSES) if one.wanted(target, precision))


def rewritten(
    graph: Graph,
    device: Target,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
    *,
    pipeline: Sequence[Pass] | None = None,
    observer: Callable[[PassRecord], None] | None = None,
    watch: Callable[[str, Graph], None] | None = None,
) -> Graph:
    """``graph`` after the passes of ``pipeline`` (default ``PIPELINE``) for ``device``, ready for ``kernels_of``.

    The passes run on the bodies of loops too. See ``run_pipeline`` for ``observer`` and ``watch``, which hear of the graph.
    """
    setting: dict[str, Any] = {
        "target": device,
        "rounding": Rounding(precision, tuple(keep_fp32)),
        "storage": KernelStorage(device),
    }
    graph = run_pipeline(graph, pipeline, **setting, observer=observer, watch=watch)
    numbers = count()
    return with_bodies(graph, lambda body: run_pipeline(body, pipeline, **setting, part=f"body{next(numbers)}-"))


def kernels_of(
    graph: Graph,
    device: Target,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
    elsewhere: Collection[str] | None = (),
    *,
    passes: Sequence[KernelPass] | None = None,
    observer: Callable[[PassRecord], None] | None = None,
    watch: Callable[[str, list[Step]], None] | None = None,
) -> list[Step]:
    """Partition a rewritten graph into kernels and run ``passes`` (default: those of ``KERNEL_PASSES`` for the device).

    The kernels of a loop's body follow its ``RepeatStep``.

    ``elsewhere``: see ``precision.apply``. ``observer`` is called with a record after each pass; ``watch``: see
    ``run_passes``.
    """
    engines_of, _ = back_end(device.language)
    wanted = wanted_passes(device, precision) if passes is None else passes
    elsewhere = None if elsewhere is None else {*elsewhere, *names_in_bodies(graph)}
    setting = Setting(graph, device, Expected(device, engines_of), precision, keep_fp32, elsewhere)
    policy, numbers = Policy.of(device), count()

    def lower_body(body: Graph) -> list[Step]:
        own = replace(setting, graph=body, elsewhere=None)
        return run_kernel_passes(partition(body, policy), wanted, own, part=f"body{next(numbers)}-")

    return expanded(run_kernel_passes(partition(graph, policy), wanted, setting, observer, watch=watch), lower_body)
