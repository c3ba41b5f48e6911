"""Strings: host operators if shapes follow from shapes, compile-time evaluation if they follow from the text."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from gpucomp import compile
from gpucomp.artifact import container
from gpucomp.errors import ArtifactError, DeviceError, InputError, ModelError, ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from gpucomp.loading import load as load_artefact
from gpucomp.rewrite.pipeline import run_pipeline
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

TEXT = TensorProto.STRING
WORDS = np.array([["", "über"], ["x y", "7"], ["-1e3", "NaN"]], object)
ML = "ai.onnx.ml"


def texts(name: str = "t", shape=(3, 2)):
    return value(name, shape, TEXT)


def words(*found: str) -> np.ndarray:
    return np.array(found, object)


def run(proto, *inputs):
    return InterpreterBackend.prepare(proto).run(list(inputs))


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_strings_go_through_a_compiled_model_and_its_file(target, tmp_path):
    nodes = [
        node("StringConcat", ["t", "suffix"], ["joined"]),
        node("Reshape", ["joined", "six"], ["flat"]),
        node("Gather", ["flat", "i"], ["picked"]),
        node("RegexFullMatch", ["picked"], ["short"], pattern=".{1,4}"),
        node("Cast", ["short"], ["number"], to=TensorProto.FLOAT),
        node("Mul", ["number", "x"], ["y"]),
        node("Identity", ["suffix"], ["constant"]),
    ]
    weights = {"suffix": words("!", "?"), "six": np.array([6])}
    inputs = [texts(), value("i", (4,), TensorProto.INT64), value("x", (4,))]
    made = compile(model(nodes, inputs, ["y", "picked", "constant"], weights=weights), target=target)
    made.save(tmp_path / "model.gpuc")
    x, i = np.array([0.5, 2, 3, 5], np.float32), np.array([1, 0, 5, 2])

    for exe in (made, load_artefact(tmp_path / "model.gpuc")):
        for _ in range(2):
            result = exe.run({"t": WORDS, "i": i, "x": x})

            assert result["picked"].tolist() == ["über?", "!", "NaN?", "x y!"]
            assert result["y"].tolist() == [0, 2, 3, 5]
            assert result["constant"].tolist() == ["!", "?"]
    assert exe.run({"t": WORDS.astype(str), "i": i, "x": x})["picked"].tolist() == ["über?", "!", "NaN?", "x y!"]
    for wrong in (np.array([[1, 2]] * 3), np.array([[None, "a"]] * 3, object), np.array([[b"a", b"b"]] * 3)):
        with pytest.raises(InputError, match="input 't': strings expected"):
            exe.run({"t": wrong, "i": i, "x": x})


@pytest.mark.parametrize(
    "text", [b'{"w0": ["!"]}', b'{"w0": ["!", 3]}', b'{"w1": ["!", "?"]}', b'{"w0": "!?"}', b"[]", b"{"]
)
def test_a_file_with_other_strings_than_the_plan_has_is_refused(text, tmp_path):
    proto = model([node("StringConcat", ["t", "w"], ["y"])], [texts()], weights={"w": words("!", "?")})
    made = compile(proto, target="cpu")
    (name,) = made.weights
    path = tmp_path / "model.gpuc"
    made.save(path)
    parts = {n: [bytes(view)] for n, view in container.read(path, sealed="manifest.json").items()}
    wrong = text.replace(b"w0", name.encode())
    manifest = bytes(parts["manifest.json"][0])
    import hashlib

    old = parts["strings.json"][0]
    for before, after in ((old, wrong),):
        manifest = manifest.replace(
            hashlib.sha256(before).hexdigest().encode(), hashlib.sha256(after).hexdigest().encode()
        )
        manifest = manifest.replace(f'"bytes": {len(before)},'.encode(), f'"bytes": {len(after)},'.encode())
    container.write(path, parts | {"strings.json": [wrong], "manifest.json": [manifest]})

    with pytest.raises(ArtifactError, match=r"strings\.json|JSON"):
        load_artefact(path)


def test_text_that_is_no_number_fails_with_the_node_that_read_it():
    proto = model([node("Cast", ["t"], ["y"], to=TensorProto.FLOAT)], [texts(shape=(2,))])
    exe = compile(proto, target="cpu")

    assert exe.run({"t": words("-2.5e1", "inf")})["y"].tolist() == [-25, np.inf]
    with pytest.raises(DeviceError, match=r"StringToNumber failed: ValueError: .*could not convert"):
        exe.run({"t": words("1", "Hello World!")})


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (
            np.array([1.5, -0.25, np.nan, np.inf, -np.inf, 0.1], np.float32),
            ["1.5", "-0.25", "NaN", "INF", "-INF", "0.1"],
        ),
        (np.array([0.1, 100.0, 1e20]), ["0.1", "100.0", "1e+20"]),
        (np.array([-(1 << 63), 7], np.int64), ["-9223372036854775808", "7"]),
        (np.array([True, False]), ["1", "0"]),
    ],
)
def test_numbers_are_written_as_the_shortest_decimal(numbers, expected):
    proto = model(
        [node("Cast", ["x"], ["y"], to=TEXT)],
        [value("x", numbers.shape, helper.np_dtype_to_tensor_dtype(numbers.dtype))],
    )

    assert run(proto, numbers)[0].tolist() == expected


def test_large_integers_are_read_exactly():
    proto = model([node("Cast", ["t"], ["y"], to=TensorProto.INT64)], [texts(shape=(2,))])

    assert run(proto, words("9223372036854775807", "1e3"))[0].tolist() == [(1 << 63) - 1, 1000]


def test_words_are_normalised_by_case_and_stop_words():
    def normalised(array, **attributes):
        proto = model([node("StringNormalizer", ["t"], ["y"], **attributes)], [texts(shape=array.shape)])
        return run(proto, array)[0].tolist()

    found = words("The", "thé", "CAT")
    assert normalised(found, stopwords=["the"], case_change_action="UPPER", is_case_sensitive=1) == [
        "THE",
        "THE",
        "CAT",
    ]
    assert normalised(found, stopwords=["the"], case_change_action="NONE") == ["the", "CAT"]
    assert normalised(found[None, :1], stopwords=["THE"], case_change_action="LOWER") == [[""]]
    with pytest.raises(ShapeError, match="case_change_action NONE, LOWER or UPPER"):
        normalised(found, case_change_action="TITLE")


def test_shapes_that_follow_from_the_text_need_it_at_compile_time():
    proto = model([node("StringSplit", ["t"], ["y", "n"], delimiter=" ")], [texts()], ["y", "n"])

    with pytest.raises(
        UnsupportedError, match="its operand must be known at compile time, but depends on the value of 't'"
    ):
        load(proto)
    parts, counts = run(proto, WORDS)
    assert parts.shape == (3, 2, 2)
    assert counts.tolist() == [[1, 1], [2, 1], [1, 1]]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (TensorProto(name="w", data_type=TEXT, dims=[2], string_data=[b"a"]), "1 strings, .* needs 2"),
        (TensorProto(name="w", data_type=TEXT, dims=[1], raw_data=b"a"), "strings belong in string_data"),
        (TensorProto(name="w", data_type=TEXT, dims=[1], string_data=[b"\xff"]), "not UTF-8 text"),
    ],
)
def test_strings_that_are_stored_wrongly_are_refused(tensor, message):
    with pytest.raises(ModelError, match=message):
        load(model([node("Identity", ["w"], ["y"])], weights=[tensor]))


def test_arithmetic_of_strings_is_refused():
    with pytest.raises(ModelError, match="input 0 must not be of type string"):
        load(model([node("Add", ["t", "t"], ["y"])], [texts()]))


def test_labels_are_looked_up_nan_too():
    attributes = {"keys_floats": [1.5, np.nan], "values_strings": ["half", "none"], "default_string": "?"}
    proto = model([node("LabelEncoder", ["x"], ["y"], domain=ML, **attributes)], [value("x", (3,))], domains=[])
    proto.opset_import.append(helper.make_opsetid(ML, 4))

    assert run(proto, np.array([np.nan, 1.5, 2], np.float32))[0].tolist() == ["none", "half", "?"]


def test_strings_are_padded_with_empty_ones():
    proto = model([node("Pad", ["t", "p"], ["y"])], [texts()], weights={"p": np.array([1, 0, 0, 1])})

    assert run(proto, WORDS)[0].tolist() == [["", "", ""], *[[*row, ""] for row in WORDS.tolist()]]


def test_texts_that_double_at_every_node_are_refused_before_they_fill_memory():
    nodes = [node("StringConcat", [f"w{k}", f"w{k}"], [f"w{k + 1}"]) for k in range(60)]
    proto = model([*nodes, node("Identity", ["w60"], ["y"])], weights={"w0": words("ab")})

    left = [n for n in load(proto).nodes() if n.op.name == "StringConcat"]
    with pytest.raises(DeviceError, match=r"a result of .* characters, at most"):
        compile(proto, target="cpu").run({})

    assert 30 < len(left) < 50  # short texts are computed while the model is read


def test_patterns_are_not_tried_on_constants_for_long():
    pattern = "(a|b|ab){1,900}c"
    proto = model([node("RegexFullMatch", ["w"], ["y"], pattern=pattern)], weights={"w": words("ab" * 100_000)})

    assert [n.op.name for n in run_pipeline(load(proto)).nodes()] == ["Constant", "RegexFullMatch"]
    short = model([node("RegexFullMatch", ["w"], ["y"], pattern=pattern)], weights={"w": words("ababc")})
    assert [n.op.name for n in run_pipeline(load(short)).nodes()] == ["Constant"]


def test_grams_of_absurd_lengths_and_gaps_end():
    attributes = {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 1 << 62,
        "max_skip_count": 1 << 62,
        "ngram_counts": [0, 1],
        "ngram_indexes": [0, 1],
        "pool_int64s": [7, 7, 8],
    }
    proto = model([node("TfIdfVectorizer", ["x"], ["y"], **attributes)], [value("x", (5,), TensorProto.INT64)])

    assert run(proto, np.array([7, 8, 1, 7, 8]))[0].tolist() == [2, 3]
