"""What ``gpucomp tune`` prints: the kernels before a search, how far it is, and what it found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpucomp.cli import measure
from gpucomp.cli.tables import table
from gpucomp.errors import several

if TYPE_CHECKING:
    from gpucomp.tuning.choice import Verdict
    from gpucomp.tuning.study import Study
    from gpucomp.tuning.tuner import State, Tuned, TuneOptions

UNSTEADY = 0.1  # share by which a default schedule beside itself may differ
HELD = 1.02  # times as fast: less is within the noise of a search


def planned(tasks: Sequence[Any], options: Any, name: str = "tasks") -> list[str]:
    """One row for each task that would be searched."""
    from gpucomp.tuning import tuner
    from gpucomp.tuning.engines import MOST

    rows = []
    for number, task in enumerate(tasks, start=1):
        engines = " ".join(family.title for family in task.engines)
        size = tuner.space_size(task, options)
        schedule = " ".join(f"{k}={v}" for k, v in task.default.schedule.items())
        rows.append((number, task.label, task.launches, f"{1e-9 * task.flops:.4g}", size, engines, task.tier, schedule))
    legend = (
        f"candidates: the schedules that a search chooses from, up to {MOST} of an engine. Larger spaces are sampled; inspect "
        "--spaces has their sizes"
    )
    return [
        *table(("#", "kernel", "launches", "GFLOP", "candidates", "engines", "tier", "default"), rows, name),
        legend,
    ]


def _rows(state: State) -> Iterator[tuple[str, ...]]:
    total = sum(s.task.weight for s in state.studies) or 1.0
    for number, study in enumerate(state.studies, start=1):
        task, made = study.task, study.progress
        verdict = state.verdicts.get(task.kernel.digest)
        ratio = _stands(made.best, verdict)
        best = task.seconds * ratio
        invalid = " ".join(f"{count} {kind}" for kind, count in sorted(made.invalid.items())) or "-"
        yield (
            str(number),
            task.label,
            f"{1e-9 * task.flops:.3g}",
            f"{100 * task.weight / total:.1f}",
            f"{1e6 * task.seconds:.1f}",
            f"{1e6 * best:.1f}",
            f"{1 / ratio:.2f}",
            *([_roof(study, best, verdict)] if task.target.device is not None else []),
            str(made.trials),
            invalid,
            study.fault or _final(study, verdict),
        )


def _stands(searched: float, verdict: Verdict | None) -> float:
    """The time of a task's best schedule over its default's: as the final measured it, until then as the search did."""
    if verdict is None or not verdict.decided:
        return searched
    return 1.0 if verdict.is_default else verdict.ratio


def _final(study: Study, verdict: Verdict | None) -> str:
    """The result of a task's final; if the final was not reached, the result of an earlier run."""
    if verdict is None:
        return "-"
    if verdict.came == "not reached" and (pick := study.known.pick) is not None:
        return "earlier: default" if pick.get("default", False) else f"earlier: {1 / pick['ratio']:.2f} x"
    if verdict.came == "not reached":
        return "not decided: the time ended" if study.progress.trials else "no trial"
    if not verdict.decided:
        return verdict.came
    if verdict.came == "model":
        return f"default: {1 / verdict.alone:.2f} x alone, but the model is no faster"
    if verdict.is_default:
        searched = 1 / study.progress.best
        return f"default: the search's {searched:.2f} x was not confirmed" if searched > HELD else "default"
    return f"{1 / verdict.ratio:.2f} x"


def _roof(study: Study, best: float, verdict: Verdict | None) -> str:
    """The floor of the best schedule's engine over its time."""
    from gpucomp.schedule.analytic import floor_us

    device = study.task.target.device
    if device is None or not best:
        return "-"
    decided = verdict is not None and verdict.decided
    engine = verdict.candidate.family.title if verdict is not None and decided else study.winner.family.title
    return f"{100 * floor_us(study.task.kernel, device, engine) / (1e6 * best):.0f}"


def _header(state: State) -> tuple[str, ...]:
    roof = ("% of roof",) if state.studies[0].task.target.device is not None else ()
    return (
        "#",
        "kernel",
        "GFLOP",
        "% of model",
        "default us",
        "best us",
        "x default",
        *roof,
        "trials",
        "invalid",
        "final",
    )


def task_table(state: State, name: str = "tasks") -> list[str]:
    """One row for each task: its size, its times, its trials, and the result of the final."""
    return table(_header(state), _rows(state), name)


