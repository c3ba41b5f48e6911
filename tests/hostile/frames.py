"""Frames that no worker of a fleet sends: each is refused before memory is taken for what it claims."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.hostile.corpus import OK, Act, add

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def read(frame: bytes) -> None:
    from gpucomp.tuning import messages

    messages.unframed(frame)


def frame(arrays: Any, data: bytes = ARRAY.tobytes(), claimed: int | None = None, text: bytes | None = None) -> bytes:
    from gpucomp.tuning import messages

    text = json.dumps({"do": "run", "arrays": arrays}).encode() if text is None else text
    return messages.HEAD.pack(len(text), len(data) if claimed is None else claimed) + text + data


def case(what: str, code: str, make: Callable[[], bytes]) -> None:
    def prepare(folder: Path) -> Act:
        del folder
        return partial(read, make())

    add(f"frames/{what}", code, prepare)


for what, code, arrays in [
    ("right", OK, [["a", "f32", [2, 3], 24]]),
    ("no_list", "GPC7110", {"a": 1}),
    ("nothing", "GPC7110", None),
    ("short_rows", "GPC7110", [["a", "f32", [2, 3]]]),
    ("of_no_type", "GPC7110", [["a", "object", [2, 3], 24]]),
    ("of_a_list_for_a_type", "GPC7110", [["a", ["f32"], [2, 3], 24]]),
    ("negative", "GPC7110", [["a", "f32", [-2, -3], 24]]),
    ("fractions", "GPC7110", [["a", "f32", [2.0, 3.0], 24]]),
    ("of_2_62", "GPC7110", [["a", "f32", [1 << 62], 1 << 64]]),
    ("of_more_than_there_is", "GPC7110", [["a", "f32", [1 << 30], 4 << 30]]),
    ("twice", "GPC7110", [["a", "f32", [2, 3], 24], ["a", "f32", [2, 3], 24]]),
    ("of_a_list_for_a_name", "GPC7110", [[["a"], "f32", [2, 3], 24]]),
]:
    case(f"arrays_{what}", code, partial(frame, arrays))
case("longer_than_any", "GPC7110", partial(frame, [], claimed=1 << 63))
case("text_deep", "GPC7110", partial(frame, [], text=b"[" * 200_000))
case("text_no_utf8", "GPC7110", partial(frame, [], text=b"\xff\xfe\xfd"))
case("text_no_table", "GPC7110", partial(frame, [], text=b"[1]"))
