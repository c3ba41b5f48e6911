"""Relocations, beside encodings from the manuals of the instruction sets."""

import pytest

from gpucomp.artifact.relocations import ARM, X86, apply

PLACE = 0x7F0000001F00


@pytest.mark.parametrize(
    ("number", "there", "value", "wanted"),
    [
        (275, 0x90000000, 0x7F0000002FFF, 0xB0000000),  # adrp x0: the next page, however far into it
        (275, 0x90000003, 0x7F0000001000, 0x90000003),  # adrp x3: this one
        (275, 0x90000000, 0x7F0000000FFF, 0xF0FFFFE0),  # adrp x0: the one before
        (274, 0x10000000, PLACE + 5, 0x30000020),  # adr x0
        (277, 0x91000000, 0x7F0000005123, 0x91048C00),  # add x0, x0
        (299, 0x3DC00000, 0x7F0000005040, 0x3DC01000),  # ldr q0: 16 bytes a step
        (286, 0xF9400000, 0x7F0000005040, 0xF9402000),  # ldr x0: 8 bytes
        (278, 0x39400000, 0x7F0000005FFF, 0x397FFC00),  # ldrb w0
        (283, 0x94000000, PLACE + 8, 0x94000002),  # bl
        (282, 0x14000000, PLACE - 4, 0x17FFFFFF),  # b
        (280, 0xB4000000, PLACE + 8, 0xB4000040),  # cbz x0
        (279, 0x36000000, PLACE + 8, 0x36000040),  # tbz w0, #0
        (257, 0, 0x123456789ABCDEF0, 0x123456789ABCDEF0),
        (261, 0, PLACE - 2, 0xFFFFFFFE),
    ],
)
def test_aarch64(number, there, value, wanted):
    assert apply((ARM, number), there, value, PLACE) == wanted


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ((ARM, 275), PLACE + (1 << 32) + (1 << 12)),
        ((ARM, 274), PLACE + (1 << 20)),
        ((ARM, 283), PLACE + (1 << 27)),
        ((ARM, 283), PLACE + 2),
        ((ARM, 280), PLACE - (1 << 20) - 4),
        ((ARM, 279), PLACE + (1 << 15)),
        ((ARM, 299), 0x7F0000005048),
        ((ARM, 261), PLACE + (1 << 31)),
        ((ARM, 258), 1 << 32),
        ((X86, 2), PLACE + (1 << 31)),
        ((X86, 10), -1),
        ((X86, 11), 1 << 31),
    ],
)
def test_what_an_instruction_cannot_reach_is_refused(kind, value):
    assert apply(kind, 0x94000000, value, PLACE) is None


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ((ARM, 275), PLACE + (1 << 32) - (1 << 12), 0xF07FFFE0),
        ((ARM, 283), PLACE - (1 << 27), 0x96000000),
        ((ARM, 258), (1 << 32) - 1, 0xFFFFFFFF),
        ((X86, 2), PLACE - (1 << 31), 0x80000000),
        ((X86, 10), (1 << 32) - 1, 0xFFFFFFFF),
    ],
)
def test_the_last_that_it_reaches_is_not(kind, value, wanted):
    there = {(ARM, 275): 0x90000000, (ARM, 283): 0x94000000}.get(kind, 0)

    assert apply(kind, there, value, PLACE) == wanted
