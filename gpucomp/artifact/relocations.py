"""Applies ELF relocations to machine code: those that LLVM emits for code without a C library.

Sources: System V ABI, AMD64 Architecture Processor Supplement, section 4.4; ELF for the Arm 64-bit Architecture
(AAELF64), section 5.7. As there, S is the address of the symbol, A the addend, and P the place that is changed.
"""

from __future__ import annotations

MACHINES = {62: "x86_64", 183: "aarch64"}  # by their numbers in ELF
X86, ARM = MACHINES

Kind = tuple[int, int]  # (machine, relocation type)

ABSOLUTE: dict[Kind, tuple[int, int, int]] = {  # S + A: bytes, the least value, one more than the largest
    (X86, 1): (8, 0, 1 << 64),
    (X86, 10): (4, 0, 1 << 32),
    (X86, 11): (4, -(1 << 31), 1 << 31),
    (ARM, 257): (8, 0, 1 << 64),
    (ARM, 258): (4, -(1 << 31), 1 << 32),
}
RELATIVE: dict[Kind, int] = {  # S + A - P, signed: bytes. PC32, PLT32, GOTPCREL(X), REX_GOTPCRELX, PC64; PREL64, PREL32
    (X86, 2): 4,
    (X86, 4): 4,
    (X86, 9): 4,
    (X86, 41): 4,
    (X86, 42): 4,
    (X86, 24): 8,
    (ARM, 260): 8,
    (ARM, 261): 4,
}
PAGE_KINDS = frozenset({(ARM, 275), (ARM, 276), (ARM, 311)})  # adrp: ADR_PREL_PG_HI21, its unchecked form, ADR_GOT_PAGE
NEAR = (ARM, 274)  # adr: ADR_PREL_LO21
LOW_BITS: dict[Kind, int] = {  # (S + A) & 0xfff in add, ldr and str: log2 of the unit in bytes
    (ARM, 277): 0,
    (ARM, 278): 0,
    (ARM, 284): 1,
    (ARM, 285): 2,
    (ARM, 286): 3,
    (ARM, 299): 4,
    (ARM, 312): 3,
}
BRANCHES: dict[Kind, tuple[int, int]] = {  # (S + A - P) / 4: bits and the lowest of them. b and bl, b.cond and cbz, tbz
    (ARM, 282): (26, 0),
    (ARM, 283): (26, 0),
    (ARM, 280): (19, 5),
    (ARM, 279): (14, 5),
}
GOT = frozenset({(X86, 9), (X86, 41), (X86, 42), (ARM, 311), (ARM, 312)})  # S: a GOT entry with the symbol's address
SIZES: dict[Kind, int] = {
    **{kind: row[0] for kind, row in ABSOLUTE.items()},
    **RELATIVE,
    **dict.fromkeys([*PAGE_KINDS, NEAR, *LOW_BITS, *BRANCHES], 4),
}
PAGE_BITS = 12  # adrp counts 4 KiB pages, whatever the page size of the system


def apply(kind: Kind, current: int, value: int, place: int) -> int | None:
    """The new value of ``current``, the bytes at the address ``place``; ``None`` if ``value`` is out of range.

    ``value`` is S + A, ``place`` is P, and ``kind`` is one of ``SIZES``.
    """
    if kind in ABSOLUTE:
        size, low, high = ABSOLUTE[kind]
        return value % (1 << 8 * size) if low <= value < high else None
    if kind in RELATIVE:
        return _signed(value - place, 8 * RELATIVE[kind])
    if kind in LOW_BITS:
        unit = LOW_BITS[kind]
        low = value % (1 << PAGE_BITS)
        return None if low % (1 << unit) else _put(current, low >> unit, 12, 10)
    if kind in BRANCHES:
        bits, at = BRANCHES[kind]
        steps = _signed((value - place) // 4, bits)
        return None if steps is None or (value - place) % 4 else _put(current, steps, bits, at)
    pages = (value >> PAGE_BITS) - (place >> PAGE_BITS) if kind in PAGE_KINDS else value - place
    steps = _signed(pages, 21)
    return None if steps is None else _put(_put(current, steps & 3, 2, 29), steps >> 2, 19, 5)


def _signed(value: int, bits: int) -> int | None:
    """``value`` in two's complement; ``None`` if it does not fit ``bits`` bits."""
    return value % (1 << bits) if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _put(current: int, value: int, bits: int, at: int) -> int:
    return current & ~(((1 << bits) - 1) << at) | value << at
