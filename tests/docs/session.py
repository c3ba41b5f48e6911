"""Runs the blocks of a page as a reader would: one after the other, in one folder, with one Python session."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import gpucomp
from gpucomp import cli, config
from gpucomp.cli.commands import gpucomp as command_line
from gpucomp.tuning.tuner import tune
from tests.docs.pages import ROOT, Block, Command, commands

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)) - {"help"}
VARIABLES = set(re.findall(r"^([A-Z_]+) \?=", MAKEFILE, re.MULTILINE))
# commands start in the folder of the page
IN_THE_SOURCES = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
EXTRAS = set(tomllib.loads(PROJECT)["project"]["optional-dependencies"])

SERVED = "localhost:8000"  # where pages say that a server is
ONE_TRIAL = ("--trials", "1", "--budget", "60s")  # the trials end it: the time is for machines that are busy

# Programs by the words that a command begins with; the longest match counts. These run, with less to do:
SMALLER: dict[str, tuple[str, ...]] = {
    "bench.cpu.accuracy": ("resnet18", "--reduced"),
    "bench.cpu.picture": (),
    "bench.cpu run": ("--reduced", "--rounds", "1", "--turn", "1", "--peers", "onnxruntime,gpucomp"),
    "bench.decoding": ("--peers", "onnxruntime"),
    "bench.gpu first --dry-run": ("--limit-s", "0.1"),
    "bench.gpu report": (),
    "bench.growth": ("--most", "10"),
    "examples.gearbox.search": ("10",),
    "gpucomp bench": ("--duration", "0.02", "--warmup", "0", "--iterations", "1"),
    "gpucomp bench --kernel": ("--duration", "0.001"),
    "gpucomp bench --kernels": ("--duration", "0.001", "--against", "none"),
    "gpucomp bench --kernel gemm:m=4096,n=4096,k=4096,dtype=f16 --target cuda:sm_90a --static": (),
    "gpucomp bench model.onnx --static": (),
    "gpucomp tune": ONE_TRIAL,
    "gpucomp tune model.onnx --budget 20m --storage": ONE_TRIAL,
    "gpucomp tune model.onnx --budget 20m --records": ONE_TRIAL,
    "gpucomp tune model.onnx --dry-run": (),
}
AS_THEY_ARE = ("cp", "mkdir", "openssl", "cmake", "cc")  # these run, and programs that a page has built
TO_BE_CONTINUED = 3  # exit status of bench.gpu: its time is over
# These do not run, for a reason. What can be is checked: arguments by the program's own parser, goals by make.
NOT_HERE = {
    "bench.any_shape": "downloads 240 MB of models: tests/bench/test_any_shape.py runs it on a small one",
    "bench.c_models": "downloads models, and emulators take minutes: tests/bench/test_c_models.py runs it on small ones",
    "bench.compile_time": "takes a minute: tests/bench/test_compile_time.py runs it on a smaller model",
    "bench.cpu run --packages": "downloads 300 MB of models: tests/bench/test_cpu.py runs it on a small one",
    "bench.cpu setup": "needs the network",
    "bench.exports": "needs torch with its exporters, and an hour",
    "bench.fleet": "takes minutes: tests/bench/test_fleet.py runs it with less to do",
    "bench.gpu first": "needs a GPU",
    "bench.gpu kernels": "needs a GPU",
    "bench.gpu models": "needs a GPU",
    "bench.gpu probe": "needs a GPU",
    "bench.gpu tune": "needs a GPU",
    "bench.measured": "needs files of measurements: tests/bench/test_measured.py runs it on small ones",
    "bench.measured.phones": "takes minutes: tests/bench/test_measured_phones.py runs it on small networks",
    "bench.ocr_trace": "downloads models: tests/bench/test_ocr_trace.py runs it on small ones",
    "bench.ort_applications": "installs eight applications: tests/bench/test_ort_applications.py runs its parts",
    "bench.serve_load": "takes half an hour: tests/bench/test_serve_load.py runs it with less to do",
    "bench.serving": "downloads models: tests/bench/test_serving.py runs its parts on small ones",
    "bench.kills": "takes a minute: tests/bench/test_kills.py runs it with less to do",
    "bench.new_shapes": "takes minutes: tests/bench/test_new_shapes.py runs it with less to do",
    "bench.torch_compile": "takes minutes and needs torch: tests/bench/test_torch_compile.py runs it on a small model",
    "bench.tune_models": "takes minutes: tests/bench/test_tune_models.py runs it with less to do",
    "gpucomp tune model.onnx --budget 20m": "docs/how-to/tune.md has this with --records, and its test runs it",
    "bench.tuning_lab": "needs Kernel Tuner, from the network: tests/bench/test_tuning_lab.py runs the rest",
    "cmake --build build/native": "tests/c_runtime/test_library.py runs it",
    "cmake --install build/native": "writes into the user's home: tests/c_runtime/test_library.py gives it a folder",
    "cmake -S gpucomp/native": "tests/c_runtime/test_library.py runs it",
    "curl": "is no dependency; the client below it asks the same",
    "gpucomp-run": "is built by a C compiler: tests/c_runtime/test_library.py runs it where there is one",
    "make": "each goal takes minutes; several need the network",
    "optuna-dashboard": "is a server, and no dependency",
    "source": "needs .venv in the folder of the sources",
}


def key_of(words: Sequence[str]) -> str:
    """The longest key of ``SMALLER`` or ``NOT_HERE`` with which a command begins; "" if there is none."""
    said = " ".join(words)
    return max((key for key in (*SMALLER, *NOT_HERE) if f"{said} ".startswith(f"{key} ")), key=len, default="")


def parse(words: Sequence[str]) -> None:
    """Raise unless the command, its options and their values exist."""
    command: click.Command = command_line
    rest = list(words)
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    command.make_context(words[0], rest)


class Session:
    """A folder, and a Python session in it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.namespace: dict[str, Any] = {"__name__": "page"}
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # ``cli.main`` sets these two
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        monkeypatch.setattr(gpucomp, "tune", _tuned)
        self.monkeypatch = monkeypatch
        self.search: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = ""
        self.server: subprocess.Popen[str] | None = None
        self.port = ""

    def run(self, block: Block) -> None:
        """Run ``block``. A block that is neither Python nor shell is output, and is left alone.

        Where the page says ``no-run``, Python must compile, and the arguments of ``gpucomp`` must be good.
        """
        if block.language == "python":
            text = block.text.replace(SERVED, f"127.0.0.1:{self.port}") if self.server else block.text
            code = compile("\n" * block.line + text, block.page, "exec", dont_inherit=True)
            if block.runs:
                exec(code, self.namespace)
        elif block.language == "c" and block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            for command in commands(block):
                if block.runs:
                    self._run_command(command)
                elif command.words[0] == "gpucomp":
                    parse(command.words[1:])

    def close(self) -> None:
        """End what still runs. A search with workers must have ended well, and a server must end well."""
        if self.server is not None:
            self.server.terminate()
            self.server.communicate(timeout=60)
            assert self.server.returncode == 0
        for process in self.workers:
            process.kill()
            process.wait()
        assert self.search is None, "a search was begun, and no worker came"

    def _run_command(self, command: Command) -> None:
        program, *words = command.words
        if program == "gpucomp":
            self._gpucomp(command, words)
        elif program == "make":
            assert words[0] in TARGETS
            assert {word.partition("=")[0] for word in words[1:]} <= VARIABLES
            subprocess.run(["make", "--dry-run", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        elif program == "python":
            self._python(words)
        elif key_of(command.words) in NOT_HERE:
            pass
        elif program in AS_THEY_ARE or Path(program).is_file():
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
            subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        else:
            pytest.fail(f"the tests do not know how to run {program}")

    def _gpucomp(self, command: Command, words: Sequence[str]) -> None:
        if "--fleet" in words:
            self._begin_search(words)
            return
        if words[0] == "worker":
            self._join(words)
            return
        if words[0] == "serve":
            self._begin_serving(words)
            return
        key = key_of(command.words)
        if key in NOT_HERE:
            parse(words)
            return
        words = [*words, *SMALLER.get(key, ())]
        asked = config.read(command.environment)
        fields = [name.removeprefix("GPUCOMP_").lower() for name in command.environment if name != "PYTHONPATH"]
        if (paths := command.environment.get("PYTHONPATH")) is not None:
            self.monkeypatch.syspath_prepend(str(Path(paths).resolve()))
        own = [word for word in words if Path(f"{word.partition(':')[0]}.py").exists()]
        assert paths is not None or not own, f"Python finds {own} only with PYTHONPATH=."
        with config.using(**{field: getattr(asked, field) for field in fields}):
            assert cli.main(list(words)) == command.exit_code, " ".join(command.words)

    def _python(self, words: Sequence[str]) -> None:
        assert words[0] == "-m"
        if words[1] == "pip":
            _installed(words[2:])
            return
        module, rest = words[1], words[2:]
        spec = importlib.util.find_spec(module)
        assert spec is not None, f"there is no module {module}"
        main = importlib.util.find_spec(f"{module}.__main__") if spec.submodule_search_locations else spec
        assert main is not None
        key = key_of(words[1:])
        assert key, f"{module} is neither in SMALLER nor in NOT_HERE"
        if key in SMALLER:
            smaller = [sys.executable, "-m", *words[1:], *SMALLER[key]]
            ended = subprocess.run(smaller, env=IN_THE_SOURCES, stdout=subprocess.DEVNULL).returncode
            assert ended == 0 or (ended == TO_BE_CONTINUED and "--limit-s" in smaller), " ".join(smaller)
        else:
            self._parse(module, rest)

    def _parse(self, module: str, words: Sequence[str]) -> None:
        """The program is started, and left where it has parsed its arguments."""
        with self.monkeypatch.context() as patches:
            patches.setattr(sys, "argv", [module, *words])
            patches.setattr(argparse.ArgumentParser, "parse_args", _parsed)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)  # other tests import it
                with pytest.raises(_Parsed):
                    runpy.run_module(module, run_name="__main__")

    def _begin_search(self, words: Sequence[str]) -> None:
        """In the background, for one worker on this machine."""
        self.address = f"tls://127.0.0.1:{_free_port()}"
        words = with_value(words, "--fleet", self.address)
        words = [*with_value(words, "--workers", "1"), *ONE_TRIAL]
        self.search = subprocess.Popen([sys.executable, "-m", "gpucomp", *words], env=IN_THE_SOURCES)

    def _begin_serving(self, words: Sequence[str]) -> None:
        """In the background, at a port that is free. What the page asks of its own port goes there."""
        pytest.importorskip("uvicorn", reason="could not import 'uvicorn'")
        command = [sys.executable, "-m", "gpucomp", *with_value(words, "--port", "0")]
        variables = IN_THE_SOURCES | {"GPUCOMP_CACHE": str(config.current().cache)}
        self.server = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
        assert self.server.stdout is not None
        self.port = self.server.stdout.readline().strip().rpartition(":")[2]
        until = time.monotonic() + 60
        while not _is_ready(self.port):
            assert time.monotonic() < until, "the server does not get ready"
            time.sleep(0.05)

    def _join(self, words: Sequence[str]) -> None:
        """A worker joins the search, and the search ends."""
        assert self.search is not None, "no search has begun"
        words = with_value(words, "--scheduler", self.address)
        self.workers.append(subprocess.Popen([sys.executable, "-m", "gpucomp", *words], env=IN_THE_SOURCES))
        assert self.search.wait(timeout=120) == 0
        self.search = None


class _Parsed(Exception):
    pass


def _parsed(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> None:
    _, unknown = self.parse_known_args(args, namespace)
    assert not unknown
    raise _Parsed


def _is_ready(port: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready") as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False


def with_value(words: Sequence[str], option: str, value: str) -> list[str]:
    place = words.index(option) + 1
    return [*words[:place], value, *words[place + 1 :]]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _tuned(model: object, **given: Any) -> Any:
    """In place of ``gpucomp.tune``, whose parameters these must be: the model as it is compiled without a search."""
    inspect.signature(tune).bind(model, **given)
    return SimpleNamespace(executable=gpucomp.compile(model, target=given["target"]))


def _installed(words: Sequence[str]) -> None:
    """``pip install``: extras exist. What goes into a folder is copied from this environment, where there is no network."""
    for word in words:
        if match := re.fullmatch(r"\.\[([\w,]+)\]", word):
            assert set(match[1].split(",")) <= EXTRAS
    if "--target" not in words:
        return
    package = words[-1].partition("==")[0].replace("-", "_")
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"python -m pip install --no-deps {words[-1]}")
    shutil.copytree(Path(str(spec.origin)).parent, Path(words[words.index("--target") + 1]) / package)
