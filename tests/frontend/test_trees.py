"""Tree ensembles against a walk through the nodes, one sample and one tree at a time."""

import numpy as np
import pytest
from onnx import helper

from gpucomp import compile
from gpucomp.errors import ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from gpucomp.frontend.onnx.ai_onnx_ml.trees import Trees, _levels
from tests.onnx_builders import model, node, value
from tests.onnx_cases import InterpreterBackend

ML = "ai.onnx.ml"
COMPARE = [
    lambda a, b: a <= b,
    lambda a, b: a < b,
    lambda a, b: a >= b,
    lambda a, b: a > b,
    lambda a, b: a == b,
    lambda a, b: a != b,
]


def forest(seed: int, *, trees: int = 3, depth: int = 4, features: int = 5, targets: int = 2) -> tuple[dict, list[set]]:
    """Random, unbalanced trees with all kinds of nodes, and the sets of the MEMBER nodes, by node."""
    rng = np.random.default_rng(seed)
    nodes, leaves, roots, sets = [], [], [], {}

    def grow(level: int) -> tuple[int, int]:
        if level and (level == depth or rng.random() < 0.25):
            leaves.append((int(rng.integers(targets)), float(rng.integers(-9, 9))))
            return len(leaves) - 1, 1
        place, mode = len(nodes), int(rng.integers(7))
        nodes.append(None)
        split = float(rng.integers(-2, 3))
        if mode == 6:
            sets[place] = {float(v) for v in rng.integers(-2, 3, rng.integers(1, 4))}
        branches = [grow(level + 1) for _ in range(2)]
        nodes[place] = (mode, int(rng.integers(features)), split, bool(rng.random() < 0.5), *branches)
        return place, 0

    for _ in range(trees):
        roots.append(grow(0)[0])
    members = [v for place in sorted(sets) for v in (*sets[place], np.nan)]
    attributes = {
        "nodes_modes": np.array([n[0] for n in nodes], np.uint8),
        "nodes_featureids": [n[1] for n in nodes],
        "nodes_splits": np.array([n[2] for n in nodes], np.float32),
        "nodes_missing_value_tracks_true": [int(n[3]) for n in nodes],
        "nodes_truenodeids": [n[4][0] for n in nodes],
        "nodes_trueleafs": [n[4][1] for n in nodes],
        "nodes_falsenodeids": [n[5][0] for n in nodes],
        "nodes_falseleafs": [n[5][1] for n in nodes],
        "tree_roots": roots,
        "leaf_targetids": [leaf[0] for leaf in leaves],
        "leaf_weights": np.array([leaf[1] for leaf in leaves], np.float32),
        "n_targets": targets,
    }
    return attributes | ({"membership_values": np.array(members, np.float32)} if members else {}), sets


def walked(a: dict, sets: list, x: np.ndarray, aggregate: int) -> np.ndarray:
    result = np.zeros((len(x), a["n_targets"]), np.float32)
    for row, sample in zip(result, x, strict=True):
        found: list[list[float]] = [[] for _ in row]
        for root in a["tree_roots"]:
            place, leaf = root, 0
            while not leaf:
                number, mode = sample[a["nodes_featureids"][place]], a["nodes_modes"][place]
                yes = number in sets[place] if mode == 6 else COMPARE[mode](number, a["nodes_splits"][place])
                yes = yes or (np.isnan(number) and a["nodes_missing_value_tracks_true"][place])
                which = "true" if yes else "false"
                place, leaf = a[f"nodes_{which}nodeids"][place], a[f"nodes_{which}leafs"][place]
            found[a["leaf_targetids"][place]].append(a["leaf_weights"][place])
        for k, weights in enumerate(found):
            total = sum(weights)
            results = [total / len(a["tree_roots"]), total, min(weights, default=0), max(weights, default=0)]
            row[k] = results[aggregate]
    return result


def ensemble(attributes: dict, features: int = 5):
    attributes = {
        k: helper.make_tensor(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape, v)
        if isinstance(v, np.ndarray)
        else v
        for k, v in attributes.items()
    }
    proto = model([node("TreeEnsemble", ["x"], ["y"], domain=ML, **attributes)], [value("x", ("n", features))])
    proto.opset_import.append(helper.make_opsetid(ML, 5))
    return proto


