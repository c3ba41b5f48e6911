"""Cubins that hold no instructions: as much of the file as a driver reads before a launch."""

from __future__ import annotations

import struct
from collections.abc import Sequence

EM_CUDA, PROGBITS, STRINGS, NOBITS = 190, 1, 3, 8
HEADER, SECTION = 64, 64  # bytes of an ELF file's header and of a section's
KPARAM_INFO, MAX_THREADS = 0x17, 0x05  # EIATTR_ of .nv.info
WORDS = 4  # EIFMT_SVAL


def cubin(
    name: str,
    parameters: Sequence[int],
    *,
    arch: int = 80,
    static_shared: int = 0,
    registers: int = 32,
    max_threads: int = 1024,
) -> bytes:
    """A file for ``sm_<arch>`` with the kernel ``name``, whose ``parameters`` are given in bytes."""
    info, offset = b"", 0
    for ordinal, size in enumerate(parameters):
        offset = -(-offset // min(size, 64)) * min(size, 64)
        info += struct.pack("<BBHIHHI", WORDS, KPARAM_INFO, 12, 0, ordinal, offset, size << 18 | 0x1F000)
        offset += size
    info += struct.pack("<BBHIII", WORDS, MAX_THREADS, 12, max_threads, 1, 1)
    reserved = 1024 if arch >= 90 else 0  # what the system keeps of a block's shared memory
    sections = [
        (f".text.{name}", PROGBITS, b"\0" * 16, 16, registers << 24),
        (f".nv.info.{name}", PROGBITS, info, len(info), 0),
        (f".nv.shared.{name}", NOBITS, b"", static_shared + reserved, 0),
    ]
    names = b"\0" + b"".join(s[0].encode() + b"\0" for s in sections) + b".shstrtab\0"
    sections.append((".shstrtab", STRINGS, names, len(names), 0))
    table, body, at = bytes(SECTION), b"", HEADER
    for label, kind, content, size, extra in sections:
        place = names.index(label.encode() + b"\0")
        table += struct.pack("<IIQQQQIIQQ", place, kind, 0, 0, at, size, 0, extra, 16, 0)
        body, at = body + content, at + len(content)
    ident = b"\x7fELF" + bytes([2, 1, 1, 0x33, 7]) + bytes(7)
    count = len(sections) + 1
    return (
        ident
        + struct.pack("<HHIQQQIHHHHHH", 2, EM_CUDA, 1, 0, 0, at, arch, HEADER, 0, 0, SECTION, count, count - 1)
        + body
        + table
    )


def ptx(name: str, parameters: Sequence[int], arch: str) -> bytes:
    """The text of such a kernel."""
    listed = ",\n".join(
        f"  .param .u64 {name}_{i}" if size == 8 else f"  .param .align 128 .b8 {name}_{i}[{size}]"
        for i, size in enumerate(parameters)
    )
    return (
        f".version 8.0\n.target {arch}\n.address_size 64\n.visible .entry {name}(\n{listed}\n)\n{{ ret; }}\n".encode()
    )
