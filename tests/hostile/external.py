"""Tensor data in files that do not belong to the model: every way out of its folder, and files that are none."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.hostile.corpus import OK, Act, add, check, run_cpu
from tests.onnx_builders import model, node, value

W = np.arange(6, dtype=np.float32).reshape(2, 3)
PLACES = ("initializer", "constant", "branch", "sparse", "function")


def external(place: str = "initializer", dims=(2, 3), **keys: object) -> onnx.ModelProto:
    """y = x + w, with the data of w in another file; ``place`` says where in the model w is."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, text in keys.items():
        tensor.external_data.add(key=key, value=str(text))
    total, x = node("Add", ["x", "w"], ["y"]), value("x", dims)
    match place:
        case "initializer":
            return model([total], [x], weights=[tensor])
        case "constant":
            return model([node("Constant", [], ["w"], value=tensor), total], [x])
        case "sparse":
            found = model([total], [x])
            del tensor.dims[:]
            tensor.dims.append(6)
            w = found.graph.sparse_initializer.add(dims=dims)
            w.values.CopyFrom(tensor)
            w.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, [6], range(6)))
            return found
        case "function":
            made = helper.make_function(
                "own", "Made", [], ["w"], [node("Constant", [], ["w"], value=tensor)], [helper.make_opsetid("", 20)]
            )
            call = node("Made", [], ["w"], domain="own")
            return model([call, total], [x], functions=[made], domains=["own"])
    made = node("Constant", [], ["w"], value=tensor)
    branch = helper.make_graph([made], "branch", [], [onnx.ValueInfoProto(name="w")])
    choice = node("If", ["c"], ["v"], then_branch=branch, else_branch=branch)
    return model([choice, node("Add", ["x", "v"], ["y"])], [x], weights={"c": np.array(True)})


def case(
    what: str,
    code: str,
    location: str,
    files: Callable[[Path], object] = lambda folder: None,
    mention: str = "'w'",
    act: Callable[[Path], object] = check,
    **keys: object,
) -> None:
    """``files`` makes what lies in the folder, besides w.bin; the canary is ``../../secret.bin``."""

    def prepare(folder: Path, place: str = "initializer") -> Act:
        (folder / "w.bin").write_bytes(W.tobytes())
        (folder / "sub").mkdir()
        (folder / "sub" / "w.bin").write_bytes(b"pad." + W.tobytes() + b"tail")
        files(folder)
        (folder / "m.onnx").write_bytes(external(place, location=location, **keys).SerializeToString())
        return partial(act, folder / "m.onnx")

    places = keys.pop("places", ("initializer",))
    for place in places:
        name = f"external/{what}" + (f"_in_{place}" if len(places) > 1 else "")
        add(name, code, partial(prepare, place=place), mention if place == "initializer" else "")


right = partial(run_cpu, inputs={"x": W}, expected={"y": 2 * W})
case("whole_file", OK, "w.bin", act=right, mention="", places=PLACES)
case("part_of_a_file_below", OK, "sub/w.bin", act=right, mention="", offset=4, length=24)
case("zeros_in_front_of_numbers", OK, "sub/w.bin", act=right, mention="", offset="0004", length="00024")

for what, location in {
    "parent": "../../secret.bin",
    "through_a_folder": "sub/../../../secret.bin",
    "back_into_the_folder": "sub/../w.bin",
    "dot": "./w.bin",
    "double_slash": "sub//w.bin",
    "etc_passwd": "/etc/passwd",
    "dev_zero": "/dev/zero",
    "proc_self": "/proc/self/mem",
    "file_url": "file:///etc/passwd",
    "http_url": "http://127.0.0.1:1/w.bin",
    "drive": "C:\\w.bin",
    "backslashes": "..\\..\\secret.bin",
    "nul": "w.bin\0.txt",
    "empty": "",
    "only_dot": ".",
    "only_dots": "..",
    "trailing_slash": "w.bin/",
    "home": "~/w.bin/..",
}.items():
    case(what, "GPC3024", location, places=PLACES if what in ("parent", "etc_passwd") else ("initializer",))

