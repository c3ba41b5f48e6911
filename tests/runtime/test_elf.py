"""The loader on good objects, and on objects that lie: those raise, and nothing else happens."""

from __future__ import annotations

import ctypes
import random
import struct
from functools import cache

import pytest

from gpucomp.artifact.elf import HEADER, RELA, SECTION, Image, split, undefined_symbols
from gpucomp.errors import ArtifactError
from gpucomp.targets import cpu

TEXT = """
@table = internal constant [4 x i32] [i32 10, i32 20, i32 30, i32 47]
@words = constant [5 x i8] c"hello"
define i32 @pick(i64 %i) #0 {
  %at = getelementptr i32, ptr @table, i64 %i
  %v = load i32, ptr %at
  ret i32 %v
}
define i32 @twice(i64 %i) #0 {
  %v = call i32 @pick(i64 %i)
  %w = add i32 %v, %v
  ret i32 %w
}
attributes #0 = { nounwind noinline }
"""
RELOCATIONS = 4


@cache
def sample() -> bytes:
    return cpu.compile_text(TEXT, cpu.host())


def blob(*objects: bytes) -> bytes:
    return b"".join(len(o).to_bytes(8, "little") + o for o in objects)


def sections(data: bytes) -> list[tuple[int, list[int]]]:
    """Where each section header is, and its fields."""
    fields = HEADER.unpack_from(data)
    start, count = fields[6], fields[12]
    return [(start + i * SECTION.size, list(SECTION.unpack_from(data, start + i * SECTION.size))) for i in range(count)]


def changed(data: bytes, at: int, replacement: bytes) -> bytes:
    return data[:at] + replacement + data[at + len(replacement) :]


def with_section(data: bytes, kind: int, field: int, value: int) -> bytes:
    """The object with one field of its first section of ``kind`` changed."""
    at, fields = next((a, f) for a, f in sections(data) if f[1] == kind)
    fields[field] = value
    return changed(data, at, SECTION.pack(*fields))


def test_functions_call_each_other_and_read_constants() -> None:
    image = Image(blob(sample()))

    twice = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(image.address("twice"))

    assert [twice(i) for i in range(4)] == [20, 40, 60, 94]
    assert image.data("words") == b"hello"


def test_several_objects_share_an_image() -> None:
    other = cpu.compile_text(
        TEXT.replace("@pick", "@take").replace("@twice", "@double").replace("@words", "@more").replace("47", "48"),
        cpu.host(),
    )
    image = Image(blob(sample(), other))

    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)

    assert (call(image.address("twice"))(3), call(image.address("double"))(3)) == (94, 96)


def test_no_page_is_writable_and_executable() -> None:
    image = Image(blob(sample()))
    at = image.address("twice")

    with open("/proc/self/maps") as maps:
        ranges = [line.split()[:2] for line in maps]

    modes = [mode for span, mode in ranges if int(span.split("-")[0], 16) <= at < int(span.split("-")[1], 16)]
    assert modes == ["r-xp"]


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(ArtifactError, match="'pick' is defined twice"):
        Image(blob(sample(), sample()))


def test_a_missing_function_is_reported() -> None:
    with pytest.raises(ArtifactError, match="no function 'gone'"):
        Image(blob(sample())).address("gone")


def test_calls_to_outside_are_found() -> None:
    text = (
        "declare double @sin(double)\ndefine double @f(double %x) { %y = call double @sin(double %x)\n ret double %y }"
    )
    import llvmlite.binding as llvm

    cpu.host()
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(reloc="pic", codemodel="small")

    foreign = machine.emit_object(module)

    assert undefined_symbols(foreign) == ["sin"]
    with pytest.raises(ArtifactError, match="symbol 'sin' is not defined"):
        Image(blob(foreign))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: b"", "empty"),
        (lambda d: blob(b""), "0 bytes are not an object file"),
        (lambda d: blob(d)[:-1], "object longer than the file"),
        (lambda d: (1 << 63).to_bytes(8, "little") + d, "object longer than the file"),
        (lambda d: blob(b"MZ" + d[2:]), "not a 64-bit little-endian ELF"),
        (lambda d: blob(changed(d, 4, b"\x01")), "not a 64-bit"),
        (lambda d: blob(changed(d, 18, struct.pack("<H", 182))), "for machine 182"),
        (lambda d: blob(changed(d, 16, struct.pack("<H", 3))), "type 3"),
        (lambda d: blob(changed(d, 40, struct.pack("<Q", 1 << 60))), "the section table lies outside"),
        (lambda d: blob(changed(d, 62, struct.pack("<H", 999))), "the section names lie outside"),
        (lambda d: blob(with_section(d, 1, 5, 1 << 40)), "a section lies outside the file"),
        (lambda d: blob(with_section(d, 1, 8, 3)), "impossible size or alignment"),
        (lambda d: blob(with_section(d, 2, 6, 0)), "a name lies outside its table"),
        (lambda d: blob(with_section(d, 2, 5, 25)), "the size of the symbol table"),
        (lambda d: blob(with_section(d, RELOCATIONS, 7, 999)), "section 999 does not exist"),
        (lambda d: blob(with_section(d, RELOCATIONS, 5, 25)), "the size of a relocation table"),
        (lambda d: blob(with_section(d, RELOCATIONS, 1, 9)), "relocations without addends"),
    ],
)
def test_damaged_objects_are_refused(damage: object, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        Image(damage(sample()))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ((1 << 40, (1 << 32) | 2, 0), "a relocation lies outside its section"),
        ((0, (9999 << 32) | 2, 0), "a relocation names no symbol"),
        ((0, (1 << 32) | 77, 0), "relocations of type 77|is not defined"),
    ],
)
def test_lying_relocations_are_refused(entry: tuple[int, int, int], message: str) -> None:
    data = sample()
    names = [f for _, f in sections(data)]
    table = next(f for f in names if f[1] == RELOCATIONS and names[f[7]][2] & 4)
    with pytest.raises(ArtifactError, match=message):
        Image(blob(changed(data, table[4], RELA.pack(*entry))))


def test_another_machine_s_objects_are_refused_by_name() -> None:
    with pytest.raises(
        ArtifactError, match="type 1 for machine 8; expected a relocatable object for x86_64 or aarch64"
    ):
        Image(blob(changed(sample(), 18, struct.pack("<H", 8))))


def test_random_damage_raises_or_loads_but_never_crashes() -> None:
    chooser = random.Random(0)
    data = sample()
    refused = 0

    for _ in range(3000):
        broken = bytearray(data)
        for _ in range(chooser.randint(1, 4)):
            broken[chooser.randrange(len(broken))] = chooser.randrange(256)
        try:
            Image(blob(bytes(broken)))  # loaded, never called
        except ArtifactError:
            refused += 1

    assert refused > 500


def test_split_gives_the_objects_back() -> None:
    assert split(blob(b"one", b"", b"three")) == [b"one", b"", b"three"]
