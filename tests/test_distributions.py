"""Two wheels from one tree: ``gpucomp-runtime`` runs compiled models, ``gpucomp`` adds the compiler. No file is in both."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import gpucomp
from gpucomp.extras import COMMAND_LINE, COMPILER, EXTRAS, RUNTIME
from tests.onnx_builders import model, node, value

pytest.importorskip("hatchling", reason="python -m pip install hatchling")
from packaging.requirements import Requirement  # hatchling needs it

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
FOLDERS = {"gpucomp": ROOT, "gpucomp_runtime": ROOT / "runtime"}
PROJECTS = {name: tomllib.loads((folder / "pyproject.toml").read_text()) for name, folder in FOLDERS.items()}
VERSION = gpucomp.__version__
MOST_BYTES = 1_000_000  # of the runtime's wheel
NOT_RUNTIME = sorted({*COMPILER, *COMMAND_LINE})
OPTIONAL = {"httptools", "triton_python_backend_utils"}  # a faster parser for the server, and what only Triton has
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


def others():
    """Interpreters of other versions of Python here, one each. They have their own builds of numpy."""
    for minor in range(11, 15):
        found = sorted(PYENV.glob(f"3.{minor}.*/bin/python3.{minor}"))
        path = str(found[-1]) if found else shutil.which(f"python3.{minor}")
        if path is not None and minor != sys.version_info.minor:
            yield path


PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
VARIABLES = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "GPUCOMP"))}


def built(folder, into, *kinds, umask=0o022):
    """Build a project's sdist and wheel, as `make dist` does."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", into, *kinds]
    variables = VARIABLES | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=folder, env=variables, umask=umask, check=True, capture_output=True)


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    into = tmp_path_factory.mktemp("dist")
    for folder in FOLDERS.values():
        built(folder, into)
    return into


def wheel(dist, name):
    return dist / f"{name}-{VERSION}-py3-none-any.whl"


def files_of(dist, name):
    """The files of a wheel apart from its metadata."""
    with zipfile.ZipFile(wheel(dist, name)) as archive:
        return {file for file in archive.namelist() if ".dist-info/" not in file}


def metadata_of(path, file="METADATA"):
    with zipfile.ZipFile(path) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(f".dist-info/{file}"))).decode()


def requirements_of(path):
    found = map(Requirement, Parser().parsestr(metadata_of(path)).get_all("Requires-Dist"))
    return {one for one in found if one.marker is None}