for what, location, files, code in [
    ("symbolic_link_out", "link.bin", lambda f: (f / "link.bin").symlink_to(f.parent.parent / "secret.bin"), "GPC3025"),
    ("symbolic_link_inside", "link.bin", lambda f: (f / "link.bin").symlink_to("w.bin"), "GPC3025"),
    ("symbolic_link_to_itself", "link.bin", lambda f: (f / "link.bin").symlink_to("link.bin"), "GPC3025"),
    ("symbolic_link_to_nothing", "link.bin", lambda f: (f / "link.bin").symlink_to("nothing"), "GPC3025"),
    ("symbolic_link_to_dev_zero", "link.bin", lambda f: (f / "link.bin").symlink_to("/dev/zero"), "GPC3025"),
    ("linked_folder", "out/secret.bin", lambda f: (f / "out").symlink_to(f.parent.parent), "GPC3025"),
    ("hard_link_out", "hard.bin", lambda f: os.link(f.parent.parent / "secret.bin", f / "hard.bin"), "GPC3026"),
    ("hard_link_inside", "hard.bin", lambda f: os.link(f / "w.bin", f / "hard.bin"), "GPC3026"),
    ("pipe", "pipe", lambda f: os.mkfifo(f / "pipe"), "GPC3025"),
    ("folder", "sub", lambda f: None, "GPC3025"),
    ("missing", "none.bin", lambda f: None, "GPC3025"),
    ("below_a_file", "w.bin/w.bin", lambda f: None, "GPC3025"),
    ("name_too_long", "w" * 300, lambda f: None, "GPC3025"),
    ("path_too_long", "/".join(["sub"] * 3000), lambda f: None, "GPC3025"),
    ("device_name", "w:bin", lambda f: None, "GPC3024"),
    ("not_readable", "w.bin", lambda f: (f / "w.bin").unlink(), "GPC3025"),
    ("empty_file", "empty.bin", lambda f: (f / "empty.bin").write_bytes(b""), "GPC3022"),
]:
    case(what, code, location, files)

for what, keys, code in [
    ("offset_4", {"offset": 4}, "GPC3022"),
    ("offset_past_the_end", {"offset": 1 << 50}, "GPC3022"),
    ("offset_2_59", {"offset": 1 << 59}, "GPC3022"),
    ("offset_that_wraps", {"offset": (1 << 64) - 24}, "GPC3020"),
    ("offset_2_70", {"offset": 1 << 70}, "GPC3020"),
    ("offset_of_a_million_digits", {"offset": "9" * 10**6}, "GPC3020"),
    ("offset_negative", {"offset": -4}, "GPC3020"),
    ("offset_with_a_plus", {"offset": "+0"}, "GPC3020"),
    ("offset_with_blanks", {"offset": " 0 "}, "GPC3020"),
    ("offset_hexadecimal", {"offset": "0x0"}, "GPC3020"),
    ("offset_with_an_underscore", {"offset": "0_0"}, "GPC3020"),
    ("offset_of_arabic_digits", {"offset": "٠"}, "GPC3020"),
    ("offset_float", {"offset": "0.0"}, "GPC3020"),
    ("offset_empty", {"offset": ""}, "GPC3020"),
    ("length_short", {"length": 23}, "GPC3021"),
    ("length_long", {"length": 25}, "GPC3021"),
    ("length_2_50", {"length": 1 << 50}, "GPC3021"),
    ("length_2_70", {"length": 1 << 70}, "GPC3020"),
    ("length_negative", {"length": -24}, "GPC3020"),
    ("length_0", {"length": 0}, "GPC3021"),
    ("dims_of_2_40", {"dims": (1 << 40,)}, "GPC3022"),
    ("key_class", {"__class__": "x"}, "GPC3020"),
    ("key_base_path", {"basepath": "/etc"}, "GPC3020"),
    ("key_empty", {"": "x"}, "GPC3020"),
]:
    case(what, code, "w.bin", **keys)


def sparse_file(folder: Path) -> None:
    with open(folder / "w.bin", "wb") as file:
        file.truncate(1 << 40)


# the limit on address space of these tests is less than a terabyte
case("a_file_of_a_terabyte_of_nothing", "GPC3025", "w.bin", sparse_file, dims=(1 << 20, 1 << 16))


