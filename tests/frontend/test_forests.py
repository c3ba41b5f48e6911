"""TreeEnsembleRegressor and TreeEnsembleClassifier against ONNX's own evaluator and onnxruntime, and invalid ensembles."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from gpucomp import compile
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.errors import ModelError, ShapeError, UnsupportedError
from gpucomp.frontend.onnx import functions, load
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

ML = "ai.onnx.ml"
BRANCHES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
X = np.random.default_rng(5).integers(-2, 3, (17, 3)).astype(np.float32)
LABELS = {"classlabels_int64s": [7, -2, 5]}
NEEDED = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
WEIGHING = ("treeids", "nodeids", "ids", "weights")


def forest(seed, role, count, *, trees=3, single=False):
    """Random, unbalanced trees. Leaves have weights for any of ``count`` targets. Nodes are in onnxruntime's order."""
    rng = np.random.default_rng(seed)
    rows, weights = [], []

    def grow(tree, depth):
        number = sum(row[0] == tree for row in rows)
        if depth == 3 or (depth and rng.random() < 0.3):
            rows.append((tree, number, "LEAF", 0, 0.0, 0, 0, 0))
            for target in range(count):
                if target == 0 or (not single and (role == "class" or rng.random() < 0.5)):
                    weights.append((tree, number, target, round(float(rng.uniform(-2, 2)), 3)))
            return number
        at = len(rows)
        rows.append((tree, number))
        no, yes = (grow(tree, depth + 1) for _ in range(2))
        rows[at] += (
            BRANCHES[rng.integers(6)],
            int(rng.integers(3)),
            float(rng.integers(-2, 3)),
            yes,
            no,
            int(rng.integers(2)),
        )
        return number

    for tree in range(trees):
        grow(tree, 0)
    names = (
        "treeids",
        "nodeids",
        "modes",
        "featureids",
        "values",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    )
    attributes = {f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    kinds = (f"{role}_treeids", f"{role}_nodeids", f"{role}_ids", f"{role}_weights")
    attributes |= {"n_targets": count} if role == "target" else {}
    return attributes | {name: list(column) for name, column in zip(kinds, zip(*weights, strict=True), strict=True)}


def of(operator, attributes, x=X):
    outputs = ["label", "scores"] if operator.endswith("Classifier") else ["y"]
    proto = model(
        [node(operator, ["x"], outputs, domain=ML, **attributes)],
        [value("x", x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))],
        outputs,
    )
    proto.opset_import.append(helper.make_opsetid(ML, 3))
    return proto


def by_onnxruntime(proto, x=X):
    proto.ir_version = 10
    session = onnxruntime_session(proto.SerializeToString())
    return session.run(None, {"x": x})


def large(role, count, *, mixed=False):
    """Eleven thousand nodes, made by numpy: tree 9 before 4, a tree of one leaf, node numbers with gaps and unordered."""
    rng = np.random.default_rng(7)
    parts, weights = [], []
    for tree, leaves in ((9, 997), (4, 1999), (23, 1), (6, 2503)):
        nodes = 2 * leaves - 1
        at = np.arange(nodes)
        inner = at < leaves - 1
        number = rng.choice(10_007, nodes, replace=False) + 3  # onnxruntime refuses larger ones than the node count
        yes, no = (number[np.where(inner, 2 * at + k, at)] * inner for k in (1, 2))
        mode = np.where(inner, np.array(BRANCHES)[rng.integers(6, size=nodes)], "LEAF")
        drawn = rng.integers(3, size=nodes), mode, rng.integers(-2, 3, nodes).astype(np.float32)
        columns = (np.full(nodes, tree), number, *drawn, yes, no, rng.integers(2, size=nodes))
        order = np.concatenate([[0], 1 + rng.permutation(nodes - 1)])
        parts.append([column[order] for column in columns])
        weights.append(
            [
                np.full(leaves * count, tree),
                np.repeat(number[~inner], count),
                np.tile(np.arange(count), leaves),
                rng.uniform(-2, 2, leaves * count).astype(np.float32),
            ]
        )
    rows, given = ([np.concatenate(column) for column in zip(*table, strict=True)] for table in (parts, weights))
    if mixed:  # the nodes of all trees mixed, after the roots
        order = rng.permutation(len(rows[0]))
        firsts = np.cumsum([0, *(len(part[0]) for part in parts[:-1])])
        rows = [column[np.concatenate([firsts, order[~np.isin(order, firsts)]])] for column in rows]
    names = (
        "treeids",
        "nodeids",
        "featureids",
        "modes",
        "values",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    )
    kinds = ("treeids", "nodeids", "ids", "weights")
    attributes = {f"nodes_{name}": column.tolist() for name, column in zip(names, rows, strict=True)}
    attributes |= {f"{role}_{name}": column.tolist() for name, column in zip(kinds, given, strict=True)}
    return attributes | ({"n_targets": count} if role == "target" else {})


