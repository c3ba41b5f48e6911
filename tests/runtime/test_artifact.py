"""model.gpuc: it comes back as it went in, and nothing else is ever loaded."""

import io
import json
import os
import random
import stat
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from gpucomp.artifact import container, manifest
from gpucomp.artifact.plan import Launch
from gpucomp.errors import ArtifactError, GpucompError, UnsupportedError
from gpucomp.ir.types import F32
from gpucomp.runtime import artifact
from tests.runtime.samples import PLAN, contents


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.gpuc"
    artifact.save(path, contents())
    return path


def members_of(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def rewrite(path, change_manifest=lambda m: None, members=None, **changed):
    """The same file with other contents, sealed anew: zip and digests are right, only the contents are not."""
    parts = dict(members or members_of(path))
    parts.update(changed)
    description = json.loads(parts.pop("manifest.json"))
    description["members"] = {n: artifact._digest([d]) for n, d in parts.items()}
    change_manifest(description)
    text = json.dumps(description).encode()
    container.write(path, {"manifest.json": [text], **{n: [d] for n, d in parts.items()}})


def assert_short(error):
    assert "\n" not in str(error)
    assert len(str(error)) < 600


def refused(path, message, code=None):
    with pytest.raises(ArtifactError, match=message) as caught:
        artifact.load(path)
    assert_short(caught.value)
    assert code is None or caught.value.code == code


def loads(path):
    try:
        artifact.load(path)
    except ArtifactError:
        return False
    return True


def test_contents_come_back_as_they_went_in(saved):
    before = contents()

    after = artifact.load(saved)

    assert after.plan == before.plan
    assert after.sources == before.sources
    assert after.binaries == before.binaries
    assert list(after.weights) == list(before.weights)
    for name, array in before.weights.items():
        assert after.weights[name].dtype == array.dtype
        assert after.weights[name].shape == array.shape
        assert after.weights[name].tobytes() == array.tobytes()


def test_counts_of_work_are_no_sizes(tmp_path):
    """What is compiled and saved can be loaded, however much there is to do."""
    before = contents()
    kernels = tuple(replace(k, operations=1 << 60, traffic=1 << 60) for k in before.plan.kernels)
    artifact.save(tmp_path / "m.gpuc", replace(before, plan=replace(before.plan, kernels=kernels)))

    assert artifact.load(tmp_path / "m.gpuc").plan.kernels == kernels


def test_weights_are_read_only_views_of_the_file_and_aligned(saved):
    weights = artifact.load(saved).weights

    for name in ("w0", "w1", "w3"):
        assert not weights[name].flags.writeable
        assert not weights[name].flags.owndata
        assert weights[name].ctypes.data % 64 == 0


def test_weights_outlive_the_loaded_object_and_the_file(saved):
    weights = artifact.load(saved).weights
    saved.unlink()

    assert np.array_equal(weights["w0"], contents().weights["w0"])


def test_other_tools_open_the_file(saved, tmp_path):
    with zipfile.ZipFile(saved) as file:
        assert file.testzip() is None
        assert file.namelist() == [
            "manifest.json",
            "sources/k0.ll",
            "sources/k1.ll",
            "binaries/model.o",
            "weights.safetensors",
        ]
        file.extract("weights.safetensors", tmp_path)

    tensors = load_file(tmp_path / "weights.safetensors")

    assert np.array_equal(tensors["w0"], contents().weights["w0"])
    assert tensors["w2"].shape == (7, 0)


def test_two_saves_are_equal_byte_for_byte(saved, tmp_path):
    backwards = contents()
    backwards = replace(backwards, sources=dict(reversed(backwards.sources.items())))
    artifact.save(tmp_path / "again.gpuc", backwards)

    assert (tmp_path / "again.gpuc").read_bytes() == saved.read_bytes()


def test_attributes_of_host_operators_come_back(tmp_path):
    attributes = {
        "to": F32,
        "axes": (1, -2),
        "nested": ((1,), ()),
        "mode": "{{ 7*7 }}\n\x00",
        "flag": True,
        "none": None,
        "alpha": 0.1,
        "limit": float("-inf"),
        "big": -(1 << 63),
        "raw": b"\x00\xff",
    }
    launch = Launch(-1, (0, 4), "h", ("Odd",), ("n",), "", 1, "Odd", attributes | {"table": np.arange(6).reshape(2, 3)})
    artifact.save(tmp_path / "m.gpuc", contents(replace(PLAN, launches=(launch,))))

    after = dict(artifact.load(tmp_path / "m.gpuc").plan.launches[0].attributes)

    table = after.pop("table")
    assert after == attributes
    assert after["to"] is F32
    assert table.dtype == np.int64
    assert np.array_equal(table, np.arange(6).reshape(2, 3))


def test_an_attribute_that_has_no_spelling_is_refused_on_save(tmp_path):
    launch = Launch(-1, (0, 4), "h", ("If",), ("n",), "", 1, "If", {"then": object()})

    with pytest.raises(UnsupportedError, match=r"If\.then: an attribute of type object cannot be saved"):
        artifact.save(tmp_path / "m.gpuc", contents(replace(PLAN, launches=(launch,))))

    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_file_alone(saved, monkeypatch):
    before = saved.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match=r"cannot write .*: No space left on device"):
        artifact.save(saved, contents(replace(PLAN, model="other")))

    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_saving_into_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(ArtifactError, match=r"cannot write .*: No such file or directory"):
        artifact.save(tmp_path / "none" / "m.gpuc", contents())


