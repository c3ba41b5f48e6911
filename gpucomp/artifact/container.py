"""The zip file of a compiled model: uncompressed members, aligned to 64 bytes. Their contents do not matter here.

The members determine every byte of the file, so equal models give equal files. The reader takes names, sizes and
positions from a file, computes the layout that they imply, and refuses the file if it differs. Compressed or encrypted
members, links, comments, gaps, overlaps and contradicting headers therefore need no checks of their own. Sizes are
always written in zip64 form, which every zip tool reads, so that there is one code path.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import secrets
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gpucomp.errors import ArtifactError, quote
from gpucomp.lazy_dataclass import dataclass

Bytes = bytes | bytearray | memoryview

MEMBER_ALIGNMENT = 64  # bytes, of a member in the file
MAX_MEMBERS = 60_000
MEMBER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199})?")

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4sHHHHIIH")
_TAIL = _END64.size + _LOCATOR.size + _END.size

_VERSION = 45  # zip64
_UNIX = 3 << 8
_DATE, _TIME = (1 << 5) | 1, 0  # 1980-01-01 00:00, the earliest time that a zip can hold
_REGULAR_FILE = 0o100644 << 16
_IN_ZIP64 = 0xFFFFFFFF
_PADDING = 0xD935  # the extra field that Android's zipalign pads with


@dataclass(frozen=True)
class Member:
    """A file in the zip; ``offset`` is the byte where its data begins."""

    name: str
    nbytes: int
    crc: int
    offset: int


def _local_header(name: str, nbytes: int, crc: int, start: int) -> bytes:
    text = name.encode("ascii")
    sizes = struct.pack("<HHQQ", 1, 16, nbytes, nbytes)
    end = start + _LOCAL.size + len(text) + len(sizes) + 4
    fill = -end % MEMBER_ALIGNMENT
    extra = sizes + struct.pack("<HH", _PADDING, fill) + bytes(fill)
    fixed = (_VERSION, 0, 0, _TIME, _DATE, crc, _IN_ZIP64, _IN_ZIP64, len(text), len(extra))
    return _LOCAL.pack(b"PK\x03\x04", *fixed) + text + extra


def _central_entry(member: Member, start: int) -> bytes:
    text = member.name.encode("ascii")
    extra = struct.pack("<HHQQQ", 1, 24, member.nbytes, member.nbytes, start)
    fixed = (_UNIX | _VERSION, _VERSION, 0, 0, _TIME, _DATE, member.crc, _IN_ZIP64, _IN_ZIP64, len(text), len(extra))
    return _CENTRAL.pack(b"PK\x01\x02", *fixed, 0, 0, 0, _REGULAR_FILE, _IN_ZIP64) + text + extra


def _tail(count: int, directory_bytes: int, directory_start: int) -> bytes:
    sizes = (count, count, directory_bytes, directory_start)
    end64 = _END64.pack(b"PK\x06\x06", _END64.size - 12, _UNIX | _VERSION, _VERSION, 0, 0, *sizes)
    locator = _LOCATOR.pack(b"PK\x06\x07", 0, directory_start + directory_bytes, 1)
    end = _END.pack(b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, _IN_ZIP64, _IN_ZIP64, 0)
    return end64 + locator + end


@dataclass(frozen=True)
class _Layout:
    members: tuple[Member, ...]
    headers: tuple[bytes, ...]  # the local header before each member's data
    directory: bytes  # everything after the last member's data
    total: int


def _layout(entries: Sequence[tuple[str, int, int]]) -> _Layout:
    """The layout of entries (name, bytes, crc): their positions, and every byte of the file that is not data."""
    members, headers, directory, position = [], [], bytearray(), 0
    for name, nbytes, crc in entries:
        header = _local_header(name, nbytes, crc, position)
        member = Member(name, nbytes, crc, position + len(header))
        members.append(member)
        headers.append(header)
        directory += _central_entry(member, position)
        position = member.offset + nbytes
    directory += _tail(len(members), len(directory), position)
    return _Layout(tuple(members), tuple(headers), bytes(directory), position + len(directory))


@contextmanager
def replaced(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A temporary file that replaces ``path`` if the block succeeds, and is deleted if it raises.

    ``durable`` waits until the disk has it, so that a power failure leaves the old file or the new one.
    """
    temporary = path.parent / f".{path.name[:60]}.{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write(path: Path, members: Mapping[str, Sequence[Bytes]], *, durable: bool = True) -> None:
    """Write the members, each given in pieces, in the order of the mapping. Atomic: ``path`` is complete or unchanged.

    ``durable``: see ``replaced``.
    """
    entries = []
    for name, pieces in members.items():
        if not MEMBER_NAME.fullmatch(name):
            raise ValueError(f"member name {name!r}")
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        entries.append((name, sum(memoryview(piece).nbytes for piece in pieces), crc))
    layout = _layout(entries)
    try:
        with replaced(path, durable=durable) as file:
            for header, pieces in zip(layout.headers, members.values(), strict=True):
                file.write(header)
                for piece in pieces:
                    file.write(piece)
            file.write(layout.directory)
    except OSError as error:
        raise ArtifactError(f"cannot write {quote(path)}: {error.strerror}", code="GPC7005") from error


