"""``model.gpuc`` files that somebody has worked on: the zip, its members, the manifest, the plan, the machine code."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from gpucomp.artifact import container
from gpucomp.runtime import artifact
from tests.hostile.corpus import OK, Act, add
from tests.runtime.samples import contents, open_contents

MANIFEST = "manifest.json"


@cache
def whole() -> bytes:
    """A sound file: a small plan with two kernels, weights of several types and machine code that is none."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        artifact.save(Path(folder) / "m.gpuc", contents())
        return (Path(folder) / "m.gpuc").read_bytes()


@cache
def whole_open() -> bytes:
    """As ``whole``, for any sizes."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        artifact.save(Path(folder) / "m.gpuc", open_contents())
        return (Path(folder) / "m.gpuc").read_bytes()


def members(file_bytes: Callable[[], bytes] = whole) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(file_bytes())) as file:
        return {name: file.read(name) for name in file.namelist()}


def load(path: Path) -> None:
    import gpucomp

    gpucomp.load(path)


def run(path: Path) -> None:
    import gpucomp

    gpucomp.load(path).run({"x": np.zeros((3, 5), np.float32)})


def data(what: str, code: str, change: Callable[[bytes], bytes], mention: str = "m.gpuc") -> None:
    """A case of a file whose bytes are changed."""

    def prepare(folder: Path) -> Act:
        (folder / "m.gpuc").write_bytes(change(whole()))
        return partial(load, folder / "m.gpuc")

    add(f"artifacts/{what}", code, prepare, mention)


def sealed(
    what: str,
    code: str,
    manifest: Callable[[dict[str, Any]], object] = lambda m: None,
    mention: str = "",
    act: Callable[[Path], None] = load,
    file_bytes: Callable[[], bytes] = whole,
    **changed: bytes | None,
) -> None:
    """A case of other contents, with right digests and a right zip around them. ``None`` leaves a member out."""

    def prepare(folder: Path) -> Act:
        parts: dict[str, Any] = members(file_bytes) | {
            k.replace("__", "/").replace("_dot_", "."): v for k, v in changed.items()
        }
        parts = {name: content for name, content in parts.items() if content is not None}
        text = parts.pop(MANIFEST)
        description = json.loads(text)
        description["members"] = {n: artifact._digest([d]) for n, d in parts.items()}
        answer = manifest(description)
        text = answer if isinstance(answer, bytes) else json.dumps(description).encode()
        container.write(folder / "m.gpuc", {MANIFEST: [text], **{n: [d] for n, d in parts.items()}})
        return partial(act, folder / "m.gpuc")

    add(f"artifacts/{what}", code, prepare, mention)


def zipped(method: int = zipfile.ZIP_STORED, extra: dict[str, bytes] | None = None) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in (members() | (extra or {})).items():
            archive.writestr(name, content)
    return file.getvalue()


def bomb() -> bytes:
    """256 MiB of zeros, compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(MANIFEST, "w") as member:
        for _ in range(256):
            member.write(bytes(1 << 20))
    return file.getvalue()


def entry(name: str, change: Callable[[list[Any]], None]) -> Callable[[bytes], bytes]:
    """One entry of the directory altered."""

    def edit(data: bytes) -> bytes:
        at = data.index(b"PK\x01\x02")
        while True:
            fields = list(container._CENTRAL.unpack_from(data, at))
            if data[at + 46 : at + 46 + fields[10]].decode() == name:
                change(fields)
                return data[:at] + container._CENTRAL.pack(*fields) + data[at + 46 :]
            at += 46 + fields[10] + fields[11]

    return edit


def sizes(offset: int, number: int) -> Callable[[bytes], bytes]:
    """A 64-bit number in the extra field of the last directory entry replaced."""

    def edit(data: bytes) -> bytes:
        at = data.rindex(b"PK\x01\x02")
        length = container._CENTRAL.unpack_from(data, at)[10]
        place = at + 46 + length + 4 + offset
        return data[:place] + struct.pack("<Q", number) + data[place + 8 :]

    return edit


def tail(index: int, number: int) -> Callable[[bytes], bytes]:
    """A field of the end record replaced."""

    def edit(data: bytes) -> bytes:
        at = len(data) - container._TAIL
        fields = list(container._END64.unpack_from(data, at))
        fields[index] = number
        return data[:at] + container._END64.pack(*fields) + data[at + container._END64.size :]

    return edit


