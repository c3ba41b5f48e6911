"""Loads relocatable ELF objects (x86-64, aarch64) into executable memory. Memory is never writable and executable at once.

Everything in an object is checked before it is used. An object that is damaged, or that needs something unknown, raises
``ArtifactError``. The caller must make sure that the code inside is harmless.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from collections.abc import Iterator, Mapping

from gpucomp.artifact.relocations import GOT, MACHINES, SIZES, apply
from gpucomp.errors import ArtifactError, DeviceError
from gpucomp.lazy_dataclass import dataclass

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")

RELOCATABLE = 1
SYMTAB, STRTAB, RELATIONS, NOBITS, REL = 2, 3, 4, 8, 9
WRITE, ALLOC, EXECUTE, TLS = 1, 2, 4, 0x400
UNDEFINED, ABSOLUTE, COMMON, SPECIAL = 0, 0xFFF1, 0xFFF2, 0xFF00
PAGE = mmap.PAGESIZE
LARGEST = 1 << 30
READ_PROTECTION, EXECUTE_PROTECTION = 1, 4
GLOBAL = 1
LINKED = {243: "riscv64"}  # objects for these are for a linker of others: nothing here relocates or runs them


def _damaged(what: str) -> ArtifactError:
    return ArtifactError(f"machine code: {what}", code="GPC7010")


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    section: int
    value: int
    kind: int
    binding: int
    size: int


class _Object:
    """One parsed object: sections and symbols. Every offset has been checked to be inside the file."""

    def __init__(self, data: bytes, machines: Mapping[int, str] = MACHINES) -> None:
        self.data = data
        if len(data) < HEADER.size or len(data) > LARGEST:
            raise _damaged(f"{len(data)} bytes are not an object file")
        fields = HEADER.unpack_from(data)
        identity, kind, machine, sections_at = fields[0], fields[1], fields[2], fields[6]
        entry, count, names = fields[11:]
        if identity[:6] != b"\x7fELF\x02\x01":
            raise _damaged("not a 64-bit little-endian ELF file")
        if kind != RELOCATABLE or machine not in machines:
            known = " or ".join(machines.values())
            raise _damaged(f"type {kind} for machine {machine}; expected a relocatable object for {known}")
        self.machine = machine
        if entry != SECTION.size or not 0 < count < SPECIAL or sections_at + count * SECTION.size > len(data):
            raise _damaged("the section table lies outside the file")
        raw = [SECTION.unpack_from(data, sections_at + i * SECTION.size) for i in range(count)]
        self.sections = [_Section("", *r[1:3], *r[4:]) for r in raw]
        for s in self.sections:
            if s.kind != NOBITS and s.offset + s.size > len(data):
                raise _damaged("a section lies outside the file")
            if s.size > LARGEST or s.align > PAGE or s.align & (s.align - 1):
                raise _damaged("section of impossible size or alignment")
        if names >= count:
            raise _damaged("the section names lie outside the file")
        self.sections = [
            _Section(self._string(names, r[0]), s.kind, s.flags, s.offset, s.size, s.link, s.info, s.align, s.entry)
            for r, s in zip(raw, self.sections, strict=True)
        ]
        self.symbols = list(self._symbols())

    def section(self, index: int) -> _Section:
        if not 0 <= index < len(self.sections):
            raise _damaged(f"section {index} does not exist")
        return self.sections[index]

    def content(self, section: _Section) -> bytes:
        return self.data[section.offset : section.offset + section.size]

    def _string(self, table: int, at: int) -> str:
        section = self.section(table)
        if section.kind != STRTAB or at >= section.size:
            raise _damaged("a name lies outside its table")
        stop = self.data.find(b"\0", section.offset + at, section.offset + section.size)
        if stop < 0:
            raise _damaged("a name has no end")
        return self.data[section.offset + at : stop].decode("ascii", "backslashreplace")

    def _symbols(self) -> Iterator[_Symbol]:
        tables = [s for s in self.sections if s.kind == SYMTAB]
        if len(tables) > 1:
            raise _damaged("it has more than one symbol table")
        for table in tables:
            if table.size % SYMBOL.size:
                raise _damaged("the size of the symbol table is not a multiple of its entries")
            for name, info, _, section, value, size in SYMBOL.iter_unpack(self.content(table)):
                if section >= SPECIAL and section not in (ABSOLUTE, COMMON):
                    raise _damaged(f"symbol in special section {section}")
                yield _Symbol(self._string(table.link, name), section, value, info & 15, info >> 4, size)


def undefined_symbols(data: bytes) -> list[str]:
    """The names of the symbols that an object needs from elsewhere. It may be for a machine of ``LINKED`` too."""
    symbols = _Object(data, MACHINES | LINKED).symbols
    return sorted(s.name for s in symbols if s.name and s.section in (UNDEFINED, COMMON))


def split(blob: bytes) -> list[bytes]:
    """The objects of a blob, each of which follows its length in eight bytes."""
    objects, at = [], 0
    while at < len(blob):
        size = int.from_bytes(blob[at : at + 8], "little")
        if at + 8 > len(blob) or size > len(blob) - at - 8:
            raise _damaged("object longer than the file")
        objects.append(blob[at + 8 : at + 8 + size])
        at += 8 + size
    return objects


def _round_up(value: int, to: int) -> int:
    return -(-value // to) * to


class Image:
    """Objects in executable memory. ``address(name)`` is where a global function starts. It is valid while the image lives.

    ``machine`` is the processor that the objects are for, as ``platform.machine()`` names it.
    """

    def __init__(self, blob: bytes) -> None:
        objects = [_Object(data) for data in split(blob)]
        if not objects:
            raise _damaged("empty")
        if len({o.machine for o in objects}) > 1:
            raise _damaged("objects for different machines")
        self.machine = MACHINES[objects[0].machine]
        places, text_size, data_size = self._layout(objects)
        got = sum((o.machine, r[1] & 0xFFFFFFFF) in GOT for o in objects for _, r in _relocations(o))
        got_at = text_size + data_size
        total = _round_up(max(got_at + 8 * got, 1), PAGE)
        if total > LARGEST:
            raise _damaged(f"{total} bytes of code, at most {LARGEST} are supported")
        self._memory = mmap.mmap(-1, total, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._symbols: dict[str, int] = {}
        self._data: dict[str, tuple[int, int]] = {}
        self._got_next = got_at
        self._entries: dict[int, int] = {}
        for o, at in zip(objects, places, strict=True):
            for index, place in at.items():
                section = o.sections[index]
                if section.kind != NOBITS:
                    self._memory[place : place + section.size] = o.content(section)
            self._relocate(o, at)
            self._export(o, at, text_size)
        self._protect(text_size, total)

    def address(self, name: str) -> int:
        """Raises ``ArtifactError`` when no object defines ``name``."""
        if name not in self._symbols:
            raise _damaged(f"no function {name!r}")
        return self._base + self._symbols[name]

    def has(self, name: str) -> bool:
        """Whether an object defines function ``name``."""
        return name in self._symbols

    def data(self, name: str) -> bytes:
        """The bytes of a constant. Raises ``ArtifactError`` when no object defines it."""
        if name not in self._data:
            raise _damaged(f"no constant {name!r}")
        at, size = self._data[name]
        return self._memory[at : at + size]

    def _layout(self, objects: list[_Object]) -> tuple[list[dict[int, int]], int, int]:
        """Offsets of the sections that stay in memory: code first, then everything else, on other pages."""
        places: list[dict[int, int]] = [{} for _ in objects]
        kept = [(number, *found) for number, o in enumerate(objects) for found in _kept(o)]
        ends = []
        start = 0
        for executable in (True, False):
            at = start
            for number, index, section in kept:
                if bool(section.flags & EXECUTE) != executable:
                    continue
                at = _round_up(at, max(section.align, 1))
                places[number][index] = at
                at += section.size
                if at > LARGEST:
                    raise _damaged("sections too large")
            start = _round_up(at, PAGE)
            ends.append(at)
        return places, _round_up(ends[0], PAGE), _round_up(ends[1] - _round_up(ends[0], PAGE), 8)

    def _value(self, o: _Object, at: dict[int, int], symbol: _Symbol) -> int:
        """The absolute address of a symbol."""
        if symbol.section not in at:
            raise _damaged(f"symbol {symbol.name!r} is not defined in it")
        if symbol.value > o.sections[symbol.section].size:
            raise _damaged(f"symbol {symbol.name!r} outside its section")
        return self._base + at[symbol.section] + symbol.value

    def _relocate(self, o: _Object, at: dict[int, int]) -> None:
        for section, (offset, info, addend) in _relocations(o):
            if section not in at:
                continue
            kind, number = (o.machine, info & 0xFFFFFFFF), info >> 32
            if kind not in SIZES:
                raise _damaged(f"relocations of type {kind[1]} are not supported")
            size = SIZES[kind]
            if offset + size > o.sections[section].size or o.sections[section].kind == NOBITS:
                raise _damaged("a relocation lies outside its section")
            if number >= len(o.symbols):
                raise _damaged("a relocation names no symbol")
            place = at[section] + offset
            target = self._value(o, at, o.symbols[number])
            if kind in GOT:
                target = self._entry(target)
            current = int.from_bytes(self._memory[place : place + size], "little")
            changed = apply(kind, current, target + addend, self._base + place)
            if changed is None:
                raise _damaged("the target of a relocation is out of range")
            self._memory[place : place + size] = changed.to_bytes(size, "little")

    def _entry(self, target: int) -> int:
        """The address of the GOT entry that holds ``target``. There is one per target: two instructions can share it."""
        if target not in self._entries:
            entry, self._got_next = self._got_next, self._got_next + 8
            struct.pack_into("<Q", self._memory, entry, target)
            self._entries[target] = self._base + entry
        return self._entries[target]

    def _export(self, o: _Object, at: dict[int, int], text_size: int) -> None:
        for symbol in o.symbols:
            if symbol.binding != GLOBAL or not symbol.name or symbol.section not in at:
                continue
            offset = self._value(o, at, symbol) - self._base
            if symbol.name in self._symbols or symbol.name in self._data:
                raise _damaged(f"{symbol.name!r} is defined twice")
            if offset < text_size:
                self._symbols[symbol.name] = offset
            elif symbol.value + symbol.size <= o.sections[symbol.section].size:
                self._data[symbol.name] = (offset, symbol.size)

    def _protect(self, text_size: int, total: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if self.machine == platform.machine() == "aarch64":
            _flush(self._base, text_size)
        regions = [
            (0, text_size, READ_PROTECTION | EXECUTE_PROTECTION),
            (text_size, total - text_size, READ_PROTECTION),
        ]
        for start, size, protection in regions:
            if not size:
                continue
            at = ctypes.c_void_p(self._base + start)
            if libc.mprotect(at, ctypes.c_size_t(size), protection):
                error = ctypes.get_errno()
                raise DeviceError(f"cpu: memory cannot be made executable (errno {error})", code="GPC5011")


def _flush(start: int, size: int) -> None:
    """Make instructions that were written as data visible on processors whose instruction caches are not coherent."""
    try:
        flush = ctypes.CDLL("libgcc_s.so.1").__clear_cache
    except (OSError, AttributeError):
        return  # Linux also does this when memory becomes executable
    flush(ctypes.c_void_p(start), ctypes.c_void_p(start + size))


def _kept(o: _Object) -> Iterator[tuple[int, _Section]]:
    """The sections of an object that stay in memory, with their numbers. Raises ``ArtifactError`` for what is no plain code."""
    for index, section in enumerate(o.sections):
        if not section.flags & ALLOC or section.name == ".eh_frame":
            continue
        if section.flags & TLS:
            raise _damaged("thread-local storage is not supported")
        if section.flags & WRITE and section.name != ".data.rel.ro" and section.size:
            raise _damaged(f"section {section.name!r} is writable, which is not allowed")
        yield index, section


def _relocations(o: _Object) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Each relocation, with the section that it changes."""
    for section in o.sections:
        if section.kind == REL:
            raise _damaged("relocations without addends are not supported")
        if section.kind != RELATIONS:
            continue
        if section.size % RELA.size:
            raise _damaged("the size of a relocation table is not a multiple of its entries")
        o.section(section.info)
        for entry in RELA.iter_unpack(o.content(section)):
            yield section.info, entry
