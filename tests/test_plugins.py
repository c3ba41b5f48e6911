"""Plug-ins: the example package has one of each kind, nothing is loaded unasked, and a bad plug-in changes nothing."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import gpucomp
from gpucomp import lowering, plugins
from gpucomp.errors import ModelError, UnsupportedError, UsageError
from gpucomp.kernel import Loops
from gpucomp.kernel.pipeline import KernelPass
from gpucomp.kernels_templates.engines import ENGINES
from gpucomp.rewrite import attention, pipeline
from gpucomp.rewrite.rule import rule
from gpucomp.schedule.engine_hash import engine_hash, files_of, forget

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"
SHAPE = (3, 37, 53)


def install(folder: Path, name: str, value: str) -> Path:
    """What pip leaves of a package with one entry point: its metadata."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{name} = {value}\n", encoding="utf-8")
    return folder


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """``installed(name, source)``: a plug-in whose module has this source."""

    def install_source(name: str, source: str) -> None:
        (tmp_path / f"{name}_module.py").write_text(source, encoding="utf-8")
        install(tmp_path / name, name, f"{name}_module:register")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.syspath_prepend(tmp_path / name)

    return install_source


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The environment of a process in which the example is installed, and a model with its operator: Cube(-x)."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (name, value), *_ = project["entry-points"][plugins.GROUP].items()
    install(folder, name, value)
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, SHAPE) for n in "xy")
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Cube", ["n"], ["y"], name="the cube", domain="com.example"),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets), folder / "cube.onnx")
    path = os.pathsep.join(filter(None, [str(folder), str(EXAMPLE), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "GPUCOMP_CACHE": str(folder / "cache")}, folder / "cube.onnx"


def run(example, *command: str, expected: int = 0) -> str:
    environment, _ = example
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == expected, done.stderr
    return done.stdout + done.stderr


USED = """
import numpy as np
import sys
import gpucomp

gpucomp.plugin("example")
gpucomp.plugin("example")  # the second call does nothing
x = np.random.default_rng(0).standard_normal((3, 37, 53)).astype(np.float32)
for target in sys.argv[2:]:
    y = gpucomp.compile(sys.argv[1], target=target).run({"x": x})["y"]
    assert np.abs(y - (-x) ** 3).max() < 1e-5 * np.abs(x**3).max(), target
"""


def test_a_model_with_the_examples_operator_runs_on_every_kind_of_target(example):
    run(example, "-c", USED, str(example[1]), "cpu", "opencl:pthread")


def test_without_the_plugin_the_operator_is_unknown(example):
    with pytest.raises((ModelError, UnsupportedError), match="Cube"):
        gpucomp.compile(example[1])


def test_its_rule_pass_and_engine_show_in_inspect(example):
    command = ("-m", "gpucomp", "--plugin", "example", "inspect", str(example[1]), "--target", "opencl:pthread")

    passes = run(example, *command, "--passes")
    kernels = run(example, *command, "--kernels")

    assert "cube_of_negative" in passes
    assert "name-kernels" in passes
    assert "the cube" in kernels
    assert "loops/strided" in kernels


SEARCHED = """
import gpucomp
import optuna
from optuna.distributions import CategoricalDistribution

gpucomp.plugin("example")
from gpucomp.tuning.samplers import named
from gpucomp.tuning.samplers.points import Points

optuna.logging.set_verbosity(optuna.logging.WARNING)
sizes = {name: CategoricalDistribution(tuple(range(20))) for name in "ab"}
points = Points.of(sizes, lambda p: (p["a"] + p["b"]) % 3 == 0)
study = optuna.create_study(sampler=named.sampler("hill-climb", points, seed=1))
study.optimize(lambda t: sum((t.suggest_categorical(n, range(20)) - 11) ** 2 for n in "ab"), n_trials=60)
assert type(study.sampler).__name__ == "HillClimb"
assert study.best_value <= 2, study.best_value
"""


def test_its_sampler_is_known_by_name(example):
    run(example, "-c", SEARCHED)


def test_the_command_says_what_is_installed(example):
    told = run(example, "-m", "gpucomp", "--plugin", "exmaple", "doctor", expected=2)

    assert "GPC2014" in told
    assert "installed: 'example'" in told or "installed: example" in told


def test_a_plugin_that_is_not_installed():
    with pytest.raises(UsageError, match="no plug-in 'nobody' is installed") as caught:
        gpucomp.plugin("nobody")

    assert caught.value.code == "GPC2014"


HALF = """
from gpucomp import ops
from gpucomp.kernel.pipeline import KernelPass
from gpucomp.rewrite.rule import rule

@rule(ops.Abs)
def never(node):
    "Abs(x) -> Abs(x)"

def register(plugin):
    plugin.add_rule(never)
    plugin.add_kernel_pass(KernelPass("late", lambda steps, at: steps))
    plugin.add_sampler("mine", "a.b:C")
    raise ValueError("the rest is missing")
"""


def test_a_plugin_that_fails_adds_nothing(installed):
    installed("half", HALF)
    with pytest.raises(UsageError, match=r"half_module:register.*ValueError: the rest is missing"):
        gpucomp.plugin("half")

    assert not pipeline.ADDED_RULES
    assert not lowering.ADDED_PASSES
    assert not plugins.SAMPLERS


BROKEN = {
    "at-import": ("raise RuntimeError('no licence')", r"RuntimeError: no licence \(\S+_module.py:1\)"),
    "syntax": ("def register(plugin) pass", "SyntaxError"),
    "in-register": ("def register(plugin):\n    {}['a']", r"KeyError: 'a' \(\S+_module.py:2\)"),
    "no-function": ("registers = None", "has no attribute 'register'"),
    "no-argument": ("def register(): pass", "takes 0 positional arguments"),
    "no-rule": ("def register(plugin): plugin.add_rule(register)", "@rule expected, got 'register'"),
    "no-pass": ("def register(plugin): plugin.add_kernel_pass(register)", "a KernelPass expected"),
    "no-family": ("def register(plugin): plugin.add_engine('c', 1)", "a Family expected, got 1"),
    "no-class": ("def register(plugin): plugin.add_sampler('s', 'a.b')", "package.module:Class expected, got 'a.b'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_is_told_with_the_line_that_fails(case, installed):
    source, told = BROKEN[case]
    name = f"broken_{case.replace('-', '_')}"
    installed(name, source)

    for _ in range(2):  # the second call says the same
        with pytest.raises(UsageError, match=told) as caught:
            gpucomp.plugin(name)
        assert caught.value.code == "GPC2014"


def test_an_operator_that_a_plugin_before_it_has(example, tmp_path):
    (tmp_path / "twice_module.py").write_text(
        "from gpucomp.frontend.onnx.translate import translates\n"
        "translates('Cube', domain='com.example')(lambda x: x)\n"
        "def register(plugin): pass\n",
        encoding="utf-8",
    )
    install(tmp_path, "twice", "twice_module:register")
    environment = {**example[0], "PYTHONPATH": os.pathsep.join([str(tmp_path), example[0]["PYTHONPATH"]])}
    command = ("-m", "gpucomp", "--plugin", "example", "--plugin", "twice", "doctor")

    told = run((environment, example[1]), *command, expected=2)

    assert "operator 'com.example.Cube' since 1 is translated twice" in told
    assert told.rstrip().endswith("loaded before it: 'example'")


FAILING = """
from gpucomp import ops
from gpucomp.rewrite.rule import rule

@rule(ops.Neg)
def fails(node):
    "-x -> ?"
    return node.inputs[7]

def register(plugin):
    plugin.add_rule(fails)
"""


def test_a_plugin_that_fails_later_is_not_called_a_bug_of_gpucomp(example, tmp_path):
    (tmp_path / "failing_module.py").write_text(FAILING, encoding="utf-8")
    install(tmp_path, "failing", "failing_module:register")
    environment = {**example[0], "PYTHONPATH": os.pathsep.join([str(tmp_path), example[0]["PYTHONPATH"]])}
    plugins_ = ("--plugin", "example", "--plugin", "failing")

    told = run(
        (environment, example[1]), "-m", "gpucomp", *plugins_, "inspect", str(example[1]), "--passes", expected=1
    )

    assert "GPC2019: plug-in 'failing' failed in" in told
    assert "failing_module.py:8: IndexError" in told
    assert "bug of gpucomp" not in told


def test_two_packages_with_plugins_of_one_name(installed, tmp_path, monkeypatch):
    installed("twin", "def register(plugin): pass")
    install(tmp_path / "other" / "twin", "twin", "elsewhere:register")
    monkeypatch.syspath_prepend(tmp_path / "other")
    install(tmp_path / "third", "third", "x:y")
    (tmp_path / "third" / "third-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{plugins.GROUP}]\ntwin = third:register\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path / "third")

    with pytest.raises(UsageError, match="2 packages have a plug-in 'twin': third:register, twin_module:register"):
        gpucomp.plugin("twin")


@rule()
def twice(node):
    """x -> x"""


@pytest.mark.parametrize(
    ("add", "told"),
    [
        (lambda p: p.add_kernel_pass(KernelPass("precision", lambda steps, at: steps)), "kernel pass of this name"),
        (lambda p: (p.add_rule(twice), p.add_rule(twice)), "a rule of this name"),
        (lambda p: p.add_rule(pipeline.BASICS[-1]), "a rule of this name"),
        (lambda p: p.add_rule(attention.UNFIT[0]), "a rule of this name"),
        (lambda p: p.add_engine("c", ENGINES[Loops][-1]), "an engine of this name"),
        (lambda p: p.add_engine("vhdl", ENGINES[Loops][-1]), "one of c, llvm expected"),
        (lambda p: p.add_engine("c", replace(ENGINES[Loops][-1], body=np.ndarray)), "no kernels of ndarray"),
        (lambda p: (p.add_sampler("mine", "a:B"), p.add_sampler("mine", "a:C")), "a sampler of this name"),
    ],
    ids=["pass", "rule", "built-in rule", "rule of one pass", "engine", "language", "body", "sampler"],
)
def test_what_cannot_be_added(add, told):
    with pytest.raises(ValueError, match=told):
        add(plugins.Plugin("mine"))


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """``imported(name)``: a module in ``tmp_path``. After the test, it and its hashes are forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)

    def from_folder(name: str):
        package = name.partition(".")[0]
        for other in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
            monkeypatch.delitem(sys.modules, other)  # those of another folder
        return importlib.import_module(name)

    yield from_folder
    for name in [n for n in sys.modules if n not in known]:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    forget()


def test_records_of_a_plugins_engine_are_stale_after_any_change_of_its_package(imported, tmp_path):
    shutil.copytree(EXAMPLE / "gpucomp_example", tmp_path / "gpucomp_example")
    family = imported("gpucomp_example.strided.space").FAMILY

    before = engine_hash(family)
    assert {"gpucomp_example:strided/kernel.j2", "gpucomp_example:strided/emit.py"} <= set(files_of(family))
    with (tmp_path / "gpucomp_example" / "strided" / "kernel.j2").open("a", encoding="utf-8") as file:
        file.write("// more\n")
    forget()

    assert engine_hash(family) != before


ONE_MODULE = """
from dataclasses import replace

from gpucomp.kernel import Loops
from gpucomp.kernels_templates.engines import ENGINES


def emit(kernel, *rest):
    return genuine.emit(kernel, *rest)


genuine = ENGINES[Loops][-1]


class Schedule(genuine.space):
    pass


FAMILY = replace(genuine, space=Schedule, emit=emit)
"""


def test_an_engine_with_another_emitter_is_stale_after_a_change_of_the_emitter(imported, tmp_path):
    (tmp_path / "other_emitter.py").write_text(ONE_MODULE, encoding="utf-8")
    emit = imported("other_emitter").emit
    family = replace(ENGINES[Loops][-1], emit=emit)

    before = engine_hash(family)
    with (tmp_path / "other_emitter.py").open("a", encoding="utf-8") as file:
        file.write("# more\n")
    forget()

    assert engine_hash(family) != before


def test_the_files_of_an_engine_in_a_single_module(imported, tmp_path):
    (tmp_path / "lonely_engine.py").write_text(ONE_MODULE, encoding="utf-8")
    (tmp_path / "unrelated.py").touch()
    family = imported("lonely_engine").FAMILY

    before = engine_hash(family)
    with (tmp_path / "lonely_engine.py").open("a", encoding="utf-8") as file:
        file.write("# more\n")
    forget()

    assert [path for path in files_of(family) if ":" in path] == ["lonely_engine:lonely_engine.py"]
    assert engine_hash(family) != before
