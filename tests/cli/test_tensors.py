"""Tensors from files: every kind, photos, and the names that outputs are written under."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from PIL import Image

from gpucomp.cli import tensors
from gpucomp.errors import UsageError
from gpucomp.ir.dim import Dim
from gpucomp.runtime.inputs import TensorSpec, random_inputs

X = np.arange(6, dtype=np.int32).reshape(2, 3)
SPEC = TensorSpec("x", "i32", (2, 3))


def test_npy_npz_and_protobuf_are_read(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "one.npz", other=X)
    np.savez(tmp_path / "two.npz", x=X, y=-X)
    (tmp_path / "x.pb").write_bytes(numpy_helper.from_array(X).SerializeToString())

    read = [tensors.read_tensor(tmp_path / n, SPEC, "none") for n in ("x.npy", "one.npz", "two.npz", "x.pb")]

    assert all(np.array_equal(array, X) for array in read)


def test_an_archive_of_all_inputs_needs_no_name(tmp_path):
    np.savez(tmp_path / "all.npz", x=X, y=-X)
    specs = [SPEC, TensorSpec("y", "i32", (2, 3))]

    given = tensors.read_inputs([str(tmp_path / "all.npz")], specs, "none")

    assert np.array_equal(given["y"], -X)


def test_an_archive_without_the_input_is_refused(tmp_path):
    np.savez(tmp_path / "two.npz", a=X, b=X)

    with pytest.raises(UsageError, match=r"two\.npz' has no array 'x'"):
        tensors.read_tensor(tmp_path / "two.npz", SPEC, "none")


def test_the_longest_name_that_fits_is_meant(tmp_path):
    np.save(tmp_path / "x.npy", X)
    specs = [SPEC, TensorSpec("x=y", "i32", (2, 3))]

    given = tensors.read_inputs([f"x=y={tmp_path / 'x.npy'}"], specs, "none")

    assert list(given) == ["x=y"]


def test_a_tensor_whose_data_are_elsewhere_is_refused(tmp_path):
    tensor = onnx.TensorProto(data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    (tmp_path / "x.pb").write_bytes(tensor.SerializeToString())

    with pytest.raises(UsageError, match="its data are in another file"):
        tensors.read_tensor(tmp_path / "x.pb", SPEC, "none")


@pytest.fixture
def picture(tmp_path):
    """Red on the left, blue on the right, in a PNG of another size than any input."""
    pixels = np.zeros((10, 16, 3), np.uint8)
    pixels[:, :8, 0] = 255
    pixels[:, 8:, 2] = 51
    Image.fromarray(pixels).save(tmp_path / "p.png")
    return tmp_path / "p.png"


def test_a_photo_is_resized_to_the_input_and_normalised(picture):
    array = tensors.photo(picture, TensorSpec("x", "f32", (1, 3, 5, 7)), "imagenet")

    assert (array.dtype, array.shape) == (np.float32, (1, 3, 5, 7))
    expected = (np.array([1, 0, 0]) - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert np.allclose(array[0, :, 2, 0], expected, rtol=1e-6)
    assert np.allclose(array[0, 2, 2, -1], (0.2 - 0.406) / 0.225, rtol=1e-6)


def test_a_photo_may_stay_as_it_is_and_keep_its_channels_last(picture):
    array = tensors.photo(picture, TensorSpec("x", "u8", (1, 5, 7, 3)), "none")

    assert (array.dtype, array.shape) == (np.uint8, (1, 5, 7, 3))
    assert array[0, 0, 0].tolist() == [255, 0, 0]
    assert array[0, 0, -1].tolist() == [0, 0, 51]


def test_a_photo_becomes_grey_for_one_channel(picture):
    array = tensors.photo(picture, TensorSpec("x", "f32", (1, 1, 5, 7)), "imagenet")

    assert array.shape == (1, 1, 5, 7)
    assert array[0, 0, 0, 0] == np.float32(76) / np.float32(255)  # 0.299 of red


@pytest.mark.parametrize(
    ("texts", "declared", "found"),
    [
        (["x=a.jpg"], {"x": (None, 3, 5, 7)}, {"x": (1, 3, 5, 7)}),
        (["a.PNG"], {"x": (None, 5, 7, 3)}, {"x": (1, 5, 7, 3)}),
        (["a=b=c.png"], {"a=b": (None, 1, 5, 7)}, {"a=b": (1, 1, 5, 7)}),
        (["x=a.npy"], {"x": (None, 3, 5, 7)}, {}),  # an array has a shape of its own
        (["x=a.jpg"], {"x": (None, 3, None, 7)}, {}),  # any size would do: which one is for the user to say
        (["x=a.jpg"], {"x": (2, 3, 5, 7)}, {}),
        (["x=a.jpg"], {"x": (None, 3)}, {}),
        (["x=a.jpg"], {"x": ()}, {}),
        (["y=a.jpg"], {"x": (None, 3, 5, 7)}, {}),
        (["a.jpg"], {"x": (None, 3, 5, 7), "y": (None, 3, 5, 7)}, {}),
    ],
)
def test_a_photo_says_that_an_open_batch_is_one(texts, declared, found):
    assert tensors.shapes_of_media(texts, declared) == found


def test_a_broken_photo_is_refused(tmp_path):
    (tmp_path / "p.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")

    with pytest.raises(UsageError, match=r"cannot read .*p\.jpg'"):
        tensors.photo(tmp_path / "p.jpg", TensorSpec("x", "f32", (1, 3, 5, 7)), "none")


def test_outputs_of_any_name_stay_in_their_folder(tmp_path):
    names = ["../../etc/passwd", "a/b", "a_b", "A_B", "", "..", "{{7*7}}\n", "x" * 500, "日本"]
    folder = tmp_path / "out"

    written = tensors.write_outputs(folder, {name: np.full(1, k) for k, name in enumerate(names)})

    assert len({str(path).lower() for path in written.values()}) == len(names)
    assert sorted(folder.iterdir()) == sorted(written.values())
    assert [int(np.load(written[name])[0]) for name in names] == list(range(len(names)))
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_types_that_npy_cannot_name_are_widened(tmp_path):
    outputs = {"b": np.array([1.5], ml_dtypes.bfloat16), "i": np.array([-3], ml_dtypes.int4)}

    written = tensors.write_outputs(tmp_path, outputs)

    assert np.load(written["b"]).tolist() == [1.5]
    assert np.load(written["b"]).dtype == np.float32
    assert np.load(written["i"]).tolist() == [-3]


def test_random_inputs_are_the_same_every_time_and_of_the_right_type():
    specs = [TensorSpec("a", "bf16", (3, 5)), TensorSpec("i", "i64", (7,)), TensorSpec("m", "bool", (2, 2))]

    first, second = random_inputs(specs), random_inputs(specs)

    assert all(np.array_equal(first[s.name], second[s.name]) for s in specs)
    assert [first[s.name].dtype.name for s in specs] == ["bfloat16", "int64", "bool"]
    assert set(first["i"].tolist()) <= {0, 1}


def test_shapes_of_sequences_and_optionals_are_parsed():
    found = tensors.parse_shapes(["s:[2x3,4x3]", "t:[]", "u:[,7]", "o:none", "a:b:5"])

    assert found == {"s": [(2, 3), (4, 3)], "t": [], "u": [(), (7,)], "o": None, "a:b": (5,)}


@pytest.mark.parametrize("text", ["s:[2x3", "s:2x3,4", "s:[2x3,4x]", "s:[a]", "s:None", "s:[[2]]"])
def test_what_is_no_list_of_shapes_is_refused(text):
    with pytest.raises(UsageError, match=r"NAME:\[2x3,4x3\] for a sequence"):
        tensors.parse_shapes([text])


def test_sizes_that_each_run_decides_are_parsed():
    found = tensors.parse_shapes(["x:{n}x3x{h:32..1536:32}x{max-w.1:1..9}", "a:b:{batch_size}", "y:{n},z:2x{n:1..3}"])

    assert found == {
        "x": ("n", 3, Dim("h", 32, 1536, 32), Dim("max-w.1", 1, 9)),
        "a:b": ("batch_size",),
        "y": ("n",),
        "z": (2, Dim("n", 1, 3)),
    }


NO_DIMENSIONS = ["{}", "{n", "n}", "{n:1}", "{n:1..}", "{n:1..2:}", "{n:1..2:3:4}", "{a{b}}", "{a,b}", "{1..8}", "{8}"]


@pytest.mark.parametrize("text", [*(f"x:{text}" for text in NO_DIMENSIONS), "x:{ba tch}", "x:{-n}", "x:{}x3"])
def test_what_is_no_dimension_is_refused(text):
    with pytest.raises(UsageError, match="GPC2024"):
        tensors.parse_shapes([text])


def test_a_photo_keeps_its_size_where_a_run_decides_it(tmp_path):
    Image.fromarray(np.zeros((45, 70, 3), np.uint8)).save(tmp_path / "p.png")
    spec = TensorSpec("x", "f32", (Dim("n", 1, 4), 3, Dim("h", 32, 96, 32), Dim("w")))

    assert tensors.photo(tmp_path / "p.png", spec, "none").shape == (1, 3, 64, 70)
    with pytest.raises(UsageError, match="GPC2003"):
        tensors.photo(tmp_path / "p.png", TensorSpec("x", "f32", (Dim("n", 2, 4), 3, 8, 8)), "none")


def test_shapes_may_be_one_list_as_for_trtexec():
    assert tensors.parse_shapes(["input:1x576,state:2x1x128"]) == {"input": (1, 576), "state": (2, 1, 128)}
    assert tensors.parse_shapes(["s:[2x3,4x3],a:b:5,c,d:7,o:none"]) == {
        "s": [(2, 3), (4, 3)],
        "a:b": (5,),
        "c,d": (7,),
        "o": None,
    }


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("input:1,576", "sizes have x between them: --shapes input:1x576"),
        ("input:(1, 576)", "sizes have x between them: --shapes input:1x576"),
        ("input:Nx576", r"N is no number: write a number for it, or \{N\} for a size that each run decides"),
        ("input:{1..8}x576", r"'\{1..8\}': a size that each run decides is \{n\}, \{n:1..8\}"),
        ("input:-1x576", r"a number for each open dimension, or \{n\} for a size that each run decides"),
        ("input:dynamic", r"a number for each open dimension, or \{n\} for a size that each run decides"),
    ],
)
def test_shapes_as_other_programs_write_them_are_explained(text, advice):
    with pytest.raises(UsageError, match=advice):
        tensors.parse_shapes([text])


def test_constants_are_numbers_and_lists():
    found = tensors.parse_constants(["sr=8000", "scale=0.5", "on=true", "to=1,-2,3", "a=b=1e3"])

    assert found == {"sr": 8000, "scale": 0.5, "on": True, "to": [1, -2, 3], "a=b": 1000.0}
    assert type(found["on"]) is bool


@pytest.mark.parametrize("text", ["sr", "=1", "sr=", "sr=x", "sr=1,", "sr=1;2"])
def test_constants_that_are_no_numbers_are_refused(text):
    with pytest.raises(UsageError, match="NAME=VALUE expected"):
        tensors.parse_constants([text])
