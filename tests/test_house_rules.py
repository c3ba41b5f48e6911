"""Rules about the code itself. Each is a function from a module's syntax tree to its faults, tried on a bad example too."""

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(p for folder in ("gpucomp", "tuning", "kernels_templates") for p in (ROOT / folder).rglob("*.py"))
PROGRAMS = sorted(p for folder in ("bench", "examples") for p in (ROOT / folder).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TESTING = sorted((ROOT / "testing").rglob("*.py"))  # what tests and programs share
TEMPLATES = sorted((ROOT / "kernels_templates").rglob("*.j2"))

# lowest first; a module may import what is in its own row or above it, and the longest name that fits it counts
LAYERS = (
    (
        "gpucomp.errors",
        "gpucomp.refusal",
        "gpucomp.config",
        "gpucomp.extras",
        "gpucomp.files",
        "gpucomp.stages",
        "gpucomp.garbage",
        "gpucomp.lazy_dataclass",
    ),
    ("gpucomp.ir",),
    ("gpucomp.device", "gpucomp.artifact"),  # plain data: what a target is, what a compiled model consists of
    ("gpucomp.expr",),
    ("gpucomp.ops",),
    ("gpucomp.frontend",),
    ("gpucomp.rewrite",),
    ("gpucomp.kernel",),
    ("gpucomp.schedule",),
    ("gpucomp.codegen",),
    ("gpucomp.kernels_templates",),
    ("gpucomp.targets",),
    ("gpucomp.runtime",),  # it builds what a cache lacks, and runs operators' numpy references on the host
    ("gpucomp.dynamic",),
    ("gpucomp.planning", "gpucomp.openings", "gpucomp.lowering", "gpucomp.checking", "gpucomp.replacing"),
    ("gpucomp.compiler",),
    ("gpucomp.report", "gpucomp.backend", "gpucomp.loading", "gpucomp.plugins"),
    ("gpucomp.model_cache", "gpucomp.compiling", "gpucomp.tuning"),
    # what programs and clients of other systems find their way by
    ("gpucomp.ort", "gpucomp.serving", "gpucomp.export"),
    # the package itself imports its parts when they are asked for
    ("gpucomp.cli", "gpucomp.kernel_bench", "gpucomp", "gpucomp.__main__"),
    ("gpucomp.torch",),
)
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
Rule = Callable[[ast.Module, str], Iterator[str]]
UNSAFE_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml"}
UNSAFE_CALLS = {"eval", "exec", "__import__"}
UNSAFE_METHODS = {("os", "system"), ("os", "popen"), ("jinja2", "Template")}
MODULE = re.compile(r"gpucomp(\.\w+)+")
OPTION = re.compile(r"(^|[ `(])--[a-z][a-z-]+")
COMMAND = re.compile(r"`gpucomp [^`]*")  # one to type, so its options are those of the command line
ASSERTED = "assert isinstance"
MOST_LINES, MOST_NESTED, MOST_OF_A_FILE = 60, 4, 600
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
SHARED = ("gpucomp.device.limits", "gpucomp.schedule.space")  # what engines' spaces have in common
TABLES = {  # modules with a table of figures or rows; the formatter leaves it as it is
    "gpucomp/codegen/llvm/engines.py",
    "gpucomp/codegen/llvm/ir/math.py",
    "gpucomp/device/catalogue.py",
    "gpucomp/device/device.py",
    "gpucomp/rewrite/match.py",
}
PLAIN = {"None", "bool", "int", "float", "complex", "str", "bytes"}  # what may be a result beside text


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "gpucomp" else ("gpucomp", *parts)  # the two linked folders
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> int:
    parts = module.split(".")
    return next(RANK[name] for k in range(len(parts), 0, -1) if (name := ".".join(parts[:k])) in RANK)


@functools.lru_cache(maxsize=1)
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a file: walked once, though each rule looks at all of them."""
    return tuple(ast.walk(tree))


@functools.lru_cache(maxsize=1)
def imported(tree: ast.AST) -> tuple[tuple[str, int], ...]:
    """What a file imports, by statements and by ``import_module``, with the lines."""
    return tuple(_imported(tree))


def _imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if node.module == "gpucomp" or full in RANK else str(node.module)), node.lineno
    if any(getattr(node, "attr", getattr(node, "id", "")) == "import_module" for node in nodes_of(tree)):
        for node in nodes_of(tree):  # what it is called with may stand in a table
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
                yield node.value, node.lineno


def upward_imports(tree: ast.AST, module: str) -> Iterator[str]:
    for name, line in imported(tree):
        own = name.startswith(f"{module}.")  # a package's front may import what is in it
        if name.split(".")[0] == "gpucomp" and not own and layer(name) > layer(module):
            yield f"line {line}: {name} is above {module}"


def devices_by_name(tree: ast.AST, module: str) -> Iterator[str]:
    """What a dialect or a device can do is asked of its fields: the next one has another name."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute):
            asked, other = ".".join(ast.unparse(node.left).split(".")[-2:]), ast.unparse(node.comparators[0])
            if asked == "dialect.name" or (asked, other) == ("limits.warp", "1"):
                yield f"line {node.lineno}: {asked} is compared with {other}; a field says what it can do"


def environment_reads(tree: ast.AST, module: str) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "putenv"):
            yield f"line {node.lineno}: only gpucomp/config.py reads the environment"


