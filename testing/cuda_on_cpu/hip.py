"""What stands in front of a kernel of HIP on the CPU: the builtins of AMD's compiler, HIP's own prelude, matrix instructions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gpucomp.targets import hip, hip_text

HERE = Path(__file__).parent
BUILTINS, KERNELS = HERE / "hip_builtins.h", HERE / "hip_kernels.h"


@cache
def header(arch: str) -> str:
    """The text for an instruction set. Between the harness's own headers it has what ``gpucomp`` gives AMD's compiler."""
    number = arch.removeprefix("gfx")
    wave = hip.manifest(arch).limits.warp
    return "\n".join(
        [
            f"#define GC_WAVE {wave}\n#define GC_GFX 0x{number}",
            BUILTINS.read_text(),
            hip_text.prelude(),
            hip_text.mathematics(circular=True),
            KERNELS.read_text(),
        ]
    )
