"""External tensor data is read lazily from the model's folder. No trick can read it from elsewhere."""

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gpucomp.errors import ModelError
from gpucomp.frontend.onnx import load
from gpucomp.ir import constant_value
from gpucomp.ops.interpreter import interpret
from tests.onnx_builders import model, node, value

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def external(where: str = "initializer", dtype: int = TensorProto.FLOAT, dims=(2, 3), **keys) -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, text in keys.items():
        tensor.external_data.add(key=key, value=str(text))
    add = node("Add", ["x", "w"], ["y"])
    if where == "initializer":
        return model([add], [value("x", dims, dtype)], weights=[tensor])
    made = node("Constant", [], ["w"], value=tensor)
    if where == "Constant":
        return model([made, add], [value("x", dims, dtype)])
    branch = helper.make_graph([made], "branch", [], [onnx.ValueInfoProto(name="w")])
    choice = node("If", ["c"], ["v"], then_branch=branch, else_branch=branch)
    return model([choice, node("Add", ["x", "v"], ["y"])], [value("x", dims, dtype)], weights={"c": np.array(True)})


def saved(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path):
    """A model's folder with valid data, and a secret outside it."""
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    (inside / "w.bin").write_bytes(W.tobytes())
    (inside / "sub" / "w.bin").write_bytes(b"pad." + W.tobytes() + b"tail")
    (tmp_path / "secret.bin").write_bytes(W.tobytes())
    return inside


@pytest.mark.parametrize("where", ["initializer", "Constant", "If"])
@pytest.mark.parametrize("keys", [{"location": "w.bin"}, {"location": "sub/w.bin", "offset": 4, "length": 24}])
def test_data_inside_the_folder_is_read(folder, where, keys):
    graph = load(saved(folder, external(where, **keys)))

    assert np.array_equal(interpret(graph, {"x": W})[0], 2 * W)


def mapped(folder, dims):
    """Whether a weight with these extents is a view of its file."""
    (folder / "large.bin").write_bytes(bytes(4 * int(np.prod(dims))))
    graph = load(saved(folder, external(dims=dims, location="large.bin")))
    (base,) = [constant_value(n[0]) for n in graph.nodes() if constant_value(n[0]) is not None]
    while isinstance(base.base, np.ndarray):
        base = base.base
    return isinstance(base, np.memmap)


def test_data_is_mapped_not_copied(folder):
    assert mapped(folder, (257, 131))


def test_a_small_file_is_read_so_that_thousands_need_no_descriptor_each(folder):
    assert not mapped(folder, (7, 13))


def test_narrow_types_are_read_from_files(folder):
    (folder / "h.bin").write_bytes(W.astype(ml_dtypes.bfloat16).tobytes())
    graph = load(saved(folder, external(dtype=TensorProto.BFLOAT16, location="h.bin")))

    y = interpret(graph, {"x": W.astype(ml_dtypes.bfloat16)})[0]

    assert np.array_equal(y.astype(np.float32), 2 * W)


def test_a_file_without_elements_is_read(folder):
    (folder / "empty.bin").write_bytes(b"")

    graph = load(saved(folder, external(dims=(0, 3), location="empty.bin")))

    assert graph.outputs[0].shape == (0, 3)


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "sub/../../secret.bin",
        "sub/../w.bin",
        "./w.bin",
        "sub//w.bin",
        "/etc/passwd",
        "/dev/zero",
        "file:///etc/passwd",
        "http://localhost/w.bin",
        "C:\\w.bin",
        "..\\secret.bin",
        "w.bin\0.txt",
        "",
        ".",
        "..",
        "w.bin/",
    ],
)
def test_a_path_that_is_not_plainly_inside_is_refused(folder, location):
    path = saved(folder, external(location=location))

    with pytest.raises(ModelError, match=r"'w'.*a plain relative path inside the model's folder expected"):
        load(path)


def test_links_are_refused(folder):
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "inner.bin").symlink_to("w.bin")
    (folder / "dir").symlink_to(folder.parent)
    os.link(folder.parent / "secret.bin", folder / "hard.bin")

    for location, text in [
        ("link.bin", "symbolic link"),
        ("inner.bin", "symbolic link"),
        ("dir/secret.bin", "not a directory|symbolic link"),
        ("hard.bin", "has 2 hard links"),
    ]:
        with pytest.raises(ModelError, match=text):
            load(saved(folder, external(location=location)))


def test_pipes_devices_folders_and_missing_files_are_refused(folder):
    os.mkfifo(folder / "pipe")

    for location, text in [("pipe", "not a regular file"), ("sub", "not a regular file"), ("none.bin", "no such file")]:
        with pytest.raises(ModelError, match=text):
            load(saved(folder, external(location=location)))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"offset": 4}, "past the end of 'w.bin', which has 24 bytes"),
        ({"offset": 1 << 59}, "past the end"),
        ({"offset": 1 << 70}, "a number of bytes expected"),
        ({"offset": -4}, "offset '-4': a number of bytes expected"),
        ({"offset": "four"}, "a number of bytes expected"),
        ({"offset": "٤"}, "a number of bytes expected"),
        ({"length": 23}, "external data of 23 bytes, its type and shape need 24"),
        ({"length": 1 << 50}, "its type and shape need 24"),
        ({"__class__": "x"}, "unknown or repeated external-data key '__class__'"),
        ({"basepath": "/etc"}, "unknown or repeated external-data key 'basepath'"),
    ],
)
def test_offsets_lengths_and_keys_are_checked(folder, keys, text):
    with pytest.raises(ModelError, match=text):
        load(saved(folder, external(location="w.bin", **keys)))


