"""Hashes the files that determine an engine's output. Records with another hash are stale. Modules are not imported.

The files of an engine are the modules of its emitter and its space, everything that these import, and on a GPU its
template with its imports, and the dialects. Modules that define kernels, types and devices for all engines do not
count. Neither do the tables of engines, which import every engine.

For an engine of another package (a plug-in), all Python files and templates of that package count too.

Only contents count. The hash stays the same if a file is moved or renamed and imports are changed accordingly.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from gpucomp.schedule.space import Family

PACKAGE = "gpucomp"
TEMPLATES = "kernels_templates"
RENDERER = "gpucomp.kernels_templates.render"
TABLES = frozenset({"gpucomp.kernels_templates.engines", "gpucomp.codegen.llvm", "gpucomp.codegen.llvm.engines"})
# definitions that all engines share. If a change of one changes an engine's output, the hash of that output shows it
SHARED = frozenset(
    {"artifact", "config", "device", "errors", "ir", "kernel", "refusal", "runtime", "schedule", "targets"}
)
OF_ENGINES = ("gpucomp.kernel.forms", "gpucomp.kernel.passes", "gpucomp.kernel.winograd_matrices")  # these do count

TEMPLATE_IMPORT = re.compile(r"""\{%-?\s*(?:from|import|include|extends)\s+["']([^"']+)["']""")
# finds the same imports as ``ast`` in a hundredth of the time; a test compares the two
FROM = re.compile(r"^[ \t]*from[ \t]+(gpucomp[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)", re.MULTILINE)
IMPORT = re.compile(r"^[ \t]*import[ \t]+(gpucomp[\w.]*)", re.MULTILINE)
COMMENT = re.compile(r"#[^\n]*")


@cache
def engine_hash(family: Family) -> str:
    """A hash of the contents of an engine's files. The order of the files does not matter."""
    digest = hashlib.sha256()
    for content in sorted(map(_content, files_of(family))):
        digest.update(content)
    return digest.hexdigest()[:16]


def files_of(family: Family) -> list[str]:
    """The files that ``engine_hash`` covers, as sorted paths within the package."""
    made = {
        getattr(family, field.name) for field in dataclasses.fields(family) if callable(getattr(family, field.name))
    }
    roots = {str(getattr(getattr(f, "func", f), "__module__", "")) for f in made}  # a partial's is its function's
    files = {path for package in _packages(roots, family.template) for path in _files_of_package(package)}
    if family.template:
        own = set[str]() if ":" in family.template else imported(family.template)
        files |= {f"{TEMPLATES}/{name}" for name in (*own, *_dialects())}
        roots.add(RENDERER)
    return sorted(files | {path for module in _reached(roots) if (path := _path(module)) is not None})


def _packages(modules: Iterable[str], template: str) -> set[str]:
    """The other packages that an engine comes from: those of its functions' modules and of its template."""
    names = {module.partition(".")[0] for module in modules}
    return (names | {template.rpartition(":")[0]}) - {PACKAGE, ""} - sys.stdlib_module_names


@cache
def _files_of_package(package: str) -> tuple[str, ...]:
    """The Python files and templates of another package, as ``package:path``. A package may be one module."""
    if (alone := _file_of_module(package)) is not None:
        return (f"{package}:{alone.name}",) if alone.suffix == ".py" and alone.is_file() else ()
    waiting, found = [("", resources.files(package))], []
    while waiting:
        place, folder = waiting.pop()
        for inner in folder.iterdir():
            path = f"{place}{inner.name}"
            if inner.is_dir():
                waiting.append((f"{path}/", inner))
            elif path.endswith((".py", ".j2")):
                found.append(f"{package}:{path}")
    return tuple(sorted(found))


def _file_of_module(package: str) -> Path | None:
    """The file of a package that is one module, ``None`` for a folder. A module with an engine is imported already."""
    module = sys.modules.get(package)
    return None if module is None or hasattr(module, "__path__") else Path(getattr(module, "__file__", None) or "")


def imported(template: str) -> frozenset[str]:
    """``template`` and all templates that it imports, directly or indirectly.

    Dialects are not included, because templates import them through a variable.
    """
    found, waiting = set[str](), [template]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += TEMPLATE_IMPORT.findall(_bytes(f"{TEMPLATES}/{name}").decode())
    return frozenset(found)


def imports_of(module: str) -> frozenset[tuple[str, str]]:
    """The imports of a module from the package: pairs of a module and a name in it, empty for the module itself."""
    path = _path(module)
    text = _bytes(path).decode() if path is not None else ""
    found = {(name, "") for name in IMPORT.findall(text)}
    for source, names in FROM.findall(text):
        each = (part.split(" as ")[0].strip() for part in COMMENT.sub("", names).strip("()\n ").split(","))
        found |= {(source, name) for name in each if name}
    return frozenset(found)


@cache
def _modules_of(module: str) -> frozenset[str]:
    """The modules that ``module`` imports. A name imported from a package may be a module too."""
    found = set()
    for source, name in imports_of(module):
        inner = f"{source}.{name}"
        found.add(inner if name and _is_package(source) and _path(inner) is not None else source)
    return frozenset(found)


def _reached(roots: Iterable[str]) -> set[str]:
    found, waiting = set[str](), list(roots)
    while waiting:
        module = waiting.pop()
        if module not in found | TABLES and (_room(module) not in {"", *SHARED} or module.startswith(OF_ENGINES)):
            found.add(module)
            waiting += _modules_of(module)
    return found


def _room(module: str) -> str:
    """The subpackage that a module is in; empty for the package itself and for other packages."""
    package, _, inner = module.partition(".")
    return inner.split(".")[0] if package == PACKAGE else ""


@cache
def _dialects() -> tuple[str, ...]:
    return tuple(
        f"dialect/{path.name}" for path in _root().joinpath(f"{TEMPLATES}/dialect").iterdir() if path.is_file()
    )


def _root() -> Any:
    return resources.files(PACKAGE)


@cache
def _path(module: str) -> str | None:
    """The path of a module's file, or of a package's ``__init__.py``; ``None`` if there is none."""
    name = "/".join(module.split(".")[1:])
    return next((path for path in (f"{name}.py", f"{name}/__init__.py") if _root().joinpath(path).is_file()), None)


@cache
def _content(path: str) -> bytes:
    """A hash of a file's lines, without empty lines and without imports from the package."""
    text = _bytes(path).decode()
    for naming in (FROM, IMPORT, TEMPLATE_IMPORT):
        text = naming.sub("", text)
    return hashlib.sha256("\n".join(line for line in text.splitlines() if line.strip()).encode()).digest()


def _is_package(module: str) -> bool:
    path = _path(module)
    return path is not None and path.endswith("__init__.py")


@cache
def _bytes(path: str) -> bytes:
    package, _, inner = path.rpartition(":")
    if package and (alone := _file_of_module(package)) is not None:
        return alone.read_bytes()
    found: bytes = (resources.files(package) if package else _root()).joinpath(inner).read_bytes()
    return found


def forget() -> None:
    """Clear the caches, for tests that change a file."""
    for known in (engine_hash, _modules_of, _dialects, _files_of_package, _path, _bytes, _content):
        known.cache_clear()
