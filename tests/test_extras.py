"""The commands that messages tell are for the packages of pyproject.toml, and a shell takes them as they are."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import gpucomp
from gpucomp.extras import COMMAND_LINE, COMPILER, EXTRAS, RUNTIME, install
from tests.onnx_builders import model, node, value

ROOT = Path(__file__).parent.parent


def test_every_extra_has_the_requirements_of_the_project():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert {name: list(extra.packages) for name, extra in EXTRAS.items()} == {
        name: requirements for name, requirements in declared.items() if name != "all"
    }


def test_what_is_needed_has_the_requirements_of_the_project():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert sorted([*RUNTIME.values(), *COMMAND_LINE.values(), *COMPILER.values()]) == sorted(declared)


# as in an environment without the packages that only the compiler needs
WITHOUT = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {list(COMPILER)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import gpucomp
from gpucomp import cli
"""


def without_compiler(code, folder):
    ran = subprocess.run([sys.executable, "-c", WITHOUT + code], cwd=folder, capture_output=True, text=True)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    proto = model([node("Relu", ["x"], ["y"])], [value("x", ("n", 3))])
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    gpucomp.compile(proto, target="cpu", shapes={"x": (2, 3)}).save(folder / "m.gpuc")
    gpucomp.compile(proto, target="cpu", shapes={"x": ("n", 3)}).save(folder / "any.gpuc")
    return folder


@pytest.mark.parametrize("options", [[], ["--kernels"], ["--sources", "made"], ["--node", "*"]], ids=" ".join)
@pytest.mark.parametrize("file", ["m.gpuc", "any.gpuc"])
def test_a_compiled_model_is_inspected_without_the_compiler(compiled, file, options):
    code, out, err = without_compiler(f"sys.exit(cli.main({['inspect', file, *options]}))", compiled)

    assert (code, err, bool(out)) == (0, "", True)


@pytest.mark.parametrize("options", [[], ["--profile"]], ids=" ".join)
@pytest.mark.parametrize("file", ["m.gpuc", "any.gpuc"])
def test_a_compiled_model_is_measured_without_the_compiler(compiled, file, options):
    np.save(compiled / "x.npy", np.ones((2, 3), np.float32))
    short = ["--input", "x=x.npy", "--duration", "0", "--warmup", "0", "--iterations", "2"]
    code, out, err = without_compiler(f"sys.exit(cli.main({['bench', file, *short, *options]}))", compiled)

    assert code == 0, err
    assert "Latency" in out


NOT_INSTALLED = (
    r"GPC5003:? (onnx|llvmlite|jinja2) is not installed, and the compiler needs it: pip install 'onnx>=.*; only a "
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "m.onnx"],
        ["compile", "m.onnx", "-o", "n.gpuc"],
        ["run", "m.onnx"],
        ["inspect", "m.onnx"],
        ["compare", "m.onnx"],
        ["tune", "m.onnx"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_says_what_the_compiler_needs(compiled, arguments):
    code, out, err = without_compiler(f"sys.exit(cli.main({arguments}))", compiled)

    assert (code, out) == (5, "")
    assert re.match("error " + NOT_INSTALLED, err)
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "call",
    [
        "compile('m.onnx', shapes={'x': (2, 3)})",
        "load('m.gpuc', trusted=False)",
        "load('any.gpuc', trusted=False)",
        "tune('m.onnx')",
    ],
)
def test_a_call_says_what_the_compiler_needs(compiled, call):
    code, out, _ = without_compiler(f"try:\n    gpucomp.{call}\nexcept gpucomp.DeviceError as e: print(e)", compiled)

    assert code == 0
    assert re.match(NOT_INSTALLED, out)


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_command_survives_a_shell(extra):
    command = install(extra)

    assert shlex.split(command) == ["pip", "install", *EXTRAS[extra].packages]
    assert not re.search(r"[\[\]<>]", re.sub(r"'[^']*'", "", command))


def test_no_message_tells_to_install_gpucomp_from_an_index():
    """It is on none: what a message tells to install has to be there."""
    told = [
        path
        for folder in ("gpucomp", "tuning", "kernels_templates")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"pip install '?gpucomp", path.read_text(encoding="utf-8"))
    ]

    assert told == []