def test_a_saved_file_has_the_usual_permissions(saved):
    other = saved.parent / "plain"
    other.write_bytes(b"")

    assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_loading_imports_no_compiler(saved):
    script = (
        "import sys, gpucomp\n"
        f"exe = gpucomp.load({str(saved)!r})\n"
        "assert exe.kernels and exe.weights['w0'].shape == (3, 1)\n"
        "heavy = {'onnx', 'onnx_ir', 'jinja2', 'optuna', 'llvmlite', 'click', 'rich', 'pyopencl', 'cupy'}\n"
        "compiler = {'gpucomp.' + m for m in ('compiler', 'codegen', 'frontend', 'rewrite', 'partition', 'ops')}\n"
        "print(sorted((heavy | compiler) & set(sys.modules)))\n"
    )

    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert out.stdout == "[]\n"


def test_what_is_built_again_takes_no_binary_from_the_file(saved):
    seen = {}

    def rebuild(plan, sources):
        seen.update(plan=plan, sources=dict(sources))
        return {"model.o": b"built here"}

    loaded = artifact.load(saved, rebuild=rebuild)

    assert loaded.binaries == {"model.o": b"built here"}
    assert seen["sources"] == dict(contents().sources)


# damaged and hostile files


def test_every_truncation_is_refused(saved):
    whole = saved.read_bytes()
    for size in [*range(0, len(whole), 13), len(whole) - 1]:
        saved.write_bytes(whole[:size])
        assert not loads(saved), f"{size} bytes of {len(whole)} were taken for a model"


def test_every_flipped_bit_is_refused(saved):
    whole = saved.read_bytes()
    rng = random.Random(0)
    positions = {*range(256), *range(len(whole) - 256, len(whole)), *rng.sample(range(len(whole)), 1500)}
    for position in sorted(positions):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << rng.randrange(8)
        saved.write_bytes(flipped)
        assert not loads(saved), f"a flip in byte {position} was not noticed"


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"PK\x05\x06" + bytes(18), b"\x80\x04]." + bytes(300), b"\x89PNG" + bytes(4000), os.urandom(5000)],
    ids=["empty", "short", "empty zip", "pickle", "png", "random"],
)
def test_other_files_are_refused(saved, data):
    saved.write_bytes(data)

    refused(saved, "is not a compiled model", "GPC7001")


def test_data_before_and_after_are_refused(saved):
    whole = saved.read_bytes()
    for data in (b"x" + whole, whole + b"x", whole + whole):
        saved.write_bytes(data)
        refused(saved, "is not a compiled model")


def test_a_zip_of_another_tool_is_refused(saved):
    parts = members_of(saved)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(saved, "w", method) as file:
            for name, data in parts.items():
                file.writestr(name, data)
        refused(saved, "is not a compiled model", "GPC7001")


