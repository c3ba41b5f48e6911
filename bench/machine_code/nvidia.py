"""NVIDIA's machine code: nvdisasm's listings with control codes, classes of instructions, and the pipes that they take.

Names of instructions and what they do: CUDA Binary Utilities, "Instruction Set Reference". The control code is bits 105 to 125
of an instruction of 128 bits: stall 4, yield 1, write barrier 3, read barrier 3, wait mask 6, reuse 4. NVIDIA does not document
it: the layout is that of turingas (tools/disasm.py) and of CuAssembler (CuSMVersion.py) for sm_70 to sm_86, its meaning that of
maxas (wiki, "Control Codes"). That sm_90 and sm_100 have the same layout is an observation: stalls and waits of their loops make
sense, and those of cuBLAS's kernels add up to the cycles of their math.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bench.machine_code.flow import Control, Instruction, Listing
from gpucomp.device.device import Device

SECTION = re.compile(r"^\.text\.(\S+):$", re.MULTILINE)
LABEL = re.compile(r"^(\.L_\S+):")
LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z]\S*)([^;]*);\s*(?:/\* 0x[0-9a-f]{16} \*/)?$")
SECOND = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/$")  # the upper 64 bits of the instruction in the line before
TARGET = re.compile(r"`\(([^)]+)\)")
JUMPS = frozenset({"BRA", "BRX", "BRXU", "JMP", "JMX", "EXIT", "RET", "CALL", "KILL", "BREAK"})
RETURNS = frozenset({"CALL", "BREAK"})  # the next instruction follows sooner or later

MATRIX = frozenset(
    {"HMMA", "IMMA", "BMMA", "DMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA"}
)
GROUPED = frozenset({"HGMMA", "IGMMA", "QGMMA", "BGMMA"})  # asynchronous, by warpgroups
UNIFORM = frozenset({"UTCHMMA", "UTCIMMA", "UTCQMMA"})  # asynchronous, by one thread for the whole multiprocessor
SIMT = frozenset({"FFMA", "FFMA2", "HFMA2", "DFMA", "IDP"})
LOADS = frozenset({"LDG", "LD", "LDGSTS", "UTMALDG", "UBLKCP", "UBLKPF"})  # of data from global memory
CLASSES: Mapping[str, frozenset[str]] = {
    "shared": frozenset({"LDS", "LDSM", "STS", "STSM", "ATOMS"}),
    "copy": frozenset({"LDGSTS", "UTMALDG", "UTMASTG", "UBLKCP", "UBLKPF", "UTMAPF"}),
    "global": frozenset({"LDG", "STG", "LD", "ST", "RED", "ATOMG", "ATOM", "REDG", "CCTL"}),
    "local": frozenset({"LDL", "STL"}),
    "float": frozenset(
        {
            "FFMA",
            "FFMA2",
            "FADD",
            "FADD2",
            "FMUL",
            "FMUL2",
            "FMNMX",
            "FMNMX3",
            "FSETP",
            "FSEL",
            "FSET",
            "FCHK",
            "HFMA2",
            "HADD2",
            "HMUL2",
            "HMNMX2",
            "HSETP2",
            "HSET2",
            "DADD",
            "DMUL",
            "DFMA",
            "DSETP",
            "F2F",
            "F2I",
            "I2F",
            "I2FP",
            "F2FP",
            "FRND",
        }
    ),
    "special": frozenset({"MUFU"}),
    "shuffle": frozenset({"SHFL", "REDUX", "MOVM"}),
    "integer": frozenset(
        {
            "IMAD",
            "IADD",
            "IADD3",
            "IADD64",
            "LEA",
            "LOP3",
            "LOP",
            "ISETP",
            "SEL",
            "SHF",
            "SHL",
            "SHR",
            "MOV",
            "PRMT",
            "VIADD",
            "VIMNMX",
            "IMNMX",
            "IABS",
            "SGXT",
            "BREV",
            "FLO",
            "POPC",
            "PLOP3",
            "P2R",
            "R2P",
            "CS2R",
            "S2R",
            "S2UR",
            "R2UR",
            "LDC",
            "LDCU",
            "ULDC",
            "IDP",
            "VABSDIFF4",
            "VIADDMNMX",
            "UIADD3",
            "UIADD64",
            "UVIADD",
            "ULOP3",
            "ULOP",
            "UIMAD",
            "USEL",
            "UISETP",
            "ULEA",
            "USHF",
            "UMOV",
            "UPRMT",
            "UPLOP3",
            "UIMNMX",
            "UVIMNMX",
            "USGXT",
            "UFLO",
            "UP2UR",
            "VOTE",
            "VOTEU",
            "ELECT",
            "BMOV",
            "BMSK",
            "UBMSK",
            "LEPC",
            "IMNMX3",
            "VHMNMX",
            "UCGABAR_GET",
            "I2I",
            "I2IP",
        }
    ),
    "sync": frozenset(
        {
            "BAR",
            "DEPBAR",
            "LDGDEPBAR",
            "SYNCS",
            "WARPGROUP",
            "WARPSYNC",
            "MEMBAR",
            "FENCE",
            "BSSY",
            "BSYNC",
            "NOP",
            "ERRBAR",
            "WARPGROUPSET",
            "ARRIVES",
            "UCGABAR_WAIT",
            "UCGABAR_ARV",
            "ACQBULK",
            "PREEXIT",
            "USETMAXREG",
            "UTMACMDFLUSH",
            "NANOSLEEP",
            "YIELD",
            "CGAERRBAR",
            "UTMACCTL",
        }
    ),
    "branch": JUMPS,
}
OTHER = "other"


def _control(high: int) -> Control:
    """From the upper 64 bits of an instruction: bit 105 of all is bit 41 of these."""
    return Control(
        stall=high >> 41 & 15,
        yields=not high >> 45 & 1,  # the bit is 0 where the warp yields
        write=high >> 46 & 7,
        read=high >> 49 & 7,
        waits=high >> 52 & 63,
        reuse=high >> 58 & 15,
    )


def _lines(text: str) -> Iterator[tuple[str, re.Match[str] | None, int]]:
    """The label or the instruction of each line that has one, with the upper half of its encoding; 0 without ``-hex``."""
    lines = text.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if label := LABEL.match(line):
            yield label[1], None, 0
        elif match := LINE.match(line):
            second = SECOND.match(after)
            yield "", match, int(second[1], 16) if second else 0


def kernels(listing: str) -> dict[str, Listing]:
    """The kernels in what ``nvdisasm -c -hex`` prints, by name. Without ``-hex`` there are no control codes."""
    _, *parts = SECTION.split(listing)
    return {name: _kernel(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def _kernel(text: str) -> Listing:
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for label, match, high in _lines(text):
        if match is None:
            labels[label] = len(found)
            continue
        predicate, name, operands = match[1] or "", match[2], match[3].strip()
        opcode = name.partition(".")[0]
        jumps = opcode in JUMPS
        # a branch may also have its condition among its operands: BRA.U UP0, `(.L_x_1)
        conditional = bool(predicate) or (opcode == "BRA" and "," in operands.partition("`")[0])
        found.append(
            Instruction(
                name,
                f"{name} {operands}".strip(),
                predicate,
                tuple(TARGET.findall(operands)) if jumps else (),
                jumps,
                not jumps or conditional or opcode in RETURNS,
                _control(high) if high else None,
            )
        )
    return Listing(_without_padding(found, labels), labels)


def _without_padding(found: list[Instruction], labels: Mapping[str, int]) -> list[Instruction]:
    """A kernel ends with a branch to itself, and with NOPs up to a whole cache line."""
    while found:
        last = found[-1]
        to_itself = last.opcode == "BRA" and [labels.get(name) for name in last.targets] == [len(found) - 1]
        if last.opcode != "NOP" and not to_itself:
            break
        found = found[:-1]
    return found


def stall(one: Instruction) -> int:
    """Cycles that the assembler leaves to an instruction, at least one."""
    return max(1, one.control.stall) if one.control else 1


def math_of(found: Iterable[Instruction]) -> frozenset[str]:
    """Opcodes of the multiply-adds that count as math: those of matrix units if there are any."""
    opcodes = {one.opcode for one in found}
    return frozenset(opcodes & MATRIX or opcodes & SIMT)


def classify(found: Iterable[Instruction], math: frozenset[str]) -> dict[str, int]:
    """How many instructions each class has; a multiply-add that counts as ``math`` is in no other class."""
    named = {name: kind for kind, names in CLASSES.items() for name in names}
    return dict(Counter("math" if one.opcode in math else named.get(one.opcode, OTHER) for one in found))


# --- pipes of one of a multiprocessor's four schedulers -------------------------------------------------------------------

SCHEDULERS = 4
WARP = 32
SHARED_BYTES = 128 // SCHEDULERS  # of shared memory in a cycle: 32 banks of 4 bytes, which four schedulers share
# lanes of a scheduler's pipes: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions", a quarter of a
# multiprocessor's results in a cycle. 32-bit integers and comparisons 64, special functions 16, conversions of types 16
INTEGER_LANES, SPECIAL_LANES = 16, 4
CONVERSIONS = frozenset({"I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV"})
SHAPES = {"16816": (16, 8, 16), "1688": (16, 8, 8), "1684": (16, 8, 4), "16832": (16, 8, 32), "16864": (16, 8, 64)}
SHAPES |= {"8816": (8, 8, 16), "8832": (8, 8, 32), "884": (8, 8, 4)}
WIDTHS = {".128": 16, ".64": 8, ".U16": 2, ".S16": 2, ".U8": 1, ".S8": 1}
MATRICES = re.compile(r"\.M\w*88(?:\.(\d))?")  # LDSM.16.MT88.4: bytes of a lane are four for each 8x8 matrix
TENSOR, FMA, ALU, SPECIAL, MEMORY, NONE = "tensor", "fma", "alu", "special", "memory", "none"


@dataclass(frozen=True, slots=True)
class Pipe:
    """Where an instruction of a warp executes, and for how many cycles it takes that."""

    name: str
    cycles: float


def pipe(one: Instruction, device: Device, *, broadcast: bool = False, product: float = 0.0) -> Pipe:
    """The pipe of ``one`` on ``device``.

    With ``broadcast``, lanes that load 16 bytes each share half of their addresses, as those of products by FFMA do.
    ``product``: cycles of a product by tcgen05, whose size is in no instruction but in a descriptor.
    """
    opcode = one.opcode
    if one.predicate == "!PT":
        return Pipe(NONE, 0)
    if opcode in UNIFORM:
        return Pipe(TENSOR, product)
    if opcode in MATRIX:
        return Pipe(TENSOR, _matrix_cycles(one, device))
    if opcode in ("FFMA", "FADD", "FMUL", "IMAD", "HFMA2", "HADD2", "HMUL2", "FFMA2", "FADD2", "FMUL2", "IDP"):
        lanes = INTEGER_LANES if opcode in ("IMAD", "IDP") else device.fma / SCHEDULERS
        doubled = 2 if opcode in ("FFMA2", "FADD2", "FMUL2") else 1  # two f32 of neighbouring registers
        return Pipe(FMA, doubled * WARP / lanes)
    if opcode == "MUFU" or opcode in CONVERSIONS:
        return Pipe(SPECIAL, WARP / SPECIAL_LANES)
    if opcode in CLASSES["shared"] | CLASSES["global"] | CLASSES["local"] | {"LDGSTS", "SHFL"}:
        return Pipe(MEMORY, _bytes(one, broadcast) * WARP / SHARED_BYTES)
    if opcode in CLASSES["float"] | CLASSES["integer"] and not opcode.startswith("U"):
        return Pipe(ALU, WARP / INTEGER_LANES)
    return Pipe(NONE, 0)


def _bytes(one: Instruction, broadcast: bool) -> int:
    """Bytes that a lane moves."""
    if matrices := MATRICES.search(one.name):
        return 4 * int(matrices[1] or 1)
    found = next((n for suffix, n in WIDTHS.items() if suffix in one.name), 4)
    return found // 2 if broadcast and one.opcode == "LDS" and found == 16 else max(4, found)


def _matrix_cycles(one: Instruction, device: Device) -> float:
    """Cycles of one scheduler's matrix unit: multiply-adds by its share of the device's rate."""
    grouped = re.search(r"\.(\d+)x(\d+)x(\d+)", one.name)
    if grouped:
        macs, share = (
            int(grouped[1]) * int(grouped[2]) * int(grouped[3]) / SCHEDULERS,
            1.0,
        )  # a warp has a quarter of the rows
    else:
        digits = next((part for part in one.name.split(".") if part in SHAPES), None)
        if digits is None:
            return 0.0
        m, n, k = SHAPES[digits]
        macs, share = m * n * k, device.by_warp_share
    kind = "tf32" if ".TF32" in one.name else "s8" if one.opcode in ("IMMA", "IGMMA") else "f16"
    return macs / (device.unit_rate(kind) / SCHEDULERS * share)
