"""What the template of attention on AMD's matrix cores reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import plain
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import var
from gpucomp.ir.types import BF16, F16, F32, DType
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.copyable import stored
from gpucomp.kernels_templates.attention.emit import emit_shared, place
from gpucomp.kernels_templates.attention.mma.emit import copiers, walked
from gpucomp.kernels_templates.contraction.amd.emit import ELEMENTS, Instruction, instruction_of

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.amd.space import (
        AmdAttentionProblem,
        AmdAttentionSchedule,
        AmdAttentionSizes,
    )

QUAD = 4  # neighbouring results of a lane; keys that a work-item turns at a time
WIDE = "mfma_wide"  # the feature of instructions that take eight elements of two bytes of each lane: two such quads
NARROW = {F16: "(_Float16){}", BF16: "gc_weight_to_bf16({})", F32: "{}"}  # a weight as an operand's element
LIFTED = 10  # f16's weights are multiplied by 2 to this power: their sum stays in range also where scores are not exact
FOR_TWO_WAVES = 240  # most registers, as the space counts them, of a lane of which a SIMD is to hold two waves


def emit_amd_attention(
    kernel: Kernel[Attention],
    printer: CPrinter,
    s: AmdAttentionSchedule,
    p: AmdAttentionProblem,
    derived: AmdAttentionSizes,
) -> Mapping[str, Any]:
    """What ``kernels_templates/attention/amd/kernel.j2`` reads; each hook is described there."""
    body, dialect = kernel.body, printer.dialect
    batch, threads = var("batch", plain(max(1, p.batch))), derived.threads
    dtype = stored(body.q).dtype
    instruction = instruction_of(dtype, s.wave, s.block, printer.features)
    out_vector = derived.out_vector if instruction.beside else 1  # RDNA3's lanes have every second value
    shared = emit_shared(
        kernel,
        printer,
        batch,
        p,
        tile_m=derived.tile_m,
        tile_n=s.tile_n,
        splits=s.splits,
        out_vector=out_vector,
        in_log2=True,
        scaled_once=True,
    )
    tiles = copiers(kernel, printer, batch, s.tile_n, p, derived)
    scalar, chunk = ELEMENTS[dtype].chunk
    v_accesses = tiles["v"].fast * s.tile_n // QUAD
    return {
        **shared,
        **tiles,
        "out_vector": out_vector,
        "v_accesses": v_accesses,
        "v_steps": -(-v_accesses // threads),
        "instruction": instruction,
        "result_row": instruction.row,
        "exchanges": [mask for mask in (16, 32) if s.block <= mask < s.wave],
        "lifted": _lifted(dtype, bool(shared["in_log2"])),
        # clang keeps accumulators in a file of their own otherwise, from which each softmax moves them
        "two_waves": "mfma_1k" in printer.features and derived.registers <= FOR_TWO_WAVES,
        "word": dialect.lane_type(scalar),
        "chunk": chunk,
        "chunk_type": dialect.vector_type(scalar, chunk),
        "sums_type": dialect.vector_type("float", instruction.sums),
        **_first_product(instruction, scalar, chunk, derived.groups),
        **_second_product(_second(instruction, s, dtype, printer, derived), dtype, scalar, derived.groups),
        **place(p, derived.tiles_m),
        **walked(s.splits, p, shared["stops_early"]),
    }


def _lifted(dtype: DType, in_log2: bool) -> str:
    """What is added to the exponent of a weight, in the units of scores; empty for nothing."""
    if dtype is not F16:
        return ""
    return f"{LIFTED}.0f" if in_log2 else f"{LIFTED * math.log(2):.6f}f"


def _first_product(instruction: Instruction, scalar: str, chunk: int, groups: int) -> dict[str, Any]:
    """Keys times queries. Groups of lanes hold chunks side by side, or each lane all of them."""
    kind = f"gc_{scalar}{chunk}"
    keys = f"*reinterpret_cast<const {kind}*>(from)"
    if instruction.beside:
        found = {
            "chunk_of_query": f"c * {groups} + my_group",
            "chunk_of_key": f"(c * {groups} + my_group) * {chunk}",
            "of_keys": keys,
            "of_queries": "q_part[b][c]",
        }
    else:
        found = {
            "chunk_of_query": "c",
            "chunk_of_key": f"c * {2 * chunk}",
            "of_keys": f"gc_concatenated({keys}, *reinterpret_cast<const {kind}*>(from + {chunk}))",
            "of_queries": "gc_concatenated(q_part[b][2 * c], q_part[b][2 * c + 1])",
        }
    return {
        **found,
        "chunks_of_lane": instruction.chunks,
        "fragment_type": f"gc_{scalar}{chunk * instruction.chunks}",
        "score_products": [f"s[b][j] = {text};" for text in instruction.calls("k_part", "q_now", "s[b][j]")],
    }


def _second(
    first: Instruction, s: AmdAttentionSchedule, dtype: DType, printer: CPrinter, derived: AmdAttentionSizes
) -> Instruction:
    """The instruction of the second product: that of the first, if a stage has as many keys as it takes."""
    enough = s.tile_n >= 2 * QUAD * derived.groups
    return first if enough else instruction_of(dtype, s.wave, s.block, printer.features - {WIDE})


def _second_product(instruction: Instruction, dtype: DType, scalar: str, groups: int) -> dict[str, Any]:
    """Values times weights: a lane's results of the first product are the right operand, in pieces.

    MFMA   four neighbouring keys a piece; groups of lanes have the next four
    CDNA4  two such pieces at a time, which may be of two neighbouring blocks of scores
    RDNA4  eight of 16 keys
    RDNA3  all of 16 keys; a lane has every second one, its partner the others
    """

    def weights(first: str, count: int, block: str = "j") -> str:
        return ", ".join(NARROW[dtype].format(f"s[b][{block}][{first}{i}]") for i in range(count))

    of_mfma = instruction.sums % 8 != 0 or instruction.size == 32
    wide = of_mfma and dtype.nbytes == 2 and len(instruction.parts) == 1
    held = QUAD if of_mfma and not wide else 8
    kind, quad = f"gc_{scalar}{held}", f"gc_{scalar}{QUAD}"
    used, key_at, run, together = instruction, "place + i", held, 1
    values = f"*reinterpret_cast<const {kind}*>(from)"
    if wide:
        together = max(1, held // instruction.sums)
        at = f" + piece * {held * groups} + my_group * {QUAD}"
        both = weights("", QUAD), weights("", QUAD, "j + 1")
        lines = [f"w_part[b] = {kind}{{{', '.join(both) if together > 1 else weights('piece * 8 + ', held)}}};"]
        reads = (f"*reinterpret_cast<const {quad}*>(from{place})" for place in ("", f" + {QUAD * groups}"))
        values = f"gc_concatenated({', '.join(reads)})"
    elif of_mfma:
        # parts are of a chunk of 16 bytes, which has eight elements of two bytes
        parts = {1: ("@",), 2: ("@.lo", "@.hi"), 4: instruction.parts}
        used = replace(instruction, parts=parts[len(instruction.parts) * QUAD // (16 // dtype.nbytes)])
        at = f" + piece * {QUAD * groups} + my_group * {QUAD}"
        lines = [f"w_part[b] = {kind}{{{weights('piece * 4 + ', QUAD)}}};"]
    elif instruction.beside:
        at, lines = f" + my_group * {held}", [f"w_part[b] = {kind}{{{weights('', held)}}};"]
    else:
        at, run, key_at = "", 2 * held, "place / 16 * 16 + place % 8 * 2 + place / 8 % 2 + 2 * i"
        values = f"gc_concatenated({values}, *reinterpret_cast<const {kind}*>(from + {held}))"
        halves = ("my_group ? others : mine", "my_group ? mine : others")
        joined = ", ".join(f"__builtin_bit_cast({kind}, {half})" for half in halves)
        lines = [
            f"const {kind} own = {{{weights('', held)}}};",
            "const gc_int4 mine = __builtin_bit_cast(gc_int4, own);",
            f"const gc_int4 others = {{{', '.join(f'gc_wave_xor<16>(mine[{i}])' for i in range(4))}}};",
            f"w_part[b] = gc_concatenated({joined});",
        ]
    return {
        "blocks_together": together,
        "pieces": together * instruction.sums // held,
        "piece_type": f"gc_{scalar}{run}",
        "place_of_piece": at,
        "key_at": key_at,
        "of_weights": lines,
        "of_values": values,
        "value_products": [f"acc[b][f] = {text};" for text in used.calls("v_part", "w_part[b]", "acc[b][f]")],
    }
