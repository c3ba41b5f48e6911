"""``PIPELINE`` and the loop that runs it: timing, verifying, diffs and dumps live here, and no rewrite does."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpucomp import config
from gpucomp.device.target import Target
from gpucomp.errors import VerifyError
from gpucomp.ir.graph import Graph
from gpucomp.ir.printer import Namer, format_graph
from gpucomp.ir.verify import verify
from gpucomp.rewrite import (
    attention,
    canonicalize,
    concat,
    cse,
    fold,
    fuse_norms,
    layout,
    movement,
    norm_products,
    pads,
    quantize,
    scale,
    siblings,
    simplify,
)
from gpucomp.rewrite.rounding import Rounding
from gpucomp.rewrite.rule import Rule, apply_rules, counting


@dataclass(frozen=True, slots=True)
class Pass:
    """A graph to graph function that returns the same object when it changes nothing.

    ``wanted`` says whether a target (``None``: none in particular) has a use for the pass. ``rounds`` stands in for ``run``
    in one that has to know how far the user lets numbers be rounded.
    """

    name: str
    run: Callable[[Graph], Graph]
    wanted: Callable[[Target | None], bool] = lambda target: True
    rounds: Callable[[Graph, Rounding], Graph] | None = None

    def at(self, rounding: Rounding) -> Pass:
        rounds = self.rounds
        return self if rounds is None else replace(self, run=lambda graph: rounds(graph, rounding), rounds=None)


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What one pass did: milliseconds, whether it changed the graph, the node counts and the rules that fired."""

    name: str
    ms: float
    changed: bool
    nodes_before: int
    nodes_after: int
    fired: Mapping[str, int] = field(default_factory=dict)


def rules_pass(name: str, *themes: Sequence[Rule]) -> Pass:
    """The pass that applies the rules of several themes together, to a fixed point."""
    rules = tuple(r for theme in themes for r in theme)
    return Pass(name, lambda graph: apply_rules(graph, rules))


def _has_attention_engine(target: Target | None) -> bool:
    """Mali's local memory is plain memory: it keeps the pieces. What is best in pieces on a CPU is seen to later."""
    return target is not None and target.arch != "mali"


def _multiplies_bytes(target: Target | None) -> bool:
    """Elsewhere products of dequantized numbers stay in f32."""
    return target is not None and target.language == "llvm" and bool({"avx512vnni", "avxvnni"} & target.features)


def _sums_bytes(target: Target | None) -> bool:
    """Whether sums of products of bytes take less than those of i32: every GPU has an instruction for them, or words."""
    return target is not None and (target.language != "llvm" or _multiplies_bytes(target))


def _folds_norms(target: Target | None) -> bool:
    return target is not None and target.folds_norms


BASICS = (*fold.RULES, *canonicalize.RULES, *simplify.RULES)

PIPELINE: tuple[Pass, ...] = (
    Pass("codes", rules_pass("", quantize.RULES).run, _multiplies_bytes),
    Pass("zero-points", rules_pass("", quantize.INTEGERS).run, _sums_bytes),
    rules_pass("canonicalize", BASICS),
    Pass("share", cse.share_common_subexpressions),
    rules_pass("fuse-norms", fuse_norms.RULES, BASICS),
    rules_pass("move", movement.RULES, BASICS),
    rules_pass("scale", scale.RULES, pads.RULES, BASICS),
    rules_pass("layout", layout.RULES, movement.RULES, scale.RULES, pads.RULES, BASICS),
    Pass("siblings", siblings.merge_siblings),
    Pass("attention", rules_pass("", attention.RULES, BASICS).run, _has_attention_engine),
    Pass("decompose", rules_pass("", attention.DECOMPOSITION).run, lambda target: not _has_attention_engine(target)),
    Pass("decompose-unfit", rules_pass("", attention.UNFIT).run, _has_attention_engine),
    Pass("share-again", cse.share_common_subexpressions),
    Pass("chain-concats", concat.share_prefixes),
    Pass("split-concats", concat.split_wide),
    Pass("norm-products", lambda graph: graph, _folds_norms, norm_products.fold_norms),
    rules_pass("clean", BASICS, canonicalize.LATE_RULES),
)


