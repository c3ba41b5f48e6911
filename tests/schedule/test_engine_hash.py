"""An engine's hash covers everything that determines its output, and no modules of other engines."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from jinja2 import meta, nodes

from gpucomp.codegen.llvm.engines import ENGINES
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import environment
from gpucomp.schedule import engine_hash as module
from gpucomp.schedule.engine_hash import engine_hash, files_of, imported, imports_of

ROOT = Path(__file__).parents[2]
CPU = {family.title: family for engines in ENGINES.values() for family in engines}
IMPORTS = (nodes.Import, nodes.FromImport, nodes.Include, nodes.Extends)


def cpu(title):
    return next(family for family in CPU.values() if family.title == title)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package. Hashes are computed from the copy while the test runs."""
    no_records = shutil.ignore_patterns("records", "__pycache__")
    copied = Path(shutil.copytree(ROOT / "gpucomp", tmp_path / "gpucomp", ignore=no_records))
    monkeypatch.setattr(module.resources, "files", lambda package: copied)
    module.forget()
    yield copied
    module.forget()


def stale(package, families, changed):
    """The ``families`` whose hash changes if a line is added to a file of the copy."""
    before = [engine_hash(family) for family in families]
    with (package / changed).open("a", encoding="utf-8") as file:
        file.write("# longer\n")
    module.forget()
    return [engine_hash(family) != hash for family, hash in zip(families, before, strict=True)]


@pytest.mark.parametrize(
    ("changed", "of"),
    [
        (
            "codegen/llvm/amx/emit.py",
            {"contraction/amx", "contraction/vnni", "contraction/pairs"},
        ),  # they share the nest of loops
        ("codegen/llvm/vnni/emit.py", {"contraction/vnni", "contraction/pairs"}),
        ("codegen/llvm/vnni/space.py", {"contraction/vnni", "contraction/pairs"}),
        ("codegen/llvm/winograd/emit.py", {"contraction/winograd"}),
        (
            "codegen/llvm/contraction/register_block.py",
            {"contraction", "attention", "fused_layers"},
        ),
        (
            "codegen/llvm/loops/rowwise.py",
            {"rowwise", "attention", "attention/decode", "contraction"},
        ),  # a product of few is rows of sums
        ("codegen/llvm/windows/bytes_emit.py", {"loops/bytes"}),
        ("codegen/llvm/windows/planes_emit.py", {"loops/planes", "pool/planes"}),
        ("codegen/llvm/windows/emit.py", {"loops/windows", "pool/windows", "loops/bytes", "fused_layers"}),
        ("codegen/llvm/loops/space.py", {"loops", "pool", "rowwise", "scan", "scatter"}),
        ("codegen/llvm/ir/arithmetic.py", {family.title for family in CPU.values()}),
        ("codegen/llvm/core_space.py", {family.title for family in CPU.values()}),
        ("expr/lower.py", {family.title for family in CPU.values()}),
        ("codegen/llvm/engines.py", set()),  # a table
        ("codegen/llvm/ir/launch_list.py", set()),  # of all kernels of a model, whatever they are
        ("kernels_templates/contraction/mma/emit.py", set()),
        ("kernels_templates/contraction/mma/kernel.j2", set()),
        ("kernel/partition.py", set()),
    ],
)
def test_an_engine_of_the_cpu_is_its_modules_and_what_those_import(package, changed, of):
    families = list(CPU.values())

    found = stale(package, families, changed)

    assert {family.title for family, is_stale in zip(families, found, strict=True) if is_stale} == of


GPU = set(FAMILIES)
CONTRACTIONS = {title for title in GPU if title.startswith("contraction/")}


@pytest.mark.parametrize(
    ("changed", "of"),
    [
        ("kernels_templates/contraction/simt/kernel.j2", {"contraction/simt", "contraction/simt_pairs"}),
        ("kernels_templates/contraction/simt_pairs/space.py", {"contraction/simt_pairs"}),
        ("kernels_templates/contraction/wgmma/space.py", {"contraction/wgmma"}),
        ("kernels_templates/contraction/tcgen05/emit.py", {"contraction/tcgen05"}),
        ("kernels_templates/contraction/tma_space.py", {"contraction/wgmma", "contraction/tcgen05"}),
        ("kernels_templates/contraction/tma_tiles.j2", {"contraction/wgmma", "contraction/tcgen05"}),
        ("kernels_templates/attention/wgmma/emit.py", {"attention/wgmma"}),
        ("kernels_templates/attention/tcgen05/space.py", {"attention/tcgen05"}),
        ("kernels_templates/attention/panels.j2", {"attention/wgmma", "attention/tcgen05"}),
        ("kernels_templates/attention/panels.py", {"attention/wgmma", "attention/tcgen05"}),
        ("kernels_templates/attention/rows.j2", {"attention/mma", "attention/wgmma", "attention/tcgen05"}),
        (
            "kernels_templates/contraction/mma/space.py",
            {"contraction/mma", "contraction/separable_mma", "contraction/stem_mma"},
        ),
        (
            "kernels_templates/depthwise/window.j2",
            {"depthwise", "pool/window", "contraction/separable_simt", "contraction/separable_mma"},
        ),
        (
            "kernels_templates/depthwise/space.py",
            {"depthwise", "pool/window", "contraction/separable_simt", "contraction/separable_mma"},
        ),
        ("kernels_templates/pool/window/space.py", {"pool/window"}),
        ("kernels_templates/loops/transpose/space.py", {"loops/transpose"}),
        ("kernels_templates/contraction/mali/emit.py", {"contraction/mali"}),
        ("kernels_templates/contraction/gemv/emit.py", {"contraction/gemv"}),
        ("kernels_templates/loops/emit.py", {"loops", "pool"}),
        ("kernels_templates/dialect/cuda.j2", GPU),
        ("kernels_templates/dialect/prelude_cuda.h", GPU),
        ("kernels_templates/shared/signature.j2", GPU),
        ("codegen/c/printer.py", GPU),
        ("kernels_templates/render.py", GPU),
        ("kernels_templates/engines.py", set()),  # a table
        ("codegen/llvm/amx/emit.py", set()),
    ],
)
def test_an_engine_of_a_gpu_is_its_template_its_space_its_hooks_and_what_those_import(package, changed, of):
    found = stale(package, list(FAMILIES.values()), changed)

    engines = {title for title, is_stale in zip(FAMILIES, found, strict=True) if is_stale}
    assert engines == of, f"the row of {changed} in tests/schedule/test_engine_hash.py has all that import it"


