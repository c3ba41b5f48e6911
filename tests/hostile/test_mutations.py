"""Bytes of sound files changed at random, always the same: success or an error of gpucomp's own, and nothing else."""

import random

import pytest

from tests.hostile.seeds import TARGETS, Folder, outcome

ROUNDS = {"loader": 1200, "artifact": 600, "records": 400}
NUMBERS = [0, 1, 127, 128, 255]


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One to four changes: bits, bytes, pieces lost, doubled, moved or taken from ``other``."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(found) + 1), rng.choice([1, 1, 2, 4, 8, 40])
        match rng.randrange(7):
            case 0 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(found):
                found[at] = rng.choice([*NUMBERS, rng.randrange(256)])
            case 2:
                del found[at : at + length]
            case 3:
                found[at:at] = found[at : at + length]
            case 4:
                found[at:at] = rng.randbytes(length)
            case 5:
                begin = rng.randrange(len(other) + 1)
                found[at : at + length] = other[begin : begin + length]
            case 6:
                found[at : at + 10] = b"\xff" * 9 + b"\x01"  # the largest number that protobuf has
    return bytes(found)


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_files_are_read_or_refused(target, tmp_path):
    seeds, attempt = TARGETS[target]
    pool, folder, rng = seeds(), Folder(tmp_path), random.Random(target)
    # every seed is sound, but of records one kind is none to the reader of the other
    assert [message for data in pool if (message := outcome(attempt, folder, data))] == [] or target == "records"
    messages = [
        outcome(attempt, folder, mutated(rng.choice(pool), rng.choice(pool), rng)) for _ in range(ROUNDS[target])
    ]

    refused = sum(map(bool, messages))
    assert refused > 20
    assert len(messages) - refused > 5 or target == "artifact"  # every byte of an artefact is sealed
