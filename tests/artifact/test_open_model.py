"""Files of models for any size: they come back as they went in, and their plans are right at each size."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import gpucomp
from gpucomp import Dim
from gpucomp.artifact.formulas import Formulas
from gpucomp.artifact.open_plan import Place, Stack
from gpucomp.errors import ArtifactError, InputError, UsageError
from gpucomp.runtime import artifact
from tests.onnx_builders import model, node, value
from tests.runtime.samples import OPEN_PLAN, open_contents

RNG = np.random.default_rng(3)


def pooled():
    """Two outputs: one has the extents of its input, the other a formula of them."""
    return model(
        [
            node("Softmax", ["x"], ["s"], axis=-1),
            node("MaxPool", ["s"], ["y"], kernel_shape=[3, 3], strides=[2, 2]),
            node("Mul", ["s", "k"], ["z"]),
        ],
        [value("x", ["n", 3, "h", "w"])],
        ["y", "z"],
        {"k": RNG.standard_normal((3, 1, 1)).astype(np.float32)},
    )


def compiled():
    return gpucomp.compile(
        pooled(), target="cpu", shapes={"x": (Dim("n", 1, 8), 3, Dim("h", 4, 64, multiple=4), Dim("w", 1, 100))}
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("open") / "m.gpuc"
    compiled().save(path)
    return path


def test_contents_come_back_as_they_went_in(tmp_path):
    before = open_contents()
    artifact.save(tmp_path / "m.gpuc", before)

    after = artifact.load(tmp_path / "m.gpuc")

    assert after.plan == before.plan
    assert after.open == replace(before.open, shapes=replace(before.open.shapes, unlisted={}))


def test_a_file_gives_the_bits_of_the_compiled_model(saved):
    exe, loaded = compiled(), gpucomp.load(saved)

    for n, h, w in [(1, 4, 5), (3, 12, 7), (8, 64, 100)]:
        x = RNG.standard_normal((n, 3, h, w)).astype(np.float32)
        expected, found = exe.run({"x": x}), loaded.run({"x": x})
        assert {name: array.tobytes() for name, array in found.items()} == {k: a.tobytes() for k, a in expected.items()}
        assert found["y"].shape == (n, 3, (h - 3) // 2 + 1, (w - 3) // 2 + 1)


def test_a_file_says_what_the_compiled_model_says(saved):
    exe, loaded = compiled(), gpucomp.load(saved)

    assert (loaded.inputs, loaded.dims, loaded.target) == (exe.inputs, exe.dims, exe.target)
    assert list(map(str, loaded.outputs)) == list(map(str, exe.outputs))
    assert str(loaded.outputs[0]) == "y: f32[n,3,h/2 - 1,floor((w + 1)/2) - 1]"


def test_a_file_is_written_again_from_what_was_read(saved, tmp_path):
    gpucomp.load(saved).save(tmp_path / "again.gpuc")

    assert (tmp_path / "again.gpuc").read_bytes() == saved.read_bytes()


def test_a_file_needs_no_compiler(saved):
    code = f"""