def test_a_repeated_key_is_refused(folder):
    proto = external(location="w.bin")
    proto.graph.initializer[0].external_data.add(key="location", value="sub/w.bin")

    with pytest.raises(ModelError, match="repeated external-data key 'location'"):
        load(saved(folder, proto))


def test_a_model_without_a_folder_has_no_external_data(folder):
    proto = external(location="w.bin")

    for source in (proto, proto.SerializeToString()):
        with pytest.raises(ModelError, match="the model was not read from a file"):
            load(source)


def test_a_linked_model_reads_beside_the_real_one(folder):
    path = saved(folder, external(location="w.bin"))
    (folder.parent / "alias.onnx").symlink_to(path)

    assert load(folder.parent / "alias.onnx").outputs[0].shape == (2, 3)


@pytest.fixture
def cached(tmp_path):
    """A repository in a Hugging Face cache: the model and its data in a snapshot are links to blobs."""
    repo = tmp_path / "hub" / "models--made--up"
    snapshot = repo / "snapshots" / "0a1b2c" / "onnx"
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "blobs" / "17ab").write_bytes(external(location="model.onnx_data").SerializeToString())
    (repo / "blobs" / "29cd").write_bytes(W.tobytes())
    (snapshot / "model.onnx").symlink_to("../../../blobs/17ab")
    (snapshot / "model.onnx_data").symlink_to("../../../blobs/29cd")
    (tmp_path / "secret.bin").write_bytes(W.tobytes())
    return snapshot


def test_data_in_a_hugging_face_cache_are_read(cached):
    graph = load(cached / "model.onnx")

    assert np.array_equal(interpret(graph, {"x": W})[0], 2 * W)


def test_a_cache_reached_through_a_link_or_from_within_is_read_too(cached, tmp_path, monkeypatch):
    (tmp_path / "alias").symlink_to(cached.parent)
    monkeypatch.chdir(cached)

    for path in (tmp_path / "alias" / "onnx" / "model.onnx", Path("model.onnx"), Path("../onnx/model.onnx")):
        assert load(path).outputs[0].shape == (2, 3)


def test_plain_data_beside_a_model_in_a_cache_are_read(cached):
    (cached / "model.onnx_data").unlink()
    (cached / "model.onnx_data").write_bytes(W.tobytes())

    assert load(cached / "model.onnx").outputs[0].shape == (2, 3)


def link_to(target):
    def change(cached, tmp_path):
        (cached / "model.onnx_data").unlink()
        (cached / "model.onnx_data").symlink_to(target if isinstance(target, str) else target(tmp_path))

    return change


def a_chain(cached, tmp_path):
    blobs = cached.parents[2] / "blobs"
    (blobs / "29cd").unlink()
    (blobs / "29cd").symlink_to(tmp_path / "secret.bin")


def a_chain_inside(cached, tmp_path):
    blobs = cached.parents[2] / "blobs"
    (blobs / "29cd").rename(blobs / "30ef")
    (blobs / "29cd").symlink_to("30ef")


def a_hard_link(cached, tmp_path):
    blobs = cached.parents[2] / "blobs"
    (blobs / "29cd").unlink()
    os.link(tmp_path / "secret.bin", blobs / "29cd")


def fake_blobs(cached, tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "29cd").write_bytes(W.tobytes())
    link_to(lambda t: t / "blobs" / "29cd")(cached, tmp_path)


def linked_blobs(cached, tmp_path):
    (cached.parents[2] / "blobs").rename(tmp_path / "elsewhere")
    (cached.parents[2] / "blobs").symlink_to(tmp_path / "elsewhere")


def a_plain_model(cached, tmp_path):
    content = (cached / "model.onnx").read_bytes()
    (cached / "model.onnx").unlink()
    (cached / "model.onnx").write_bytes(content)


def no_snapshot(cached, tmp_path):
    cached.parents[1].rename(cached.parents[2] / "photos")
    (cached.parents[1]).symlink_to("photos")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (link_to(lambda t: t / "secret.bin"), "symbolic link"),
        (link_to("../../../../../secret.bin"), "symbolic link"),
        (link_to("../../../blobs/../../../secret.bin"), "symbolic link"),
        (link_to("../../../blobs"), "symbolic link"),
        (link_to("model.onnx"), "symbolic link"),
        (link_to("../../../blobs/none"), "no such file"),
        (a_chain, "symbolic link"),
        (a_chain_inside, "symbolic link"),
        (a_hard_link, "has 2 hard links"),
        (fake_blobs, "symbolic link"),
        (linked_blobs, "symbolic link|not a directory"),
        (a_plain_model, "symbolic link"),
        (no_snapshot, "no such file"),
    ],
)
def test_links_of_a_cache_lead_to_its_own_blobs_and_nowhere_else(cached, tmp_path, change, text):
    change(cached, tmp_path)

    with pytest.raises(ModelError, match=text):
        load(cached / "model.onnx")
