"""Hostile archives of ``torch.export``: what torch would run as it reads them is refused, or is not in the copy that it reads."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

import gpucomp
from gpucomp.frontend.foreign.archive import MODEL, SAMPLES, checked_copy

torch = pytest.importorskip("torch", reason="could not import 'torch'")

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about torch
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
EVIL = "__import__('os').mkdir('ran')"


class Net(torch.nn.Module):
    """Nested inputs and results, weights that share memory, constants, open sizes with formulas, and what has a trace."""

    def __init__(self):
        super().__init__()
        self.fold = torch.nn.ModuleDict({"a-b": torch.nn.Linear(4, 4)})
        self.again = self.fold["a-b"]
        self.register_buffer("empty", torch.zeros(0, 4))
        self.register_buffer("light", torch.ones(4, dtype=torch.float16), persistent=False)

    def forward(self, x, target, metadata=None, *, name, mode="a 'quoted' text"):
        y = self.again(self.fold["a-b"](x[0])) + torch.tensor([1.0, 2, 3, 4]) + self.light
        padded = torch.nn.functional.pad(y, (0, 0, 0, x[0].shape[0] // 2 + 1))
        halves = torch.nn.functional.interpolate(y[None, None], scale_factor=2.0)
        each = torch.einsum("ij,kj->ik", torch.cat([y, self.empty]), target["in_spec"])
        return {"padded": padded, "rest": (halves, [each * name, x[1]])}


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(5)
    rows = {0: torch.export.Dim("rows", min=3, max=50)}
    return torch.export.export(
        Net().eval(),
        ([torch.randn(6, 4), torch.randn(2)], {"in_spec": torch.randn(5, 4)}),
        {"name": torch.randn(())},
        dynamic_shapes={"x": [rows, None], "target": {"in_spec": None}, "name": None},
    )


@pytest.fixture(scope="module")
def members(program):
    """What torch writes, by name."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"notes.cpp": "a text"})
    with zipfile.ZipFile(buffer) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def write(members, tmp_path, monkeypatch):
    """Write an archive with other members; ``None`` leaves one out, a function changes the object of a JSON text."""
    monkeypatch.chdir(tmp_path)

    def written(changes=None, compression=zipfile.ZIP_STORED):
        path = tmp_path / "net.pt2"
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in {**members, **(changes or {})}.items():
                if callable(content):
                    content(value := json.loads(members[name]))
                    content = json.dumps(value).encode()
                if content is not None:
                    archive.writestr(f"net/{name}", content)
        return path

    return written


def copied(path):
    checked_copy(path, path.with_name("copy.pt2"))
    with zipfile.ZipFile(path.with_name("copy.pt2")) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def refused(path):
    with pytest.raises(gpucomp.ModelError) as caught:
        checked_copy(path, path.with_name("copy.pt2"))
    assert caught.value.code == "GPC3091"
    return caught.value.message


def test_what_torch_writes_is_read_as_it_was(program, write):
    rows = [torch.randn(9, 4), torch.randn(2)], {"in_spec": torch.randn(5, 4)}
    path = write()
    members = copied(path)

    again = torch.export.load(path.with_name("copy.pt2"))

    found = torch.utils._pytree.tree_leaves(again.module()(*rows, name=torch.tensor(2.0)))
    expected = torch.utils._pytree.tree_leaves(program.module()(*rows, name=torch.tensor(2.0)))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert str(again.range_constraints) == str(program.range_constraints)
    assert "test_archive.py" in str([node.meta.get("stack_trace") for node in again.graph.nodes])
    assert members[SAMPLES] == b""
    assert "extra/notes.cpp" not in members


def test_guards_are_not_copied(write):
    path = write({MODEL: lambda model: model.update(guards_code=[EVIL])})
    copied(path)

    torch.export.load(path.with_name("copy.pt2")).module()

    assert not path.with_name("ran").exists()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("data/aotinductor/model/x.so", "machine code"),
        ("data/aotinductor/model/notes.txt", "machine code"),
        ("data/weights/x.CUBIN", "machine code"),
        ("data/constants/opaque_obj_0", "a pickle"),
        ("data/constants/custom_obj_0", "a pickle"),
        ("data/constants/model.pt", "not known"),
        ("data/weights/model.pt", "not known"),
        ("data/weights/weight_0/..", "not known"),
        ("models/other.json", "not known"),
        ("models/model.txt", "not known"),
        ("models/MODEL.JSON", "not known"),
        ("MODELS/model.json", "not known"),
        ("../models/model.json", "not known"),
        ("version", "not known"),
        ("data/weights/", "not known"),
    ],
)
def test_members_that_are_not_known_are_refused(write, name, told):
    assert told in refused(write({name: b"{}"}))


def test_an_archive_with_a_name_twice_is_refused(write):
    path = write()
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"net/{MODEL}", "{}")

    assert "twice" in refused(path)