def test_both_projects_say_the_same():
    both, runtime = (PROJECTS[name]["project"] for name in FOLDERS)
    wheels = [PROJECTS[name]["tool"]["hatch"]["build"]["targets"]["wheel"] for name in FOLDERS]
    sources = PROJECTS["gpucomp_runtime"]["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    extras = {name: runtime["optional-dependencies"][name] for name in runtime["optional-dependencies"]}

    for key in ("version", "license", "license-files", "requires-python", "scripts"):
        assert runtime[key] == both[key]
    assert wheels[0]["exclude"] == wheels[1]["include"]
    assert sources[-len(wheels[1]["include"]) :] == wheels[1]["include"]
    assert runtime["dependencies"] == list(RUNTIME.values())
    assert extras.pop("cli") == list(COMMAND_LINE.values())
    assert extras == {name: list(EXTRAS[name].packages) for name in extras}
    assert (ROOT / "runtime" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_every_file_of_the_package_is_in_one_wheel(dist):
    here = {
        str(path.relative_to(ROOT)) if folder == "gpucomp" else f"gpucomp/{path.relative_to(ROOT)}"
        for folder in ("gpucomp", "tuning", "kernels_templates")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    compiler, runtime = (files_of(dist, name) for name in FOLDERS)

    assert compiler & runtime == set()
    assert compiler | runtime == here
    assert "gpucomp/__init__.py" in runtime  # of a package that is in both, this is in one


def test_the_wheel_of_the_runtime_is_small(dist):
    assert wheel(dist, "gpucomp_runtime").stat().st_size < MOST_BYTES


def test_the_compiler_needs_the_runtime_of_its_own_version(dist):
    compiler, runtime = (wheel(dist, name) for name in FOLDERS)
    own = {Requirement(text) for text in (*RUNTIME.values(), *COMMAND_LINE.values(), *COMPILER.values())}

    assert requirements_of(compiler) == own | {Requirement(f"gpucomp-runtime=={VERSION}")}
    assert requirements_of(runtime) == {Requirement(text) for text in RUNTIME.values()}
    assert "gpucomp = gpucomp.cli:main" in metadata_of(runtime, "entry_points.txt")
    assert "console_scripts" not in metadata_of(compiler, "entry_points.txt")


def test_an_editable_install_is_the_whole_tree(tmp_path):
    built(ROOT, tmp_path, "--target", "wheel:editable")
    (path,) = tmp_path.iterdir()

    assert "gpucomp-runtime" not in {one.name for one in requirements_of(path)}
    assert "gpucomp = gpucomp.cli:main" in metadata_of(path, "entry_points.txt")


@pytest.mark.parametrize("name", FOLDERS)
def test_the_sources_build_the_same_bytes_again(dist, name, tmp_path):
    with tarfile.open(dist / f"{name}-{VERSION}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    built(tmp_path / f"{name}-{VERSION}", tmp_path / "again", umask=0o077)

    for path in (tmp_path / "again").iterdir():
        assert path.read_bytes() == (dist / path.name).read_bytes()
    assert len(list((tmp_path / "again").iterdir())) == 2


def environment(folder, wheels, packages):
    """A virtual environment with wheels and with links to packages of this one, which need no network. Gives its Python."""
    venv.create(folder, symlinks=True)
    python, (site,) = folder / "bin" / "python", folder.glob("lib/python*/site-packages")
    wanted, linked = list(packages), set()
    while wanted:
        if (name := wanted.pop().lower().replace("_", "-")) in linked:
            continue
        linked.add(name)
        one = metadata.distribution(name)
        for top in {file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(one.locate_file(top))
        needed = map(Requirement, one.requires or ())
        wanted += [other.name for other in needed if other.marker is None or other.marker.evaluate({"extra": ""})]
    subprocess.run([*PIP, "--python", python, "install", "--no-index", "--no-compile", *wheels], check=True)
    subprocess.run([*PIP, "--python", python, "check"], check=True)
    return python


@pytest.fixture(scope="module")
def bare(dist, tmp_path_factory):
    """A Python with the runtime, numpy and ml_dtypes."""
    return environment(tmp_path_factory.mktemp("bare"), [wheel(dist, "gpucomp_runtime")], RUNTIME)


@pytest.fixture(scope="module")
def command(dist, tmp_path_factory):
    """The command of an environment that has what the command line and the server need too."""
    folder = tmp_path_factory.mktemp("command")
    server = [Requirement(text).name for text in EXTRAS["serve"].packages]
    return environment(folder, [wheel(dist, "gpucomp_runtime")], [*RUNTIME, *COMMAND_LINE, *server]).with_name(
        "gpucomp"
    )


def ran(words, folder):
    """The exit code and what was printed, outside the tree."""
    done = subprocess.run(words, cwd=folder, env=VARIABLES, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


IMPORT_ALL = f"""
import importlib, sys
names = [f[:-3].replace("/", ".").removesuffix(".__init__") for f in sys.argv[1].split() if f.endswith(".py")]
missing = set()
for name in names:
    try:
        name == "gpucomp.__main__" or importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing.add(error.name)
print(*missing, "|", len(names), "|", *(name for name in {NOT_RUNTIME} if name in sys.modules))
"""


@pytest.mark.parametrize("extras", [False, True], ids=["bare", "with what the command and the server need"])
def test_the_runtime_imports_nothing_that_it_has_not(bare, command, dist, extras, tmp_path):
    python = command.with_name("python") if extras else bare
    code, out, err = ran([python, "-c", IMPORT_ALL, " ".join(files_of(dist, "gpucomp_runtime"))], tmp_path)

    missing, count, imported = (set(part.split()) for part in out.split("|"))
    assert (code, err) == (0, "")
    assert all(int(number) > 150 for number in count)
    assert imported <= ({*COMMAND_LINE} if extras else set())
    if extras:
        assert missing <= OPTIONAL
    else:
        assert not [name for name in missing if name.startswith("gpucomp")]


IMAGE = ("n", 3, "h", 9)
RNG = np.random.default_rng(28)


def network():
    """A convolution, a sum of two values, and a mean of the picture: several kinds of kernels."""
    nodes = [
        node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "l"], ["d"], pads=[1, 1, 1, 1]),
        node("Add", ["r", "d"], ["s"]),
        node("GlobalAveragePool", ["s"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Softmax", ["f"], ["y"], axis=1),
    ]
    weights = {name: RNG.standard_normal((8, size, 3, 3)).astype(np.float32) for name, size in (("k", 3), ("l", 8))}
    return model(nodes, [value("x", IMAGE)], [value("y", ("n", 8))], weights)


def accumulated():
    nodes = [node("Add", ["x", "old"], ["new"]), node("Tanh", ["new"], ["y"])]
    return model(nodes, [value("x", (2, 5)), value("old", (2, 5))], [value("y", (2, 5)), value("new", (2, 5))])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Compiled models of each kind by their names, and inputs of two runs each."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "m.onnx").write_bytes(network().SerializeToString())
    exact, image = network(), {"x": (2, 3, 7, 9)}
    gpucomp.compile(exact, target="cpu", shapes=image).save(folder / "static.gpuc")
    gpucomp.compile(exact, target="cpu", shapes={"x": IMAGE}).save(folder / "dynamic.gpuc")
    gpucomp.compile(accumulated(), target="cpu", states={"old": "new"}).save(folder / "state.gpuc")
    for name, shapes in (
        ("static", [(2, 3, 7, 9)] * 2),
        ("dynamic", [(1, 3, 5, 9), (4, 3, 8, 9)]),
        ("state", [(2, 5)] * 2),
    ):
        for run, shape in enumerate(shapes):
            np.save(folder / f"{name}{run}.npy", RNG.standard_normal(shape).astype(np.float32))
    return folder


RUN = f"""
import sys
import gpucomp, numpy as np
name, out = sys.argv[1:]
exe = gpucomp.load(f"{{name}}.gpuc")
with exe.context() as context:
    found = [context.run({{"x": np.load(f"{{name}}{{run}}.npy")}})["y"] for run in range(2)]
np.savez(out, *found)
print(*(name for name in {NOT_RUNTIME} if name in sys.modules))
"""


def results(python, folder, name, out):
    """What two runs of a compiled model give."""
    assert ran([python, "-c", RUN, name, out], folder) == (0, "\n", "")
    with np.load(out) as found:
        return [found[key] for key in found]


@pytest.mark.parametrize("name", ["static", "dynamic", "state"])
def test_the_runtime_gives_the_bits_of_the_whole_installation(bare, models, name, tmp_path):
    exe = gpucomp.load(models / f"{name}.gpuc")
    with exe.context() as context:
        expected = [context.run({"x": np.load(models / f"{name}{run}.npy")})["y"] for run in range(2)]

    found = results(bare, models, name, tmp_path / "out.npz")

    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)
    assert not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("python", list(others()), ids=lambda path: Path(path).name)
def test_another_python_gives_the_same_bits(dist, models, bare, python, tmp_path):
    """With its own numpy and ml_dtypes, from the index."""
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "other"], check=True, env=VARIABLES)
    other = tmp_path / "other" / "bin" / "python"
    subprocess.run([*PIP, "--python", other, "install", "--no-compile", wheel(dist, "gpucomp_runtime")], check=True)

    for name in ("static", "dynamic", "state"):
        found = results(other, models, name, tmp_path / "other.npz")
        expected = results(bare, models, name, tmp_path / "bare.npz")
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs, strict=True)


MISSING = "the compiler is not installed, only gpucomp-runtime, which runs compiled models (.gpuc)"


@pytest.mark.parametrize(
    "call", ["compile('m.onnx')", "tune('m.onnx')", "plugin('p')", "load('static.gpuc', trusted=False)"]
)
def test_a_call_says_that_the_compiler_is_missing(bare, models, call):
    script = f"import gpucomp\ntry:\n    gpucomp.{call}\nexcept gpucomp.DeviceError as error: print(error.code, error.message)"

    code, out, err = ran([bare, "-c", script], models)

    assert (code, err) == (0, "")
    assert out.startswith(f"GPC5003 {MISSING}")
    assert "install the package gpucomp" in out
    assert "make dist" in out


def test_the_command_says_what_it_needs(bare, models):
    code, out, err = ran([bare.with_name("gpucomp"), "run", "static.gpuc"], models)

    assert (code, out) == (5, "")
    assert err.startswith("error GPC5003: click is not installed, and the command line needs it: pip install 'click>=")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["static", "dynamic"])
@pytest.mark.parametrize(
    "words",
    [
        ["run", "NAME.gpuc", "--input", "x=NAME0.npy"],
        ["bench", "NAME.gpuc", "--input", "x=NAME0.npy", "--profile", "--duration=0", "--warmup=0", "--iterations=2"],
        ["inspect", "NAME.gpuc", "--kernels"],
        ["doctor"],
    ],
    ids=lambda words: words[0],
)
def test_the_command_takes_compiled_models(command, models, name, words):
    code, out, err = ran([command, *(word.replace("NAME", name) for word in words)], models)

    assert (code, err) == (0, "")
    assert len(out.splitlines()) > 0


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "m.onnx", "-o", "n.gpuc"],
        ["run", "m.onnx"],
        ["check", "m.onnx"],
        ["compare", "m.onnx"],
        ["compare", "m.onnx", "--bisect"],
        ["inspect", "m.onnx"],
        ["bench", "--kernel", "gemm:m=4,n=4,k=4"],
        ["tune", "m.onnx"],
        ["--plugin", "p", "doctor"],
    ],
    ids=" ".join,
)
def test_a_command_says_that_the_compiler_is_missing(command, models, words):
    code, out, err = ran([command, *words], models)

    assert (code, out) == (5, "")
    assert err.startswith(f"error GPC5003: {MISSING}")
    assert len(err.splitlines()) == 1


def test_both_wheels_together_compile_and_run(dist, models, tmp_path):
    wheels = [wheel(dist, name) for name in FOLDERS]
    python = environment(tmp_path / "both", wheels, [*RUNTIME, *COMMAND_LINE, *COMPILER])
    command = python.with_name("gpucomp")
    script = "from gpucomp import compiler, loading; print(compiler.__file__, loading.__file__)"

    code, out, err = ran([command, "compile", models / "m.onnx", "--shapes", "x:2x3x7x9", "-o", "n.gpuc"], tmp_path)
    assert (code, err) == (0, "")
    assert "written   n.gpuc" in out
    assert ran([command, "run", "n.gpuc", "--input", f"x={models / 'static0.npy'}"], tmp_path)[::2] == (0, "")
    places = ran([python, "-c", script], tmp_path)[1].split()
    assert {Path(place).parent for place in places} == set(
        (tmp_path / "both").glob("lib/python*/site-packages/gpucomp")
    )
