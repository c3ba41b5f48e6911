"""What ``import gpucomp`` offers, and what it costs."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gpucomp
from gpucomp import errors

PUBLIC = [
    "AccuracyError",
    "ArtifactError",
    "Context",
    "DeviceError",
    "Dim",
    "Executable",
    "GpucompError",
    "InputError",
    "ModelError",
    "RunStoppedError",
    "Target",
    "TuneOptions",
    "UnsupportedError",
    "UsageError",
    "compile",
    "load",
    "plugin",
    "tune",
]


def test_the_public_names_are_these():
    assert gpucomp.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(gpucomp, name)

    assert value.__name__ == name
    assert value.__doc__
    assert getattr(gpucomp, name) is value


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'gpucomp' has no attribute 'tunes'"):
        gpucomp.tunes  # noqa: B018


def test_completion_offers_the_public_names():
    assert dir(gpucomp) == sorted([*PUBLIC, "__version__"])


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

    assert gpucomp.__version__ == project["version"]


def test_the_command_is_installed_under_its_name():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

    assert project["scripts"] == {"gpucomp": "gpucomp.cli:main"}


def test_importing_the_package_loads_none_of_its_parts():
    script = (
        "import sys, gpucomp; print(sorted(m for m in sys.modules if m.startswith('gpucomp.')), 'numpy' in sys.modules)"
    )

    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert out == "[] False\n"


def subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_error_has_its_code_and_exit_code():
    tree = {
        kind.__name__: (kind.code, kind.exit_code) for kind in (errors.GpucompError, *subclasses(errors.GpucompError))
    }

    assert tree == {
        "GpucompError": ("GPC1000", 1),
        "RunStoppedError": ("GPC1100", 1),
        "ServingError": ("GPC1200", 1),
        "UsageError": ("GPC2000", 2),
        "InputError": ("GPC2100", 2),
        "ModelError": ("GPC3000", 3),
        "ShapeError": ("GPC3100", 3),
        "UnsupportedError": ("GPC4000", 4),
        "DeviceError": ("GPC5000", 5),
        "KernelBuildError": ("GPC5100", 5),
        "WrongKernelError": ("GPC5106", 5),
        "DeviceLostError": ("GPC5200", 5),
        "AccuracyError": ("GPC6000", 6),
        "ArtifactError": ("GPC7000", 3),
        "RecordError": ("GPC7100", 3),
        "ScheduleError": ("GPC8000", 1),
        "VerifyError": ("GPC9000", 1),
    }


def test_an_error_is_one_line_with_its_code():
    error = errors.ModelError("node 'a\nb':\n  bad", code="GPC3007")

    assert str(error) == "GPC3007 node 'a b': bad"
    assert error.code == "GPC3007"