for percent in (0, 1, 30, 60, 99):
    data(f"truncated_{percent}", "GPC7001", lambda d, p=percent: d[: len(d) * p // 100])
data("a_byte_in_front", "GPC7001", lambda d: b"x" + d)
data("a_byte_behind", "GPC7001", lambda d: d + b"x")
data("twice", "GPC7001", lambda d: d + d)
data("text", "GPC7001", lambda d: b"hello\n" * 999)
data("elf", "GPC7001", lambda d: b"\x7fELF" + bytes(4096))
data("zip_of_another_tool", "GPC7001", lambda d: zipped())
data("compressed", "GPC7001", lambda d: zipped(zipfile.ZIP_DEFLATED))
data("zip_bomb", "GPC7001", lambda d: bomb())
data("path_upwards", "GPC7001", lambda d: zipped(extra={"../../secret.bin": b"PWNED"}))
data("encrypted", "GPC7001", entry("sources/k0.ll", lambda f: f.__setitem__(3, 1)))
data("symbolic_link", "GPC7001", entry("sources/k0.ll", lambda f: f.__setitem__(15, 0o120777 << 16)))
data("other_checksum", "GPC7001", entry("sources/k0.ll", lambda f: f.__setitem__(7, 1)))
data("name_longer", "GPC7001", entry("sources/k0.ll", lambda f: f.__setitem__(10, 9999)))
data("extra_longer", "GPC7001", entry("sources/k0.ll", lambda f: f.__setitem__(11, 65535)))
data("size_2_63", "GPC7001", sizes(0, 1 << 63))
data("size_0", "GPC7001", sizes(0, 0))
data("size_of_the_file", "GPC7001", lambda d: sizes(0, len(d))(d))
data("offset_2_63", "GPC7001", sizes(16, 1 << 63))
data("a_billion_members", "GPC7001", tail(6, 10**9))
data("no_members", "GPC7001", lambda d: tail(6, 0)(tail(7, 0)(d)))
data("directory_elsewhere", "GPC7001", tail(9, 0))
data("directory_2_63", "GPC7001", tail(9, 1 << 63))
data("two_members_of_one_name", "GPC7001", lambda d: d.replace(b"sources/k1.ll", b"sources/k0.ll"))
data(
    "swapped_sources",
    "GPC7001",
    lambda d: (
        d.replace(b"sources/k1.ll", b"sources/k9.ll")
        .replace(b"sources/k0.ll", b"sources/k1.ll")
        .replace(b"sources/k9.ll", b"sources/k0.ll")
    ),
)
data("a_weight_changed", "GPC7003", lambda d: d.replace(contents().weights["w0"].tobytes(), b"\x7f" * 12))


def not_a_file(make: Callable[[Path], object]) -> Callable[[Path], Act]:
    def prepare(folder: Path) -> Act:
        make(folder / "m.gpuc")
        return partial(load, folder / "m.gpuc")

    return prepare


add("artifacts/missing", "GPC7005", not_a_file(lambda p: None), "m.gpuc")
add("artifacts/folder", "GPC7005", not_a_file(lambda p: p.mkdir()), "m.gpuc")
add("artifacts/pipe", "GPC7001", not_a_file(os.mkfifo), "m.gpuc")
add("artifacts/sparse_terabyte", "GPC7005", not_a_file(lambda p: (p.touch(), os.truncate(p, 1 << 40))), "m.gpuc")


def deep(depth: int) -> bytes:
    return b'{"format":"gpucomp","schema":4,"members":{},"plan":' + b"[" * depth + b"]" * depth + b"}"


sealed("manifest_empty", "GPC7004", lambda m: b"", MANIFEST)
sealed("manifest_of_other_text", "GPC7004", lambda m: b"[]", MANIFEST)
sealed("manifest_no_ascii", "GPC7004", lambda m: "é".encode(), MANIFEST)
sealed("manifest_not_json", "GPC7004", lambda m: b"{", MANIFEST)
sealed("manifest_nan", "GPC7004", lambda m: json.dumps(m).replace("128", "NaN").encode(), MANIFEST)
sealed("manifest_200000_deep", "GPC7006", lambda m: deep(200_000), MANIFEST)
sealed("manifest_900_deep", "GPC7004", lambda m: deep(900), MANIFEST)
sealed("manifest_of_huge_numbers", "GPC7004", lambda m: json.dumps(m).replace("128", "9" * 100_000).encode(), MANIFEST)
sealed(
    "manifest_key_twice",
    "GPC7004",
    lambda m: json.dumps(m).replace('"schema"', '"format": 1, "schema"').encode(),
    MANIFEST,
)
sealed("manifest_of_five_million_lists", "GPC7006", lambda m: b"[" + b"[]," * 5_000_000 + b"[]]", MANIFEST)
sealed("manifest_of_a_schema_to_come", "GPC7002", lambda m: m.update(schema=999), "m.gpuc")
sealed("manifest_of_schema_true", "GPC7002", lambda m: m.update(schema=True), "m.gpuc")
sealed("manifest_of_another_program", "GPC7004", lambda m: m.update(format="other"), "m.gpuc")
sealed("manifest_with_a_field_more", "GPC7004", lambda m: m.update(__class__="os.system"), "m.gpuc")
sealed("manifest_without_members", "GPC7004", lambda m: m.update(members=[]), "m.gpuc")
sealed("member_not_listed", "GPC7003", lambda m: m["members"].pop("weights.safetensors"), "weights.safetensors")
sealed("member_missing", "GPC7003", lambda m: m["members"].update({"sources/none.ll": {}}), "sources/none.ll")
sealed(
    "swapped_digests",
    "GPC7003",
    lambda m: m["members"].update(
        {"sources/k0.ll": m["members"]["sources/k1.ll"], "sources/k1.ll": m["members"]["sources/k0.ll"]}
    ),
    "sources/k",
)
sealed(
    "member_of_another_size", "GPC7003", lambda m: m["members"]["weights.safetensors"].update(bytes=1 << 62), "weights"
)
sealed(
    "weights_of_other_types", "GPC7004", lambda m: m["plan"]["buffers"][1].update(dtype="i32"), "weights.safetensors"
)
sealed("source_no_text", "GPC7004", mention="k0.ll", sources__k0_dot_ll=b"\xff\xfe")
sealed("source_missing", "GPC7004", mention="k0.ll", sources__k0_dot_ll=None)
sealed("binary_missing", "GPC7004", mention="model.o", binaries__model_dot_o=None)


def plan(what: str, change: Callable[[dict[str, Any]], object], mention: str = "manifest.json") -> None:
    sealed(f"plan_{what}", "GPC7004", lambda m: change(m["plan"]) and None, mention)


HOSTILE = {
    "null": None,
    "negative": -1,
    "least": -(1 << 63),
    "2_70": 1 << 70,
    "fraction": 0.5,
    "text": "x",
    "list": [],
    "table": {},
    "infinity": 1e999,
}
for where, field in [
    ("arena_bytes", ("arena_bytes",)),
    ("buffer_nbytes", ("buffers", 3, "nbytes")),
    ("buffer_shape", ("buffers", 3, "shape")),
    ("launch_args", ("launches", 0, "args")),
    ("kernel_groups", ("kernels", 0, "groups")),
]:
    for what, wrong in HOSTILE.items():
        if (where, what) == ("buffer_shape", "list"):
            continue

        def replace(data: Any, field: tuple[Any, ...] = field, wrong: Any = wrong) -> None:
            for step in field[:-1]:
                data = data[step]
            data[field[-1]] = wrong

        # a JSON that says Infinity is none, and an empty list of arguments does not fit the launch's inputs
        plan(f"{where}_{what}", replace)

plan("kind_python", lambda p: p.update(kind="python"))
plan("dtype_object", lambda p: p["buffers"][0].update(dtype="object"))
plan("offset_outside_the_arena", lambda p: p["buffers"][3].update(offset=1 << 40))
plan("offset_that_wraps", lambda p: p["buffers"][3].update(offset=(1 << 48) - 1))
plan("argument_that_is_not_there", lambda p: p["launches"][0].update(args=[0, 1, 10**6]))
plan("kernel_that_is_not_there", lambda p: p["launches"][0].update(kernel=99))
plan("source_path", lambda p: p["kernels"][0].update(source="../../secret.bin"))
plan("name_with_a_call", lambda p: p["kernels"][0].update(name='k"; system("touch PWNED"); "'))
plan("output_that_is_not_there", lambda p: p.update(outputs=[4, 99]))
plan("outputs_of_one_name", lambda p: p.update(output_names=["y", "y"]))
plan("weights_of_one_name", lambda p: p["buffers"][2].update(name="w0"))
plan("input_that_is_a_weight", lambda p: p.update(inputs=[1]))
plan("shape_of_rank_a_thousand", lambda p: p["buffers"][0].update(shape=[1] * 1000))
plan("shape_that_wraps", lambda p: p["buffers"][0].update(shape=[1 << 32, 1 << 32]))


def host(what: str, code: str, op: str, attributes: Any, act: Callable[[Path], None] = run, result: int = 4) -> None:
    """A launch that runs a host operator, with attributes of somebody's choice."""

    def change(m: dict[str, Any]) -> None:
        m["plan"]["launches"] = [
            {
                "kernel": -1,
                "args": [0, result],
                "name": "h",
                "ops": [],
                "nodes": [],
                "why": "",
                "inputs": 1,
                "host": op,
                "attributes": attributes,
            }
        ]
        m["plan"]["kernels"], m["plan"]["output_names"], m["plan"]["outputs"] = [], ["y"], [4]

    sealed(f"host_{what}", code, change, act=act)


host("right", OK, "Relu", {})
host("unknown", "GPC5017", "os.system", {})
host("dunder", "GPC5017", "__class__", {})
host("unknown_attribute", "GPC5018", "Relu", {"alpha": 1})
host("attribute_of_another_type", "GPC5018", "Transpose", {"perm": "x"})
host("attribute_out_of_range", "GPC5018", "Transpose", {"perm": [7, 9]})
host("too_few_operands", "GPC5018", "Add", {})
host("other_shape", "GPC5018", "Transpose", {"perm": [1, 0]})
host("other_type", "GPC5018", "Cast", {"to": {"dtype": "f64"}})
host("of_a_terabyte", "GPC5018", "Tile", {"repeats": [1 << 20, 1 << 20]})
host(
    "resized_to_2_60",
    "GPC5018",
    "Resize",
    {
        "sizes": [1 << 30] * 2,
        "scales": [1, 1],
        "mode": "linear",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
        "cubic_coeff_a": 0.0,
        "exclude_outside": False,
        "extrapolation_value": 0.0,
        "antialias": True,
        "roi": [],
    },
)
host("sliced_to_2_40", "GPC5018", "Slice", {"starts": [0, 0], "steps": [0, 0], "sizes": [1 << 40, 1]})
host("escapes_in_an_attribute", "GPC5018", "Transpose", {"perm": "\x1b[31m"})
host("writes_a_weight", "GPC7004", "Relu", {}, act=load, result=1)
host("two_results", "GPC5018", "TopK", {"k": 1, "axis": 0, "largest": True})
host("attribute_800_deep", "GPC7004", "Relu", {"x": json.loads("[" * 800 + "]" * 800)}, act=load)
host("attribute_array_that_lies", "GPC7004", "Relu", {"x": {"array": ["f32", [1 << 40], "AAAA"]}}, act=load)
host("attribute_array_of_objects", "GPC7004", "Relu", {"x": {"array": ["object", [1], "AAAA"]}}, act=load)
host("attribute_no_base64", "GPC7004", "Relu", {"x": {"bytes": "\x7f"}}, act=load)
host("attribute_2_64", "GPC7004", "Relu", {"x": 1 << 64}, act=load)

sealed(
    "target_with_escapes", "GPC5007", lambda m: m["plan"].update(target="\x1b[31m", features=["\x1b]0;x\x07"]), act=run
)
sealed(
    "launch_with_escapes",
    "GPC5017",
    lambda m: m["plan"].update(
        kernels=[], launches=[m["plan"]["launches"][0] | {"kernel": -1, "host": "os.system", "name": "\x1b[31m"}]
    ),
    act=run,
)
sealed("buffer_with_more_room_than_elements", "GPC7010", lambda m: m["plan"]["buffers"][3].update(dtype="i4"), act=run)

# machine code that is none: as much of it as can be refused is refused
sealed("code_that_is_no_elf", "GPC7010", act=run)
sealed("code_empty", "GPC7010", act=run, binaries__model_dot_o=b"")
sealed("code_of_a_size_that_lies", "GPC7010", act=run, binaries__model_dot_o=b"\xff" * 8 + b"\x7fELF")
sealed(
    "code_whose_sections_lie",
    "GPC7010",
    act=run,
    binaries__model_dot_o=struct.pack("<Q", 64)
    + struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 1, 62, 1, 0, 0, (1 << 64) - 64, 0, 64, 0, 0, 64, 9, 0),
)
sealed("arena_of_256_terabytes", "GPC5013", lambda m: m["plan"].update(arena_bytes=1 << 48), act=run)


# --- what waits for values is an ONNX model in the file: read as any other


def outputs(path: Path) -> None:
    import gpucomp

    assert gpucomp.load(path).outputs


def rest_alone(path: Path) -> None:
    """The rest is run on what a sound file would give it."""
    from gpucomp.dynamic.program import DynamicModel

    DynamicModel(artifact.load(path).dynamic_model).run({"x": np.zeros((2, 3), np.float32)})


def other_rest(location: str) -> bytes:
    from tests.hostile.external import external

    return external(location=location).SerializeToString()


sealed("rest_of_random_bytes", "GPC3002", act=outputs, rest_dot_onnx=b"\xff\x07" * 99)
sealed("rest_of_nothing", OK, rest_dot_onnx=b"")
sealed("rest_with_data_in_a_file", "GPC3023", act=rest_alone, rest_dot_onnx=other_rest("../../secret.bin"))
sealed("rest_that_reads_etc_passwd", "GPC3023", act=rest_alone, rest_dot_onnx=other_rest("/etc/passwd"))


# models for any sizes


def at_sizes(path: Path) -> None:
    """Make the plans of the ends of the ranges; nothing is run."""
    import gpucomp

    exe = gpucomp.load(path)
    for n in (1, 3, 5, 64):
        exe.at(n=n, h=8)  # type: ignore[attr-defined]
        exe.at(n=n, h=32)  # type: ignore[attr-defined]


def opened(
    what: str, code: str, change: Callable[[dict[str, Any]], object], act: Callable[[Path], None] = load
) -> None:
    """A case of the manifest of a model for any sizes."""
    sealed(f"open_{what}", code, lambda m: change(m) and None, "", act, whole_open)


def step(what: str, made: object, code: str = "GPC7024", act: Callable[[Path], None] = load) -> None:
    """A case of one formula, that of n*h."""
    opened(f"step_{what}", code, lambda m: m["open"]["steps"].__setitem__(0, made), act)


def field(what: str, key: str, wrong: object, code: str = "GPC7004", act: Callable[[Path], None] = load) -> None:
    opened(f"{key}_{what}", code, lambda m: m["open"].__setitem__(key, wrong), act)


step("of_itself", ["sum", 0, [[1, [2]]], 1])
step("of_a_later_one", ["sum", 0, [[1, [3]]], 1])
step("of_a_place_below_0", ["sum", 0, [[1, [-1]]], 1])
step("of_a_place_that_is_true", ["sum", 0, [[1, [True]]], 1])
step("of_a_fraction", ["sum", 0, [[1, [0.0]]], 1])
step("with_a_factor_that_is_true", ["sum", 0, [[True, [0]]], 1])
step("with_a_factor_of_70_bits", ["sum", 0, [[1 << 70, [0]]], 1])
step("with_a_factor_that_is_text", ["sum", 0, [["1", [0]]], 1])
step("by_0", ["sum", 0, [], 0])
step("by_less_than_0", ["sum", 0, [], -1])
step("by_itself", ["quotient", 0, 2])
step("of_65_factors", ["sum", 0, [[1, [0] * 65]], 1])
step("of_1001_terms", ["sum", 0, [[1, [0]]] * 1001, 1])
step("least_of_nothing", ["least", []])
step("least_of_a_number", ["least", 0])
step("unknown", ["sqrt", 0])
step("with_a_call", ["__import__('os').system('touch PWNED')", 0])
step("null", None)
step("table", {"sum": 0})
step("nested", ["sum", 0, [[[[[[[[1]]]]]], [0]]], 1])
step("past_64_bits", ["sum", 0, [[1 << 62, [0, 1]]], 1], "GPC2113", at_sizes)
step("power_past_64_bits", ["sum", 0, [[1, [1] * 64]], 1], "GPC2113", at_sizes)
step("no_whole_number", ["sum", 1, [[2, [0]]], 2], "GPC2113", at_sizes)
step("below_0", ["sum", -100_000, [[1, [0]]], 1], "GPC7024", at_sizes)
step("of_absurd_bytes", ["sum", 1 << 60, [[1, [0]]], 1], "GPC7024", at_sizes)
opened(
    "quotient_by_0",
    "GPC2113",
    lambda m: m["open"]["steps"].__setitem__(slice(1, 3), [["sum", 0, [], 1], ["quotient", 0, 3]]),
    at_sizes,
)
opened("no_steps", "GPC7004", lambda m: m["open"].update(steps=[]))
opened("many_steps", "GPC7024", lambda m: m["open"].update(steps=[["least", [0]]] * 100_001))
opened("many_places", "GPC7024", lambda m: m["open"].update(steps=[["least", [0] * 1000]] * 600))
opened(
    "steps_that_double",  # their texts and polynomials would have 2**400 terms
    OK,
    lambda m: (
        m["open"]["steps"].extend(["sum", 0, [[1, [k]], [1, [k, k]]], 1] for k in range(6, 400))
        or m["open"]["outputs"][0].__setitem__(0, {"place": 8})
    ),
)
opened(
    "steps_that_square",
    OK,
    lambda m: (
        m["open"]["steps"].extend(["sum", 0, [[1, [k, k]]], 1] for k in range(6, 90))
        or m["open"]["outputs"][0].__setitem__(0, {"place": 60})
    ),
)
opened("regret_of_400_digits", "GPC7004", lambda m: m["open"]["choices"][0]["regrets"][0].__setitem__(1, 10**400))
for key in ("dims", "steps", "conditions", "orders", "outputs", "alignment", "choices"):
    for what, wrong in HOSTILE.items():
        if not (wrong == [] and key in ("conditions", "steps", "choices")):
            field(what, key, wrong)
field("more", "dims", [{"name": "n", "low": 1, "high": 2, "multiple": 1, "said": "x", "example": 1, "more": 1}])
opened("dims_no_input_has", "GPC7004", lambda m: m["open"]["dims"].append({**m["open"]["dims"][0], "name": "k"}))
opened("dims_of_one_name", "GPC7004", lambda m: m["open"]["dims"][1].update(name="n"))
for what, change in {
    "no_size": {"low": 9, "high": 3},
    "negative": {"low": -1},
    "huge": {"high": 1 << 40},
    "multiple_0": {"multiple": 0},
    "boolean": {"low": True},
    "fraction": {"low": 1.0},
    "no_name": {"name": ""},
    "name_a_list": {"name": []},
    "said_null": {"said": None},
    "example_outside": {"example": 65},
    "example_true": {"example": True},
}.items():
    opened(f"dim_{what}", "GPC7004", lambda m, change=change: m["open"]["dims"][0].update(change))
field("place_outside", "conditions", [[99, "==", True]])
field("relation_unknown", "conditions", [[0, ">", True]])
field("truth_a_number", "conditions", [[0, "==", 1]])
field("a_pair", "conditions", [[0, "=="]])
field("never_met", "conditions", [[0, "<", True]], "GPC2113", at_sizes)
field("a_cycle", "orders", [[[[2], [2]], [[3], [0]], [[4], [0, 1]]]])
field("above_itself", "orders", [[[[2], [0]], [[3], [0]], [[4], [0, 1]]]])
field("twice", "orders", [[[[2], []], [[2], [0]], [[4], [0]]]])
field("missing", "orders", [[[[2], []]]])
field("of_an_input", "orders", [[[[0], []], [[3], [0]], [[4], [0, 1]]]])
field("outside", "orders", [[[[2], []], [[3], [0]], [[99], [0, 1]]]])
field("five", "orders", [[[[2], []], [[3], [0]], [[4], [0, 1]]]] * 5)
field("huge", "alignment", 1 << 40)
for what, change in {
    "kernel_outside": {"kernel": 3},
    "kernel_launched_elsewhere": {"kernels": [1, 0]},
    "kernels_outside": {"kernels": [1, 9]},
    "points_outside": {"points": 99},
    "points_true": {"points": True},
    "starts_that_fall": {"starts": [0, -1]},
    "starts_twice": {"starts": [0, 0]},
    "starts_above_0": {"starts": [1, 2]},
    "no_starts": {"starts": [], "kernels": []},
    "starts_of_70_bits": {"starts": [0, 1 << 70]},
    "more_kernels_than_starts": {"kernels": [1, 2, 1]},
    "regret_infinite": {"regrets": [[[1, 8], 1e999]]},
    "regret_text": {"regrets": [[[1, 8], "1"]]},
    "regret_of_other_sizes": {"regrets": [[[1], 1.0]]},
    "more": {"more": 1},
}.items():
    opened(f"choice_{what}", "GPC7004", lambda m, change=change: m["open"]["choices"][0].update(change))
opened("choice_of_another_language", "GPC7004", lambda m: m["plan"]["kernels"][2].update(language="cuda"))
opened("choices_twice", "GPC7004", lambda m: m["open"]["choices"].append(m["open"]["choices"][0]))
for what, buffer in {
    "texts": {"dtype": "string"},
    "fractions": {"dtype": "f32", "nbytes": 8},
    "too_few": {"numbers": [1]},
    "place_outside": {"numbers": [1, {"place": 99}]},
    "open_shape": {"shape": [{"place": 0}], "nbytes": 0},
}.items():
    table = {
        "kind": "numbers",
        "name": "w0",
        "dtype": "i64",
        "shape": [2],
        "nbytes": 16,
        "offset": -1,
        "numbers": [1, 2],
    }
    opened(f"numbers_{what}", "GPC7004", lambda m, b=table | buffer: m["plan"]["buffers"].__setitem__(1, b))
for what, code, repeat in [
    ("count_place_outside", "GPC7004", {"count": {"place": 99}}),
    ("count_true", "GPC7004", {"count": True}),
    ("advance_place_outside", "GPC7004", {"advances": [[0, 0, {"place": 99}]]}),
    ("advance_missing", "GPC7004", {"advances": [[0, 0]]}),
    ("of_no_launch", "GPC7004", {"first": 1, "last": 1, "advances": []}),
    ("beyond_a_buffer", "GPC7024", {"count": {"place": 2}, "advances": [[{"place": 2}, 0, 0]]}),
    ("below_0", "GPC7024", {"count": {"place": 6}, "advances": [[0, 0, 0]]}),
]:
    loop = {"first": 0, "last": 1, "count": {"place": 0}, "advances": [[0, 0, 0]]} | repeat
    act = at_sizes if code == "GPC7024" else load
    opened(
        f"repeat_{what}", code, lambda m, r=loop: m["plan"].update(repeats=[r]) or m["open"].update(conditions=[]), act
    )
field("place_outside", "outputs", [[{"place": 99}], []])
field("too_few", "outputs", [])
opened("a_weight_with_a_formula", "GPC7004", lambda m: m["plan"]["buffers"][1].update(shape=[{"place": 0}], nbytes=0))
opened(
    "an_input_with_a_formula", "GPC7004", lambda m: m["plan"]["buffers"][0].update(shape=[{"place": 2}, {"place": 1}])
)
opened("bytes_with_a_formula", "GPC7004", lambda m: m["plan"]["buffers"][2].update(nbytes={"place": 0}))
opened("bytes_of_an_open_buffer", "GPC7004", lambda m: m["plan"]["buffers"][5].update(nbytes=8))
opened("strings", "GPC7004", lambda m: m["plan"]["buffers"][5].update(dtype="string"))
opened("shape_place_outside", "GPC7004", lambda m: m["plan"]["buffers"][2].update(shape=[{"place": 99}]))
opened("shape_place_true", "GPC7004", lambda m: m["plan"]["buffers"][2].update(shape=[{"place": True}]))
opened("shape_place_more", "GPC7004", lambda m: m["plan"]["buffers"][2].update(shape=[{"place": 1, "x": 1}]))
opened("numbers_of_an_unknown_kind", "GPC7004", lambda m: m["plan"]["kernels"][0].update(numbers=[["root", 0]]))
opened("numbers_that_are_numbers", "GPC7004", lambda m: m["plan"]["kernels"][0].update(numbers=[3]))
opened("numbers_outside", "GPC7004", lambda m: m["plan"]["kernels"][0].update(numbers=[["size", 99]]))
opened("many_groups", "GPC7024", lambda m: m["open"]["steps"].__setitem__(3, ["sum", 1 << 31, [], 1])
       or m["plan"]["kernels"][0].update(groups=[{"place": 5}, 1, 1]) or m["plan"]["buffers"][2].update(shape=[1], nbytes=4),
       at_sizes)  # fmt: skip


def mapped(what: str, change: dict[str, object], code: str = "GPC7004", act: Callable[[Path], None] = load) -> None:
    """A case of the tensor map of the first kernel."""
    opened(f"map_{what}", code, lambda m: m["plan"]["kernels"][0]["tensor_maps"][0].update(change), act)


for what, wrong in HOSTILE.items():
    if what != "list":
        mapped(f"extents_{what}", {"extents": wrong})
        mapped(f"extent_{what}", {"extents": [wrong, 1]})
mapped("place_outside", {"strides": [{"place": 99}]})
mapped("place_true", {"strides": [{"place": True}]})
mapped("place_more", {"offset": {"place": 1, "x": 1}})
mapped("box_with_a_formula", {"box": [{"place": 0}, 2]})
mapped("pixels_with_a_formula", {"pixels": {"place": 0}})
mapped("parameter_with_a_formula", {"parameter": {"place": 0}})
mapped("of_rank_6", {"extents": [{"place": 0}] * 6})
mapped("of_no_parameter", {"parameter": 3})
mapped("without_strides", {"strides": []}, "GPC7024", at_sizes)
mapped("of_odd_strides", {"strides": [{"place": 0}]}, "GPC7024", at_sizes)
mapped("past_its_buffer", {"extents": [{"place": 1}, {"place": 7}]}, "GPC7024", at_sizes)
mapped("starts_past_its_buffer", {"offset": {"place": 7}}, "GPC7024", at_sizes)
mapped("of_an_extent_of_0", {"extents": [{"place": 1}, 0]}, "GPC7024", at_sizes)
mapped("of_an_extent_below_0", {"extents": [{"place": 1}, {"place": 6}]}, "GPC7024", at_sizes)
mapped("of_another_buffer", {"parameter": 1}, "GPC7024", at_sizes)
opened("map_of_a_variant", "GPC7004", lambda m: m["plan"]["kernels"][2].update(
    tensor_maps=[m["plan"]["kernels"][0]["tensor_maps"][0] | {"parameter": 4}]))  # fmt: skip
opened("map_of_a_variant_past_its_buffer", "GPC7024", lambda m: m["plan"]["kernels"][2].update(
    tensor_maps=[m["plan"]["kernels"][0]["tensor_maps"][0] | {"parameter": 2}]), at_sizes)  # fmt: skip


def fixed(what: str, change: Callable[[dict[str, Any]], object], code: str = "GPC7004") -> None:
    """A case of the program for one set of sizes."""
    opened(f"fixed_{what}", code, lambda m: change(m["fixed"][0]) and None)


for what, wrong in HOSTILE.items():
    if what != "list":
        opened(f"fixed_{what}", "GPC7004", lambda m, wrong=wrong: m.update(fixed=wrong))
opened("fixed_twice", "GPC7004", lambda m: m["fixed"].append(m["fixed"][0]))
opened("fixed_many", "GPC7004", lambda m: m.update(fixed=m["fixed"] * 101))
fixed("without_sizes", lambda f: f.pop("sizes"))
fixed("more", lambda f: f.update(more=1))
fixed("sizes_a_list", lambda f: f.update(sizes=[2, 8]))
fixed("sizes_of_others", lambda f: f.update(sizes={"n": 2, "k": 8}))
fixed("sizes_too_few", lambda f: f["sizes"].pop("n"))
fixed("sizes_outside", lambda f: f["sizes"].update(n=65))
fixed("sizes_no_multiple", lambda f: f["sizes"].update(h=9))
fixed("sizes_true", lambda f: f["sizes"].update(n=True))
fixed("sizes_other_than_the_plan", lambda f: f["sizes"].update(n=3))
fixed("place", lambda f: f["plan"]["buffers"][0].update(shape=[{"place": 0}, 8]))
fixed("input_of_another_name", lambda f: f["plan"]["buffers"][0].update(name="q"))
fixed("input_of_another_type", lambda f: f["plan"]["buffers"][0].update(dtype="i32"))
fixed("output_of_another_name", lambda f: f["plan"].update(output_names=["y", "q"]))
fixed("output_of_another_type", lambda f: f["plan"]["buffers"][f["plan"]["outputs"][0]].update(dtype="i32"))
fixed("output_of_another_rank", lambda f: f["plan"]["buffers"][f["plan"]["outputs"][0]]["shape"].append(1))
fixed("state_of_its_own", lambda f: f["plan"].update(
    states=[{"input": "x", "output": "x_new", "axis": -1, "dim": "", "capacity": 0, "rows": 0, "why": ""}]))  # fmt: skip
fixed("for_another_processor", lambda f: f["plan"].update(arch="x86-64-v4"))
fixed("for_another_kind", lambda f: f["plan"].update(kind="cuda"))
fixed("source_missing", lambda f: f["plan"]["kernels"][0].update(source="k9.ll"))
fixed("binary_missing", lambda f: f["plan"]["kernels"][0].update(binary="other.o"))
fixed("weight_missing", lambda f: f["plan"]["buffers"][1].update(name="w99"))
fixed("weight_of_two_types", lambda f: f["plan"]["buffers"][1].update(name="w1"))
fixed("arena", lambda f: f["plan"]["buffers"][3].update(offset=1 << 40))
sealed("fixed_in_schema_4", "GPC7004", lambda m: m.update(fixed=[]))
opened("schema_without_formulas", "GPC7004", lambda m: m.pop("open"))
opened("formulas_in_schema_4", "GPC7004", lambda m: m.update(schema=4))
sealed("open_place_in_a_fixed_plan", "GPC7004", lambda m: m["plan"]["buffers"][3].update(shape=[{"place": 0}]))
sealed("open_numbers_in_a_fixed_plan", "GPC7004", lambda m: m["plan"]["kernels"][0].update(numbers=[["size", 0]]))
