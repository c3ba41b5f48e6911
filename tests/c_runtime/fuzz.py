"""Coverage-guided fuzzing of what opens files in C, with libFuzzer: ``make fuzz-native MINUTES=10``.

    python -m tests.c_runtime.fuzz MINUTES FOLDER [libFuzzer's options]

A crash, a report of AddressSanitizer or UBSan, more than 5 s or 2 GiB is a finding. Its bytes stay in FOLDER, where the
corpus of a run is kept for the next one too.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpucomp.artifact import container
from testing.c_library import CPU_SOURCES, NATIVE, build
from tests.c_runtime.models import any_size, filtered, fixed, generator

HERE = Path(__file__).parent
FILES = [HERE / "fuzz_open.c", HERE / "mutations.c", *CPU_SOURCES]
# devices have checks of their own, behind drivers that are not here
RESIDENT = 2048  # MiB
OPTIONS = ("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1", f"-I{NATIVE / 'src'}")
COMPILER = "clang-19"
MANIFEST = "manifest.json"
GROWTH = 1024  # spaces behind a manifest, which may grow into them


def small(path: Path) -> bytes:
    """A compiled model without the texts of its sources, which C does not read, and with a manifest that can grow."""
    members = {name: bytes(view) for name, view in container.read(path, sealed=MANIFEST).items()}
    description = json.loads(members[MANIFEST])
    for name in members:
        if name.startswith("sources/"):
            members[name] = b""
            description["members"][name] = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    members[MANIFEST] = json.dumps(description, separators=(",", ":")).encode() + b" " * GROWTH
    smaller = path.with_suffix(".small")
    container.write(smaller, {name: [view] for name, view in members.items()}, durable=False)
    return smaller.read_bytes()


def seeds() -> Iterator[bytes]:
    """Compiled models of each kind: fixed and any sizes, loops, states, quantized."""
    paths = [fixed(name)[1] for name in ("straight", "digits", "int8", "lstm")]
    return map(small, (*paths, any_size()[1], generator()[1], filtered()[1]))


def available() -> bool:
    """Whether there is clang-19 with libFuzzer."""
    if not shutil.which(COMPILER):
        return False
    told = subprocess.run([COMPILER, "-print-resource-dir"], capture_output=True, text=True, timeout=60, check=True)
    return any(Path(told.stdout.strip()).rglob("libclang_rt.fuzzer*"))


def main(minutes: float, place: Path, options: Sequence[str] = ()) -> int:
    corpus = place / "native"
    corpus.mkdir(parents=True, exist_ok=True)
    longest = 0
    for number, data in enumerate(seeds()):
        (corpus / f"seed{number}").write_bytes(data)
        longest = max(longest, len(data))
    program = build("fuzz_open", FILES, *OPTIONS, compiler=COMPILER)
    # Linux keeps the peak of resident memory over exec: libFuzzer would count that of this process as its own
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    memory = f"-rss_limit_mb={RESIDENT + inherited}"
    limits = [
        f"-max_total_time={int(60 * minutes)}",
        "-timeout=5",
        memory,
        f"-malloc_limit_mb={RESIDENT}",
        f"-max_len={longest}",
    ]
    command = [program, *limits, f"-artifact_prefix={place}/native-", *options, str(corpus)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