def broad_handlers(tree: ast.AST, module: str) -> Iterator[str]:
    for node in nodes_of(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = {kind.id if isinstance(kind, ast.Name) else None if kind else "everything" for kind in kinds}
        reraises = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        if names & {"Exception", "everything"} or ("BaseException" in names and not reraises):
            yield f"line {node.lineno}: it catches more than it can answer"


def unsafe_code(tree: ast.AST, module: str) -> Iterator[str]:
    for name, line in imported(tree):
        if name.split(".")[0] in UNSAFE_MODULES:
            yield f"line {line}: import of {name}"
    for node in nodes_of(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in UNSAFE_CALLS:
            yield f"line {node.lineno}: call of {node.func.id}"
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            called = (node.func.value.id, node.func.attr)
            if called in UNSAFE_METHODS:
                yield f"line {node.lineno}: call of {'.'.join(called)}"
        for keyword in node.keywords:
            true = not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
            if keyword.arg in ("shell", "allow_pickle") and true:
                yield f"line {node.lineno}: {keyword.arg} that is not False"


def relative_or_star_imports(tree: ast.AST, module: str) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or node.names[0].name == "*"):
            yield f"line {node.lineno}: a relative import, or one of everything"


def template_strings(tree: ast.AST, module: str) -> Iterator[str]:
    """A template is a file: text from elsewhere never becomes one."""
    for name, line in imported(tree):
        if name.split(".")[0] == "jinja2" and module != "gpucomp.kernels_templates.render":
            yield f"line {line}: only gpucomp.kernels_templates.render renders"
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("from_string", "overlay"):
            yield f"line {node.lineno}: {node.attr} makes a template of a string"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Template":
            yield f"line {node.lineno}: a template of a string"


def searches_outside_the_tuner(tree: ast.AST, module: str) -> Iterator[str]:
    for name, line in imported(tree):
        if name.split(".")[0] == "optuna" and not module.startswith("gpucomp.tuning"):
            yield f"line {line}: optuna lives in tuning/ only"


# modules at the top of tests/ and testing/; `bench` and others are packages of the root as well as folders of tests
HELPERS = {path.relative_to(ROOT).parts[1].removesuffix(".py") for path in (*TESTS, *TESTING)}
HELPERS -= {path.name for path in ROOT.iterdir()} | {"torch"}


def bare_helpers(tree: ast.AST, module: str) -> Iterator[str]:
    """One file is one module: a second name would make a second copy of its classes and state."""
    for name, line in imported(tree):
        if name.split(".")[0] in HELPERS:
            yield f"line {line}: {name} has a second name here, tests.{name} or testing.{name}"


def path_changes(tree: ast.AST, module: str) -> Iterator[str]:
    """Modules are found from the root of the project, and nowhere else."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and node.attr == "path" and ast.unparse(node.value) == "sys":
            yield f"line {node.lineno}: sys.path"
    for name, line in imported(tree):
        if name == "site":
            yield f"line {line}: import of site"


def imports_of_tests(tree: ast.AST, module: str) -> Iterator[str]:
    """Tests import what they test, and nothing else imports tests. What others need of them is in testing/."""
    for name, line in imported(tree):
        if name.split(".")[0] == "tests" or (name.split(".")[0] == "bench" and not module.startswith("bench.")):
            yield f"line {line}: import of {name}"


def reasons_among_results(tree: ast.AST, module: str) -> Iterator[str]:
    """Why there is no result is a ``gpucomp.refusal.Refusal``, which says so itself, and no text in the result's place."""
    for node in nodes_of(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.returns is None:
            continue
        for part in ast.walk(node.returns):
            found = set(members(part)) if isinstance(part, ast.BinOp) else set()
            if "str" in found and not found <= PLAIN:
                yield f"line {node.lineno}: {node.name} gives {ast.unparse(part)}, a reason is a Refusal"
                break


def members(union: ast.expr) -> Iterator[str]:
    """The types of ``A | B | C``, as they are written."""
    if isinstance(union, ast.BinOp) and isinstance(union.op, ast.BitOr):
        yield from (*members(union.left), *members(union.right))
    else:
        yield ast.unparse(union)


def long_functions(tree: ast.AST, module: str) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, FUNCTIONS) and (length := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES:
            yield f"line {node.lineno}: {node.name} has {length} lines, {MOST_LINES} are allowed"


def deep_functions(tree: ast.AST, module: str) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, FUNCTIONS) and (depth := nesting(node)) > MOST_NESTED:
            yield f"line {node.lineno}: {node.name} nests {depth} blocks, {MOST_NESTED} are allowed"


def nesting(node: ast.AST) -> int:
    """How many blocks stand in each other; those of functions inside are their own, and ``elif`` is no deeper than ``if``."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.Lambda)):
            continue
        chained = isinstance(child, ast.If) and isinstance(node, ast.If) and node.orelse == [child]
        deepest = max(deepest, nesting(child) + (isinstance(child, BLOCKS) and not chained))
    return deepest


def missing_docstring(tree: ast.Module, module: str) -> Iterator[str]:
    if tree.body and not ast.get_docstring(tree):
        yield "no docstring that says what is here"


def options_in_errors(tree: ast.Module, module: str) -> Iterator[str]:
    """An error that Python code can get speaks of arguments; how the command line calls them is said by ``in_shell``."""
    for node in nodes_of(tree):
        if module.startswith("gpucomp.cli") or not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
            continue
        words = [str(n.value) for given in node.exc.args for n in ast.walk(given) if isinstance(n, ast.Constant)]
        if option := next((found for text in words if (found := OPTION.search(COMMAND.sub("", text)))), None):
            yield f"line {node.lineno}: the message names the option {option[0].strip()}"


RULES = {
    upward_imports: ("gpucomp.ir.types", "from gpucomp.ops.registry import op"),
    devices_by_name: ("gpucomp.codegen.c.row_statistics", "if printer.dialect.name == 'cuda':\n    pass"),
    environment_reads: ("gpucomp.cli", "import os\nos.environ.get('X')"),
    broad_handlers: ("gpucomp.cli", "try:\n    f()\nexcept (ValueError, Exception):\n    pass"),
    unsafe_code: ("gpucomp.cli", "import pickle"),
    relative_or_star_imports: ("gpucomp.cli", "from .show import table"),
    template_strings: ("gpucomp.kernels_templates.render", "environment.from_string(name)"),
    searches_outside_the_tuner: ("gpucomp.schedule.choose", "import optuna"),
    reasons_among_results: ("gpucomp.kernel.forms", "def matrix_of(kernel: Kernel) -> Matrix | str: ..."),
    long_functions: ("gpucomp.cli", "def f():\n" + "    g()\n" * 60),
    deep_functions: (
        "gpucomp.cli",
        "def f():\n if a:\n  for b in a:\n   while b:\n    with c:\n     if d:\n      g()",
    ),
    missing_docstring: ("gpucomp.cli", "x = 1"),
    options_in_errors: ("gpucomp.tuning.tuner", "raise UsageError(f'--resume: no records {path}')"),
}
RULES_OF_TESTS = {
    bare_helpers: ("tests.test_rest", "from tolerance import assert_matches"),
    path_changes: ("bench.gpu.devices", "sys.path.insert(0, str(TESTS))"),
    imports_of_tests: ("bench.gpu.devices", "def f():\n    from tests.tolerance import assert_matches"),
}
MORE_FAULTS = [
    (upward_imports, "gpucomp.runtime.executable", "from gpucomp.planning import make_plan"),
    (upward_imports, "gpucomp.schedule.choose", "from gpucomp import tuning"),
    (upward_imports, "gpucomp.rewrite.pipeline", "from gpucomp.targets import resolve"),
    (
        upward_imports,
        "gpucomp.runtime.artifact",
        "from importlib import import_module\nimport_module('gpucomp.compiler')",
    ),
    (upward_imports, "gpucomp.ir.graph", "T = {'a': 'gpucomp.runtime.cpu'}\nimportlib.import_module(T['a'])"),
    (devices_by_name, "gpucomp.schedule.choose", "wide = limits.warp > 1"),
    (environment_reads, "gpucomp.ir", "import os\nos.getenv('X')"),
    (broad_handlers, "gpucomp.cli", "try:\n    f()\nexcept:\n    pass"),
    (broad_handlers, "gpucomp.cli", "try:\n    f()\nexcept BaseException:\n    pass"),
    (unsafe_code, "gpucomp.cli", "eval(name)"),
    (unsafe_code, "gpucomp.cli", "subprocess.run(name, shell=True)"),
    (unsafe_code, "gpucomp.cli", "np.load(name, allow_pickle=asked)"),
    (unsafe_code, "gpucomp.cli", "os.system(name)"),
    (relative_or_star_imports, "gpucomp.cli", "from gpucomp.ops import *"),
    (template_strings, "gpucomp.kernels_templates.render", "Template(name)"),
    (template_strings, "gpucomp.cli.show", "from jinja2 import Environment"),
    (bare_helpers, "tests.test_rest", "import fake_driver.driver as driver"),
    (bare_helpers, "tests.test_rest", "def f():\n    from hostile import corpus"),
    (path_changes, "tests.test_rest", "import sys\nsys.path += [folder]"),
    (path_changes, "tests.test_rest", "import site\nsite.addsitedir(folder)"),
    (imports_of_tests, "testing.launches", "import tests.plans"),
    (imports_of_tests, "testing.launches", "from bench.models import build"),
    (reasons_among_results, "gpucomp.kernel.forms", "def load(value: Expr) -> str | tuple[Load, int] | None: ..."),
    (reasons_among_results, "gpucomp.kernel.forms", "class A:\n    async def found(self) -> core.Load | str: ..."),
    (reasons_among_results, "gpucomp.schedule.records", "def read() -> Iterator[tuple[int, Record | str]]: ..."),
]
FINE = [
    (long_functions, "gpucomp.cli", "def f():\n" + "    g()\n" * 59),
    (
        deep_functions,
        "gpucomp.cli",
        "def f():\n if a:\n  pass\n elif b:\n  for c in b:\n   with c:\n    if d:\n     pass\n    elif e:\n     g()",
    ),
    (upward_imports, "gpucomp.rewrite.pipeline", "from gpucomp.device.target import Target"),
    (upward_imports, "gpucomp.cli.commands", "from gpucomp import config"),
    (upward_imports, "gpucomp.ir.graph", "said = 'gpucomp.compiler'"),
    (upward_imports, "gpucomp.runtime.executable", "importlib.import_module('gpucomp.runtime.cpu')"),
    (devices_by_name, "gpucomp.schedule.choose", "wide = not limits.is_cpu and limits.warp == 64"),
    (environment_reads, "gpucomp.cli", "environment = 1"),
    (broad_handlers, "gpucomp.cli", "try:\n    f()\nexcept BaseException:\n    g()\n    raise"),
    (broad_handlers, "gpucomp.cli", "try:\n    f()\nexcept (OSError, ValueError):\n    pass"),
    (unsafe_code, "gpucomp.cli", "np.load(name, allow_pickle=False)\nsubprocess.run([name], shell=False)"),
    (template_strings, "gpucomp.kernels_templates.render", "import jinja2\nenvironment.get_template(family.template)"),
    (searches_outside_the_tuner, "gpucomp.tuning.search", "import optuna"),
    (reasons_among_results, "gpucomp.kernel.forms", "def matrix_of(kernel: Kernel | str) -> Matrix | Refusal: ..."),
    (
        reasons_among_results,
        "gpucomp.ops",
        "def text(x: Value) -> str | None: ...\ndef of(x: Value) -> str | bytes | int: ...",
    ),
    (
        reasons_among_results,
        "gpucomp.ops",
        "def pairs(found) -> dict[str, Kernel | None] | None:\n    kept: Kernel | str = ''",
    ),
    (missing_docstring, "gpucomp.runtime", ""),
    (options_in_errors, "gpucomp.cli.tune", "raise UsageError('--tls-ca is for --fleet')"),
    (
        options_in_errors,
        "gpucomp.tuning",
        "raise DeviceError(f'each machine runs `gpucomp worker --scheduler {address}`')",
    ),
    (options_in_errors, "gpucomp.tuning", "raise UsageError(f'{told} resume=True', in_shell=f'{told} --resume')"),
    (bare_helpers, "tests.test_rest", "from tests.tolerance import assert_matches\nfrom bench.models import build"),
    (path_changes, "tests.test_rest", "import sys\nimport os\nos.path.join(sys.prefix, 'x')"),
    (imports_of_tests, "bench.gpu.devices", "from bench.models import build\nfrom testing.launches import launched"),
]
RULES_OF_PROGRAMS = (environment_reads, broad_handlers, unsafe_code, reasons_among_results)
EXEMPT = {
    (environment_reads, "gpucomp.config"),
    (upward_imports, "gpucomp.serving.triton_model"),  # a program for Triton, which uses the package as others do
    (broad_handlers, "gpucomp.targets.patience"),  # what its thread catches, the one who waits raises
    (
        path_changes,
        "bench.amd_emulator",
    ),  # the emulator is in the tests of tinygrad's sources, which no package installs
}


def faults_of(paths: Iterable[Path], rules: Iterable[Rule], name: Callable[[Path], str]) -> Iterator[str]:
    """What each file has against the rules; a file is read once."""
    for path in paths:
        tree, module = ast.parse(path.read_text(encoding="utf-8")), name(path)
        for rule in rules:
            if (rule, module) not in EXEMPT:
                yield from (f"{path.relative_to(ROOT)}: {rule.__name__}: {fault}" for fault in rule(tree, module))


def test_the_code_keeps_the_rules():
    assert list(faults_of(SOURCES, (*RULES, imports_of_tests), module_name)) == []


def test_no_file_is_long():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}

    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MOST_OF_A_FILE} == {}


def test_the_formatter_leaves_out_nothing_but_tables():
    switches = {
        str(path.relative_to(ROOT)): re.findall(r"# fmt: (\w+)", path.read_text(encoding="utf-8")) for path in SOURCES
    }

    assert {name: found for name, found in switches.items() if found} == {name: ["off", "on"] for name in TABLES}


def constants(path: Path) -> dict[str, object]:
    """Names in capitals of a module that are numbers."""
    found: dict[str, object] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            numbers = {n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)}
            kinds = (ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop)
            if numbers and all(isinstance(n, kinds) for n in ast.walk(node.value)):
                found[node.targets[0].id] = eval(compile(ast.Expression(node.value), str(path), "eval"), {})
    return found


def test_a_constant_that_engines_share_has_one_definition():
    by_module = {module_name(path): constants(path) for path in SOURCES}
    shared = {name: value for module in SHARED for name, value in by_module[module].items()}
    again = [
        f"{module}.{name}"
        for module, found in by_module.items()
        for name, value in found.items()
        if module not in SHARED and shared.get(name) == value
    ]

    assert {"MAX_GROUPS", "STATIC_SHARED", "WARP", "SECTOR"} <= set(shared)
    assert again == []


def test_few_types_are_asserted():
    """What a form is, ``refusal.required`` says; a body's kind, ``kernel_of``. The rest is what mypy cannot follow."""
    found = [line for path in SOURCES for line in path.read_text(encoding="utf-8").splitlines() if ASSERTED in line]

    assert 0 < len(found) < 30


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_tests_and_programs_import_a_module_by_one_name():
    assert list(faults_of((*TESTS, *TESTING, *PROGRAMS), (bare_helpers, path_changes), dotted)) == []


def test_no_benchmark_imports_tests():
    shared = [path for path in PROGRAMS if path.is_relative_to(ROOT / "bench")] + TESTING

    assert list(faults_of(shared, (imports_of_tests,), dotted)) == []


def test_every_folder_of_the_tests_is_a_package():
    folders = {path.parent for path in (*TESTS, *TESTING)}

    assert [str(f.relative_to(ROOT)) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


def test_programs_around_the_package_keep_the_rules():
    assert list(faults_of(PROGRAMS, RULES_OF_PROGRAMS, lambda path: "bench")) == []


@pytest.mark.parametrize(
    ("rule", "module", "code"),
    [(rule, *example) for rule, example in (RULES | RULES_OF_TESTS).items()] + MORE_FAULTS,
    ids=lambda v: v.__name__ if callable(v) else None,
)
def test_a_rule_finds_its_fault(rule, module, code):
    assert list(rule(ast.parse(code), module))


@pytest.mark.parametrize(("rule", "module", "code"), FINE, ids=lambda v: v.__name__ if callable(v) else None)
def test_a_rule_leaves_good_code_alone(rule, module, code):
    assert list(rule(ast.parse(code), module)) == []


def sessions(tree: ast.AST) -> Iterator[str]:
    """A session of onnxruntime that judges has exact sums of bytes on every processor: ``compare.onnxruntime_session``."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("InferenceSession"):
            yield f"line {node.lineno}: a session that is not gpucomp.cli.compare's"


def test_only_sessions_that_are_measured_are_made_elsewhere():
    """Peers are timed, and their own errors told, as their users run them; one folds constants for torch, and runs nothing."""
    texts = {path: path.read_text(encoding="utf-8") for path in (*SOURCES, *PROGRAMS, *TESTING, *TESTS)}
    found = {
        str(path.relative_to(ROOT))
        for path, text in texts.items()
        if "InferenceSession" in text and path.parent.name != "ort" and list(sessions(ast.parse(text)))
    }

    assert found == {
        "gpucomp/cli/compare.py",
        "bench/decoding.py",
        "bench/serving.py",
        "bench/suite.py",
        "bench/cpu/accuracy.py",
        "bench/cpu/adapters.py",
        "bench/cpu/torch_models.py",
        "bench/gpu/models.py",
        "bench/ocr_trace.py",
    }


def test_every_module_has_a_layer():
    top = {module_name(path).split(".")[1] for path in SOURCES if module_name(path) != "gpucomp"}

    known = {name.split(".")[1] for name in RANK if "." in name}

    assert top <= known, f"put {sorted(top - known)} into LAYERS"


def test_templates_spell_no_assembly_and_no_macro_of_the_c_preprocessor():
    """``asm`` is the prelude's; constants in rendered text are numbers, so it reads as written by hand."""
    dialects = ROOT / "kernels_templates" / "dialect"
    faults = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEMPLATES
        if dialects not in path.parents
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if "asm(" in line.replace(" ", "") or "asmvolatile" in line.replace(" ", "")
    ]

    assert faults == []


def test_no_text_names_a_folder_of_somebodys_machine():
    suffixes = {".py", ".md", ".toml", ".j2", ".h", ".cpp"}
    folders = ("gpucomp", "tuning", "kernels_templates", "tests", "testing", "bench", "examples")
    files = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in suffixes]
    files += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    marks = ["/" + "work/", "/" + "home/", "/" + "root/", "/" + "Users/"]

    faults = [str(p.relative_to(ROOT)) for p in files if any(m in p.read_text(encoding="utf-8") for m in marks)]

    assert faults == []
