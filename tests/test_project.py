"""What stands in the README and the build files is so: its code runs, its commands, variables and targets exist."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from gpucomp import config
from gpucomp.cli.commands import gpucomp as command

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_example_of_the_readme_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 224, 224]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "model.onnx")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    ran = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, env=environment)

    assert ran.stderr == ""
    assert "x: f32[1,3,224,224]" in ran.stdout
    assert (tmp_path / "model.gpuc").exists()


@pytest.mark.parametrize("line", re.findall(r"^    (gpucomp .*)$", README, re.MULTILINE))
def test_the_commands_of_the_readme_exist(line):
    _, name, *rest = shlex.split(line, comments=True)

    options = {option for parameter in command.commands[name].params for option in parameter.opts}

    assert {word for word in rest if word.startswith("-")} <= options


def test_the_readme_lists_every_variable():
    listed = set(re.findall(r"^\| `(GPUCOMP_\w+)", README, re.MULTILINE))

    assert listed == {f"GPUCOMP_{name.upper()}" for name in config.Config.__dataclass_fields__}


def test_what_the_readme_sends_the_reader_to_exists():
    named = set(re.findall(r"`((?:gpucomp|tests|testing|bench|kernels_templates)/[\w/.]*)`", README))

    assert len(named) >= 12
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_page_of_the_tests_names_what_exists_and_every_tool_that_ci_installs(request):
    page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    tools = {*re.search(r"for tool in (.*?);", script)[1].split(), *re.findall(r"missing\+=\(([\w.-]+)\)", script)}
    tools |= set(re.findall(r'install .*"(\w+)==', script))
    tools = {re.sub(r"^lld", "ld.lld", tool) for tool in tools} - {"python3-venv"}
    assert {
        "g++",
        "clang-19",
        "ld.lld-19",
        "oclgrind",
        "chromium",
        "pocl-opencl-icd",
        "mesa-opencl-icd",
        "torch",
    } <= tools
    assert [tool for tool in tools if tool not in page] == []
    paths = set(re.findall(r"(?<![\w/])((?:tests|testing|bench)/[\w/.]*)", page))
    assert len(paths) >= 6
    assert [path for path in paths if not (ROOT / path).exists()] == []
    for option in re.findall(r"`(--[\w-]+)", page):
        request.config.getoption(option)  # raises ValueError where there is no such option


def test_the_make_targets_of_the_readme_exist():
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))

    assert set(re.findall(r"(?:^    |`)make (\w+)", README, re.MULTILINE)) == {
        "demo",
        "test",
        "bench",
        "layouts",
        "fuzz",
    }
    assert {"demo", "test", "quick", "lint", "bench", "layouts", "fuzz"} <= targets


def test_the_make_targets_use_groups_and_extras_that_exist():
    groups = set(re.findall(r"\$\(VENV\)/\.(\w+)\n", MAKEFILE))
    extras = set(re.findall(r"gpucomp\[(\w+)\]", README + (ROOT / "gpucomp/cli/doctor.py").read_text()))

    assert groups == {"demo", "dev", "fuzz"}
    assert groups <= set(PROJECT["dependency-groups"])
    assert extras <= set(PROJECT["project"]["optional-dependencies"])
    assert set(re.findall(r"`\.\[(\w+)\]`", README)) <= set(PROJECT["project"]["optional-dependencies"])


def test_ci_installs_nothing_that_is_there_and_runs_the_suite(tmp_path):
    for tool in (
        "make",
        "g++",
        "clang",
        "clang-19",
        "ld.lld-19",
        "oclgrind",
        "chromium",
        "apt-get",
        "python3",
        "bin/python",
    ):
        (tmp_path / tool).parent.mkdir(exist_ok=True)
        status = '[ "$1" = test ] && exit 3' if tool == "make" else "exit 0"
        (tmp_path / tool).write_text(f'#!/bin/sh\necho "{tool} $*"\n{status}\nexit 0\n')
        (tmp_path / tool).chmod(0o755)
    for driver in ("pocl", "rusticl"):
        (tmp_path / f"{driver}.icd").touch()
    environment = os.environ | {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "VENV": str(tmp_path),
        "OCL_ICD_VENDORS": str(tmp_path),
    }

    ran = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, text=True, env=environment, cwd=tmp_path)

    assert ran.stdout.splitlines()[-1] == "make test"
    assert "apt-get" not in ran.stdout
    assert "torch==" in ran.stdout  # a version: the newest build of all is gigabytes
    assert ran.returncode == 3


def test_ci_installs_the_drivers_of_opencl_that_are_not_there(tmp_path):
    for tool in (
        "make",
        "g++",
        "clang",
        "clang-19",
        "ld.lld-19",
        "oclgrind",
        "chromium",
        "apt-get",
        "python3",
        "id",
        "bin/python",
    ):
        (tmp_path / tool).parent.mkdir(exist_ok=True)
        (tmp_path / tool).write_text(f'#!/bin/sh\necho "{tool} $*"\n' if tool != "id" else "#!/bin/sh\necho 0\n")
        (tmp_path / tool).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "VENV": str(tmp_path),
        "OCL_ICD_VENDORS": str(tmp_path),
    }

    ran = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, text=True, env=environment, cwd=tmp_path)

    (installed,) = re.findall(r"^apt-get install .*", ran.stdout, re.MULTILINE)
    assert installed.split()[-2:] == ["pocl-opencl-icd", "mesa-opencl-icd"]


def test_the_numbers_of_the_change_log_and_the_project_agree():
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert newest == PROJECT["project"]["version"]


def test_floors_of_security_are_those_of_the_project():
    floors = dict(re.match(r"([\w-]+)>=([\d.]+)", d).groups() for d in PROJECT["project"]["dependencies"])
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

    assert f"onnx {floors['onnx']} " in text
    assert f"Jinja2 {floors['jinja2']} " in text