def patched_entry(whole, member, field, value):
    """``whole`` with one field of a member's directory entry replaced."""
    position = whole.index(b"PK\x01\x02")
    while True:
        fields = list(container._CENTRAL.unpack_from(whole, position))
        name = bytes(whole[position + 46 : position + 46 + fields[10]]).decode()
        if name == member:
            fields[field] = value
            return whole[:position] + container._CENTRAL.pack(*fields) + whole[position + 46 :]
        position += 46 + fields[10] + fields[11]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (4, 8, "member 'binaries/model.o' is compressed"),
        (3, 1, "directory is not one that gpucomp writes"),  # encrypted
        (15, 0o120777 << 16, "directory is not one that gpucomp writes"),  # a symbolic link
        (5, 1234, "directory is not one that gpucomp writes"),  # another time
        (7, 99, "is not one that gpucomp writes"),  # another checksum
        (12, 7, "is not a compiled model"),  # a comment
        (16, 5, "directory is not one that gpucomp writes"),  # another position
        (10, 5, "is not a compiled model"),  # a shorter name
        (11, 24, "is not one that gpucomp writes"),  # a shorter extra field
    ],
)
def test_a_directory_entry_that_lies_is_refused(saved, field, value, message):
    saved.write_bytes(patched_entry(saved.read_bytes(), "binaries/model.o", field, value))

    refused(saved, message, "GPC7001")


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/passwd",
        "..",
        "a/../../b",
        "a\\b",
        "a//b",
        "sources/.x",
        "a/b/c",
        "C:x",
        "x\x00y",
        "",
        "k0 ll",
        "é",
    ],
)
def test_a_member_name_that_leaves_the_archive_is_refused(saved, name):
    parts = members_of(saved)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container, "MEMBER_NAME", __import__("re").compile(r"(?s).*"))
        entries = [name.encode("utf-8").decode("latin-1"), *parts]
        layout = container._layout([(n, len(parts.get(n, b"")), 0) for n in entries if n.isascii()])
    if not name.isascii():
        whole = saved.read_bytes().replace(b"sources/k0.ll", b"sources/\xc3\xa9.ll")
    else:
        whole = b"".join(h + parts.get(m.name, b"") for m, h in zip(layout.members, layout.headers, strict=True))
        whole += layout.directory
    saved.write_bytes(whole)

    refused(saved, r"member name .* is not allowed", "GPC7001")


def test_a_member_that_is_there_twice_is_refused(saved):
    whole = saved.read_bytes().replace(b"sources/k1.ll", b"sources/k0.ll")
    saved.write_bytes(whole)

    refused(saved, "'sources/k0.ll' occurs twice", "GPC7001")


@pytest.mark.parametrize("size", [1 << 30, 1 << 62, (1 << 64) - 1])
def test_a_member_larger_than_the_file_is_refused(saved, size):
    whole = saved.read_bytes()
    entry = whole.index(b"binaries/model.o", whole.index(b"PK\x01\x02")) + len("binaries/model.o")
    saved.write_bytes(whole[: entry + 4] + struct.pack("<QQ", size, size) + whole[entry + 20 :])

    refused(saved, f"claims {size} bytes", "GPC7001")


def test_a_directory_of_too_many_members_is_refused(saved):
    whole = bytearray(saved.read_bytes())
    end = len(whole) - container._TAIL
    fields = list(container._END64.unpack_from(whole, end))
    fields[6] = fields[7] = 1 << 40
    container._END64.pack_into(whole, end, *fields)
    saved.write_bytes(whole)

    refused(saved, "at most 60000 are allowed", "GPC7001")


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path):
    refused(tmp_path / "none.gpuc", "cannot read .*: No such file or directory", "GPC7005")
    refused(tmp_path, "cannot read .*: Is a directory", "GPC7005")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file", "GPC7001")


def test_a_damaged_member_is_named(saved):
    whole = saved.read_bytes()
    position = whole.index(b"\x7fELF") + 9
    saved.write_bytes(whole[:position] + b"!" + whole[position + 1 :])

    refused(saved, "member 'binaries/model.o' is damaged", "GPC7003")


