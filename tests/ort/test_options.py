"""Options: each is in the table, with onnxruntime's default; names that are missing have a reason."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as theirs

import gpucomp.ort
from gpucomp.ort import exceptions, options
from gpucomp.ort.capi import onnxruntime_pybind11_state as ours
from tests.ort import models

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "onnxruntime.md"


def public(owner) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


OWNERS = ("SessionOptions", "RunOptions")


@pytest.mark.parametrize("owner", OWNERS)
def test_every_option_of_onnxruntime_is_in_the_table(owner):
    known = {name for name in dir(getattr(onnxruntime, owner)) if not name.startswith("_")}
    asked = {"get_session_config_entry", "get_run_config_entry", "has_providers"}  # what was given

    assert {row.name for row in options.TABLE if row.owner == owner} == known - asked


@pytest.mark.parametrize("owner", OWNERS)
def test_defaults_are_those_of_onnxruntime(owner):
    made, wanted = getattr(gpucomp.ort, owner)(), getattr(onnxruntime, owner)()

    for row in options.TABLE:
        if row.owner == owner and row.default is not None:
            found, expected = getattr(made, row.name), getattr(wanted, row.name)
            expected = int(expected) if hasattr(expected, "name") else expected  # no number is equal to theirs
            assert found == expected, row.name


@pytest.mark.parametrize("row", [row for row in options.TABLE if row.how == options.REFUSED], ids=lambda row: row.name)
def test_what_is_refused_says_why(row):
    with pytest.raises(exceptions.NotImplemented, match=re.escape(row.what)):
        getattr(getattr(gpucomp.ort, row.owner)(), row.name)()


@pytest.mark.parametrize("ort", [gpucomp.ort, onnxruntime], ids=["gpucomp", "onnxruntime"])
def test_options_refuse_what_they_are_not(ort):
    made = ort.SessionOptions()

    with pytest.raises(AttributeError):
        made.intra_op_threads = 3
    with pytest.raises(TypeError):
        made.intra_op_num_threads = "3"
    with pytest.raises(RuntimeError, match="does not have configuration with key: nope"):
        made.get_session_config_entry("nope")
    with pytest.raises(RuntimeError, match="Config key is empty"):
        made.add_session_config_entry("", "1")
    made.add_session_config_entry("session.x64quantprecision", "1")
    assert made.get_session_config_entry("session.x64quantprecision") == "1"


def test_a_session_keeps_its_options_as_they_were():
    given = gpucomp.ort.SessionOptions()
    given.intra_op_num_threads = 1
    kept = given.copied()
    given.intra_op_num_threads = 2
    given.add_session_config_entry("a", "b")

    assert kept.intra_op_num_threads == 1
    with pytest.raises(RuntimeError):
        kept.get_session_config_entry("a")


def test_the_page_has_the_table():
    text = PAGE.read_text(encoding="utf-8")
    rows = [f"| `{row.owner}.{row.name}` | {row.how} | {row.what} |" for row in options.TABLE]

    assert [line for line in text.splitlines() if line.startswith(("| `SessionOptions.", "| `RunOptions."))] == rows
    for name, what in options.ENTRIES.items():
        assert f"| `{name}` | {what} |" in text


def test_every_name_of_onnxruntime_is_here_or_has_a_reason():
    private = {"capi", "contextlib", "version", "package_name", "cuda_version"}
    wanted = public(onnxruntime) | {module.name for module in pkgutil.iter_modules(onnxruntime.__path__)}

    missing = {name for name in gpucomp.ort.MISSING if "." not in name}
    assert wanted - private - set(gpucomp.ort.__all__) == missing
    with pytest.raises(AttributeError, match=r"LoraAdapter.*no LoRA adapters"):
        _ = gpucomp.ort.LoraAdapter


def test_every_method_of_onnxruntime_is_here_or_has_a_reason():
    session = gpucomp.ort.InferenceSession(models.affine(), providers=["CPUExecutionProvider"])
    made = {
        "NodeArg": session.get_inputs()[0],
        "ModelMetadata": session.get_modelmeta(),
        "OrtMemoryInfo": session.get_input_memory_infos()[0],
    }
    absent = set()
    for name in ("IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "SessionIOBinding", "SparseTensor", *made):
        own = made.get(name, getattr(gpucomp.ort, name))
        absent |= {f"{name}.{one}" for one in public(getattr(onnxruntime, name)) if not hasattr(own, one)}

    assert absent == {name for name in gpucomp.ort.MISSING if name[0].isupper() and "." in name}


def test_every_name_below_onnxruntime_is_here_or_has_a_reason():
    imported = {"Any", "C", "Callable", "IntEnum", "Sequence", "annotations", "collections", "np", "os", "typing"}
    imported |= {"warnings", "weakref"}
    known = {module.name for module in pkgutil.iter_modules(gpucomp.ort.capi.__path__)}
    modules = {m.name for m in pkgutil.iter_modules(onnxruntime.capi.__path__) if not m.name.startswith(("_", "lib"))}
    absent = {f"capi.{name}" for name in modules - known}
    for module in modules & known:
        own, their = (importlib.import_module(f"{ort}.capi.{module}") for ort in ("gpucomp.ort", "onnxruntime"))
        names = public(their) - imported - gpucomp.ort.MISSING.keys()
        absent |= {f"{module}.{name}" for name in names if not hasattr(own, name)}

    assert absent == {name for name in gpucomp.ort.MISSING if name[0].islower() and "." in name}
    assert ours.OrtMemoryInfo is gpucomp.ort.OrtMemoryInfo
    with pytest.raises(AttributeError, match=r"OrtValueVector.*lists of values"):
        _ = ours.OrtValueVector


def test_enumerations_have_the_numbers_of_onnxruntime():
    for name in (
        "GraphOptimizationLevel",
        "ExecutionMode",
        "ExecutionOrder",
        "OrtAllocatorType",
        "OrtDeviceMemoryType",
        "OrtMemType",
    ):
        wanted = {key: int(value) for key, value in getattr(onnxruntime, name).__members__.items()}
        found = getattr(gpucomp.ort, name)
        assert {key: int(value) for key, value in found.__members__.items()} == wanted
        for one in found:
            theirs_too = getattr(onnxruntime, name).__members__[one.name]
            assert (str(one), f"{one:>40}") == (str(theirs_too), f"{theirs_too!s:>40}")


def test_exceptions_are_those_of_onnxruntime():
    def of(module):
        kinds = {n: k for n, k in vars(module).items() if isinstance(k, type) and issubclass(k, Exception)}
        return {name: kind.__mro__[1].__name__ for name, kind in kinds.items()}

    assert of(ours) == of(theirs)


def test_what_has_no_effect_can_be_called():
    gpucomp.ort.set_default_logger_severity(3)
    gpucomp.ort.set_seed(5)
    gpucomp.ort.disable_telemetry_events()

    assert gpucomp.ort.get_device() in ("CPU", "GPU")
    assert "CPUExecutionProvider" in gpucomp.ort.get_available_providers()
    assert set(gpucomp.ort.get_available_providers()) <= set(gpucomp.ort.get_all_providers())
    assert gpucomp.ort.get_version_string() == gpucomp.ort.__version__
    assert gpucomp.ort.get_build_info().startswith("gpucomp ")