import sys, numpy as np, gpucomp
exe = gpucomp.load({str(saved)!r})
print([exe.run({{"x": np.zeros((n, 3, 8, 9), np.float32)}})["y"].shape[0] for n in (1, 5)])
print([m for m in sys.modules if m.split(".")[0] in ("onnx", "llvmlite", "jinja2")
       or m.startswith(("gpucomp.frontend", "gpucomp.compiler", "gpucomp.kernel", "gpucomp.codegen", "gpucomp.ops"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[1, 5]\n[]\n"


def test_sizes_that_the_file_is_not_for_are_told(saved):
    loaded = gpucomp.load(saved)

    with pytest.raises(InputError) as caught:
        loaded.run({"x": np.zeros((1, 3, 4, 2), np.float32)})

    assert str(caught.value) == (
        "GPC2113 'w' is 2: this file is for w >= 3; compile the model for such sizes: shapes={'x': (1, 3, 4, 2)}"
    )
    with pytest.raises(InputError, match="GPC2111 dimension 0 of input 'x': 'n' is 9, 1 to 8 expected"):
        loaded.run({"x": np.zeros((9, 3, 4, 4), np.float32)})


def test_a_model_without_a_program_has_no_file(tmp_path):
    by_value = model([node("NonZero", ["x"], ["y"])], [value("x", ["n"])], ["y"])
    exe = gpucomp.compile(by_value, target="cpu", shapes={"x": ("n",)})

    with pytest.raises(UsageError, match=r"GPC2017 a model for any 'n' has no file \(.*\); each set of sizes has"):
        exe.save(tmp_path / "m.gpuc")


def test_a_plan_has_the_numbers_of_its_sizes():
    plan = OPEN_PLAN.at({"n": 3, "h": 8}).plan

    assert [b.shape for b in plan.buffers] == [(3, 8), (3, 1), (25, 2), (16,), (24,), (3, 8)]
    assert [b.nbytes for b in plan.buffers] == [96, 12, 200, 64, 24, 96]
    assert [b.offset for b in plan.buffers] == [-1, -1, 0, 256, 320, -1]
    assert plan.arena_bytes == 384
    assert plan.kernels[0].groups == (3, 1, 1)
    assert plan.kernels[0].numbers == (24, 1 << 31, 34)  # x // 8 == x * 2**31 >> 34
    assert plan.kernels[1].numbers == (25,)


def test_a_plan_has_the_tensor_maps_of_its_sizes():
    (one,) = OPEN_PLAN.at({"n": 3, "h": 8}).plan.kernels[0].tensor_maps

    assert (one.extents, one.strides, one.box) == ((8, 3), (32,), (8, 2))
    assert one == replace(OPEN_PLAN.plan.kernels[0].tensor_maps[0], extents=(8, 3), strides=(32,))


def with_map(**fields):
    kernels = OPEN_PLAN.plan.kernels
    (one,) = kernels[0].tensor_maps
    changed = replace(kernels[0], tensor_maps=(replace(one, **fields),))
    return replace(OPEN_PLAN, plan=replace(OPEN_PLAN.plan, kernels=(changed, *kernels[1:])))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"strides": (Place(2),)}, "strides (24,) or offset 0 are not multiples of 16 bytes"),
        ({"extents": (Place(1), Place(2))}, "a tensor map ends at byte 768 of a buffer of 96"),
        ({"extents": (Place(7), Place(0))}, "rows of 128 bytes overlap, 32 bytes apart"),
        ({"offset": Place(7)}, "a tensor map ends at byte 128 of a buffer of 96"),
        ({"extents": (8, 4)}, "a tensor map ends at byte 128 of a buffer of 96"),
        ({"parameter": 1, "extents": (4, 1), "strides": (16,)}, "a tensor map ends at byte 16 of a buffer of 12"),
    ],
)
def test_a_tensor_map_that_leaves_its_buffer_at_some_sizes_is_refused_there(fields, reason):
    with pytest.raises(ArtifactError) as caught:
        with_map(**fields).at({"n": 3, "h": 8})

    assert caught.value.code == "GPC7024"
    assert reason in str(caught.value)


def test_the_last_corner_of_a_window_of_pixels_can_be_a_formula():
    window = {"channels": 8, "pixels": 2, "box": (), "lower": (0, 0), "upper": (-1, Place(7))}
    plan = with_map(extents=(8, 1, 1, Place(0)), strides=(32, 32, Place(7)), **window)

    assert plan.at({"n": 3, "h": 8}).plan.kernels[0].tensor_maps[0].upper == (-1, 32)
    with pytest.raises(ArtifactError, match=r"window corners \(0, 0\), \(-1, 128\) are not from -128 to 127"):
        plan.at({"n": 3, "h": 32})


def test_the_maps_of_a_variant_are_those_that_count():
    """k2 takes the place of k1 from 50 elements on."""
    kernels = OPEN_PLAN.plan.kernels
    changed = replace(kernels[2], tensor_maps=(replace(kernels[0].tensor_maps[0], parameter=3),))
    plan = replace(OPEN_PLAN, plan=replace(OPEN_PLAN.plan, kernels=(*kernels[:2], changed)))

    assert plan.at({"n": 3, "h": 16}).plan.kernels[1].tensor_maps == ()
    assert plan.at({"n": 3, "h": 32}).plan.kernels[1].tensor_maps[0].extents == (32, 3)