def test_a_member_that_is_missing_or_unlisted_is_refused(saved):
    parts = members_of(saved)
    for name in set(parts) - {"manifest.json"}:
        rewrite(saved, members=parts)
        description = json.loads(members_of(saved)["manifest.json"])
        rest = {n: d for n, d in parts.items() if n not in (name, "manifest.json")}
        container.write(
            saved, {"manifest.json": [json.dumps(description).encode()], **{n: [d] for n, d in rest.items()}}
        )
        refused(saved, "missing or not listed", "GPC7003")
    rewrite(saved, members=parts, extra=b"?")
    refused(saved, "member 'extra' is unknown", "GPC7004")
    container.write(saved, {"weights.safetensors": [b"x"]})
    refused(saved, "it has no manifest.json", "GPC7001")


def test_sources_binaries_and_weights_that_the_plan_does_not_fit_are_refused(saved):
    parts = members_of(saved)
    without = {n: d for n, d in parts.items() if n != "sources/k1.ll"}
    rewrite(saved, members=without)
    refused(saved, "kernel 'k1': no source 'k1.ll'", "GPC7004")
    without = {n: d for n, d in parts.items() if n != "binaries/model.o"}
    rewrite(saved, members=without)
    refused(saved, "kernel 'k0': no binary 'model.o'", "GPC7004")
    rewrite(saved, members=parts, **{"sources/k0.ll": b"\xff\xfe"})
    refused(saved, "source 'k0.ll' is not text", "GPC7004")
    for weights in (b"", b"\x00" * 8, parts["weights.safetensors"][:-1], parts["weights.safetensors"] + b"\0" * 64):
        rewrite(saved, members=parts, **{"weights.safetensors": weights})
        refused(saved, "does not hold the weights that the manifest lists", "GPC7004")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is not JSON"),
        (b"[" * 200_000 + b"]" * 200_000, "nested too deep|is not JSON"),
        (b'{"a":' * 100_000, "nested too deep|is not JSON"),
        (b'{"format": NaN}', "is not a JSON number"),
        (b'{"format": "gpucomp", "format": "gpucomp"}', "a key occurs twice"),
        (b'{"format": ' + b"9" * 100_000 + b"}", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "does not describe a compiled model"),
        (b'{"format": "other"}', "does not describe a compiled model"),
        (b'{"format": "gpucomp"}', "has schema 'None', this gpucomp reads 4 and 5: compile again"),
        (b'{"format": "gpucomp", "schema": 2}', "has schema '2', this gpucomp reads 4"),
        (b'{"format": "gpucomp", "schema": true}', "has schema 'True'"),
        (b'{"format": "gpucomp", "schema": 4}', "has other fields"),
    ],
)
def test_a_manifest_that_is_none_is_refused(saved, text, message):
    parts = members_of(saved)
    parts["manifest.json"] = text
    container.write(saved, {n: [d] for n, d in parts.items()})

    refused(saved, message)


def test_a_manifest_of_any_size_is_bounded(saved, monkeypatch):
    monkeypatch.setattr(manifest, "MAX_BYTES", 1000)

    refused(saved, "at most 1000 are allowed", "GPC7006")


HOSTILE = (
    None,
    True,
    -1,
    1 << 63,
    10**40,
    1e308,
    "",
    "../../etc/passwd",
    "__class__",
    [],
    [[]],
    {},
    {"a": 1},
    "x" * 9999,
)


