"""The applications' environment: one virtual environment, with onnxruntime and what gpucomp needs, and each application."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import packages
from bench.ort_applications.applications import APPLICATIONS
from bench.ort_applications.runner import MARK

ROOT = Path(__file__).parents[2]
OWN = ("numpy", "ml_dtypes", "onnx", "jinja2", "llvmlite", "click", "rich", "onnxruntime")  # of the versions here


class Failed(Exception):
    """A process ended without answers; the text is the last line that it wrote."""


def python() -> Path:
    return packages.folder() / "ort-applications" / "bin" / "python"


def set_up(names: Sequence[str]) -> dict[str, str]:
    """Install what ``names`` need, unless that was done before. The reason for each that cannot be installed."""
    place = python().parents[1]
    if not python().exists():
        venv.create(place, with_pip=True)
        _install([f"{name}=={metadata.version(name)}" for name in OWN])
    failures = {}
    for name in names:
        stamp, wanted = place / f"{name}.installed", APPLICATIONS[name]
        told = json.dumps([wanted.packages, wanted.needs])
        if stamp.exists() and stamp.read_text(encoding="utf-8") == told:
            continue
        try:
            _install(wanted.needs)
            _install(["--no-deps", *wanted.packages])
        except subprocess.CalledProcessError as error:
            failures[name] = f"cannot be installed: {_last(error.stderr)}"
        else:
            stamp.write_text(told, encoding="utf-8")
    return failures


def _install(what: Sequence[str]) -> None:
    if what:
        command = [str(python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
        subprocess.run(command, check=True, capture_output=True, text=True)


def answers(name: str, engine: str, runs: int, cores: Sequence[int], cache: Path) -> dict[str, Any]:
    """What ``runner`` prints, in a process that may use ``cores`` alone. Raises ``Failed``."""
    variables = (f"PYTHONPATH={ROOT}", f"GPUCOMP_CACHE={cache}", f"OMP_NUM_THREADS={len(cores)}")
    done = subprocess.run(
        ["env", *variables, str(python()), "-m", "bench.ort_applications.runner", name, engine, str(runs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not lines:
        raise Failed(_last(done.stderr))
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    return found


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"{Path(sys.executable).name} ended without a word"