def many_files(folder: Path, count: int) -> Act:
    """A model whose weights have a file each: more than a process may have open."""
    weights = []
    for k in range(count):
        (folder / f"w{k}.bin").write_bytes(W.tobytes())
        weights.append(TensorProto(name=f"w{k}", data_type=1, dims=(2, 3), data_location=TensorProto.EXTERNAL))
        weights[-1].external_data.add(key="location", value=f"w{k}.bin")
    found = model([node("Sum", [w.name for w in weights], ["y"])], weights=weights)
    (folder / "m.onnx").write_bytes(found.SerializeToString())
    return partial(run_cpu, folder / "m.onnx", {}, {"y": count * W})


add("external/a_file_for_each_of_1500_weights", OK, partial(many_files, count=1500))


def twice(folder: Path) -> Act:
    (folder / "w.bin").write_bytes(W.tobytes())
    found = external(location="w.bin")
    found.graph.initializer[0].external_data.add(key="location", value="sub/w.bin")
    (folder / "m.onnx").write_bytes(found.SerializeToString())
    return partial(check, folder / "m.onnx")


def raw_too(folder: Path) -> Act:
    (folder / "w.bin").write_bytes(W.tobytes())
    found = external(location="w.bin")
    found.graph.initializer[0].raw_data = W.tobytes()
    (folder / "m.onnx").write_bytes(found.SerializeToString())
    return partial(check, folder / "m.onnx")


def from_bytes(folder: Path) -> Act:
    (folder / "w.bin").write_bytes(W.tobytes())
    return partial(check, external(location="w.bin").SerializeToString())


def linked_model(folder: Path) -> Act:
    """A link to a model reads beside the model, not beside the link."""
    (folder / "real").mkdir()
    (folder / "real" / "w.bin").write_bytes(W.tobytes())
    (folder / "real" / "m.onnx").write_bytes(external(location="w.bin").SerializeToString())
    (folder / "m.onnx").symlink_to("real/m.onnx")
    return partial(right, folder / "m.onnx")


add("external/location_twice", "GPC3020", twice, "'w'")
add("external/data_in_the_model_too", "GPC3031", raw_too, "'w'")
add("external/model_without_a_folder", "GPC3023", from_bytes, "'w'")
add("external/model_behind_a_link", OK, linked_model)


def cached(
    folder: Path,
    change: Callable[[Path, Path], object] = lambda repo, link: None,
    act: Callable[[Path], object] = check,
) -> Act:
    """A Hugging Face cache whose snapshot has links to the model and its data among the blobs, and then a change."""
    repo, snapshot = folder / "repo", folder / "repo" / "snapshots" / "1f"
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "blobs" / "aa").write_bytes(external(location="w.bin").SerializeToString())
    (repo / "blobs" / "bb").write_bytes(W.tobytes())
    (snapshot / "m.onnx").symlink_to("../../blobs/aa")
    (snapshot / "w.bin").symlink_to("../../blobs/bb")
    change(repo, snapshot / "w.bin")
    return partial(act, snapshot / "m.onnx")


def relinked(target: str) -> Callable[[Path, Path], object]:
    def change(repo: Path, link: Path) -> None:
        link.unlink()
        link.symlink_to(target)

    return change


def chained(repo: Path, link: Path) -> None:
    (repo / "blobs" / "bb").unlink()
    (repo / "blobs" / "bb").symlink_to(repo.parent.parent.parent / "secret.bin")


def other_blobs(repo: Path, link: Path) -> None:
    (repo.parent / "blobs").mkdir()
    (repo.parent / "blobs" / "bb").write_bytes(W.tobytes())
    relinked("../../../blobs/bb")(repo, link)


def blobs_elsewhere(repo: Path, link: Path) -> None:
    (repo / "blobs").rename(repo.parent / "kept")
    (repo / "blobs").symlink_to("../kept")


add("external/cache_of_links", OK, partial(cached, act=right))
add("external/cache_link_out", "GPC3025", partial(cached, change=relinked("../../../../../secret.bin")), "'w'")
add("external/cache_link_to_etc_passwd", "GPC3025", partial(cached, change=relinked("/etc/passwd")), "'w'")
add("external/cache_link_through_blobs", "GPC3025", partial(cached, change=relinked("../../blobs/../../w")), "'w'")
add("external/cache_chain_of_links", "GPC3025", partial(cached, change=chained), "'w'")
add("external/cache_other_blobs", "GPC3025", partial(cached, change=other_blobs), "'w'")
add("external/cache_linked_blobs", "GPC3025", partial(cached, change=blobs_elsewhere), "'w'")
