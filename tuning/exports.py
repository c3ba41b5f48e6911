"""Exports trials to other tools' formats.

t4            auto-tuning results schema T4, version 1.0.0, JSON
kernel-tuner  Kernel Tuner's cache file, which its simulation mode replays
optuna        an optuna journal, which optuna-dashboard opens; needs optuna
autotvm       AutoTVM's log, version 0.2: JSON lines

Times are milliseconds in the first three and seconds in the last one.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gpucomp.errors import RecordError, quote
from gpucomp.schedule.records import Record, device_key

T4_VERSION = "1.0.0"
T4_INVALIDITY = {"killed": "runtime"}  # all others have the same names in T4
KERNEL_TUNER_ERRORS = {
    "compile": "CompilationFailedConfig",
    "constraints": "InvalidConfig",
    "correctness": "RuntimeFailedConfig",
    "runtime": "RuntimeFailedConfig",
    "timeout": "RuntimeFailedConfig",
    "killed": "RuntimeFailedConfig",
}
AUTOTVM_ERRORS = {
    "correct": 0,
    "constraints": 1,
    "compile": 3,
    "runtime": 4,
    "killed": 4,
    "correctness": 5,
    "timeout": 7,
}
AUTOTVM_FAILED_S = 1e10  # the cost of a failed trial
Group = tuple[str, str, str, str, str]  # kernel; kind, architecture and name of the device; engine


def groups(found: Sequence[Record]) -> dict[Group, list[Record]]:
    """Trials by kernel, device and engine, so that each group has one set of parameters. A candidate's last trial counts."""
    result: dict[Group, dict[str, Record]] = {}
    for record in found:
        if record["kind"] == "trial":
            key = record["kernel"], *device_key(record["device"]), record["engine"]
            result.setdefault(key, {})[json.dumps(record["configuration"], sort_keys=True)] = record
    return {key: list(trials.values()) for key, trials in result.items()}


def parameters(trials: Sequence[Record]) -> dict[str, list[int]]:
    """The values that each parameter takes in ``trials``, in the order of the first trial's parameters."""
    return {name: sorted({t["configuration"][name] for t in trials}) for name in trials[0]["configuration"]}


def milliseconds(trial: Record) -> float | None:
    """The median of a trial's samples; ``None`` if it has no time."""
    return 1e3 * statistics.median(trial["samples"]) if trial["invalidity"] == "correct" else None


def t4(trials: Sequence[Record]) -> dict[str, Any]:
    """A T4 document."""
    names = ("timestamp", "configuration", "objectives", "times", "correctness", "measurements")
    defaults: Mapping[str, Any] = {
        "objectives": ["time"],
        "times": {"runtimes": []},
        "correctness": 0,
        "measurements": [],
    }
    results = [
        {name: trial.get(name, defaults.get(name)) for name in names}
        | {"invalidity": T4_INVALIDITY.get(trial["invalidity"], trial["invalidity"])}
        for trial in trials
    ]
    return {
        "schema_version": T4_VERSION,
        "metadata": {"environment": {"device_query": trials[0]["device"]}},
        "results": results,
    }


def kernel_tuner(trials: Sequence[Record]) -> dict[str, Any]:
    """A cache file of Kernel Tuner; ``cache`` must be its last member."""
    values = parameters(trials)
    cache = {}
    for trial in trials:
        configuration, times = trial["configuration"], trial.get("times", {})
        value = milliseconds(trial)
        entry: dict[str, Any] = dict(configuration)
        entry["time"] = KERNEL_TUNER_ERRORS.get(trial["invalidity"], "RuntimeFailedConfig") if value is None else value
        if value is not None:
            entry["times"] = [1e3 * s for s in trial["samples"]]
        entry |= {
            "compile_time": times.get("compilation_time", 0),
            "verification_time": times.get("validation", 0),
            "benchmark_time": times.get("benchmark", 0),
            "strategy_time": 0,
            "framework_time": 0,
            "timestamp": trial["timestamp"],
        }
        cache[",".join(str(configuration[name]) for name in values)] = entry
    device = trials[0]["device"]
    return {
        "device_name": device["name"] or device["arch"],
        "kernel_name": trials[0]["engine"],
        "problem_size": list(trials[0].get("problem", {}).values()),
        "tune_params_keys": list(values),
        "tune_params": values,
        "objective": "time",
        "cache": cache,
    }


