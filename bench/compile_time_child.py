"""One process of ``bench.compile_time``, which prints its figures as JSON.

    python -m bench.compile_time_child FOLDER TARGET [--passes]

It begins with what the worker of a peer has imported: whatever else a compilation needs counts.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from bench.cpu.adapters import MODEL
from bench.cpu.worker import read_inputs


def child(folder: Path, target: str, passes: bool) -> dict[str, Any]:
    """Compile the model in ``folder`` and run it once, in this process; what that took."""
    given = read_inputs(folder)
    begin = time.perf_counter()
    import gpucomp
    from gpucomp.stages import Stages

    imported = time.perf_counter()
    stages = Stages()
    each: dict[str, float] = {}

    def note(record: Any) -> None:
        each[record.name] = each.get(record.name, 0.0) + record.ms

    exe = gpucomp.compile(folder / MODEL, target=target, progress=stages, observer=note if passes else None)
    found, compiled = stages.until_now(), time.perf_counter()
    exe.run(given)
    ran = time.perf_counter()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    first = "import compiler" if len(found) > 1 else "cache"
    named = {first if stage.name == "start" else stage.name: stage for stage in found}
    answer = {
        "wall": ran - begin,
        "cpu": sum(one.ru_utime + one.ru_stime for one in used),
        "peak_mb": used[0].ru_maxrss / 1024,
        "kernels": len(exe.plan.launches),
        "stages": {"import": imported - begin, **{k: s.wall for k, s in named.items()}, "first run": ran - compiled},
        "stages_cpu": {name: stage.cpu for name, stage in named.items()},
        "passes": each,
    }
    begin = time.perf_counter()
    gpucomp.compile(folder / MODEL, target=target)
    return answer | {"again": time.perf_counter() - begin}


if __name__ == "__main__":
    print(json.dumps(child(Path(sys.argv[1]), sys.argv[2], "--passes" in sys.argv[3:])))