@pytest.mark.parametrize("aggregate", ["SUM", "MAX"])
def test_ten_thousand_nodes_in_no_order_are_those_of_onnxruntime(aggregate):
    proto = of("TreeEnsembleRegressor", large("target", 2) | {"aggregate_function": aggregate})

    (actual,) = InterpreterBackend.prepare(proto).run([X])

    expected = by_onnxruntime(proto)[0]
    assert len(np.unique(expected)) > 5
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_ten_thousand_nodes_of_a_classifier_and_of_trees_between_one_another():
    proto = of("TreeEnsembleClassifier", large("class", 3) | LABELS)
    between = of("TreeEnsembleClassifier", large("class", 3, mixed=True) | LABELS)

    label, scores = InterpreterBackend.prepare(proto).run([X])

    expected = by_onnxruntime(proto)
    assert label.tolist() == expected[0].tolist()
    assert len(set(label.tolist())) > 1
    np.testing.assert_allclose(scores, expected[1], rtol=1e-5)
    np.testing.assert_array_equal(scores, InterpreterBackend.prepare(between).run([X])[1])


def test_what_a_leaf_gives_a_target_twice_is_summed():
    attributes = large("target", 2)
    twice = attributes | {name: 2 * entries for name, entries in attributes.items() if name.startswith("target_")}

    (once,), (summed,) = (
        InterpreterBackend.prepare(of("TreeEnsembleRegressor", given)).run([X]) for given in (attributes, twice)
    )

    np.testing.assert_array_equal(summed, 2 * once)


@pytest.mark.parametrize(
    ("name", "at", "like", "message"),
    [
        ("nodes_nodeids", 5000, 4999, "a node of a tree occurs twice"),
        ("nodes_truenodeids", 0, None, "a branch leads to a node that does not exist"),
        ("nodes_falsenodeids", 0, None, "a branch leads to a node that does not exist"),
        ("target_nodeids", 1234, None, "weights of a leaf or target that does not exist"),
        ("target_treeids", 1234, None, "weights of a leaf or target that does not exist"),
    ],
)
def test_one_wrong_entry_of_ten_thousand_is_found(name, at, like, message):
    attributes = large("target", 1)
    attributes[name][at] = 1 << 40 if like is None else attributes[name][like]

    with pytest.raises(ShapeError, match=message):
        load(of("TreeEnsembleRegressor", attributes))


@pytest.mark.parametrize(
    "name", ["nodes_nodeids", "nodes_missing_value_tracks_true", "target_treeids", "target_weights"]
)
def test_one_entry_too_few_is_found(name):
    attributes = large("target", 1)
    del attributes[name][-1]

    with pytest.raises(
        ShapeError, match=r"attributes of equal lengths|weights of a leaf or target that does not exist"
    ):
        load(of("TreeEnsembleRegressor", attributes))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((f"nodes_{name}", "at least one node, and attributes of equal lengths expected") for name in NEEDED),
        *((f"target_{name}", "weights of at least one leaf, in attributes of equal lengths") for name in WEIGHING),
    ],
)
def test_a_list_that_is_missing_is_one_of_another_length(name, message):
    attributes = forest(4, "target", 1)
    del attributes[name]

    with pytest.raises(ShapeError, match=message):
        load(of("TreeEnsembleRegressor", attributes))


@pytest.mark.parametrize("role", ["target", "class"])
def test_a_forest_in_which_no_leaf_weighs_anything_is_refused(role):
    attributes = {
        name: given for name, given in forest(4, role, 3).items() if name.removeprefix(f"{role}_") not in WEIGHING
    }
    operator = "TreeEnsembleRegressor" if role == "target" else "TreeEnsembleClassifier"

    with pytest.raises(ShapeError, match="weights of at least one leaf"):
        load(of(operator, attributes | (LABELS if role == "class" else {})))