def test_archives_with_more_than_one_folder_are_refused(write):
    path = write()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"other/{MODEL}", "{}")

    assert "more than one folder" in refused(path)


def test_a_bomb_is_refused(write):
    bomb = write({"data/weights/weight_9": b"\0" * (1 << 24)}, zipfile.ZIP_DEFLATED)
    assert "more bytes than the file" in refused(bomb)
    bomb.write_bytes(bytes(1 << 25) + bomb.read_bytes())
    assert "compressed" in refused(bomb)


@pytest.mark.parametrize("name", [MODEL, WEIGHTS, CONSTANTS, "archive_format"])
def test_an_archive_without_a_part_is_refused(write, name):
    assert name in refused(write({name: None}))


def test_only_what_was_checked_is_read_of_two_archives_in_one_file(write):
    evil = write({MODEL: lambda model: model.update(guards_code=[EVIL])}).read_bytes()
    path = write()
    members = copied(path)
    path.write_bytes(evil + path.read_bytes())

    again = copied(path)

    assert {name: again[name] for name in members if name[0] != "."} == {
        name: content for name, content in members.items() if name[0] != "."
    }
    assert EVIL.encode() not in path.with_name("copy.pt2").read_bytes()


def first(graph):
    return next(node for node in graph["nodes"] if "linear" in node["target"])


OPERATORS = [
    "torch.hub.load",
    "torch.ops.load_library",
    "torch.ops.aten.add.__class__",
    "torch.ops.aten.from_file.default",
    "torch.ops.aten.save.default",
    "torch.ops.aten.no_such_operator.default",
    "torch.ops.aten.relu.no_such_overload",
    "torch.ops.aten.__class__.default",
    "torch.ops.no_such_namespace.relu.default",
    "torch.ops.load_library.__self__.load_library",
    "torch.ops.import_module.__self__.import_module",
    "torch.ops.load_library.__globals__.pop",
    "torch.ops.higher_order.triton_kernel_wrapper_mutation",
    "_operator.methodcaller",
    "_operator.attrgetter",
    "math.__loader__.load_module",
    "os.system",
    "#extension:op",
    ["torch.ops.aten.add.Tensor"],
    {"as_string": "x"},
]


@pytest.mark.parametrize("target", OPERATORS)
def test_what_is_no_operator_is_refused(write, target):
    def change(model):
        first(model["graph_module"]["graph"])["target"] = target

    assert "in the place of an operator" in refused(write({MODEL: change}))


def test_an_operator_as_an_argument_is_checked_too(write):
    def change(model):
        first(model["graph_module"]["graph"])["inputs"][0]["arg"] = {"as_operator": "torch.hub.load"}

    assert "'torch.hub.load' in the place of an operator" in refused(write({MODEL: change}))


NAMES = [f"x={EVIL}", "x): pass #", "a.b", "x\ny", 'x"', "x y"]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_would_be_source_text_are_refused(write, name):
    def of_an_input(model):
        model["graph_module"]["graph"]["inputs"][0]["as_tensor"]["name"] = name

    def of_an_operator(model):
        first(model["graph_module"]["graph"])["name"] = name

    def of_an_argument(model):
        model["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"][0] = name

    for change in (of_an_input, of_an_operator, of_an_argument):
        assert "in the place of " in refused(write({MODEL: change}))


@pytest.mark.parametrize("name", [f'x"), {EVIL}, ("', "x\\", "x\n", "__class__.x", "x.__init__"])
def test_names_of_weights_that_would_be_source_text_are_refused(write, name):
    def in_the_model(model):
        inputs = model["graph_module"]["signature"]["input_specs"]
        next(one for one in inputs if "parameter" in one)["parameter"]["parameter_name"] = name

    def in_the_list(weights):
        weights["config"][name] = weights["config"].popitem()[1]

    assert "in the place of " in refused(write({MODEL: in_the_model}))
    assert "in the place of " in refused(write({WEIGHTS: in_the_list}))


def leaf(**fields):
    return {"type": None, "context": None, "children_spec": [], **fields}


@pytest.mark.parametrize(
    "tree",
    [
        leaf(type="builtins.dict", context='[{"__enum__": true, "fqn": "evil:Evil", "name": "x"}]'),
        leaf(type="collections.defaultdict", context={"default_factory_module": "evil", "default_factory_name": "x"}),
        leaf(type="collections.namedtuple", context="evil"),
        leaf(type="evil.Evil", context="null"),
        leaf(type=["builtins.dict"], context="null"),
        leaf(type="builtins.tuple", context=None),
        leaf(children_spec=[leaf()]),
        {},
        [],
    ],
)
def test_types_of_inputs_and_results_that_are_not_known_are_refused(write, tree):
    for place in ("in_spec", "out_spec"):

        def change(model, place=place):
            whole = leaf(type="builtins.tuple", context="null", children_spec=[tree])
            model["graph_module"]["module_call_graph"][0]["signature"][place] = json.dumps([1, whole])

        assert "inputs or results" in refused(write({MODEL: change}))