def fields_of(value, path=()):
    """Every place in the manifest's plan: one of each list is enough."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*path, name)
            yield from fields_of(item, (*path, name))
    elif isinstance(value, list) and value:
        yield (*path, 0)
        yield from fields_of(value[0], (*path, 0))


def test_a_hostile_value_in_any_field_is_refused_or_harmless(saved):
    plan = manifest.data_of(PLAN)
    plan = json.loads(json.dumps(plan))
    places = list(fields_of(plan))
    assert len(places) > 50
    for place in places:
        for value in HOSTILE:
            changed = json.loads(json.dumps(plan))
            holder = changed
            for step in place[:-1]:
                holder = holder[step]
            holder[place[-1]] = value
            try:
                loaded = manifest.plan_of(changed)
            except ArtifactError as error:
                assert_short(error)
            else:  # another text or number of the same kind: nothing points outside
                manifest.check_plan(loaded)
                assert all(a < len(loaded.buffers) for launch in loaded.launches for a in launch.args)


def test_a_missing_or_unknown_field_is_refused(saved):
    plan = json.loads(json.dumps(manifest.data_of(PLAN)))
    for record, name in ((plan, "arena_bytes"), (plan["buffers"][0], "dtype"), (plan["launches"][1], "args")):
        value = record.pop(name)
        with pytest.raises(ArtifactError, match=f"field '{name}' is missing"):
            manifest.plan_of(plan)
        record[name] = value
        record["__class__"] = "os.system"
        with pytest.raises(ArtifactError, match="field '__class__' is unknown"):
            manifest.plan_of(plan)
        del record["__class__"]


def replaced(position, **changes):
    buffers = list(PLAN.buffers)
    buffers[position] = replace(buffers[position], **changes)
    return replace(PLAN, buffers=tuple(buffers))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replaced(3, offset=69), "60 bytes at 69 lie outside the arena of 128"),
        (replaced(3, offset=-1), "lie outside the arena"),
        (replaced(0, nbytes=56), "takes 60 bytes, not 56"),
        (replaced(3, shape=(1 << 30, 1 << 30)), "takes 4611686018427387904 bytes"),
        (replaced(2, name="w0"), "a name occurs twice"),
        (replace(PLAN, inputs=(1,)), "buffers of kind input expected"),
        (replace(PLAN, inputs=(7,)), "do not all exist"),
        (replace(PLAN, outputs=(4, 7)), "do not all exist"),
        (replace(PLAN, output_names=("y",)), "2 names expected, found 1"),
        (replace(PLAN, output_names=("y", "y")), "a name occurs twice"),
        (replace(PLAN, launches=(replace(PLAN.launches[0], args=(0, 7)),)), "do not all exist"),
        (replace(PLAN, launches=(replace(PLAN.launches[0], kernel=2),)), "exactly one expected"),
        (replace(PLAN, launches=(replace(PLAN.launches[0], kernel=-1),)), "exactly one expected"),
        (replace(PLAN, launches=(replace(PLAN.launches[0], host="NonZero"),)), "exactly one expected"),
    ],
)
def test_a_plan_whose_parts_do_not_fit_is_refused(plan, message):
    with pytest.raises(ArtifactError, match=message):
        manifest.plan_of(json.loads(json.dumps(manifest.data_of(plan))))


def test_a_weight_of_another_type_is_not_saved(tmp_path):
    parts = contents()
    parts = replace(parts, weights={**parts.weights, "w0": parts.weights["w0"].astype(np.float64)})

    with pytest.raises(ArtifactError, match=r"weight 'w0': f32\[3,1\] expected, found float64\[3, 1\]"):
        artifact.save(tmp_path / "m.gpuc", parts)


def test_random_damage_never_ends_in_another_error(saved):
    whole = saved.read_bytes()
    rng = random.Random(1)
    for _ in range(600):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            at, length = rng.randrange(len(data)), rng.randrange(1, 40)
            match rng.randrange(4):
                case 0:
                    data[at : at + length] = rng.randbytes(length)
                case 1:
                    del data[at : at + length]
                case 2:
                    data[at:at] = rng.randbytes(length)
                case 3:
                    data[at : at + length] = b"\xff" * length
        saved.write_bytes(data)
        try:
            loaded = artifact.load(saved)
        except GpucompError:
            continue
        assert bytes(data) == whole
        assert loaded.plan == PLAN


def test_the_writer_refuses_a_name_that_the_reader_would(tmp_path):
    with pytest.raises(ValueError, match=r"member name '\.\./x'"):
        container.write(tmp_path / "m.gpuc", {"../x": [b""]})


def test_members_of_no_bytes_and_many_members_survive(tmp_path):
    members = {f"sources/k{k}": [b"x" * (k % 130)] for k in range(1500)}
    container.write(tmp_path / "m.gpuc", members)

    back = container.read(tmp_path / "m.gpuc", sealed="sources/k7")

    assert {n: bytes(v) for n, v in back.items()} == {n: d[0] for n, d in members.items()}
    with zipfile.ZipFile(io.BytesIO((tmp_path / "m.gpuc").read_bytes())) as file:
        assert file.testzip() is None
        assert all(info.compress_type == zipfile.ZIP_STORED for info in file.infolist())
