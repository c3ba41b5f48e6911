"""A folder of models: which files are served as which model and version, and how each wants to be served.

    name.onnx, name.gpuc            version 1 of ``name``
    name/2/model.onnx, model.gpuc   version 2
    name/config.toml                see ``ModelConfig``

Nothing outside the folder is read: a link that leaves it is no model. What clients ask for is looked up among these names,
and never becomes a path.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from gpucomp.errors import ServingError, UsageError, quote
from gpucomp.ir.dim import Dim
from gpucomp.lazy_dataclass import dataclass

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,255}")
VERSION = re.compile(r"[1-9][0-9]{0,17}")
SUFFIXES = (".onnx", ".gpuc")
CONFIG = "config.toml"
MOST_CONFIG = 1 << 20  # bytes
INDEPENDENT = "independent"


@dataclass(frozen=True)
class ModelConfig:
    """What ``config.toml`` of a model can say.

    target     what to compile an ``.onnx`` file for, as ``gpucomp.compile`` takes it
    precision  as ``gpucomp.compile`` takes it
    shapes     a table of inputs: ``x = ["n", 3, {name = "h", low = 8, high = 64, multiple = 8}]``
    versions   ``[1, 3]``: which are served; without it the newest
    max_batch  rows of requests that are run together; 1: each alone
    rows       ``"independent"``: its author says that no row of a batch changes another one. Otherwise that has to be proven
    delay_us   microseconds that an instance waits for more requests before it runs fewer than ``max_batch`` rows
    instances  how many runs there are side by side
    queue      how many requests wait; more are refused
    timeout_s  seconds of a request that does not say a timeout, and the most
    """

    target: str | None = None
    precision: str = "fp32"
    shapes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    versions: tuple[int, ...] = ()
    max_batch: int | None = None
    rows: str = ""
    delay_us: int = 0
    instances: int | None = None
    queue: int | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Entry:
    """One version of a model: its file."""

    name: str
    version: int
    path: Path


@dataclass(frozen=True)
class Found:
    """A model in the folder: its versions, the least first, and its configuration or what is wrong with it."""

    name: str
    entries: tuple[Entry, ...]
    config: ModelConfig = ModelConfig()
    fault: ServingError | None = None

    def wanted(self) -> tuple[Entry, ...]:
        """The versions to serve."""
        chosen = self.config.versions
        return tuple(one for one in self.entries if one.version in chosen) if chosen else self.entries[-1:]


def scan(folder: Path) -> dict[str, Found]:
    """The models of a folder by their names. Raises ``UsageError`` (GPC2050) for a folder that cannot be read."""
    try:
        root = folder.resolve(strict=True)
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise UsageError(f"cannot read the models in {quote(folder)}: {error.strerror}", code="GPC2050") from None
    found: dict[str, Found] = {}
    for path in paths:
        name = path.stem if path.suffix in SUFFIXES else path.name
        if not NAME.fullmatch(name) or not _inside(path, root):
            continue
        if path.is_file() and path.suffix in SUFFIXES:
            one = Found(name, (Entry(name, 1, path),))
        elif path.is_dir():
            one = _of_folder(name, path, root)
        else:
            continue
        if one.entries or one.fault:
            found[name] = _twice(name) if name in found else one
    return found


def _twice(name: str) -> Found:
    told = f"model {quote(name)}: one file or folder of this name expected, there are several"
    return Found(name, (), fault=ServingError(told, code="GPC1210"))


def _inside(path: Path, root: Path) -> bool:
    try:
        return path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):  # a link to nothing, or to itself
        return False


def _of_folder(name: str, folder: Path, root: Path) -> Found:
    try:
        entries = tuple(sorted(_versions(name, folder, root), key=lambda one: one.version))
        config = folder / CONFIG
        return Found(name, entries, read_config(config) if config.exists() and _inside(config, root) else ModelConfig())
    except ServingError as error:
        return Found(name, (), fault=error)
    except OSError as error:
        told = f"model {quote(name)}: its folder cannot be read: {error.strerror}"
        return Found(name, (), fault=ServingError(told, code="GPC1210"))


def _versions(name: str, folder: Path, root: Path) -> Iterator[Entry]:
    for path in folder.iterdir():
        if not VERSION.fullmatch(path.name) or not path.is_dir():
            continue
        files = [path / f"model{suffix}" for suffix in SUFFIXES]
        files = [file for file in files if file.is_file() and _inside(file, root)]
        if len(files) > 1:
            told = f"model {quote(name)}, version {path.name}: model.onnx or model.gpuc expected, both are there"
            raise ServingError(told, code="GPC1210")
        yield from (Entry(name, int(path.name), file) for file in files)


def read_config(path: Path) -> ModelConfig:
    """Raises ``ServingError`` (GPC1210) with the line for what is no such file."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_CONFIG + 1)
        text = data.decode("utf-8")
        given = tomllib.loads(text)
    except OSError as error:
        raise _wrong(path, f"it cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise _wrong(path, f"TOML expected: {error}") from None
    if len(data) > MOST_CONFIG:
        raise _wrong(path, f"at most {MOST_CONFIG} bytes expected")
    known = [one.name for one in fields(ModelConfig)]
    values: dict[str, Any] = {}
    for key, value in given.items():
        where = f"line {_line(text, key)}"
        if key not in known:
            raise _wrong(path, f"{where}: unknown key {quote(key)}; known are {', '.join(known)}")
        values[key] = _checked(path, where, key, value)
    return ModelConfig(**values)


def _line(text: str, key: str) -> int:
    """The line of a key at the top of the file."""
    pattern = re.compile(rf"\s*\[?\s*[\"']?{re.escape(key)}[\"']?\s*[].=]")
    return next((n for n, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


LEAST = {"max_batch": 1, "delay_us": 0, "instances": 1, "queue": 1}
MOST_NUMBER = 1_000_000


def _checked(path: Path, where: str, key: str, value: Any) -> Any:
    if key in LEAST:
        if not _is_whole(value) or not LEAST[key] <= value <= MOST_NUMBER:
            raise _wrong(path, f"{where}: {key}: a whole number from {LEAST[key]} to {MOST_NUMBER} expected")
        return value
    if key == "timeout_s":
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_NUMBER:
            raise _wrong(path, f"{where}: timeout_s: seconds above 0 expected")
        return float(value)
    if key == "versions":
        if not isinstance(value, list) or not value or not all(_is_whole(n) and n > 0 for n in value):
            raise _wrong(path, f"{where}: versions: a list of whole numbers expected, such as [1, 3]")
        return tuple(value)
    if key == "shapes":
        if not isinstance(value, dict):
            raise _wrong(path, f"{where}: shapes: a table of inputs expected")
        return {name: _shape(path, where, name, shape) for name, shape in value.items()}
    if not isinstance(value, str) or (key == "rows" and value != INDEPENDENT):
        raise _wrong(path, f"{where}: {key}: {quote(INDEPENDENT) if key == 'rows' else 'a text'} expected")
    return value


def _shape(path: Path, where: str, name: str, shape: Any) -> tuple[Any, ...]:
    if not isinstance(shape, Sequence) or isinstance(shape, str):
        raise _wrong(path, f"{where}: shapes: a list of sizes expected for {quote(name)}")
    found: list[Any] = []
    for size in shape:
        if isinstance(size, dict):
            try:
                found.append(Dim(**size))
            except TypeError:
                told = "a dimension has name, low, high and multiple"
                raise _wrong(path, f"{where}: shapes: {quote(name)}: {told}") from None
            except UsageError as error:
                raise _wrong(path, f"{where}: shapes: {quote(name)}: {error.message}") from None
        elif _is_whole(size) or isinstance(size, str):
            found.append(size)
        else:
            raise _wrong(path, f"{where}: shapes: {quote(name)}: whole numbers, names and dimensions expected")
    return tuple(found)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(path: Path, why: str) -> ServingError:
    return ServingError(f"{quote(path)}: {why}", code="GPC1210")
