"""What the build files say is so: groups, targets and tools exist. What the pages say is checked in ``tests/docs``."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_page_of_the_tests_names_what_exists_and_every_tool_that_ci_installs(request):
    page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    tools = {
        *re.search(r"for tool in (.*?);", script)[1].split(),
        *re.findall(r"(?:missing|optional)\+=\(([\w.-]+)\)", script),
    }
    tools |= set(re.findall(r'install .*"(\w+)==', script))
    tools = {re.sub(r"^lld", "ld.lld", tool) for tool in tools} - {"python3-venv"}
    assert {
        "g++",
        "clang-19",
        "ld.lld-19",
        "clang-22",
        "ld.lld-22",
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


def test_the_make_targets_use_groups_that_exist():
    groups = set(re.findall(r"\$\(VENV\)/\.(\w+)\n", MAKEFILE))

    assert groups == {"build", "demo", "dev", "docs", "fuzz"}
    assert groups <= set(PROJECT["dependency-groups"])


CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
# what .ci/run looks for, wherever that is here, and what it calls
CI_TOOLS = {
    *re.findall(r"command -v ([\w.+-]+)", CI),
    *re.search(r"for tool in (.*?);", CI)[1].split(),
    "apt-get",
    "python3",
}


def test_ci_installs_nothing_that_is_there_and_runs_the_suite(tmp_path):
    for tool in (*CI_TOOLS, "bin/python"):
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
    for tool in (*CI_TOOLS, "id", "bin/python"):
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


def test_ci_does_without_a_compiler_that_is_in_no_repository(tmp_path):
    for tool in ("bash", "dirname", "env", "ls", "realpath", "sh"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    answers = {"id": "echo 0", "apt-cache": 'echo "apt-cache $*"; [ "$2" = clang-22 ] || exit 100'}
    (tmp_path / "bin").mkdir()
    for tool in ("make", "apt-get", "python3", "bin/python", *answers):
        (tmp_path / tool).write_text(f"#!/bin/sh\n{answers.get(tool, f'echo {tool} $*')}\n")
        (tmp_path / tool).chmod(0o755)

    environment = {"PATH": str(tmp_path), "VENV": str(tmp_path)}
    ran = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, text=True, env=environment, cwd=tmp_path)

    (installed,) = re.findall(r"^apt-get install .*", ran.stdout, re.MULTILINE)
    assert {"clang-19", "lld-19", "clang-22"} <= set(installed.split())
    assert "lld-22" not in installed
    assert "lld-22 is in no repository here" in ran.stderr
    assert ran.stdout.splitlines()[-1] == "make test"


def test_the_change_log_has_the_form_of_keep_a_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    newest, *older = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert newest == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in older)
    assert PROJECT["project"]["version"] in text
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= kinds


def test_floors_of_security_are_those_of_the_project():
    floors = dict(re.match(r"([\w-]+)>=([\d.]+)", d).groups() for d in PROJECT["project"]["dependencies"])
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

    assert f"onnx {floors['onnx']} " in text
    assert f"Jinja2 {floors['jinja2']} " in text
