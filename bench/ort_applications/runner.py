"""Runs one application in its own environment, on onnxruntime or on ``gpucomp.ort``, and prints answers and times as JSON.

python -m bench.ort_applications.runner NAME onnxruntime|gpucomp RUNS
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from typing import Any

MARK = "ANSWERS "


def onnxruntime_with_exact_sums() -> Any:
    """onnxruntime, whose sessions add products of bytes exactly on processors without VNNI, as gpucomp does."""
    import onnxruntime

    class SessionOptions(onnxruntime.SessionOptions):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.add_session_config_entry("session.x64quantprecision", "1")

    class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc, name-defined]
        def __init__(self, path_or_bytes: Any, sess_options: Any = None, *given: Any, **named: Any) -> None:
            super().__init__(path_or_bytes, sess_options or SessionOptions(), *given, **named)

    onnxruntime.SessionOptions, onnxruntime.InferenceSession = SessionOptions, InferenceSession
    return onnxruntime


def main(name: str, engine: str, runs: int) -> None:
    if engine == "gpucomp":
        import gpucomp.ort

        gpucomp.ort.install()
    else:
        onnxruntime_with_exact_sums()
    from bench.ort_applications.applications import APPLICATIONS

    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(sys.stderr):
        begin = time.perf_counter()
        calls = APPLICATIONS[name].make()
        answers = [calls[0]()]
        first = time.perf_counter() - begin
        answers += [call() for call in calls[1:]]
        times = []
        for _ in range(runs):
            begin = time.perf_counter()
            for call in calls:
                call()
            times.append(time.perf_counter() - begin)
    seen = sys.modules["onnxruntime"]
    told = {"module": seen.__name__, "version": seen.__version__, "first_s": first, "run_s": times}
    print(MARK + json.dumps({**told, "answers": answers}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