def autotvm(trials: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Lines of AutoTVM's log."""
    for number, trial in enumerate(trials):
        right = trial["invalidity"] == "correct"
        entity = [[name, "ot", value] for name, value in trial["configuration"].items()]
        took = 1e-3 * sum(v for v in trial.get("times", {}).values() if isinstance(v, int | float))
        when = datetime.fromisoformat(trial["timestamp"]).timestamp()
        costs = trial["samples"] if right else [AUTOTVM_FAILED_S]
        yield {
            "input": [
                f"{trial['device']['kind']} -model={trial['device']['arch']}",
                trial["engine"],
                list(trial.get("problem", {}).values()),
                {"kernel": trial["kernel"]},
            ],
            "config": {"index": number, "code_hash": trial["source"] or None, "entity": entity},
            "result": [costs, AUTOTVM_ERRORS.get(trial["invalidity"], 8), took, when],
            "version": 0.2,
            "tvm_version": "",
        }


def optuna_journal(groups: Mapping[Group, Sequence[Record]], path: Path) -> int:
    """Write one study for each kernel, device and engine to a journal file; return the number of trials.

    Raises ``UsageError`` (GPC2603) without optuna.
    """
    from gpucomp.tuning.samplers import ask_tell, optuna

    count = 0
    storage = ask_tell.opened(str(path))
    with ask_tell.quiet():
        for key, trials in groups.items():
            study = optuna.create_study(storage=storage, study_name=" ".join(key), direction="minimize")
            study.set_user_attr("device", trials[0]["device"])
            study.set_user_attr("label", trials[0].get("label", ""))
            space: dict[str, Any] = {
                k: optuna.distributions.CategoricalDistribution(v) for k, v in parameters(trials).items()
            }
            for trial in trials:
                value = milliseconds(trial)
                state = optuna.trial.TrialState.PRUNED if value is None else optuna.trial.TrialState.COMPLETE
                facts: dict[str, Any] = {
                    name: trial[name] for name in ("invalidity", "error", "ratio", "noise") if name in trial
                }
                study.add_trial(
                    optuna.trial.create_trial(
                        params=trial["configuration"],
                        distributions=space,
                        value=value,
                        state=state,
                        user_attrs=facts,
                        constraints={ask_tell.RUNS: 1.0 if value is None else 0.0},
                    )
                )
                count += 1
    return count


OF_ALL = ("optuna", "autotvm")  # formats whose one file holds all kernels
DOCUMENTS: Mapping[str, Callable[[Sequence[Record]], dict[str, Any]]] = {"t4": t4, "kernel-tuner": kernel_tuner}


def export(found: Sequence[Record], form: str, output: Path) -> list[tuple[Path, int]]:
    """Write ``found`` as ``form``; return the files and the number of trials in each.

    A document holds one kernel on one device with one engine; for several of them ``output`` is a folder. Raises
    ``RecordError`` if there is no trial or a file cannot be written.
    """
    split = groups(found)
    if not split:
        raise RecordError("no trials to export", code="GPC7104")
    try:
        if form == "autotvm":
            lines = [json.dumps(line) for trials in split.values() for line in autotvm(trials)]
            output.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return [(output, len(lines))]
        if form == "optuna":
            if output.exists():
                raise RecordError(f"{quote(output)} exists: a journal would be added to", code="GPC7104")
            return [(output, optuna_journal(split, output))]
        written: list[tuple[Path, int]] = []
        for key, trials in split.items():
            path = output if len(split) == 1 and output.suffix == ".json" else output / f"{_file_name(key)}.json"
            if any(path == other for other, _ in written):  # names can become equal when they are shortened or cleaned
                path = path.with_stem(f"{path.stem}-{len(written)}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(DOCUMENTS[form](trials), separators=(",", ":")), encoding="utf-8")
            written.append((path, len(trials)))
    except OSError as error:
        raise RecordError(f"{quote(output)} cannot be written: {error.strerror or error}", code="GPC7101") from None
    return written


def _file_name(key: Group) -> str:
    kernel, *device, engine = (re.sub(r"[^A-Za-z0-9.]+", "_", part).strip("_")[:48] for part in key)
    return "-".join([engine, kernel[:12], *filter(None, device)])