def test_a_hash_follows_what_is_imported_by_what_is_imported(package):
    """Also an indirect import: of a new module, in a function, and over several lines."""
    (package / "codegen/llvm/far.py").write_text("FAR = 1\n", encoding="utf-8")
    near = package / "codegen/llvm/ir/tables.py"
    near.write_text(
        near.read_text(encoding="utf-8")
        + "def far():\n    from gpucomp.codegen.llvm import (\n        far as distant,  # a, b\n    )\n    return distant\n",
        encoding="utf-8",
    )
    module.forget()

    assert "codegen/llvm/far.py" in files_of(cpu("loops"))
    assert stale(package, [cpu("loops"), FAMILIES["loops"]], "codegen/llvm/far.py") == [True, False]


def test_a_file_that_is_moved_is_the_file_it_was(package):
    """Imports are changed accordingly. But a changed name in the code changes the hash."""
    families = [cpu("contraction"), FAMILIES["contraction/mma"], FAMILIES["loops"]]
    before = [engine_hash(family) for family in families]
    moved = {
        "kernel/forms/access.py": "codegen/forms/access.py",
        "codegen/llvm/contraction/panels.py": "codegen/llvm/sides.py",
    }
    for old, new in moved.items():
        (package / new).parent.mkdir(exist_ok=True)
        (package / old).rename(package / new)
    (package / "codegen/forms/__init__.py").touch()
    for path in (*package.rglob("*.py"), *(package / "kernels_templates").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        moved = text.replace("gpucomp.kernel.forms.access", "gpucomp.codegen.forms.access")
        path.write_text(
            moved.replace("gpucomp.codegen.llvm.contraction.panels", "gpucomp.codegen.llvm.sides"), encoding="utf-8"
        )
    module.forget()

    assert "codegen/forms/access.py" in files_of(families[1])
    assert "codegen/llvm/sides.py" in files_of(families[0])
    assert [engine_hash(family) for family in families] == before


def test_modules_that_say_what_a_kernel_or_a_device_is_are_no_engine_s():
    for family in (*CPU.values(), *FAMILIES.values()):
        parts = {path.split("/")[0].removesuffix(".py") for path in files_of(family)}

        assert parts <= {"codegen", "expr", "kernel", "kernels_templates"}
        assert len(files_of(family)) == len(set(files_of(family))) > 10


def test_the_hash_of_an_engine_is_that_of_its_own_modules_and_of_those_that_emit_it():
    for family in CPU.values():
        assert _path(family.emit) in files_of(family)
        assert _path(family.default) in files_of(family)
    for family in FAMILIES.values():
        assert {_path(family.emit), _path(family.default), _path(family.sizes)} <= set(files_of(family))
        assert f"kernels_templates/{family.template}" in files_of(family)


def _path(function):
    return function.__module__.removeprefix("gpucomp.").replace(".", "/") + ".py"


def test_the_imports_that_are_read_are_those_of_the_syntax_tree():
    """For every module of the compiler, including imports in functions."""
    for folder in ("codegen", "expr", "schedule", "kernels_templates", "ir", "ops", "rewrite", "runtime", "tuning"):
        for path in sorted((ROOT / "gpucomp" / folder).rglob("*.py")):
            relative = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(relative[:-1] if relative[-1] == "__init__" else relative)
            tree, wanted = ast.parse(path.read_text(encoding="utf-8")), set()
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gpucomp":
                    wanted |= {(node.module, alias.name) for alias in node.names}
                elif isinstance(node, ast.Import):
                    wanted |= {(a.name, "") for a in node.names if a.name.split(".")[0] == "gpucomp"}

            assert imports_of(name) == wanted, name


def test_what_a_hash_follows_is_what_jinja_finds_and_nothing_is_named_by_a_variable_but_the_dialect():
    loader, found = environment().loader, {}
    own = (n for n in loader.list_templates() if ":" not in n)  # others are of other packages
    for name in (n for n in own if n.endswith(".j2")):
        tree = environment().parse(loader.get_source(environment(), name)[0])
        found[name] = {n for n in meta.find_referenced_templates(tree) if n is not None}
        others = [n.template for n in tree.find_all(IMPORTS) if not isinstance(n.template, nodes.Const)]
        assert {getattr(other, "name", None) for other in others} <= {"dialect"}
        assert imported(name) >= {name} | found[name]

    assert len(found) > 25
    for name in found:
        assert imported(name) == {name}.union(*(imported(n) for n in found[name]))