def _bad(path: Path, what: str) -> ArtifactError:
    return ArtifactError(f"{quote(path)} is not a compiled model: {what}", code="GPC7001")


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a named pipe would block for ever


def read(path: Path, *, sealed: str) -> dict[str, memoryview]:
    """The members of a file that ``write`` made, mapped into memory: nothing is copied.

    Raises ``ArtifactError`` for any other file. Only the data of the member ``sealed`` is checked against the zip's
    checksum. It holds the digests of the other members, which the caller must check.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _bad(path, "not a regular file")
            if status.st_size < _TAIL:
                raise _bad(path, f"{status.st_size} bytes are too few")
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ArtifactError(f"cannot read {quote(path)}: {error.strerror}", code="GPC7005") from error
    except ValueError:
        raise ArtifactError(f"cannot read {quote(path)}: no file can have this name", code="GPC7005") from None
    layout = _layout(_entries(path, view))
    if layout.total != len(view):
        raise _bad(path, f"its members take {layout.total} bytes and the file has {len(view)}: truncated or extended")
    if view[len(view) - len(layout.directory) :] != layout.directory:
        raise _bad(path, "its directory is not one that gpucomp writes")
    for member, header in zip(layout.members, layout.headers, strict=True):
        if view[member.offset - len(header) : member.offset] != header:
            raise _bad(path, f"the header of member {member.name!r} is not one that gpucomp writes")
    data = {m.name: view[m.offset : m.offset + m.nbytes] for m in layout.members}
    for member in layout.members:
        if member.name == sealed and zlib.crc32(data[sealed]) != member.crc:
            raise _bad(path, f"member {sealed!r} is damaged: its checksum differs")
    return data


def _entries(path: Path, view: memoryview) -> list[tuple[str, int, int]]:
    """(name, bytes, crc) of every member, from the directory; bounded by the size of the file and ``MAX_MEMBERS``."""
    mark, *_, count, directory_bytes, directory_start = _END64.unpack_from(view, len(view) - _TAIL)
    if mark != b"PK\x06\x06":
        raise _bad(path, "no zip directory at the end of the file: truncated, or another kind of file")
    if count > MAX_MEMBERS:
        raise _bad(path, f"{count} members, at most {MAX_MEMBERS} are allowed")
    if directory_start + directory_bytes != len(view) - _TAIL:
        raise _bad(path, "its directory is not where the file says: truncated or extended")
    entries: list[tuple[str, int, int]] = []
    names: set[str] = set()
    position = directory_start
    for _ in range(count):
        if position + _CENTRAL.size > len(view) - _TAIL:
            raise _bad(path, "its directory is truncated")
        fields = _CENTRAL.unpack_from(view, position)
        mark, method, crc, length, extra = fields[0], fields[4], fields[7], fields[10], fields[11]
        text = bytes(view[position + _CENTRAL.size :][:length])
        sizes = view[position + _CENTRAL.size + length :][:extra]
        name = text.decode("ascii", errors="replace")
        if mark != b"PK\x01\x02" or extra != 28 or len(sizes) != 28:
            raise _bad(path, "an entry of its directory is not one that gpucomp writes")
        if not MEMBER_NAME.fullmatch(name):
            raise _bad(path, f"member name {quote(name)} is not allowed")
        if name in names:
            raise _bad(path, f"member {name!r} occurs twice")
        if method:
            raise _bad(path, f"member {name!r} is compressed")
        nbytes = struct.unpack_from("<Q", sizes, 4)[0]
        if nbytes > len(view):
            raise _bad(path, f"member {name!r} claims {nbytes} bytes, the file has {len(view)}")
        names.add(name)
        entries.append((name, nbytes, crc))
        position += _CENTRAL.size + length + extra
    return entries
