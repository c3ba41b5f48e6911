"""The tcgen05 engine, its target and schedules, for tests."""

from __future__ import annotations

from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.targets import cuda

FAMILY = FAMILIES["contraction/tcgen05"]
TARGET = cuda.manifest("sm_100")
TILE = {"tile_m": 64, "tile_n": 32, "stages": 2, "splits": 1, "overlap": 0, "multicast": 0, "tma_store": 0, "turns": 1}
WIDE = TILE | {"tile_m": 128}
TWO = TILE | {"tile_m": 256}  # two products beside each other
PAIR = WIDE | {"multicast": 3}  # two work-groups multiply as one
TMA_STORE = TILE | {"tma_store": 1}
