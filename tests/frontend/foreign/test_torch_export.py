"""Programs of ``torch.export``, in memory and saved: open sizes stay open, and nothing in a file is run as it is read."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

import gpucomp
from gpucomp.cli import main

torch = pytest.importorskip("torch", reason="could not import 'torch'")
pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")

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

    with pytest.raises(gpucomp.ModelError, match="has a pickle, 'weight_1'"):
        gpucomp.compile(saved, target="cpu")
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


class Airy(torch.nn.Module):
    def forward(self, x):
        return torch.special.airy_ai(x)


def test_an_operator_without_a_translation_is_named():
    program = torch.export.export(Airy(), (torch.rand(4),))

    with pytest.raises(gpucomp.UnsupportedError, match="airy") as caught:
        gpucomp.compile(program)
    assert caught.value.code == "GPC4022"
