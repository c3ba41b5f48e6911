"""Draws ai.onnx.ml's operators, as converters from scikit-learn and its kin write them."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from tests.fuzz.draft import F32, F64, I32, I64, Draft, Value
from tests.fuzz.kinds import draws

ML = "ai.onnx.ml"
POSTS = ("NONE", "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
NOT_DRAWN = {"CategoryMapper": "what is drawn are numbers", "ZipMap": "it makes maps"}
BRANCHES = {"LEQ": 0, "LT": 1, "GTE": 2, "GT": 3, "EQ": 4, "NEQ": 5}  # of TreeEnsemble's nodes_modes


def rows(d: Draft) -> Value | None:
    """A sample a row, a feature a column."""
    return d.pick((F32,), (2,), lambda v: min(v.shape) > 0 and v.shape[1] <= 17)


def some_numbers(d: Draft, count: int, low: float = -1.0, high: float = 1.0) -> list[float]:
    return [round(float(v), 3) for v in d.rng.uniform(low, high, count)]


@draws(0.7)
def feature(d: Draft) -> None:
    """Columns scaled, told from a threshold, filled in, put beside one another, picked."""
    x = rows(d)
    if x is None:
        return
    width = x.shape[1]
    match d.number(0, 6):
        case 0:
            attributes = {
                name: some_numbers(d, d.one((1, width)), low) for name, low in (("offset", -1.0), ("scale", 0.2))
            }
            d.add("Scaler", [x], domain=ML, **attributes)
        case 1:
            d.add("Normalizer", [x], domain=ML, norm=d.one(("MAX", "L1", "L2")))
        case 2:
            d.add("Binarizer", [x], domain=ML, threshold=round(float(d.rng.uniform(-0.5, 0.5)), 3))
        case 3:
            wanted = float(x.array.flat[0])
            fill = some_numbers(d, d.one((1, width)))
            d.add("Imputer", [x], domain=ML, imputed_value_floats=fill, replaced_value_float=wanted)
        case 4:
            others = [v for v in d.values if v.dtype == F32 and v.rank == 2 and v.shape[0] == x.shape[0] and v.shape[1]]
            parts = [x, *(d.one(others) for _ in range(d.number(0, 3)))]
            d.add("FeatureVectorizer", parts, domain=ML, inputdimensions=[v.shape[1] for v in parts])
        case 5:
            y = d.pick((F32, F64, I64, I32), (1, 2), lambda v: min(v.shape) > 0)
            if y:
                picked = d.rng.integers(0, y.shape[-1], d.number(1, 6))
                d.add("ArrayFeatureExtractor", [y, d.data(picked.astype(np.int64))], domain=ML)


@draws(0.5)
def linear_model(d: Draft) -> None:
    x = rows(d)
    if x is None:
        return
    count, post = d.number(2, 5), d.one(POSTS)
    numbers = {"coefficients": some_numbers(d, count * x.shape[1]), "intercepts": some_numbers(d, count)}
    if d.chance(0.5):
        d.add("LinearRegressor", [x], domain=ML, targets=count, post_transform=post, **numbers)
    else:
        labels = list(range(3, 3 + count))
        d.add("LinearClassifier", [x], outputs=2, domain=ML, classlabels_ints=labels, post_transform=post, **numbers)


@draws(0.5)
def vector_machine(d: Draft) -> None:
    """A regressor, or a classifier of two or three classes with scores of pairs or probabilities."""
    x = rows(d)
    if x is None:
        return
    width = x.shape[1]
    kernel, parameters = d.one(
        (("LINEAR", (0, 0, 0)), ("POLY", (0.3, 0.5, 2)), ("RBF", (0.4, 0, 0)), ("SIGMOID", (0.2, 0.1, 0)))
    )
    common = {"kernel_type": kernel, "kernel_params": [float(p) for p in parameters]}
    if d.chance(0.4):
        n = d.number(1, 7)
        weights = {"coefficients": some_numbers(d, n), "support_vectors": some_numbers(d, n * width)}
        d.add("SVMRegressor", [x], domain=ML, n_supports=n, rho=some_numbers(d, 1), **common, **weights)
        return
    classes = d.number(2, 4)
    counts = [d.number(1, 4) for _ in range(classes)]
    total, pairs = sum(counts), classes * (classes - 1) // 2
    weights = {
        "coefficients": some_numbers(d, (classes - 1) * total),
        "support_vectors": some_numbers(d, total * width),
        "rho": some_numbers(d, pairs),
    }
    if d.chance(0.5):
        weights |= {"prob_a": some_numbers(d, pairs, -2.0, -1.0), "prob_b": some_numbers(d, pairs)}
    d.add(
        "SVMClassifier",
        [x],
        outputs=2,
        domain=ML,
        classlabels_ints=[4, -1, 7][:classes],
        vectors_per_class=counts,
        **common,
        **weights,
    )


@draws(0.5)
def labels(d: Draft) -> None:
    """Whole numbers to others, or to a column for each."""
    x = d.pick((I64,), range(1, 4), lambda v: v.array.size > 0) or d.data(d.rng.integers(-1, 5, (d.number(1, 7),)))
    keys = d.rng.choice(np.arange(-3, 9), d.number(1, 6), replace=False).tolist()
    if d.chance(0.3):
        d.add("OneHotEncoder", [x], domain=ML, cats_int64s=keys, zeros=1)
    elif d.chance(0.5):
        values = {"values_floats": some_numbers(d, len(keys)), "default_float": 0.75}
        d.add("LabelEncoder", [x], domain=ML, keys_int64s=keys, **values)
    else:
        values = {"values_int64s": d.rng.integers(-9, 10, len(keys)).tolist(), "default_int64": 17}
        d.add("LabelEncoder", [x], domain=ML, keys_int64s=keys, **values)


@draws(0.5)
def forest(d: Draft) -> None:
    """A few trees that branch by any comparison, up to three deep."""
    x = rows(d)
    if x is None:
        return
    targets, kinds = d.number(1, 4), d.one((("LEQ",), ("LT",), ("LEQ", "GT", "GTE", "LT", "EQ", "NEQ")))
    nodes: list[list[float]] = []  # of each: feature, split, mode, the child if so and if not, whether these are leaves
    leaves: list[tuple[int, float]] = []

    def leaf() -> tuple[int, int]:
        leaves.append((d.number(0, targets), *some_numbers(d, 1)))
        return len(leaves) - 1, 1

    def grow(depth: int) -> tuple[int, int]:
        own = len(nodes)
        nodes.append([d.number(0, x.shape[1]), *some_numbers(d, 1, -0.8, 0.8), BRANCHES[d.one(kinds)]])
        for _ in range(2):
            nodes[own] += grow(depth + 1) if depth < 2 and d.chance(0.6) else leaf()
        return own, 0

    roots = [grow(0)[0] for _ in range(d.number(1, 4))]
    features, splits, modes, yes, yes_leaf, no, no_leaf = zip(*nodes, strict=True)
    tensor = numpy_helper.from_array
    d.add(
        "TreeEnsemble",
        [x],
        domain=ML,
        n_targets=targets,
        tree_roots=roots,
        nodes_featureids=list(features),
        nodes_splits=tensor(np.array(splits, np.float32), "splits"),
        nodes_modes=tensor(np.array(modes, np.uint8), "modes"),
        nodes_truenodeids=list(yes),
        nodes_trueleafs=list(yes_leaf),
        nodes_falsenodeids=list(no),
        nodes_falseleafs=list(no_leaf),
        leaf_targetids=[t for t, _ in leaves],
        leaf_weights=tensor(np.array([w for _, w in leaves], np.float32), "weights"),
        aggregate_function=d.one((1, 1, 0, 2, 3)),
        post_transform=0,
    )


@draws(0.5)
def forest_by_nodes(d: Draft) -> None:
    """The older operators, which list a tree's nodes by number: a regressor, or a classifier of three classes."""
    x = rows(d)
    if x is None:
        return
    role = d.one(("target", "class"))
    count = 3 if role == "class" else d.number(1, 4)
    nodes: list[tuple[object, ...]] = []
    weights: list[tuple[float, ...]] = []

    def grow(tree: int, depth: int) -> int:
        number = sum(node[0] == tree for node in nodes)
        at = len(nodes)
        if depth == 3 or (depth and d.chance(0.3)):
            nodes.append((tree, number, "LEAF", 0, 0.0, 0, 0))
            weights.extend((tree, number, k, *some_numbers(d, 1)) for k in range(count))
            return number
        nodes.append((tree, number))
        children = [grow(tree, depth + 1) for _ in range(2)]
        split = some_numbers(d, 1, -0.8, 0.8)
        nodes[at] += (f"BRANCH_{d.one(list(BRANCHES))}", d.number(0, x.shape[1]), *split, *children)
        return number

    for tree in range(d.number(1, 4)):
        grow(tree, 0)
    names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
    attributes = {f"nodes_{name}": list(c) for name, c in zip(names, zip(*nodes, strict=True), strict=True)}
    kinds = ("treeids", "nodeids", "ids", "weights")
    attributes |= {f"{role}_{name}": list(c) for name, c in zip(kinds, zip(*weights, strict=True), strict=True)}
    if role == "class":
        d.add(
            "TreeEnsembleClassifier",
            [x],
            outputs=2,
            domain=ML,
            classlabels_int64s=[5, -1, 9],
            post_transform=d.one(POSTS),
            **attributes,
        )
    else:
        d.add(
            "TreeEnsembleRegressor",
            [x],
            domain=ML,
            n_targets=count,
            aggregate_function=d.one(("SUM", "AVERAGE", "MIN")),
            **attributes,
        )
