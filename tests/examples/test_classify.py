"""The photo classifier in C++: the scores that Python has, whatever the layout and the sizes, and what it says of bad files."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gpucomp
from gpucomp import Dim
from tests.examples.test_callers import ROOT, command, shell
from tests.onnx_builders import model, node, value

WIDTH, HEIGHT, CLASSES = 32, 24, 7
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
LABELS = ["a cat", "a dog", "a bird", "a tree"]  # fewer than classes

pytestmark = [
    pytest.mark.skipif(not shutil.which(tool), reason=f"{tool} is not installed") for tool in ("cmake", "g++")
] + [pytest.mark.skipif(not Path("/usr/include/stb/stb_image.h").exists(), reason="libstb-dev is not installed")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the program, a picture and labels."""
    made = tmp_path_factory.mktemp("classify")
    for name in ("examples", "gpucomp"):
        (made / name).symlink_to(ROOT / name)
    shell(command("cmake -S gpucomp/native"), made)
    shell(command("g++ -std=c++17").replace("g++ ", "g++ -Wall -Wextra -Wpedantic -Werror ", 1), made)
    pixels = np.random.default_rng(5).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(made / "photo.png")
    (made / "labels.txt").write_text("\n".join(LABELS) + "\n")
    return made


def network(shape, *, channels_last=False):
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.standard_normal((5, 3, 3, 3)).astype(np.float32),
        "v": rng.standard_normal((5, CLASSES)).astype(np.float32),
    }
    begin = [node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])] if channels_last else []
    return model(
        [
            *begin,
            node("Conv", ["t" if channels_last else "x", "w"], ["c"], pads=[1, 1, 1, 1]),
            node("Relu", ["c"], ["r"]),
            node("GlobalAveragePool", ["r"], ["p"]),
            node("Flatten", ["p"], ["f"]),
            node("MatMul", ["f", "v"], ["y"]),
        ],
        [value("x", shape)],
        weights=weights,
    )


def printed(folder, name):
    found = [line.split(maxsplit=1) for line in shell(f"./classify {name} photo.png labels.txt", folder).splitlines()]
    return [(float(score), label) for score, label in found]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("open_sizes", [False, True])
def test_it_prints_the_scores_that_python_has(folder, channels_last, open_sizes):
    sizes = (Dim("h", 8, 64), Dim("w", 8, 64, multiple=4)) if open_sizes else (HEIGHT, WIDTH)
    shape = (1, *sizes, 3) if channels_last else (1, 3, *sizes)
    proto = network(["n" if n == 1 else getattr(n, "name", n) for n in shape], channels_last=channels_last)
    exe = gpucomp.compile(proto, target="cpu", shapes={"x": shape})
    name = f"{int(channels_last)}{int(open_sizes)}.gpuc"
    exe.save(folder / name)

    pixels = (np.asarray(Image.open(folder / "photo.png"), np.float32) / np.float32(255) - MEAN) / DEVIATION
    x = np.ascontiguousarray(pixels if channels_last else pixels.transpose(2, 0, 1))[None]
    scores = exe.run({"x": x})["y"][0]
    order = np.argsort(-scores)[:5]

    assert [label for _, label in printed(folder, name)] == [LABELS[k] if k < len(LABELS) else str(k) for k in order]
    assert [score for score, _ in printed(folder, name)] == pytest.approx(scores[order], abs=2e-5)


def test_a_photo_of_another_size_is_resized(folder):
    gpucomp.compile(network((1, 3, 10, 20)), target="cpu").save(folder / "small.gpuc")

    assert len(printed(folder, "small.gpuc")) == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["none.gpuc", "photo.png"], 1, "none.gpuc"),
        (["small.gpuc", "none.png"], 1, "none.png: can't fopen"),
        (["small.gpuc", "photo.png", "none.txt"], 1, "none.txt: cannot be read"),
        (["wide.gpuc", "photo.png"], 1, "input x: one photo of f32 with 3 channels expected"),
        (["small.gpuc"], 2, "usage: classify model.gpuc photo.jpg [labels.txt]"),
    ],
)
def test_what_is_wrong_is_said(folder, words, code, said):
    gpucomp.compile(network((1, 3, 10, 20)), target="cpu").save(folder / "small.gpuc")
    wide = model([node("Relu", ["x"], ["y"])], [value("x", (1, 4, 10, 20))])
    gpucomp.compile(wide, target="cpu").save(folder / "wide.gpuc")

    ended = subprocess.run([folder / "classify", *words], cwd=folder, capture_output=True, text=True)

    assert ended.returncode == code
    assert said in ended.stderr
