"""AMD's machine code, as clang prints it: its flow, classes of instructions, and a bound of how busy the math can be.

Names of instructions and what they do: AMD's "CDNA2" and "RDNA3" Instruction Set Architecture reference guides. There are no
control codes: waits are instructions (s_waitcnt), and a SIMD issues in order for each wave.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from bench.machine_code.flow import Instruction, Listing
from gpucomp.device.device import Device
from gpucomp.targets.amdgcn import code_of

LABEL = re.compile(r"^(\.LBB\d+_\d+):")
LINE = re.compile(r"^\t([a-z][a-z0-9_]+)(?:[ \t]+([^;]*))?")
NOT_CODE = re.compile(r"^\t\.")
MATRIX = ("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")
SIMT = ("v_fma", "v_fmac", "v_mac_", "v_pk_fma", "v_pk_mad", "v_dot", "v_dual_fmac")
LOADS = ("global_load", "buffer_load", "flat_load")
CLASSES = (  # by how the name begins; the first that fits counts
    ("shared", ("ds_",)),
    ("global", ("global_", "buffer_", "flat_")),
    ("local", ("scratch_",)),
    ("special", ("v_exp", "v_log", "v_rcp", "v_rsq", "v_sqrt", "v_sin", "v_cos")),
    ("sync", ("s_waitcnt", "s_barrier", "s_nop", "s_delay_alu", "s_sleep")),
    ("branch", ("s_branch", "s_cbranch", "s_endpgm", "s_setpc", "s_swappc")),
    (
        "float",
        (
            "v_add_f",
            "v_sub_f",
            "v_mul_f",
            "v_max_f",
            "v_min_f",
            "v_pk_add_f",
            "v_pk_mul_f",
            "v_fma",
            "v_fmac",
            "v_dual_",
        ),
    ),
    ("integer", ("v_", "s_")),
)
# lanes of a SIMD, lanes of a wave, SIMDs of a compute unit, and whether matrix products run beside other arithmetic: CDNA has a
# matrix unit ("AMD matrix cores", AMD lab notes), RDNA3 multiplies matrices in the lanes themselves (RDNA3 ISA, 7.9)
UNITS = {"gfx90a": (16, 64, 4, True), "gfx942": (16, 64, 4, True), "gfx1100": (32, 32, 2, False)}
SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)")


def kernel(assembly: str) -> Listing:
    """The single kernel in what clang prints."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in code_of(assembly).splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(found)
        elif not NOT_CODE.match(line) and (match := LINE.match(line)):
            name, operands = match[1], (match[2] or "").strip()
            jumps = name.startswith(("s_branch", "s_cbranch", "s_endpgm", "s_setpc"))
            targets = (operands,) if jumps and operands.startswith(".LBB") else ()
            goes_on = not jumps or name.startswith("s_cbranch")
            found.append(Instruction(name, f"{name} {operands}".strip(), "", targets, jumps, goes_on))
    return Listing(found, labels)


def math_of(found: Iterable[Instruction]) -> frozenset[str]:
    """Names of the multiply-adds that count as math: those of matrix units if there are any."""
    names = {one.name for one in found}
    matrix = {name for name in names if name.startswith(MATRIX)}
    return frozenset(matrix or {name for name in names if name.startswith(SIMT)})


def classify(found: Iterable[Instruction], math: frozenset[str]) -> dict[str, int]:
    """How many instructions each class has; a multiply-add that counts as ``math`` is in no other class."""

    def kind(name: str) -> str:
        return "math" if name in math else next((k for k, starts in CLASSES if name.startswith(starts)), "other")

    return dict(Counter(kind(one.name) for one in found))


def bound(body: Sequence[Instruction], math: frozenset[str], device: Device, arch: str) -> float:
    """The most that the math can be busy in a loop: its cycles over those of all vector arithmetic that shares its pipe.

    Memory, waits and scalar instructions are taken to cost nothing, so the figure is an upper bound.
    """
    lanes, wave, simds, beside = UNITS[arch]
    each = wave / lanes
    vector = [one for one in body if one.name.startswith("v_")]
    work = sum(_cycles(one, device, simds, each) for one in vector if one.name in math)
    others = each * sum(one.name not in math for one in vector)
    if not work:
        return 0.0
    matrix = any(name.startswith(MATRIX) for name in math)
    # beside a matrix unit, other instructions of other waves issue; each product takes one slot of issue itself
    slots = others + each * sum(one.name in math for one in vector)
    return work / max(work, slots) if matrix and beside else work / (work + others)


def _cycles(one: Instruction, device: Device, simds: int, each: float) -> float:
    shape = SHAPE.search(one.name)
    if not one.name.startswith(MATRIX) or shape is None:
        return each
    m, n, k = map(int, shape.groups())
    kind = "s8" if "i8" in one.name or "iu8" in one.name else "bf16" if "bf16" in one.name else "f16"
    kind = "f32" if one.name.endswith(f"x{k}f32") or one.name.endswith(f"x{k}_f32") else kind
    return m * n * k / (device.unit_rate(kind) / simds)
