"""Programs of ``torch.export``, in memory and saved: open sizes stay open, and nothing in a file is run as it is read."""

from __future__ import annotations

import io
import json
import logging
import zipfile

import numpy as np
import pytest

import gpucomp
from gpucomp.cli import main

torch = pytest.importorskip("torch", reason="could not import 'torch'")
pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")

from gpucomp.frontend.foreign import exported as in_memory  # noqa: E402, imports torch
from gpucomp.frontend.foreign import torch_exporter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3)

    def forward(self, x, scale):
        return torch.relu(self.conv(x)) * scale, x.shape[0] * x.sum((1, 2, 3))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(3)
    return Net().eval()


@pytest.fixture(scope="module")
def program(net):
    sizes = ({0: torch.export.Dim("batch", min=2, max=64), 2: torch.export.Dim.DYNAMIC}, None)
    return torch.export.export(net, (torch.randn(3, 3, 9, 11), torch.randn(5, 1, 1)), dynamic_shapes=sizes)


@pytest.fixture
def saved(program, tmp_path):
    torch.export.save(program, tmp_path / "net.pt2")
    return tmp_path / "net.pt2"


def check(exe, net):
    batch, height = (exe.inputs[0].shape[axis] for axis in (0, 2))
    assert (batch.low, batch.high) == (2, 64)
    assert height.low >= 3
    for n, h in [(3, 9), (7, 14)]:
        x, scale = torch.randn(n, 3, h, 11), torch.randn(5, 1, 1)
        found = exe.run(dict(zip((spec.name for spec in exe.inputs), (x, scale), strict=True)))
        for a, b in zip(found.values(), net(x, scale), strict=True):
            np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5, atol=1e-4)


def test_a_program_is_compiled_with_its_open_sizes(program, net):
    check(gpucomp.compile(program, target="cpu"), net)


def test_a_saved_program_is_compiled_with_its_open_sizes(saved, net):
    check(gpucomp.compile(saved, target="cpu"), net)


def test_shapes_can_close_what_is_open(saved):
    exe = gpucomp.compile(saved, target="cpu", shapes={"x": (2, 3, 9, 11)})

    assert exe.inputs[0].shape == (2, 3, 9, 11)


def test_the_command_line_compiles_a_saved_program(saved, tmp_path, net):
    assert main(["compile", str(saved), "--target", "cpu", "-o", str(tmp_path / "net.gpuc")]) == 0

    check(gpucomp.load(tmp_path / "net.gpuc"), net)


def rewritten(path, change):
    """The archive with other members: ``change`` maps a name and its bytes to bytes, or ``None`` to leave it out."""
    source = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in source.namelist():
            if (content := change(name, source.read(name))) is not None:
                archive.writestr(name, content)


class Touches:
    """A pickle that makes a file as it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def pickled(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_a_pickle_among_the_inputs_is_not_run(saved, tmp_path, net):
    evil = pickled(Touches(tmp_path / "ran"))
    rewritten(saved, lambda name, content: evil if "sample_inputs" in name else content)

    check(gpucomp.compile(saved, target="cpu"), net)
    assert not (tmp_path / "ran").exists()


def test_guards_in_a_file_are_not_run(saved, tmp_path, net):
    def change(name, content):
        if not name.endswith("models/model.json"):
            return content
        return json.dumps({**json.loads(content), "guards_code": [f"open({str(tmp_path / 'ran')!r}, 'w')"]})

    rewritten(saved, change)

    check(gpucomp.compile(saved, target="cpu"), net)
    assert not (tmp_path / "ran").exists()


def test_a_pickle_among_the_weights_is_refused(saved, tmp_path):
    def change(name, content):
        if name.endswith("weights_config.json"):
            config = json.loads(content)
            config["config"]["conv.bias"]["use_pickle"] = True
            return json.dumps(config)
        return pickled(Touches(tmp_path / "ran")) if name.endswith("weight_1") else content

    rewritten(saved, change)

    with pytest.raises(gpucomp.ModelError, match=r"net\.pt2' has a pickle, 'weight_1'") as caught:
        gpucomp.compile(saved, target="cpu")
    assert caught.value.code == "GPC3091"
    assert not (tmp_path / "ran").exists()


def test_a_formula_that_is_none_is_refused(saved, tmp_path):
    evil = f"open('{tmp_path / 'ran'}', 'w')"

    def change(name, content):
        return (
            content.replace(b'"expr_str": "', b'"expr_str": "' + evil.encode() + b" + ")
            if name.endswith("model.json")
            else content
        )

    rewritten(saved, change)

    with pytest.raises(gpucomp.ModelError, match="in the place of a size"):
        gpucomp.compile(saved, target="cpu")
    assert not (tmp_path / "ran").exists()


def test_machine_code_is_refused(saved):
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("net/data/aotinductor/model/x.so", b"\x7fELF")

    with pytest.raises(gpucomp.ModelError, match="has machine code"):
        gpucomp.compile(saved, target="cpu")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive at all" * 40])
def test_what_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "net.pt2"
    path.write_bytes(content)

    with pytest.raises(gpucomp.ModelError, match=r"is no archive of torch\.export"):
        gpucomp.compile(path, target="cpu")


class Of(torch.nn.Module):
    """A module that computes a function, perhaps of a buffer that it has."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("total", torch.zeros(3))
        self.norm = torch.nn.BatchNorm1d(3, track_running_stats=False)

    def forward(self, x):
        return self.function(self, x)