def line(state: State, trials: int = 0) -> str:
    """What is searched, how far it is, and the best so far over the default. ``trials`` is their largest number, or 0."""
    study = state.current
    label = study.task.label if study is not None else ""
    if state.phase != "search" or study is None:
        return " ".join(part for part in (state.phase, label) if part)
    number = list(state.studies).index(study) + 1
    best = f"{1 / study.best:.2f} x its default, " if study.trials else ""
    trial = "trial" if trials > 1 else f"trial {state.trials}"  # the progress line ends in how many of how many
    return f"kernel {number} of {len(state.studies)}, {best}{label}, {trial}"


def untried(state: State, options: TuneOptions) -> list[str]:
    """How many kernels had no trial, and why: a search measures what promises the most of the model's time."""
    without = [s.task.weight for s in state.studies if not s.progress.trials and not s.fault]
    if not without:
        return []
    share = sum(without) / (sum(s.task.weight for s in state.studies) or 1.0)
    said = f"{len(without)} of {len(state.studies)} kernels, {100 * share:.1f} % of the kernels' time, had no trial: "
    if options.budget is None and options.trials is None:
        return [f"{said}measuring them promised too little"]
    ended = options.trials is not None and state.trials >= options.trials
    limit = (
        f"{options.budget:.4g} s" if options.budget is not None and not ended else several(options.trials or 0, "trial")
    )
    return [f"{said}the budget of {limit} went to kernels that promised more; --resume goes on with them"]


def unsteady(state: State) -> list[str]:
    """A diagnosis if a default schedule that was timed beside itself seemed to be another one."""
    apart = [
        max(t["ratio"], 1 / t["ratio"]) - 1
        for study in state.studies
        for t in study.trials
        if t.get("default") and t["invalidity"] == "correct"
    ]
    if not apart or max(apart) <= UNSTEADY:
        return []
    count = sum(one > UNSTEADY for one in apart)
    sign = (
        f"the default schedule beside itself differs by up to {100 * max(apart):.0f} %, in {count} of "
        f"{several(len(apart), 'kernel')} by more than {100 * UNSTEADY:.0f} %"
    )
    return [measure.unstable(sign, "only the finals' ratios are to be trusted, so search again when it is quiet")]


def result(tuned: Tuned, took: float, options: TuneOptions, name: str = "tasks") -> list[str]:
    """The table, the model's gain, and what more time would gain."""
    state = tuned.state
    lines = task_table(state, name)
    picked = tuned.changed  # without the picks of a default, which change nothing
    trials = sum(len(s.trials) for s in state.studies)
    defaults = sum(bool(t.get("default")) for s in state.studies for t in s.trials)
    lines.append(
        f"{several(trials, 'trial')} of {several(len(state.studies), 'kernel')} in {took:.0f} s, {defaults} of them of default "
        f"schedules; {several(picked, 'schedule')} changed"
    )
    lines += [*unsteady(state), *untried(state, options)]
    if tuned.comparison.ratios and tuned.untuned_s:
        low, high = tuned.comparison.interval
        ratio = tuned.comparison.median
        lines.append(
            f"model: {1e3 * tuned.untuned_s:.4g} ms untuned, {1e3 * tuned.untuned_s * ratio:.4g} ms tuned: "
            f"{1 / ratio:.3f} times as fast (95 %: {1 / high:.3f} to {1 / low:.3f})"
            if picked
            else f"model: {1e3 * tuned.untuned_s:.4g} ms; no schedule that was found makes it faster"
        )
    total = sum(s.task.weight for s in state.studies)
    if total:
        lines.append(
            f"ten more minutes of search may save about {100 * tuned.forecast_s / total:.1f} % of the kernels' time"
        )
    lines.append(f"records: {tuned.records}")
    return lines


def as_json(tuned: Tuned) -> dict[str, object]:
    """The result as data; each name has its unit."""
    state = tuned.state
    return {
        "untuned_s": tuned.untuned_s,
        "ratio": tuned.comparison.median if tuned.comparison.ratios else None,
        "ratio_interval": list(tuned.comparison.interval) if tuned.comparison.ratios else None,
        "forecast_s": tuned.forecast_s,
        "records": str(tuned.records),
        "tasks": [
            {
                "kernel": study.task.kernel.digest,
                "label": study.task.label,
                "launches": study.task.launches,
                "default_s": study.task.seconds,
                "search_ratio": study.best,
                "trials": len(study.trials),
                "invalid": study.progress.invalid,
                "fault": study.fault,
                "pick": None
                if verdict is None
                else {
                    "engine": verdict.candidate.family.title,
                    "configuration": dict(verdict.candidate.schedule),
                    **verdict.fields,
                    "came": verdict.came,
                    "alone": verdict.alone if verdict.came == "model" else None,
                    "kept": study.task.kernel.digest in state.kept,
                },
            }
            for study in state.studies
            for verdict in [state.verdicts.get(study.task.kernel.digest)]
        ],
    }