def test_a_plan_has_the_kernels_that_its_sizes_choose():
    plan = OPEN_PLAN.at({"n": 3, "h": 32}).plan  # 96 elements

    assert (plan.kernels[1].name, plan.kernels[1].numbers) == ("k2", (96,))
    assert OPEN_PLAN.at({"n": 3, "h": 16}).plan.kernels[1].name == "k1"
    assert all(isinstance(number, int) for kernel in plan.kernels for number in kernel.numbers)


def test_a_plan_is_only_for_sizes_that_meet_its_conditions():
    assert OPEN_PLAN.at({"n": 4, "h": 8}) is None  # not 4 - n <= 0
    assert OPEN_PLAN.objection({"n": 4, "h": 8}) == ("n < 4", ("n",))
    assert OPEN_PLAN.objection({"n": 3, "h": 8}) is None


@pytest.mark.parametrize(
    ("steps", "sizes", "message"),
    [
        ((("sum", 0, ((1 << 62, (0,)),), 1),), {"n": 2}, "more than 64 bits"),
        ((("sum", 0, ((1, (0,) * 64),), 1),), {"n": 1 << 30}, "more than 64 bits"),
        ((("sum", 0, ((1, (0,)),), 3),), {"n": 4}, "no whole number"),
        ((("sum", -4, ((1, (0,)),), 1), ("quotient", 0, 1)), {"n": 4}, "a division by 0"),
        ((("sum", -5, ((1, (0,)),), 1), ("quotient", 0, 1)), {"n": 4}, "a division by -1"),
    ],
)
def test_a_number_that_is_none_ends_the_evaluation(steps, sizes, message):
    with pytest.raises(ArithmeticError, match=message):
        Formulas(("n",), steps).at(sizes)


@pytest.mark.parametrize(
    "step",
    [
        ("sum", 0, ((1, (1,)),), 1),
        ("sum", 0, ((1, (2,)),), 1),
        ("sum", 0, ((1, (-1,)),), 1),
        ("sum", 0, ((1, (True,)),), 1),
        ("sum", True, (), 1),
        ("sum", 0, (), 0),
        ("sum", 0, (), -2),
        ("sum", 1 << 63, (), 1),
        ("sum", 0, ((1, (0,) * 65),), 1),
        ("sum", 0, ((1, ()),) * 1001, 1),
        ("sum", 0, (1,), 1),
        ("sum", 0, ()),
        ("quotient", 0, 1),
        ("quotient", 0),
        ("least", ()),
        ("least", 0),
        ("sqrt", 0),
        (),
        "sum",
        None,
    ],
    ids=str,
)
def test_a_step_that_is_none_is_refused(step):
    with pytest.raises(ArtifactError, match="GPC7024 the formulas of the model's sizes are damaged: step 1 is not one"):
        Formulas(("n",), (step,))


def test_texts_stay_short():
    doubled = [("sum", 0, ((1, (k,)), (1, (k, 0))), 1) for k in range(2000)]

    formulas = Formulas(("n",), tuple(doubled))

    assert formulas.texts[1] == "n + n*n"
    assert max(map(len, formulas.texts)) < 1000
    assert len(formulas.comparison(2000, "<=")) < 1000


def test_plans_that_are_too_large_are_refused():
    steps = list(OPEN_PLAN.formulas.steps)
    steps[1] = ("sum", 1 << 47, (), 1)
    plan = replace(OPEN_PLAN, formulas=Formulas(("n", "h"), tuple(steps)))

    with pytest.raises(ArtifactError, match=r"GPC7024 .*more than 281474976710656 bytes"):
        plan.at({"n": 1, "h": 8})


def test_stacks_are_above_each_other():
    plan = replace(OPEN_PLAN, orders=((Stack((3,), ()), Stack((2, 4), (0,))),)).at({"n": 2, "h": 8}).plan

    assert [b.offset for b in plan.buffers] == [-1, -1, 64, 0, 64, -1]
    assert plan.arena_bytes == 256


def test_a_plan_takes_the_order_with_the_smallest_arena():
    apart = (Stack((2,), ()), Stack((3,), (0,)), Stack((4,), (1,)))
    together = (Stack((3,), ()), Stack((2, 4), (0,)))

    for orders in ((apart, together), (together, apart)):
        plan = replace(OPEN_PLAN, orders=orders).at({"n": 3, "h": 32}).plan
        assert [b.offset for b in plan.buffers] == [-1, -1, 64, 0, 64, -1]