@pytest.mark.parametrize(
    ("role", "name"),
    [("nodes", "values"), ("target", "weights"), ("base", "values")],
)
@pytest.mark.parametrize("given", [["0.5"], [1]])
def test_tensors_of_what_is_no_floating_point_number_are_refused(role, name, given):
    attributes = forest(4, "target", 1)
    count = len(attributes.pop(f"{role}_{name}", [0]))
    dtype = onnx.TensorProto.STRING if given == ["0.5"] else onnx.TensorProto.INT64
    tensor = helper.make_tensor("t", dtype, [count], given * count)

    with pytest.raises(ShapeError, match=f"{role}_{name}_as_tensor of floating-point elements expected"):
        load(of("TreeEnsembleRegressor", attributes | {f"{role}_{name}_as_tensor": tensor}))


def test_one_wide_number_is_another_node_than_that_of_its_low_bits():
    """Its number is a leaf's plus 2^32. The numbers of leaves fit 32 bits, those of the trees' nodes do not."""
    attributes = large("target", 1)
    wide = attributes | {
        "target_nodeids": [attributes["target_nodeids"][0] + (1 << 32), *attributes["target_nodeids"][1:]]
    }
    load(of("TreeEnsembleRegressor", attributes))

    with pytest.raises(ShapeError, match="weights of a leaf or target that does not exist"):
        load(of("TreeEnsembleRegressor", wide))


def test_numbers_of_64_bits_name_the_nodes_that_small_ones_name():
    attributes = large("target", 2)
    wide = {
        name: [number + (number > 5003) * (1 << 40) for number in given] if name.endswith("nodeids") else given
        for name, given in attributes.items()
    }

    small, large_numbers = (
        InterpreterBackend.prepare(of("TreeEnsembleRegressor", given)).run([X])[0] for given in (attributes, wide)
    )

    np.testing.assert_array_equal(small, large_numbers)


def test_modes_of_which_many_differ_are_refused():
    attributes = forest(4, "target", 1)

    with pytest.raises(ModelError, match="'nodes_modes': more than 256 different texts"):
        load(of("TreeEnsembleRegressor", attributes | {"nodes_modes": [f"M{k}" for k in range(257)]}))


def test_entries_that_become_no_objects_are_not_counted_as_such(monkeypatch):
    proto = of("TreeEnsembleRegressor", forest(4, "target", 1))
    entries = sum(len(a.ints) + len(a.floats) + len(a.strings) for a in proto.graph.node[0].attribute)
    listing = model([node("Constant", [], ["y"], value_ints=range(entries))])
    monkeypatch.setattr(functions, "MAX_LISTED", entries - 1)

    load(proto)

    with pytest.raises(UnsupportedError, match=f"have {entries} entries, at most {entries - 1}"):
        load(listing)


def test_lists_that_a_models_own_function_reads_become_objects(monkeypatch):
    """Its name is that of an operator that reads lists as arrays, but the nodes in it can read them differently."""
    inner = node("Constant", [], ["y"])
    inner.attribute.add(name="value_ints", ref_attr_name="nodes_nodeids", type=onnx.AttributeProto.INTS)
    function = helper.make_function(
        ML, "TreeEnsembleRegressor", ["x"], ["y"], [inner], [helper.make_opsetid("", 20)], attributes=["nodes_nodeids"]
    )
    call = node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, nodes_nodeids=range(1009))
    proto = model([call], [value("x")], functions=[function], domains=[ML])
    load(proto)
    monkeypatch.setattr(functions, "MAX_LISTED", 1008)

    with pytest.raises(UnsupportedError, match="have 1009 entries, at most 1008"):
        load(proto)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("base", [[], [0.5, -1.25]])
def test_leaves_weigh_any_number_of_targets(aggregate, base):
    attributes = forest(1, "target", 2) | {"aggregate_function": aggregate}
    proto = of("TreeEnsembleRegressor", attributes | ({"base_values": base} if base else {}))

    (actual,) = InterpreterBackend.prepare(proto).run([X])

    np.testing.assert_allclose(actual, by_onnxruntime(proto)[0], rtol=1e-6)
    if aggregate in ("SUM", "AVERAGE"):  # for others the evaluator differs if a target has no weights
        np.testing.assert_allclose(actual, ReferenceEvaluator(proto).run(None, {"x": X})[0], rtol=1e-6)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_a_class_is_that_of_the_greatest_score(post):
    proto = of("TreeEnsembleClassifier", forest(3, "class", 3) | LABELS | {"post_transform": post})

    label, scores = InterpreterBackend.prepare(proto).run([X])

    expected = by_onnxruntime(proto)
    assert label.tolist() == expected[0].tolist()
    assert len(set(label.tolist())) > 1
    np.testing.assert_allclose(scores, expected[1], rtol=1e-5)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("base", [[], [0.25]])
