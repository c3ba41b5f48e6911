"""A folder of results as markdown: wrong results, ratios to torch, losses first, predictions beside measurements."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu.results import REHEARSED, lines

Entry = Mapping[str, Any]
REHEARSAL = (
    "A rehearsal: the device is simulated on the CPU, and its clock is invented. Right and wrong are real; times, peaks and "
    "predictions say nothing about any GPU, and there are no ratios to other programs."
)
WORST = 25
SHOWN_FAULTS = 20
SHOWN_LOSSES = 6  # in a summary


def report(folder: Path) -> str:
    """Markdown of the latest results in ``folder``, for each device and each version of the sources."""
    runs: dict[tuple[str, str], dict[tuple[str, str], Entry]] = defaultdict(dict)
    for entry in lines(folder / "results.jsonl"):
        if "ok" in entry:
            runs[entry["device"], entry["version"]][entry["stage"], entry["name"]] = entry
    if not runs:
        return f"there are no results in {folder}: run a stage first"
    parts = []
    for (device, version), found in runs.items():
        entries = list(found.values())
        sections = [
            constants(entries, device),
            correctness(entries),
            models_table(entries),
            kernels_table(entries),
            predictions(entries),
        ]
        if is_rehearsal(entries):
            sections.insert(0, REHEARSAL)
        parts.append(f"# {device}, sources {version}\n\n" + "\n\n".join(s for s in sections if s))
    return "\n\n".join(parts)


def is_rehearsal(entries: Iterable[Entry]) -> bool:
    """Whether these are results of a dry run."""
    return any(str(e.get("device", "")).startswith(REHEARSED) for e in entries)


def constants(entries: Sequence[Entry], device: str) -> str:
    if not any(e["stage"] == "probe" for e in entries):
        return ""
    from bench.gpu import probe

    text = probe.constants(entries, device.rpartition(" ")[2])
    splits = [e for e in entries if e["stage"] == "probe" and "us_by_splits" in e]
    rows = [
        [e["name"].removeprefix("split-"), engine, ", ".join(f"{n}: {us:.2f}" for n, us in times.items())]
        for e in splits
        for engine, times in e["us_by_splits"].items()
    ]
    table_ = "\n\n" + table(["product", "engine", "us by splits"], rows) if rows else ""
    return f"## The device\n\n```\n{text}\n```{table_}"


def correctness(entries: Sequence[Entry]) -> str:
    bad = [e for e in entries if not e["ok"]]
    counts = Counter((e["stage"], bool(e["ok"])) for e in entries)
    rows = [[stage, counts[stage, True], counts[stage, False]] for stage in dict.fromkeys(e["stage"] for e in entries)]
    text = "## Right and wrong\n\n" + table(["stage", "right", "wrong"], rows)
    for e in bad[:SHOWN_FAULTS]:
        said = e.get("fault") or e.get("error") or e.get("faults") or e.get("said") or e.get("wrong")
        text += f"\n- **{e['stage']} {e['name']}**: {str(said)[:300]}"
    left = len(bad) - SHOWN_FAULTS
    return text + (f"\n- and {left} more" if left > 0 else "")


def models_table(entries: Sequence[Entry]) -> str:
    """Milliseconds of whole models, and the ratios of the other engines' times to ours."""
    found = [e for e in entries if e["stage"] == "models" and "median_ms" in e]
    if not found:
        return ""
    rows = []
    for e in sorted(found, key=lambda e: (e["precision"], e["model"])):
        times = e["median_ms"]
        named = {} if is_rehearsal([e]) else times
        others = ", ".join(f"{n} {t / times['gpucomp']:.2f}" for n, t in named.items() if n != "gpucomp")
        rows.append([e["model"], e["precision"], f"{times['gpucomp']:.4f}", others or "-", f"{e['error']:.1e}"])
    return "## Models\n\n" + table(["model", "precision", "ms", "time of others / ours", "error"], rows)


def timed(entries: Sequence[Entry]) -> list[Entry]:
    return [e for e in entries if e["stage"] == "kernels" and "warm_us" in e]


def ratio(entry: Entry, state: str, *, alone: bool = False) -> float:
    """The best time of torch, torch.compile and CLBlast over ours; NaN if none was timed.

    With ``alone``, our time is that without overlapping launches; the launches of the others never overlap. NaN in a dry
    run too, where our clock is invented and that of the others is real.
    """
    if is_rehearsal([entry]):
        return math.nan
    names = [f"torch_{state}_us", f"torch_compiled_{state}_us", *(["clblast_us"] if state == "warm" else [])]
    others = [entry[k] for k in names if k in entry]
    ours = entry[f"{state}_us"]
    return min(others) / (entry.get(f"{state}_alone_us", ours) if alone else ours) if others else math.nan


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values if v > 0 and math.isfinite(v)]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


