"""Who says what a node computes: onnxruntime and ONNX's reference evaluator, asked one node at a time.

Where both answer they have to agree, or the node is not used: it is undecided, and gpucomp's interpreter is asked for a
third voice, which is counted and decides nothing. Where one refuses, the other decides; the evaluator alone
only where onnxruntime says about the same in f32, or nothing. Neither optimises anything here.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as states

from gpucomp.cli.compare import onnxruntime_session
from gpucomp.errors import GpucompError
from gpucomp.frontend.onnx import load
from gpucomp.ops.interpreter import interpret

# how far the two may be apart, of the largest element: each sums in its own order, the evaluator in the type itself
AGREEMENT = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 6e-2}
# what the evaluator of ONNX 1.23 computes otherwise than the standard says: a Loop's scan outputs are joined, not stacked, and
# one without a condition never begins; SVMClassifier's probabilities of three classes are not what its pairs say; what is
# inserted into a sequence of n at n, its end, comes first
ONNXRUNTIME_ALONE = frozenset(("Loop", "SequenceInsert", "SVMClassifier"))
REFUSALS = tuple(kind for kind in vars(states).values() if isinstance(kind, type) and issubclass(kind, Exception))
Arrays = Mapping[str, np.ndarray]
Answer = Sequence[np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """``answers``: for each of the feeds the results, or nothing, and then ``reason`` says why."""

    answers: Sequence[Answer] = ()
    reason: str = ""


def judge(model: onnx.ModelProto, feeds: Sequence[Arrays]) -> Verdict:
    """What ``model`` gives for each of ``feeds``; the judges are compared on the first."""
    ours = _by_onnxruntime(model, feeds)
    alone = any(node.op_type in ONNXRUNTIME_ALONE for node in model.graph.node)
    theirs = [] if alone else _by_reference(model, feeds[:1] if ours else feeds)
    if not ours and not theirs:
        return Verdict(reason="both refuse")
    in_f32 = [] if ours or not theirs else _in_f32(model, feeds)
    if in_f32 and not all(_near(a, b) for a, b in zip(in_f32[0], theirs[0], strict=True)):
        return Verdict(reason="they disagree, onnxruntime in f32")
    if in_f32 and any(
        array.dtype.name in ("float16", "bfloat16") for array in feeds[0].values()
    ):  # which the evaluator sums in
        like = [array.dtype for array in theirs[0]]
        return Verdict([[a.astype(dtype) for a, dtype in zip(found, like, strict=True)] for found in in_f32])
    if ours and theirs and not _agree(ours[0], theirs[0]):
        return Verdict(reason=f"they disagree, the interpreter is {_third_voice(model, feeds[0], ours[0], theirs[0])}")
    return Verdict(ours or theirs)


def _by_onnxruntime(model: onnx.ModelProto, feeds: Sequence[Arrays]) -> list[Answer]:
    try:
        session = onnxruntime_session(model.SerializeToString(), optimised=False, threads=1)
        found = [session.run(None, dict(feed)) for feed in feeds]
    except (*REFUSALS, RuntimeError):
        return []
    return found if all(isinstance(a, np.ndarray) for a in found[0]) else []


def _in_f32(model: onnx.ModelProto, feeds: Sequence[Arrays]) -> list[Answer]:
    """What onnxruntime gives in f32, where it does not know the node's own float type: to check the evaluator alone by.

    For types of 16 bits its answer, rounded to them, is the better one.
    """
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    floats = [info for info in wide.graph.input if feeds[0][info.name].dtype.name in AGREEMENT]
    for info in floats:
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    cast = [dict(feed) | {info.name: feed[info.name].astype(np.float32) for info in floats} for feed in feeds]
    return _by_onnxruntime(wide, cast) if floats else []


def _by_reference(model: onnx.ModelProto, feeds: Sequence[Arrays]) -> list[list[np.ndarray]]:
    # the evaluator is numpy code without a list of what it raises: whatever comes is a refusal
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(model)
            found = [[np.asarray(a) for a in evaluator.run(None, dict(feed))] for feed in feeds]
    except Exception:
        return []
    return found


def _third_voice(model: onnx.ModelProto, feed: Arrays, ours: Answer, theirs: Answer) -> str:
    try:
        opinion = interpret(load(model), feed)
    except GpucompError:
        return "silent"
    sides = [name for name, answer in (("onnxruntime", ours), ("the evaluator", theirs)) if _agree(opinion, answer)]
    return f"with {sides[0]}" if sides else "with neither"


def _agree(ours: Answer, theirs: Answer) -> bool:
    return all(_close(a, b) for a, b in zip(ours, theirs, strict=True))


def _near(narrow: np.ndarray, own: np.ndarray) -> bool:
    """Whether f32 is as near to a result in another float type as the coarser of the two can be."""
    if narrow.shape != own.shape or narrow.dtype.kind in "iub" or own.dtype.kind in "iub":
        return narrow.shape == own.shape  # the types are what differs, or integers that f32 rounds elsewhere
    a, b = narrow.astype(np.float64), own.astype(np.float64)
    bound = max(AGREEMENT["float32"], AGREEMENT[own.dtype.name])
    largest = max(1e-3, np.abs(b[np.isfinite(b)]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=0, atol=bound * largest, equal_nan=True))


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.name not in AGREEMENT:
        return np.array_equal(a, b)
    a, b, bound = a.astype(np.float64), b.astype(np.float64), AGREEMENT[a.dtype.name]
    largest = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return bool(np.allclose(a, b, rtol=0, atol=bound * max(1e-3, largest), equal_nan=True))
