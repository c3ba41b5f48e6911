"""``PIPELINE``: every rewrite of a graph, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpucomp.device.target import Target
from gpucomp.ir.graph import Graph
from gpucomp.ir.passes import Form, PassRecord, run_passes
from gpucomp.ir.printer import format_graph
from gpucomp.ir.verifier import verify
from gpucomp.rewrite import (
    attention,
    canonicalize,
    concat,
    cse,
    first_steps,
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
from gpucomp.rewrite.rounding import NoKernels, Rounding, Storage
from gpucomp.rewrite.rule import Rule, apply_rules, counting


def _always(target: Target | None) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Pass:
    """A function from graph to graph, which returns the same object when it changes nothing.

    ``wanted`` tells whether a target needs the pass; its argument is ``None`` if there is no particular target.
    ``rounds`` is used instead of ``run`` by passes that depend on the user's precision setting and on what kernels leave
    in memory. ``rules`` are the rules that it applies.
    """

    name: str
    run: Callable[[Graph], Graph]
    wanted: Callable[[Target | None], bool] = _always
    rounds: Callable[[Graph, Rounding, Storage], Graph] | None = None
    rules: tuple[Rule, ...] = ()

    def at(self, rounding: Rounding, storage: Storage) -> Pass:
        rounds = self.rounds
        return (
            self if rounds is None else replace(self, run=lambda graph: rounds(graph, rounding, storage), rounds=None)
        )


def rules_pass(name: str, *themes: Sequence[Rule], wanted: Callable[[Target | None], bool] = _always) -> Pass:
    """The pass that applies the rules of several themes together, to a fixed point."""
    rules = tuple(r for theme in themes for r in theme)
    return Pass(name, lambda graph: apply_rules(graph, rules), wanted, rules=rules)


def _has_attention_engine(target: Target | None) -> bool:
    """Not Mali, whose local memory is ordinary memory. For CPUs, the kernel pass ``split_attention`` decides later."""
    return target is not None and target.arch != "mali"


def _multiplies_bytes(target: Target | None) -> bool:
    """Whether the target is a CPU with VNNI. On other targets, products of dequantized numbers stay in f32."""
    return target is not None and target.language == "llvm" and bool({"avx512vnni", "avxvnni"} & target.features)


def _sums_bytes(target: Target | None) -> bool:
    """Whether products of bytes are cheaper than those of i32: on GPUs (dp4a or packed words) and CPUs with VNNI or AVX2."""
    return target is not None and (target.language != "llvm" or "avx2" in target.features)


def _folds_norms(target: Target | None) -> bool:
    return target is not None and target.folds_norms


ADDED_RULES: list[Rule] = []  # by plug-ins

BASICS = (*fold.RULES, *canonicalize.RULES, *simplify.RULES)

PIPELINE: tuple[Pass, ...] = (
    rules_pass("codes", quantize.RULES, wanted=_multiplies_bytes),
    rules_pass("zero-points", quantize.INTEGERS, wanted=_sums_bytes),
    rules_pass("canonicalize", BASICS),
    Pass("plugins", lambda graph: apply_rules(graph, (*ADDED_RULES, *BASICS)), lambda target: bool(ADDED_RULES)),
    Pass("share", cse.share_common_subexpressions),
    rules_pass("fuse-norms", fuse_norms.RULES, BASICS),
    rules_pass("move", movement.RULES, BASICS),
    rules_pass("scale", scale.RULES, pads.RULES, BASICS),
    rules_pass("layout", layout.RULES, movement.RULES, scale.RULES, pads.RULES, BASICS),
    Pass("siblings", siblings.merge_siblings),
    rules_pass("attention", attention.RULES, BASICS, wanted=_has_attention_engine),
    rules_pass("decompose", attention.DECOMPOSITION, wanted=lambda target: not _has_attention_engine(target)),
    rules_pass("decompose-unfit", attention.UNFIT, wanted=_has_attention_engine),
    Pass("share-again", cse.share_common_subexpressions),
    Pass("chain-concats", concat.share_prefixes),
    Pass("split-concats", concat.split_wide),
    Pass("norm-products", lambda graph: graph, _folds_norms, norm_products.fold_norms),
    rules_pass("clean", BASICS, canonicalize.LATE_RULES),
    Pass("first-steps", lambda graph: first_steps.with_first_steps(graph, BASICS)),
)


GRAPHS = Form("nodes", format_graph, verify, lambda graph: len(graph.nodes()), "model", rules=counting)
STRICT = Rounding()
NO_KERNELS = NoKernels()


def wanted_passes(
    target: Target | None,
    pipeline: Sequence[Pass] | None = None,
    rounding: Rounding = STRICT,
    storage: Storage = NO_KERNELS,
) -> Sequence[Pass]:
    """The passes of ``pipeline`` (default ``PIPELINE``) that ``target`` needs, set up for ``rounding``."""
    return tuple(p.at(rounding, storage) for p in (PIPELINE if pipeline is None else pipeline) if p.wanted(target))


def run_pipeline(
    graph: Graph,
    pipeline: Sequence[Pass] | None = None,
    *,
    target: Target | None = None,
    rounding: Rounding = STRICT,
    storage: Storage = NO_KERNELS,
    observer: Callable[[PassRecord], None] | None = None,
    watch: Callable[[str, Graph], None] | None = None,
    part: str = "",
) -> Graph:
    """The graph after every pass of ``pipeline`` (default ``PIPELINE``) that ``target`` wants.

    Numbers are rounded no more than ``rounding`` allows. Passes ask ``storage`` what kernels leave in memory.

    ``observer`` is called with a record after each pass. ``watch`` is called as by ``run_passes``. Names of dumped files
    begin with ``part``.

    If ``GPUCOMP_VERIFY`` asks for checks, raises ``VerifyError`` that names the pass and its predecessors.
    """
    passes = wanted_passes(target, pipeline, rounding, storage)
    form = replace(GRAPHS, prefix=part)
    return run_passes(graph, [(p.name, p.run) for p in passes], form, observer, watch)