def kernels_table(entries: Sequence[Entry]) -> str:
    """Geometric means by family and precision, then the layers with the largest losses."""
    found = timed(entries)
    if not found:
        return ""
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for e in found:
        groups[e["precision"], e["family"]].append(e)
    rows = [
        [
            precision,
            family,
            len(members),
            *(_number(geometric_mean(ratio(e, s, alone=a) for e in members)) for a in (False, True) for s in STATES),
            _number(geometric_mean(e["floor_us"] / e["cold_us"] for e in members)),
            sum(ratio(e, "cold") < 1 for e in members),
        ]
        for (precision, family), members in sorted(groups.items())
    ]
    head = [
        "precision",
        "family",
        "kernels",
        "others/ours warm",
        "cold",
        "warm alone",
        "cold alone",
        "roofline (cold)",
        "losses",
    ]
    text = "## Kernels\n\n" + table(head, rows)
    losses = _losses(found)[:WORST]
    if losses:
        rows = [
            [
                e["label"],
                e["precision"],
                e["engine"],
                f"{e['warm_us']:.2f}",
                f"{e['cold_us']:.2f}",
                f"{e.get('cold_alone_us', e['cold_us']):.2f}",
                _number(ratio(e, "cold")),
                _number(e["floor_us"] / e["cold_us"]),
                e.get("limiter", "?"),
                sum(e["launches"].values()),
                f"{_lost(e):.1f}",
            ]
            for e in losses
        ]
        head = [
            "kernel",
            "precision",
            "engine",
            "warm us",
            "cold us",
            "alone us",
            "others/ours",
            "roofline",
            "limiter",
            "launches",
            "lost us",
        ]
        text += "\n\n### Losses, what costs most first\n\n" + table(head, rows)
    return text


STATES = ("warm", "cold")


def _losses(found: Sequence[Entry]) -> list[Entry]:
    """Kernels that others compute faster, the largest losses first."""
    return sorted((e for e in found if ratio(e, "cold") < 1), key=lambda e: -_lost(e))


def kernels_said(entries: Sequence[Entry]) -> str:
    """The same in sentences: the ratios of each precision, and the layers with the largest losses."""
    found, lines = timed(entries), []
    for precision in dict.fromkeys(e["precision"] for e in found):
        members = [e for e in found if e["precision"] == precision]
        if is_rehearsal(members):
            lines.append(f"{precision}, {len(members)} kernels: rehearsed, so there are no ratios.")
            continue
        warm, cold = (_number(geometric_mean(ratio(e, s) for e in members)) for s in STATES)
        alone = _number(geometric_mean(ratio(e, "cold", alone=True) for e in members))
        lines.append(
            f"{precision}, {len(members)} kernels: others take {warm} times as long with data in cache, {cold} without, "
            f"{alone} where launches do not overlap; {len(_losses(members))} are slower than theirs."
        )
    for e in _losses(found)[:SHOWN_LOSSES]:
        lines.append(
            f"slower: {e['precision']} {e['label']} by {e['engine']}: {e['cold_us']:.1f} us, others/ours "
            f"{_number(ratio(e, 'cold'))}, roofline {_number(e['floor_us'] / e['cold_us'])}."
        )
    bad = [e for e in entries if e["stage"] == "kernels" and not e["ok"]]
    return "\n".join([*lines, *(f"WRONG {e['name']}: {str(e.get('error') or e.get('wrong'))[:200]}" for e in bad)])


def _lost(entry: Entry) -> float:
    """Microseconds that all launches in all models lose to the others."""
    each = entry["cold_us"] * (1 - ratio(entry, "cold"))
    return each * sum(entry["launches"].values())


def predictions(entries: Sequence[Entry]) -> str:
    """The static report's microseconds beside the measured ones, and the gain of choosing by measurement."""
    found = [e for e in timed(entries) if e.get("static_us")]
    if not found:
        return ""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for e in found:
        groups[e["engine"]].append(e)
    rows = []
    for engine, members in sorted(groups.items()):
        over = [e["static_us"] / e["cold_us"] for e in members]
        gain = geometric_mean(e["default_us"] / e["warm_us"] for e in members if e.get("default_us"))
        rows.append([engine, len(members), _number(geometric_mean(over)), _number(min(over)), _number(max(over)),
                     _number(rank_correlation([e["static_us"] for e in members], [e["cold_us"] for e in members])),
                     _number(gain)])  # fmt: skip
    head = ["engine", "kernels", "predicted/measured", "least", "most", "rank correlation", "default/best"]
    text = "## Prediction and measurement\n\n" + table(head, rows)
    worst = sorted(found, key=lambda e: -abs(math.log(e["static_us"] / e["cold_us"])))[:10]
    rows = [
        [e["label"], e["precision"], e["engine"], f"{e['static_us']:.2f}", f"{e['cold_us']:.2f}", e["limiter"]]
        for e in worst
    ]
    head = ["kernel", "precision", "engine", "predicted us", "cold us", "limiter"]
    return text + "\n\n### Furthest off\n\n" + table(head, rows)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation; NaN for fewer than three values."""
    if len(a) < 3:
        return math.nan
    ranks = [[sorted(v).index(x) for x in v] for v in (a, b)]
    if any(len(set(r)) == 1 for r in ranks):
        return math.nan
    return statistics.correlation(*ranks)


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    def line(cells: Sequence[object]) -> str:
        return "| " + " | ".join(str(c).replace("|", "/") for c in cells) + " |"

    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])
