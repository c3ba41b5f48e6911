"""The precisions that a user can ask for. ``gpucomp.kernel.passes.precision`` says what each does."""

from __future__ import annotations

PRECISIONS = ("fp32", "tf32", "3xtf32", "fp16", "bf16", "mixed")
STATES_PRECISIONS = ("fp32", "fp16", "bf16")  # of what a context keeps from run to run