def test_one_class_of_two_is_weighed_as_onnxruntime_does(post, positive, base):
    attributes = forest(2, "class", 2, single=True) | {"classlabels_int64s": [4, 9], "post_transform": post}
    if positive:
        attributes["class_weights"] = [abs(w) / 4 for w in attributes["class_weights"]]
    proto = of("TreeEnsembleClassifier", attributes | ({"base_values": base} if base else {}))

    label, scores = InterpreterBackend.prepare(proto).run([X])

    expected = by_onnxruntime(proto)
    assert label.tolist() == expected[0].tolist()
    np.testing.assert_allclose(scores, expected[1], rtol=1e-5)


def test_labels_may_be_texts_and_f64_features_are_compared_as_they_are():
    attributes = forest(3, "class", 3) | {"classlabels_strings": ["x", "y", "z"]}
    x = X + np.where(X == 1, 1e-12, 0).astype(np.float64)
    wide = of("TreeEnsembleClassifier", attributes, x)

    label, _ = InterpreterBackend.prepare(wide).run([x])

    assert label.tolist() == ReferenceEvaluator(wide).run(None, {"x": x})[0].tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_features_may_be_integers(dtype):
    x = X.astype(dtype)
    classes = of("TreeEnsembleClassifier", forest(3, "class", 3) | LABELS, x)
    numbers = of("TreeEnsembleRegressor", forest(1, "target", 2), x)

    label, scores = InterpreterBackend.prepare(classes).run([x])
    (actual,) = InterpreterBackend.prepare(numbers).run([x])

    expected = by_onnxruntime(classes, x)
    assert label.tolist() == expected[0].tolist()
    np.testing.assert_allclose(scores, expected[1], rtol=1e-5)
    np.testing.assert_allclose(
        actual, by_onnxruntime(of("TreeEnsembleRegressor", forest(1, "target", 2)))[0], rtol=1e-6
    )


def test_a_tree_of_one_leaf_and_a_device():
    attributes = forest(4, "target", 1)
    last = len(set(attributes["nodes_treeids"]))
    alone = {
        "treeids": last,
        "nodeids": 0,
        "modes": "LEAF",
        "featureids": 0,
        "values": 0.0,
        "truenodeids": 0,
        "falsenodeids": 0,
        "missing_value_tracks_true": 0,
    }
    for name, entry in alone.items():
        attributes[f"nodes_{name}"].append(entry)
    for name, entry in {"treeids": last, "nodeids": 0, "ids": 0, "weights": 100.0}.items():
        attributes[f"target_{name}"].append(entry)
    proto = of("TreeEnsembleRegressor", attributes)
    exe = compile(proto, target="cpu")

    assert all(info.family != "host" for info in exe.kernels)
    np.testing.assert_allclose(exe.run({"x": X})["y"], by_onnxruntime(proto)[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"nodes_truenodeids": [-1]}, ShapeError, "attributes of equal lengths"),
        ({"nodes_modes": None}, ShapeError, "nodes_modes 'BRANCH_ODD': one of"),
        ({"target_ids": None}, ShapeError, "weights of a leaf or target that does not exist"),
        ({"aggregate_function": "PRODUCT"}, ShapeError, "aggregate_function='PRODUCT'"),
        ({"base_values": [1.0, 2.0]}, ShapeError, "1 base values expected, 2 given"),
        ({"post_transform": "OTHER"}, UnsupportedError, "post_transform OTHER is not supported"),
    ],
)
def test_what_breaks_the_standard_is_refused(change, error, message):
    attributes = forest(4, "target", 1)
    filler = {"nodes_modes": "BRANCH_ODD", "target_ids": 1}
    change = {
        name: [filler[name]] * len(attributes[name]) if given is None else given for name, given in change.items()
    }

    with pytest.raises(error, match=message):
        load(of("TreeEnsembleRegressor", attributes | change))


def test_a_tree_that_leads_back_to_itself_is_refused():
    attributes = forest(4, "target", 1)
    attributes["nodes_truenodeids"] = [1] * len(attributes["nodes_modes"])

    with pytest.raises(UnsupportedError, match="a cycle or with more than"):
        load(of("TreeEnsembleRegressor", attributes))


def test_a_classifier_of_strange_sizes_is_refused():
    attributes = forest(3, "class", 3)
    with pytest.raises(UnsupportedError, match="fewer than two classes"):
        load(of("TreeEnsembleClassifier", attributes | {"classlabels_int64s": [1]}))
    with pytest.raises(UnsupportedError, match="2 base values for 3 classes"):
        load(of("TreeEnsembleClassifier", attributes | LABELS | {"base_values": [0.0, 1.0]}))