def refused(program):
    with pytest.raises(gpucomp.UnsupportedError) as caught:
        gpucomp.compile(program, target="cpu")
    assert caught.value.code == "GPC4022"
    return caught.value.message


def exported(function, *inputs, **named):
    return torch.export.export(Of(function).eval(), inputs or (torch.rand(2, 3),), **named)


def test_an_operator_without_a_translation_is_named():
    assert "airy" in refused(exported(lambda self, x: torch.special.airy_ai(x)))


functional = torch.nn.functional
IMAGE = torch.rand(1, 2, 8, 8)
WRONG = [
    (lambda self, x: functional.avg_pool2d(x, 2, divisor_override=3), IMAGE, "aten.avg_pool2d.default"),
    (lambda self, x: functional.interpolate(x, scale_factor=0.6), IMAGE, "aten.upsample_nearest2d.vec"),
    (
        lambda self, x: functional.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
        IMAGE,
        "aten._upsample_bilinear2d_aa.vec",
    ),
    (lambda self, x: functional.dropout(x, 0.5, training=True), IMAGE, "aten.dropout.default"),
    (lambda self, x: functional.dropout(x, 0.5, training=True, inplace=True), IMAGE, "aten.dropout_.default"),
    (lambda self, x: x + torch.rand_like(x), IMAGE, "aten.rand_like.default"),
    (lambda self, x: self.norm(x), torch.rand(2, 3), "aten.batch_norm.default"),
    (
        lambda self, x: torch.cond(x.sum() > 0, torch.sin, lambda y: y + torch.rand_like(y), (x,)),
        IMAGE,
        "aten.rand_like.default",
    ),
]


@pytest.mark.parametrize(("function", "x", "name"), WRONG, ids=[name for _, _, name in WRONG])
def test_what_torch_translates_wrong_is_refused_with_its_place(function, x, name):
    message = refused(exported(function, x))

    assert name in message
    assert " at " in message


def test_a_saved_program_is_refused_with_the_code_of_one_in_memory(tmp_path):
    torch.export.save(exported(lambda self, x: x + torch.rand_like(x)), tmp_path / "net.pt2")

    assert "aten.rand_like.default" in refused(tmp_path / "net.pt2")


def test_what_is_off_in_evaluation_is_taken():
    def off(self, x):
        y = functional.dropout(functional.alpha_dropout(x, training=False), training=False)
        return functional.relu(functional.dropout(y + 1, training=False, inplace=True), inplace=True)

    exe = gpucomp.compile(exported(off), target="cpu")

    (y,) = exe.run({"x": np.float32([[-3, 0, 1], [2, -1, 5]])}).values()
    np.testing.assert_array_equal(y, [[0, 1, 2], [3, 0, 6]])


def adds_to_the_buffer(self, x):
    self.total.add_(x.sum(0))
    return x + self.total


def writes_into_a_part_of_the_input(self, x):
    x[0].mul_(2)
    return x + 1


@pytest.mark.parametrize(("function", "name"), [(adds_to_the_buffer, "total"), (writes_into_a_part_of_the_input, "x")])
def test_programs_that_write_are_refused(function, name):
    program = exported(function)

    assert f"writes into '{name}'" in refused(program)
    assert f"writes into '{name}'" in refused(program.run_decompositions())


def test_results_that_are_no_tensors_are_refused():
    assert "result 1 of the program is '7'" in refused(exported(lambda self, x: (x + 1, 7)))
    assert "result 0 of the program is 'None'" in refused(exported(lambda self, x: (None, x + 1)))


class Named(torch.nn.Module):
    def forward(self, x, how="sum", y=None, z=None):
        return x[:2] + z.sum() if how == "sum" else x