def samples(seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).integers(-3, 4, (17, 5)).astype(np.float32)
    x[np.random.default_rng(seed + 1).random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("aggregate", range(4))
def test_every_sample_ends_in_its_leaves(seed, aggregate):
    attributes, sets = forest(seed)
    x = samples(seed)

    (y,) = InterpreterBackend.prepare(ensemble(attributes | {"aggregate_function": aggregate})).run([x])

    np.testing.assert_allclose(y, walked(attributes, sets, x, aggregate), rtol=1e-6)


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_a_device_computes_the_same(target):
    attributes, sets = forest(1)
    x = samples(1)
    exe = compile(ensemble(attributes), target=target, shapes={"x": x.shape})

    assert all(info.family != "host" for info in exe.kernels)
    np.testing.assert_allclose(exe.run({"x": x})["y"], walked(attributes, sets, x, 1), rtol=1e-6)


def test_a_tree_that_leads_back_to_itself_is_refused():
    attributes, _ = forest(0)
    attributes |= {
        "nodes_truenodeids": [0] * len(attributes["nodes_featureids"]),
        "nodes_trueleafs": [0] * len(attributes["nodes_featureids"]),
    }

    with pytest.raises(UnsupportedError, match="a cycle or with more than"):
        load(ensemble(attributes), shapes={"x": (2, 5)})


NODES, LEAVES = (len(forest(2)[0][name]) for name in ("nodes_featureids", "leaf_targetids"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tree_roots": [99]}, "a root or a target that does not exist"),
        ({"n_targets": 1}, "a root or a target that does not exist"),
        ({"nodes_splits": np.zeros(1, np.float32)}, "attributes of equal lengths"),
        ({"membership_values": np.zeros(0, np.float32)}, "0 sets of membership_values for"),
        ({"aggregate_function": 4}, "aggregate_function one of 0, 1, 2, 3"),
        *(
            ({name: [0]}, "attributes of equal lengths")  # which numpy would broadcast to all nodes
            for name in ("truenodeids", "falsenodeids", "trueleafs", "falseleafs", "missing_value_tracks_true")
            for name in (f"nodes_{name}",)
        ),
        *(
            ({"nodes_modes": np.full(NODES, mode, dtype)}, "nodes_modes of whole numbers from 0 to 6 expected")
            for mode, dtype in [(-1, np.int8), (7, np.uint8), (1.5, np.float32), (1, np.float32), (np.nan, np.float64)]
        ),
        ({"nodes_modes": np.full(NODES, "1", object)}, "nodes_modes of whole numbers from 0 to 6 expected"),
        (
            {"nodes_splits": np.full(NODES, "0.5", object)},
            "nodes_splits of floating-point elements expected, object given",
        ),
        ({"nodes_splits": np.zeros(NODES, np.int64)}, "nodes_splits of floating-point elements expected, int64 given"),
        ({"leaf_weights": np.zeros(LEAVES, bool)}, "leaf_weights of floating-point elements expected, bool given"),
        (
            {"membership_values": np.array(["1"], object)},
            "membership_values of floating-point elements expected, object",
        ),
    ],
)
def test_trees_that_do_not_fit_together_are_refused(change, message):
    attributes, _ = forest(2)

    with pytest.raises(ShapeError, match=message):
        load(ensemble(attributes | change), shapes={"x": (2, 5)})


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_modes_may_be_whole_numbers_of_any_type_and_splits_of_any_floating_one(dtype):
    attributes, sets = forest(1)
    x = samples(1)
    given = attributes | {"nodes_modes": attributes["nodes_modes"].astype(dtype)}
    given |= {"nodes_splits": attributes["nodes_splits"].astype(np.float64 if dtype is np.int64 else np.float16)}

    (y,) = InterpreterBackend.prepare(ensemble(given)).run([x])

    np.testing.assert_allclose(y, walked(attributes, sets, x, 1), rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_a_split_beyond_the_type_of_the_samples_is_above_all_of_them():
    attributes, sets = forest(1)
    modes = np.where(attributes["nodes_modes"] == 6, 6, 1).astype(np.uint8)
    far = attributes | {"nodes_modes": modes, "nodes_splits": np.full(len(modes), 1e300)}
    x = samples(1)

    (y,) = InterpreterBackend.prepare(ensemble(far)).run([x])

    np.testing.assert_allclose(y, walked(far, sets, x, 1), rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_a_member_beyond_the_type_of_the_samples_is_none_of_them():
    attributes, sets = forest(1)
    values = attributes["membership_values"].astype(np.float64)
    ordinary = np.flatnonzero(~np.isnan(values))
    values[ordinary[0]] = 1e300
    x = samples(1)
    x[0] = np.inf
    far = {
        k: {1e300 if m == attributes["membership_values"][ordinary[0]] and k == min(sets) else m for m in s}
        for k, s in sets.items()
    }

    (y,) = InterpreterBackend.prepare(ensemble(attributes | {"membership_values": values})).run([x])

    np.testing.assert_allclose(y, walked(attributes, far, x, 1), rtol=1e-6)


def test_a_feature_that_the_samples_lack_is_refused():
    with pytest.raises(ShapeError, match="a feature that does not exist"):
        load(ensemble(forest(0)[0], features=2), shapes={"x": (3, 2)})


def linked(yes: list[int], no: list[int], roots: list[int]) -> Trees:
    """One branch per entry of ``yes``, followed by one leaf."""
    nodes = len(yes)
    nothing = np.zeros(nodes, np.int64)
    both = (np.array([*branch, nodes], np.int32) for branch in (yes, no))
    return Trees(nothing, nothing, nothing, nothing.astype(bool), *both, np.array(roots))


@pytest.mark.parametrize(
    ("yes", "no", "roots", "levels"),
    [
        ([1], [1], [1], 0),  # a single leaf
        ([1], [1], [0, 1], 1),
        ([1, 2, 3, 4], [4, 4, 4, 4], [0], 4),
        ([1, 2, 3, 4], [3, 4, 4, 4], [0], 4),  # node 3 is reached after one step and after three
        ([4, 2, 1, 4], [4, 2, 1, 4], [0, 3], 1),  # a cycle of nodes that nothing leads to
        ([1, 2, 3, 4], [2, 3, 4, 4], [3, 0, 2], 4),
        (list(range(1, 257)), [256] * 256, [0], 256),
    ],
)
def test_the_levels_are_the_longest_way_down(yes, no, roots, levels):
    assert _levels(linked(yes, no, roots)) == levels


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        ([0], [1]),
        ([1, 2, 0], [3, 3, 3]),
        ([1, 2, 1, 4], [3, 3, 3, 4]),  # after a node that is not in a cycle
        (list(range(1, 258)), [257] * 257),
        (list(range(1, 258)), [min(k + 30, 257) for k in range(257)]),  # 257 levels that nine steps lead past
    ],
)
def test_cycles_and_more_levels_than_are_supported_are_refused(yes, no):
    with pytest.raises(UnsupportedError, match="a cycle or with more than 256 levels"):
        _levels(linked(yes, no, [0]))