STRICT = Rounding()


def wanted_passes(
    target: Target | None, pipeline: Sequence[Pass] | None = None, rounding: Rounding = STRICT
) -> Sequence[Pass]:
    """Those of ``pipeline`` (default ``PIPELINE``) that ``target`` has a use for, as they are at ``rounding``."""
    return tuple(p.at(rounding) for p in (PIPELINE if pipeline is None else pipeline) if p.wanted(target))


def run_pipeline(
    graph: Graph,
    pipeline: Sequence[Pass] | None = None,
    *,
    target: Target | None = None,
    rounding: Rounding = STRICT,
    observer: Callable[[PassRecord], None] | None = None,
) -> Graph:
    """The graph after every pass of ``pipeline`` (default ``PIPELINE``) that ``target`` wants.

    Numbers are rounded no more than ``rounding`` lets them.

    ``observer`` is called with a record after each.

    Raises ``VerifyError`` that names the pass and its predecessors, when ``GPUCOMP_VERIFY`` asks for checks.
    """
    settings = config.current()
    nodes = len(graph.nodes())
    dump = _Dump(settings.dump)
    dump.start(graph)
    done: list[str] = []
    for step, one in enumerate(wanted_passes(target, pipeline, rounding), start=1):
        before, start = graph, time.perf_counter()
        with counting() as fired:
            graph = one.run(before)
        ms = 1e3 * (time.perf_counter() - start)
        if settings.verify:
            _verify(graph, one.name, done)
        done.append(one.name)
        changed = graph is not before
        nodes_before, nodes = nodes, len(graph.nodes()) if changed else nodes
        record = PassRecord(one.name, ms, changed, nodes_before, nodes, dict(fired))
        dump.after(step, one.name, before, graph)
        if settings.debug:
            print(format_record(step, record, rules=settings.debug >= 2), file=sys.stderr)
        if settings.debug >= 3 and changed:
            print(graph_diff(before, graph, one.name), end="", file=sys.stderr)
        if observer is not None:
            observer(record)
    return graph


def format_record(step: int, record: PassRecord, *, rules: bool = False) -> str:
    """``01 canonicalize             0.16 ms     7 ->    4 nodes``, with a line a fired rule if asked."""
    mark = f"{record.nodes_before:6} -> {record.nodes_after:5} nodes" if record.changed else ""
    lines = [f"{step:02} {record.name:20} {record.ms:8.2f} ms {mark}".rstrip()]
    if rules:
        lines += [f"   {count:6} {name}" for name, count in sorted(record.fired.items())]
    return "\n".join(lines)


def graph_diff(before: Graph, after: Graph, name: str) -> str:
    """A unified diff of two graphs printed with shared names."""
    namer = Namer()
    old, new = (format_graph(g, namer).splitlines(keepends=True) for g in (before, after))
    return "".join(difflib.unified_diff(old, new, f"before {name}", f"after {name}"))


def _verify(graph: Graph, name: str, done: Sequence[str]) -> None:
    try:
        verify(graph)
    except VerifyError as error:
        path = f" (which ran after {', '.join(done)})" if done else ""
        raise VerifyError(f"after pass {name!r}{path}: {error.message}") from error


@dataclass(frozen=True, slots=True)
class _Dump:
    """Writes graphs to the folder that ``GPUCOMP_DUMP`` names; does nothing when it names none."""

    folder: Path | None

    def start(self, graph: Graph) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "00-model.txt").write_text(format_graph(graph), encoding="utf-8")

    def after(self, step: int, name: str, before: Graph, graph: Graph) -> None:
        if self.folder is not None:
            base = f"{step:02}-{name}"
            (self.folder / f"{base}.txt").write_text(format_graph(graph), encoding="utf-8")
            if graph is not before:
                (self.folder / f"{base}.diff").write_text(graph_diff(before, graph, name), encoding="utf-8")
