"""TreeEnsembleRegressor and TreeEnsembleClassifier, which list their nodes by tree and number: as scikit-learn's, LightGBM's
and XGBoost's converters write them. How samples go down the trees is in trees.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import cast, checked_size, concat, like
from gpucomp.frontend.onnx.ml import ML, named, transformed
from gpucomp.frontend.onnx.translate import translates
from gpucomp.frontend.onnx.trees import SUMS, Trees, aggregated, leaf_of
from gpucomp.ir import Value, constant
from gpucomp.ir.types import F32, F64

MODES = {f"BRANCH_{name}": k for k, name in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))}
LEAF = "LEAF"
Floats = tuple[float, ...]
Ints = tuple[int, ...]


def _trees(
    *,
    nodes_treeids: Ints,
    nodes_nodeids: Ints,
    nodes_featureids: Ints,
    nodes_modes: tuple[str, ...],
    nodes_values: Floats = (),
    nodes_values_as_tensor: np.ndarray | None = None,
    nodes_truenodeids: Ints,
    nodes_falsenodeids: Ints,
    nodes_missing_value_tracks_true: Ints = (),
    nodes_hitrates: Floats = (),
    nodes_hitrates_as_tensor: np.ndarray | None = None,
) -> tuple[Trees, dict[tuple[int, int], int]]:
    """The trees with their branches in front of their leaves, and the place of the node of each (tree, number).

    A tree begins with the first of its nodes that is listed.
    """
    keys = list(zip(nodes_treeids, nodes_nodeids, strict=True))
    splits = np.asarray(nodes_values if nodes_values_as_tensor is None else nodes_values_as_tensor).reshape(-1)
    missing = nodes_missing_value_tracks_true or (0,) * len(keys)
    parts = (nodes_featureids, nodes_modes, splits, nodes_truenodeids, nodes_falsenodeids, missing)
    if not keys or any(len(part) != len(keys) for part in parts):
        raise ValueError("trees with at least a node, and attributes of equal lengths, expected")
    unknown = set(nodes_modes) - set(MODES) - {LEAF}
    if unknown or len(set(keys)) != len(keys):
        raise ValueError(f"nodes of mode {min(unknown)!r}" if unknown else "a node of a tree is there twice")
    order = sorted(range(len(keys)), key=lambda k: nodes_modes[k] == LEAF)  # stable
    place = {keys[k]: at for at, k in enumerate(order)}
    inner = [k for k in order if nodes_modes[k] != LEAF]

    def links(targets: Ints) -> np.ndarray:
        found = [place.get((keys[k][0], targets[k]), -1) for k in inner]
        if -1 in found:
            raise ValueError("a branch leads to a node that does not exist")
        return np.array([*found, *range(len(inner), len(keys))], np.int64)

    firsts = {tree: place[tree, number] for tree, number in reversed(keys)}
    trees = Trees(
        features=np.array([nodes_featureids[k] for k in inner], np.int64),
        splits=splits[inner],
        modes=np.array([MODES[nodes_modes[k]] for k in inner], np.uint8),
        missing=np.array([missing[k] for k in inner], bool),
        yes=links(nodes_truenodeids),
        no=links(nodes_falsenodeids),
        roots=np.array([firsts[tree] for tree in dict.fromkeys(nodes_treeids)], np.int64),
    )
    return trees, place


def _are_targets(targets: Ints, count: int) -> bool:
    return not targets or (min(targets) >= 0 and max(targets) < count)


def _weights(
    trees: Trees,
    place: dict[tuple[int, int], int],
    keys: Sequence[tuple[int, int]],
    targets: Ints,
    weights: Floats | np.ndarray,
    count: int,
    dtype: np.dtype,
) -> tuple[np.ndarray, np.ndarray]:
    """[nodes and leaves, count]: what each gives to each target, and whether it gives anything."""
    flat = np.asarray(weights).reshape(-1)
    if len({len(keys), len(targets), len(flat)}) != 1 or not _are_targets(targets, count) or not set(keys) <= set(place):
        raise ValueError("weights of leaves that do not exist, or for targets that do not")
    checked_size(len(trees.yes) * count, 9)
    table, given = np.zeros((len(trees.yes), count), dtype), np.zeros((len(trees.yes), count), bool)
    for key, target, weight in zip(keys, targets, flat, strict=True):
        table[place[key], target] += weight
        given[place[key], target] = True
    return table, given


def _base(values: Floats, as_tensor: np.ndarray | None) -> np.ndarray:
    return np.asarray(values if as_tensor is None else as_tensor, np.float64).reshape(-1)


def _result_type(x: Value) -> np.dtype:
    return (F64 if x.type.dtype is F64 else F32).numpy


@translates("TreeEnsembleRegressor", since=1, domain=ML)
def tree_ensemble_regressor(
    x: Value,
    *,
    target_treeids: Ints,
    target_nodeids: Ints,
    target_ids: Ints,
    target_weights: Floats = (),
    target_weights_as_tensor: np.ndarray | None = None,
    n_targets: int = 1,
    aggregate_function: str = "SUM",
    base_values: Floats = (),
    base_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    **nodes: object,
) -> Value:
    """[N, F] to [N, n_targets] in f32: the weights of the leaves that a sample ends in, and the base values."""
    trees, place = _trees(**nodes)  # type: ignore[arg-type]
    kinds = {name.upper(): number for number, name in SUMS.items()}
    if aggregate_function not in kinds:
        raise ValueError(f"aggregate_function={aggregate_function!r}: one of {', '.join(kinds)} expected")
    weights = target_weights if target_weights_as_tensor is None else target_weights_as_tensor
    keys = list(zip(target_treeids, target_nodeids, strict=True))
    table, given = _weights(trees, place, keys, target_ids, weights, n_targets, _result_type(x))
    scores = aggregated(leaf_of(x, trees), table, given, kinds[aggregate_function])
    base = _base(base_values, base_values_as_tensor)
    if len(base):
        if len(base) != n_targets:
            raise ValueError(f"{n_targets} base values expected, {len(base)} given")
        scores = ops.Add(scores, constant(base.astype(scores.type.dtype.numpy)))
    return transformed(cast(scores, F32), post_transform)


@translates("TreeEnsembleClassifier", since=1, domain=ML)
def tree_ensemble_classifier(
    x: Value,
    *,
    class_treeids: Ints,
    class_nodeids: Ints,
    class_ids: Ints,
    class_weights: Floats = (),
    class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: Ints = (),
    classlabels_strings: tuple[str, ...] = (),
    base_values: Floats = (),
    base_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    **nodes: object,
) -> tuple[Value, Value]:
    """The label of the greatest score, and the scores in f32. Where leaves weigh one of two classes by s, as onnxruntime has it:
    the second is meant, for s above a half where all weights are positive, else above 0; the first has 1 - s or -s.
    """
    labels = classlabels_int64s or classlabels_strings
    if len(labels) < 2:
        raise UnsupportedError("a classifier of fewer than two classes")
    trees, place = _trees(**nodes)  # type: ignore[arg-type]
    weights = np.asarray(class_weights if class_weights_as_tensor is None else class_weights_as_tensor)
    keys = list(zip(class_treeids, class_nodeids, strict=True))
    table, given = _weights(trees, place, keys, class_ids, weights, len(labels), _result_type(x))
    base = _base(base_values, base_values_as_tensor)
    one = len(labels) == 2 and len(set(class_ids)) == 1
    if len(base) not in {0, 1 if one else len(labels)}:
        raise UnsupportedError(f"{len(base)} base values for {len(labels)} classes of which leaves weigh {len(set(class_ids))}")
    if one:
        table, given = (array[:, class_ids[:1]] for array in (table, given))
    scores = aggregated(leaf_of(x, trees), table, given, 1)
    if len(base):
        scores = ops.Add(scores, constant(base.astype(scores.type.dtype.numpy)))
    scores = cast(scores, F32)
    if not one:
        return named(ops.ArgMax(scores, axis=1, keepdims=False, select_last_index=False), labels), transformed(
            scores, post_transform
        )
    if post_transform not in ("NONE", "LOGISTIC"):
        raise UnsupportedError(f"post_transform {post_transform} of one score for two classes is not supported")
    positive = bool(np.all(weights >= 0))
    second = ops.Less(like(scores, 0.5 if positive else 0.0), scores)
    best = ops.ReduceMax(cast(second, F32), axes=(1,), keepdims=False)
    other = ops.Sub(like(scores, 1), scores) if positive and post_transform == "NONE" else ops.Neg(scores)
    return named(best, labels), transformed(concat([other, scores], 1), post_transform)
