"""TreeEnsembleRegressor and TreeEnsembleClassifier, whose nodes are listed by tree and number.

The converters of scikit-learn, LightGBM and XGBoost write them. trees.py evaluates the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.ai_onnx_ml.operators import ML, named, transformed
from gpucomp.frontend.onnx.ai_onnx_ml.trees import SUMS, Trees, aggregated, flags, ids, leaf_of, require_floats
from gpucomp.frontend.onnx.compose import cast, checked_size, concat, like
from gpucomp.frontend.onnx.tensors import PIECE, as_array
from gpucomp.frontend.onnx.translate import Categorical, FloatList, IntList, translates
from gpucomp.ir import Value, constant
from gpucomp.ir.types import F32, F64
from gpucomp.lazy_dataclass import dataclass

MODES = {f"BRANCH_{name}": k for k, name in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))}
LEAF = "LEAF"
NO_TEXTS = Categorical((), np.zeros(0, np.uint8))


@dataclass(frozen=True)
class Places:
    """Finds the place of the node (tree, number) by binary search: a forest can have a million nodes."""

    trees: np.ndarray  # distinct, ascending
    numbers: np.ndarray  # distinct, ascending
    keys: np.ndarray  # ascending, one per node: rank of its tree * count of distinct numbers + rank of its number
    places: np.ndarray  # places of the nodes, in the order of their keys

    @classmethod
    def listed(cls, trees: np.ndarray, ranks: np.ndarray, numbers: np.ndarray, places: np.ndarray) -> Places:
        """The places of nodes given by the ranks of their trees and by their numbers. ``trees`` are the distinct trees.

        Raises ``ValueError`` if a node occurs twice.
        """
        empty = np.zeros(0, np.int64)
        table = cls(trees, _once(numbers), empty, empty)
        keys = _in_pieces(table._keys, np.int64, ranks, numbers)
        del ranks, numbers  # sorting takes as much memory again
        order = np.argsort(keys)
        keys = keys[order]
        if np.any(keys[1:] == keys[:-1]):
            raise ValueError("a node of a tree occurs twice")
        return replace(table, keys=keys, places=places[order])

    def of(self, ranks: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The place of each node, given by the rank of its tree and its number; -1 if there is no such node."""
        return _in_pieces(self._found, np.int32, ranks, numbers)

    def _found(self, ranks: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        at = _rank(self.keys, self._keys(ranks, numbers))
        return np.where(at < 0, -1, self.places[at])

    def _keys(self, ranks: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        number = _rank(self.numbers, numbers)
        return np.where((ranks < 0) | (number < 0), -1, ranks.astype(np.int64) * len(self.numbers) + number)


def _once(numbers: np.ndarray) -> np.ndarray:
    """The distinct numbers, ascending. Sorts, because np.unique can need a table of several times their size."""
    ascending = np.sort(numbers)
    return np.asarray(ascending[np.concatenate([[True], ascending[1:] != ascending[:-1]])])


def _rank(ascending: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The position of each of ``wanted`` in ``ascending``, which has distinct numbers; -1 if it is not there.

    ``wanted`` is sorted first, so that successive searches stay in the cache. It is clipped to fit the type of
    ``ascending``; otherwise np.searchsorted would convert all of ``ascending``.
    """
    order = np.argsort(wanted)
    sought = wanted[order]
    at = np.searchsorted(ascending, np.clip(sought, ascending[0], ascending[-1]).astype(ascending.dtype))
    ranks = np.empty(len(wanted), np.int64)
    ranks[order] = np.where(ascending[at] == sought, at, -1)
    return ranks


def _ranks(ascending: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return _in_pieces(partial(_rank, ascending), np.int32, wanted)


def _in_pieces(function: Callable[..., np.ndarray], dtype: type[np.integer], *arrays: np.ndarray) -> np.ndarray:
    """``function`` of the arrays, a piece at a time: intermediate arrays are several times larger than the result."""
    result = np.empty(len(arrays[0]), dtype)
    for start in range(0, len(result), PIECE):
        result[start : start + PIECE] = function(*(array[start : start + PIECE] for array in arrays))
    return result


def _numbers(listed: FloatList, as_tensor: np.ndarray | None) -> np.ndarray:
    return as_array(listed, np.float32) if as_tensor is None else as_tensor.reshape(-1)


def _trees(
    *,
    nodes_treeids: IntList = (),
    nodes_nodeids: IntList = (),
    nodes_featureids: IntList = (),
    nodes_modes: Categorical = NO_TEXTS,
    nodes_values: FloatList = (),
    nodes_values_as_tensor: np.ndarray | None = None,
    nodes_truenodeids: IntList = (),
    nodes_falsenodeids: IntList = (),
    nodes_missing_value_tracks_true: IntList = (),
    nodes_hitrates: FloatList = (),
    nodes_hitrates_as_tensor: np.ndarray | None = None,
) -> tuple[Trees, Places]:
    """The trees, with all branches before all leaves, and the places of the listed nodes in them.

    The root of a tree is the first of its nodes in the list.
    """
    count = len(nodes_treeids)
    require_floats(nodes_values_as_tensor=nodes_values_as_tensor)
    splits = _numbers(nodes_values, nodes_values_as_tensor)
    parts = (nodes_nodeids, nodes_featureids, nodes_modes.codes, splits, nodes_truenodeids, nodes_falsenodeids)
    missing = nodes_missing_value_tracks_true
    if not count or any(len(part) != count for part in (*parts, missing or nodes_treeids)):
        raise ValueError("at least one node, and attributes of equal lengths expected")
    if unknown := set(nodes_modes.categories) - set(MODES) - {LEAF}:
        raise ValueError(f"nodes_modes {min(unknown)!r}: one of {', '.join((*MODES, LEAF))} expected")
    modes = np.array([MODES.get(mode, len(MODES)) for mode in nodes_modes.categories], np.uint8)[nodes_modes.codes]
    inner = modes != len(MODES)
    branches = int(np.count_nonzero(inner))
    place = np.empty(count, np.int32)
    place[inner], place[~inner] = (np.arange(*ends, dtype=np.int32) for ends in ((0, branches), (branches, count)))
    treeids = ids(nodes_treeids)
    different = _once(treeids)
    ranks = _ranks(different, treeids)
    del treeids
    firsts = np.empty(len(different), np.int32)
    firsts[ranks[::-1]] = np.arange(count - 1, -1, -1, dtype=np.int32)  # the first node of each tree is written last
    places = Places.listed(different, ranks, ids(nodes_nodeids), place)

    def links(targets: IntList) -> np.ndarray:
        linked = places.of(ranks[inner], ids(targets)[inner])
        if np.any(linked < 0):
            raise ValueError("a branch leads to a node that does not exist")
        return np.concatenate([linked, np.arange(branches, count, dtype=np.int32)])

    trees = Trees(
        features=ids(nodes_featureids)[inner],
        splits=splits[inner],
        modes=modes[inner],
        missing=flags(missing, count)[inner],
        yes=links(nodes_truenodeids),
        no=links(nodes_falsenodeids),
        roots=place[np.sort(firsts)],
    )
    return trees, places


def _forest(
    x: Value,
    nodes: Mapping[str, Any],
    leaves: tuple[IntList, IntList],
    targets: np.ndarray,
    weights: np.ndarray,
    count: int,
) -> tuple[Trees, np.ndarray, np.ndarray]:
    """The trees, and two tables [nodes and leaves, count]: the weight for each target, and whether there is one.

    ``leaves`` (trees and numbers), ``targets`` and ``weights`` are parallel lists. Weights of the same leaf and target
    are summed.
    """
    trees, places = _trees(**nodes)
    lengths = {len(leaves[0]), len(leaves[1]), len(targets), len(weights)}
    if lengths == {0} or len(lengths) != 1:
        raise ValueError("weights of at least one leaf, in attributes of equal lengths, expected")
    rows = places.of(_ranks(places.trees, ids(leaves[0])), ids(leaves[1]))
    if np.any((targets < 0) | (targets >= count)) or np.any(rows < 0):
        raise ValueError("weights of a leaf or target that does not exist")
    checked_size(len(trees.yes) * count, 9)
    table = np.zeros((len(trees.yes), count), (F64 if x.type.dtype is F64 else F32).numpy)
    given = np.zeros(table.shape, bool)
    np.add.at(table, (rows, targets), weights)
    given[rows, targets] = True
    return trees, table, given


@translates("TreeEnsembleRegressor", since=1, domain=ML)
def tree_ensemble_regressor(
    x: Value,
    *,
    target_treeids: IntList = (),
    target_nodeids: IntList = (),
    target_ids: IntList = (),
    target_weights: FloatList = (),
    target_weights_as_tensor: np.ndarray | None = None,
    n_targets: int = 1,
    aggregate_function: str = "SUM",
    base_values: FloatList = (),
    base_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    **nodes: IntList | FloatList | Categorical | np.ndarray,
) -> Value:
    """[N, F] to [N, n_targets] in f32: the aggregated weights of the leaves that a sample reaches, plus the base values."""
    kinds = {name.upper(): number for number, name in SUMS.items()}
    if aggregate_function not in kinds:
        raise ValueError(f"aggregate_function={aggregate_function!r}: one of {', '.join(kinds)} expected")
    require_floats(target_weights_as_tensor=target_weights_as_tensor, base_values_as_tensor=base_values_as_tensor)
    weights = _numbers(target_weights, target_weights_as_tensor)
    trees, table, given = _forest(x, nodes, (target_treeids, target_nodeids), ids(target_ids), weights, n_targets)
    scores = aggregated(leaf_of(x, trees), table, given, kinds[aggregate_function])
    base = _numbers(base_values, base_values_as_tensor)
    if len(base):
        if len(base) != n_targets:
            raise ValueError(f"{n_targets} base values expected, {len(base)} given")
        scores = ops.Add(scores, constant(base.astype(scores.type.dtype.numpy)))
    return transformed(cast(scores, F32), post_transform)


@translates("TreeEnsembleClassifier", since=1, domain=ML)
def tree_ensemble_classifier(
    x: Value,
    *,
    class_treeids: IntList = (),
    class_nodeids: IntList = (),
    class_ids: IntList = (),
    class_weights: FloatList = (),
    class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    base_values: FloatList = (),
    base_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    **nodes: IntList | FloatList | Categorical | np.ndarray,
) -> tuple[Value, Value]:
    """The label of the greatest score, and the scores in f32.

    If there are two classes and weights for only one, onnxruntime's rules hold: the score s is that of the second
    class. It wins above 0.5 if no weight is negative, otherwise above 0. The score of the first class is 1 - s or -s.
    """
    labels = classlabels_int64s or classlabels_strings
    if len(labels) < 2:
        raise UnsupportedError("a classifier of fewer than two classes")
    require_floats(class_weights_as_tensor=class_weights_as_tensor, base_values_as_tensor=base_values_as_tensor)
    weights, classes = _numbers(class_weights, class_weights_as_tensor), ids(class_ids)
    trees, table, given = _forest(x, nodes, (class_treeids, class_nodeids), classes, weights, len(labels))
    weighed: np.ndarray = np.unique(classes)
    base = _numbers(base_values, base_values_as_tensor)
    single_score = len(labels) == 2 and len(weighed) == 1
    if len(base) not in {0, 1 if single_score else len(labels)}:
        raise UnsupportedError(
            f"{len(base)} base values for {len(labels)} classes, {len(weighed)} of which have weights"
        )
    if single_score:
        table, given = (array[:, weighed] for array in (table, given))
    scores = aggregated(leaf_of(x, trees), table, given, 1)
    if len(base):
        scores = ops.Add(scores, constant(base.astype(scores.type.dtype.numpy)))
    scores = cast(scores, F32)
    if not single_score:
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
