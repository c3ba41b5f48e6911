"""``gpucomp compare``: sets every tensor beside another program's, and bisects a model that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

import click
import numpy as np
import onnx

from gpucomp import compiler
from gpucomp.cli import compare, cut, reproduce, show
from gpucomp.cli.blame import FAILURE, ROUNDING, Blame, blame
from gpucomp.cli.cut import Case, Traced
from gpucomp.cli.progress import progress
from gpucomp.cli.settle import (
    Rounded,
    Settled,
    as_computed,
    first_not_right,
    first_rounded,
    neither_is_wrong,
    settle,
)
from gpucomp.cli.tables import Figure, note_facts, table
from gpucomp.device.target import Target
from gpucomp.errors import AccuracyError, GpucompError, UnsupportedError, UsageError, quote, several
from gpucomp.frontend import onnx as frontend
from gpucomp.frontend.onnx.loader import read_whole
from gpucomp.lazy_dataclass import dataclass
from gpucomp.refusal import Refusal
from gpucomp.runtime.inputs import TensorSpec


@dataclass(frozen=True)
class Question:
    """The question for every model of a bisection: is it farther off on ``target`` than ``tolerance`` allows?"""

    target: Target
    precision: str
    tolerance: compare.Tolerance
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def run(self, model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        fixed, fed = self.split(inputs)
        shapes = {name: array.shape for name, array in fed.items()}
        lowered = compiler.lower(model, self.target, shapes, fixed, precision=self.precision)
        return compiler.finish(lowered, self.target, self.precision, compiler.silent).run(fed)

    def split(self, inputs: Mapping[str, np.ndarray]) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
        """The inputs that are fixed at compile time, and the others."""
        fixed = {name: array for name, array in self.constants.items() if name in inputs}
        return fixed, {name: array for name, array in inputs.items() if name not in fixed}

    def fault(self, case: Case) -> str:
        """``wrong``, the code of a compiler error, or "" for no fault. An unsupported model is no fault."""
        try:
            found = self.run(case.model, case.inputs)
        except UnsupportedError:
            return ""
        except GpucompError as error:
            return error.code
        return "wrong" if compare.wrong(compare.distances(found, case.expected), self.tolerance) else ""


def input_specs(
    model: Path, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, np.ndarray]
) -> list[TensorSpec]:
    """The inputs of a model that need not compile. Raises the same errors as ``frontend.load_split``."""
    graph, _ = frontend.load_split(model, shapes=shapes, constants=constants)
    return [TensorSpec(v.attrs["label"], v.type.dtype.name, v.type.shape) for v in graph.inputs]


def compare_model(
    path: Path,
    given: Mapping[str, np.ndarray],
    question: Question,
    against: str,
    folder: Path | None,
    *,
    tensors: bool = False,
) -> None:
    """Print how far the outputs are off, which tensor is wrong first and who is right about it; with ``tensors``, every tensor
    too. If ``folder`` is given, cut a wrong model down and write it there.

    Raises ``AccuracyError`` if an output is too far off, unless f64 says that gpucomp computes all of the model right.
    """
    proto = read_whole(path)
    with progress(f"running {against}"):
        expected = compare.answers(path, given, against)
        traced = cut.trace(proto, given, against)
    whole, found, fault = Case(proto, given, expected), {}, ""
    outputs: Mapping[str, np.ndarray] = {}
    with progress("running gpucomp"):
        try:
            outputs = question.run(proto, given)
            found = compare.distances(outputs, expected)
        except UnsupportedError:
            raise
        except GpucompError as error:
            if folder is None:
                raise
            fault = error.code
        each = _each_tensor(traced, question)
    fault = fault or ("wrong" if compare.wrong(found, question.tolerance) else "")
    if found:
        click.echo("\n".join(show.errors(found, question.tolerance, outputs)))
    settled = _print_summary(traced, each, question, against)
    if tensors and isinstance(each, dict):
        click.echo("\n".join(["", *_every(traced, each, question.tolerance)]))
    if fault and folder is not None:
        if fault == "wrong" and settled is not None and settled.only_theirs:
            other = next(name for name in compare.REFERENCES if name != against)
            click.echo(f"not bisected: {against} is wrong here, not gpucomp; compare with --against {other}")
        elif fault == "wrong" and settled is not None and settled.both_right and settled.undefined:
            click.echo("not bisected: the first difference is in what ONNX does not define")
        else:
            bisect(whole, traced, fault, question, against, folder)
    if fault == "wrong" and isinstance(each, dict) and settled is not None and settled.ours_right:
        off = compare.wrong(found, question.tolerance)
        if _is_right(traced, each, {name: outputs[name] for name in off}, question, against):
            right, defined = ("not wrong", " where ONNX defines it") if settled.undefined else ("right", "")
            click.echo(
                f"gpucomp is {right}: in f64, every operator gives what gpucomp has{defined}, from the operands that gpucomp had"
            )
            return
    compare.require(found, question.tolerance, against)
    if fault:
        raise AccuracyError(f"{quote(path)} ends with {fault}", code="GPC6001")


def _each_tensor(traced: Traced, question: Question) -> dict[str, np.ndarray] | Refusal:
    """Every tensor as gpucomp computes it, or why it cannot. Every tensor is made an output, so less is fused."""
    try:
        found = question.run(cut.every_tensor(traced.model), {k: traced.tensors[k] for k in _fed(traced)})
    except GpucompError as error:
        return Refusal(str(error))
    return {name: found[name] for name in traced.names if name in found}


def _print_summary(
    traced: Traced, each: dict[str, np.ndarray] | Refusal, question: Question, against: str
) -> Settled | None:
    """Print how many tensors are wrong, the first of them and who is right about it; return that verdict."""
    if isinstance(each, Refusal):
        _note_summary(against)
        click.echo(f"the tensors cannot be compared one by one: {each.reason}")
        return None
    far = {name: compare.distance(array, traced.tensors[name]) for name, array in each.items()}
    wrong = compare.wrong(far, question.tolerance)
    if not wrong:
        _note_summary(against, len(far))
        click.echo(
            f"{several(len(far), 'tensor')} compared: none is wrong (each was made an output, so less is fused than without)"
        )
        return None
    first = wrong[0]
    click.echo(f"{several(len(far), 'tensor')} compared, {len(wrong)} wrong when each is an output")
    click.echo(f"first wrong tensor: {quote(first)}, of {_makers(traced)[first]}")
    ours = as_computed(traced, each)
    verdict = settle(traced, ours, first, question.tolerance)
    settled = "not known" if isinstance(verdict, Refusal) else verdict.verdict(against)
    _note_summary(against, len(far), len(wrong), first, _makers(traced)[first], settled)
    if isinstance(verdict, Refusal):
        click.echo(f"f64 does not tell which is right: {verdict.reason}")
        return None
    click.echo(verdict.told(against))
    if verdict.both_right and not verdict.undefined and (rounded := first_rounded(traced, ours)) is not None:
        click.echo(rounded.told())
    return verdict


def _note_summary(
    against: str,
    tensors: int | None = None,
    wrong: int = 0,
    first: str | None = None,
    operator: str | None = None,
    verdict: str | None = None,
) -> None:
    """For other programs; ``tensors`` is None if they could not be compared one by one."""
    facts = {"against": against, "tensors": tensors, "wrong": None if tensors is None else wrong}
    named = {"first wrong": first and quote(first), "operator": operator, "verdict": verdict}
    note_facts("comparison", {**facts, **named})


def _is_right(
    traced: Traced,
    each: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    question: Question,
    against: str,
) -> bool:
    """Whether gpucomp computes every tensor right from its own operands, though ``outputs`` are wrong. Prints what is not.

    A tensor that agrees with the other program's is right. ``outputs`` are of the model as it is, where more is fused: if they
    are not those with every tensor as an output, nothing is known of them.
    """
    apart = {name: compare.distance(a, each[name]) if name in each else compare.FAR for name, a in outputs.items()}
    if differ := compare.wrong(apart, question.tolerance):
        click.echo(f"output {quote(differ[0])} is another one if less is fused: f64 does not tell whether it is right")
        return False
    far = {name: compare.distance(array, traced.tensors[name]) for name, array in each.items()}
    with progress("computing in f64"):
        found = first_not_right(
            traced, as_computed(traced, dict(each)), compare.wrong(far, question.tolerance), question.tolerance
        )
    if found is None:
        return True
    name, verdict = found
    where = f"{quote(name)}, of {_makers(traced)[name]}"
    if isinstance(verdict, Refusal):
        click.echo(f"f64 does not tell which is right about {where}: {verdict.reason}")
    else:
        click.echo(f"{where}: {verdict.told(against)}")
    return False


def _makers(traced: Traced) -> dict[str, str]:
    return {name: node.op_type for node in traced.model.graph.node for name in node.output}


def _every(traced: Traced, each: dict[str, np.ndarray], tolerance: compare.Tolerance) -> list[str]:
    """One line for each tensor, in the order of the nodes."""
    makers, rows = _makers(traced), []
    for name, array in each.items():
        far = compare.distance(array, traced.tensors[name])
        verdict = "ok" if tolerance.allows(far) else "WRONG"
        figures = [Figure(value, ".2e") for value in (far.l2, far.rms, far.linf)]
        rows.append((quote(name), makers[name], *figures, Figure(far.cosine, ".9f"), verdict))
    return table(("tensor", "operator", "l2", "rms", "linf", "cosine", ""), rows, "tensors")


def _fed(traced: Traced) -> list[str]:
    weights = {w.name for w in traced.model.graph.initializer}
    return [info.name for info in traced.model.graph.input if info.name not in weights]


def bisect(whole: Case, traced: Traced, fault: str, question: Question, against: str, folder: Path) -> None:
    """Cut ``whole`` to the fewest nodes with the same ``fault``, find the wrong stage, and write both to ``folder``."""
    tried = [0]

    def fails(case: Case) -> bool:
        tried[0] += 1
        return question.fault(case) == fault

    with progress("cutting"):
        small = cut.smallest(traced, fails) or whole
        fixed, fed = question.split(small.inputs)
        rest = replace(small, inputs=fed)
        if fault == "wrong" and (rounded := _rounded(small, question, against)) is not None:
            found = Blame(ROUNDING, rounded.told())
        elif fault == "wrong":
            found = blame(rest, question.target, question.precision, question.tolerance, fixed)
        else:
            found = Blame(FAILURE, _message(question, small))
    reproduce.write(folder, rest, found, question.target, question.tolerance, fixed)
    click.echo(f"cut from {several(whole.nodes, 'node')} to {small.nodes}, in {several(tried[0], 'trial')} -> {folder}")
    click.echo("\n".join(line for line in reproduce.told(found) if line))


def _rounded(case: Case, question: Question, against: str) -> Rounded | None:
    """Where the two programs rounded to different whole numbers in a case in which no operator is wrong.

    Every tensor is made an output for this, so less is fused. The answer is None if that changes the case's outputs.
    """
    theirs = cut.trace(case.model, case.inputs, against)
    each = _each_tensor(theirs, question)
    if isinstance(each, Refusal):
        return None
    found = {name: array for name, array in question.run(case.model, case.inputs).items() if name in each}
    if compare.wrong(compare.distances(found, {name: each[name] for name in found}), question.tolerance):
        return None
    return neither_is_wrong(theirs, as_computed(theirs, each), question.tolerance)


def _message(question: Question, case: Case) -> str:
    try:
        question.run(case.model, case.inputs)
    except GpucompError as error:
        return str(error)
    return ""


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not empty. Raises ``UsageError``."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--output {quote(folder)}: an empty or a new folder expected", code="GPC2008")