def test_ranges_are_of_the_inputs_that_have_them():
    rows, columns = torch.export.Dim("rows", min=2, max=9), torch.export.Dim("columns", min=3, max=7)
    program = torch.export.export(
        Named(),
        (torch.rand(4, 3), "sum", None, torch.rand(5, 4)),
        dynamic_shapes=({0: rows}, None, None, {0: columns}),
    )

    exe = gpucomp.compile(program, target="cpu")

    assert [(spec.shape[0].low, spec.shape[0].high) for spec in exe.inputs] == [(2, 9), (3, 7)]


def test_a_size_with_a_high_start_and_no_end_stays_open():
    rows = torch.export.Dim("rows", min=10_000)
    program = exported(lambda self, x: x + 1, torch.rand(20_000, 3), dynamic_shapes=({0: rows},))

    (spec,) = gpucomp.compile(program, target="cpu").inputs

    assert (spec.shape[0].low, spec.shape[0].high) == (10_000, 40_000)


def test_the_logger_of_torch_keeps_its_level(program):
    logger = logging.getLogger("torch.onnx")
    before = logger.level

    gpucomp.compile(program, target="cpu")

    assert logger.level == before


def test_the_logger_of_torch_keeps_its_level_between_threads():
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    first, second = torch_exporter.quiet(), torch_exporter.quiet()

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert logger.level == logging.ERROR
    second.__exit__(None, None, None)

    assert logger.level == before


def test_a_program_that_is_too_large_is_refused(program, monkeypatch):
    monkeypatch.setattr(in_memory, "MOST_BYTES", 100)

    assert "larger than 2 GiB" in refused(program)


def test_shapes_that_are_no_mapping_are_wrong_use(program, saved):
    for model in (program, saved):
        with pytest.raises(gpucomp.UsageError, match="a mapping of input names expected, list given") as caught:
            gpucomp.compile(model, target="cpu", shapes=[(1, 3)])
        assert caught.value.code == "GPC2009"


ROWS = torch.export.Dim("rows", min=2, max=64)


def test_quotients_of_sizes_that_may_be_negative_are_refused():
    program = exported(lambda self, x: x * ((x.shape[0] - 10) // 3), torch.ones(8, 2), dynamic_shapes=({0: ROWS},))

    assert "rounds quotients" in refused(program)


@pytest.mark.parametrize("offset", [0, 2, 4])
def test_a_diagonal_of_open_sizes_has_the_length_of_each_call(offset):
    x = torch.randn(3, 5)
    exe = gpucomp.compile(
        exported(lambda self, x: x.diagonal(offset) * 1, x, dynamic_shapes=({0: ROWS},)), target="cpu"
    )

    for rows in (2, 5, 9):
        x = torch.randn(rows, 5)
        (found,) = exe.run({"x": x.numpy()}).values()
        np.testing.assert_array_equal(found, x.diagonal(offset).numpy())


def test_a_program_that_is_right_for_some_of_its_sizes_is_refused_each_time(monkeypatch):
    def first(x):
        return torch.relu(x[:2] if x.shape[0] < 5 else x)

    monkeypatch.setitem(in_memory.pieces().table, torch.ops.aten.sinh.default, first)
    program = exported(lambda self, x: torch.sinh(x), torch.ones(3, 2), dynamic_shapes=({0: ROWS},))

    for _ in range(2):
        assert "would be right only where" in refused(program)


def test_attention_with_a_mask_in_a_branch_has_zeros_where_it_hides_every_key():
    def chosen(self, q, mask):
        def attended(q, mask):
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

        return torch.cond(q.sum() > 0, attended, lambda q, mask: q + 1, (q, mask))

    mask = torch.tensor([[True] * 3, [False] * 3, [True, False, False]])
    q = torch.rand(1, 2, 3, 8)
    program = torch.export.export(Pair(chosen), (q, mask))

    (found,) = gpucomp.compile(program, target="cpu").run({"x": q.numpy(), "y": mask.numpy()}).values()
    np.testing.assert_allclose(found, chosen(None, q, mask).numpy(), rtol=1e-5, atol=1e-6)


class Pair(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(self, x, y)


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: torch.as_strided(x[1:], (2,), (1,), 0) * 2,
        lambda self, x: torch.as_strided((x + 1)[1:], (3,), (1,), 0) * 2,
        lambda self, x: torch.as_strided((x + 1)[:1], (2, 3), (3, 1)) * 2,
    ],
)
def test_steps_in_memory_beyond_the_tensor_are_refused(function):
    assert "as_strided" in refused(exported(function))


def test_steps_in_memory_that_is_the_tensor_are_taken():
    exe = gpucomp.compile(exported(lambda self, x: torch.as_strided(x + 1, (2, 2), (1, 2)) * 2), target="cpu")

    (found,) = exe.run({"x": np.arange(6, dtype=np.float32).reshape(2, 3)}).values()
    np.testing.assert_array_equal(found, [[2, 6], [4, 8]])