def test_names_of_arguments_in_the_structure_of_inputs_are_checked(write):
    def change(model):
        signature = model["graph_module"]["module_call_graph"][0]["signature"]
        signature["in_spec"] = signature["in_spec"].replace('\\"name\\"', f'\\"x={EVIL}\\"')

    assert "in the place of 'name'" in refused(write({MODEL: change}))


FORMULAS = [
    EVIL,
    f"Symbol({EVIL})",
    "Symbol('s0').__class__",
    "Lambda('x0', 'x0')",
    "S('x0')",
    "sympify('x0')",
    "Symbol('__import__')",
    "Integer(9)**Integer(9)",
    "True if x else y",
    "[Integer(1)]",
    "Float('1.0', precision=print)",
    "Pow(Integer(9), Integer(900000000))",
    "Pow(Pow(Pow(Integer(9), Integer(99)), Integer(99)), Integer(99))",
    "PowByNatural(Integer(9), Mul(Integer(99), Integer(99), Integer(99)))",
    "Float('1.5', precision=999999999)",
    "Float('1e999999999')",
    f"Integer({'9' * 5000})",
    "Add(Integer(1)",
]


def size_of(model):
    values = model["graph_module"]["graph"]["sym_int_values"].values()
    return next(value["as_expr"] for value in values if "as_expr" in value)


@pytest.mark.parametrize("formula", FORMULAS)
def test_what_is_no_formula_is_refused(write, formula):
    assert "in the place of a size" in refused(write({MODEL: lambda model: size_of(model).update(expr_str=formula)}))


def test_formulas_that_torch_writes_are_taken(write):
    sympy = pytest.importorskip("sympy")
    s, t = sympy.Symbol("s77", positive=True, integer=True), sympy.Symbol("u0", integer=True)
    functions = torch.utils._sympy.functions
    formulas = [
        sympy.Float(2.0),
        sympy.Float(1e-30) * s,
        sympy.Float(-2.5) * s,
        sympy.true,
        sympy.false,
        sympy.Rational(-1, 3) * s,
        sympy.Eq(s, 4) & (t < 3) | ~(s >= t),
        functions.FloorDiv(s, 2) + functions.Mod(s, 3) - 4,
        functions.Max(s, t) * functions.Min(s, 7),
        functions.ToFloat(s) * 1.5,
        functions.PowByNatural(s, 2),
        functions.OpaqueUnaryFn_sqrt(functions.ToFloat(s)),
        sympy.Piecewise((s, s > t), (t, True)),
        s**2 * t**3 / 4,
        sympy.Integer(2**63 - 1) - s,
    ]
    for formula in formulas:
        text = sympy.srepr(formula)
        model = json.loads(copied(write({MODEL: lambda model, text=text: size_of(model).update(expr_str=text)}))[MODEL])
        assert size_of(model)["expr_str"] == text


@pytest.mark.parametrize("path_name", ["opaque_obj_0", "custom_obj_0", "weight_0/../../x", "weight_", "", None, 3])
@pytest.mark.parametrize("config", [WEIGHTS, CONSTANTS])
def test_other_files_in_the_place_of_a_tensor_are_refused(write, config, path_name):
    def change(value):
        next(iter(value["config"].values()))["path_name"] = path_name

    assert "in the place of " in refused(write({config: change}))


@pytest.mark.parametrize("flag", [True, 1, "no", None])
def test_a_flag_of_a_pickle_is_refused(write, flag):
    def change(value):
        next(iter(value["config"].values()))["use_pickle"] = flag

    refused(write({CONSTANTS: change}))


def test_weights_without_values_are_refused(write):
    assert "has no values for 'weight_0'" in refused(write({"data/weights/weight_0": b""}))
    assert "has no values for 'weight_0'" in refused(write({"data/weights/weight_0": None}))


def test_weights_in_another_order_of_bytes_are_refused(write):
    assert "another order of bytes" in refused(write({"byteorder": b"big"}))


def test_what_only_describes_operators_is_left_out(write):
    def change(model):
        first(model["graph_module"]["graph"])["metadata"] |= {
            "source_fn_stack": "x,torch.hub.load",
            "stack_trace": 'File "net.py", line 7, in f\n    x\n    import os\n',
        }
        model["graph_module"]["metadata"] = {"custom": "{}"}

    model = json.loads(copied(write({MODEL: change}))[MODEL])["graph_module"]

    assert first(model["graph"])["metadata"] == {"stack_trace": 'File "net.py", line 7'}
    assert model["metadata"] == {}


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"[]", b"{", b'{"x": "y"}', b'{"graph_module": "y"}'])
def test_what_is_no_json_of_a_program_is_refused(write, content):
    refused(write({MODEL: content}))
