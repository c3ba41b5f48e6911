"""Coverage-guided fuzzing of what reads files, with atheris: ``make fuzz-loader MINUTES=10``.

    python -m tests.hostile.fuzz_loader loader|artifact|records MINUTES FOLDER [libFuzzer's options]

Any end but success and an error of gpucomp's own is a finding: another exception, a death, more than 5 s or 2 GiB. Its
bytes stay in FOLDER, where the corpus of a run is kept for the next one too.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gpucomp"]):
    import gpucomp.frontend.onnx
    import gpucomp.runtime.artifact
    import gpucomp.schedule.records
    import gpucomp.tuning.recorded  # noqa: F401  # all of them are imported here so that they are instrumented

from tests.hostile.seeds import TARGETS, Folder, outcome


def main(target: str, minutes: float, place: Path, options: list[str]) -> None:
    seeds, attempt = TARGETS[target]
    corpus = place / target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds()):
        (corpus / f"seed{number}").write_bytes(data)
    kept = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, kept)
    folder = Folder(Path(kept))

    def one(data: bytes) -> None:
        outcome(attempt, folder, data)

    limits = [f"-max_total_time={int(60 * minutes)}", "-timeout=5", "-rss_limit_mb=2048", "-max_len=65536"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={place}/{target}-", *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
