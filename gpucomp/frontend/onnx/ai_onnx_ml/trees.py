"""TreeEnsemble as a tensor program. Gathers move the node of every sample in every tree down one level at a time."""

from __future__ import annotations

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.ai_onnx_ml.operators import transformed
from gpucomp.frontend.onnx.compose import cast, checked_size, expand, like, scalar_of, unsqueeze
from gpucomp.frontend.onnx.tensors import as_array
from gpucomp.frontend.onnx.translate import IntList, translates
from gpucomp.ir import Value, constant
from gpucomp.ir.types import F32
from gpucomp.lazy_dataclass import dataclass

MAX_LEVELS = 256
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
SUMS = {0: "average", 1: "sum", 2: "min", 3: "max"}
POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class Trees:
    """Branches, followed by leaves. ``features`` to ``missing`` have entries for the branches only.

    ``yes`` and ``no`` are the next nodes, for branches and leaves; a leaf leads to itself. ``sets`` holds the members
    of each node's set, padded with NaN.
    """

    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    missing: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    roots: np.ndarray
    sets: np.ndarray | None = None


def _links(nodes: int, leaves: int, targets: IntList, are_leaves: IntList) -> np.ndarray:
    """The next node of each node. Leaves are numbered after the branches; a leaf leads to itself."""
    places = ids(targets).astype(np.int64) + nodes * (ids(are_leaves) != 0)
    if np.any(places < 0) or np.any(places >= nodes + leaves):
        raise ValueError("a branch leads to a node that does not exist")
    return np.concatenate([places, nodes + np.arange(leaves)]).astype(np.int32)


def ids(listed: IntList) -> np.ndarray:
    """The numbers of a list, in 32 bits if all fit, which saves memory: there can be millions."""
    wide = as_array(listed, np.int64)
    fit = not len(wide) or (wide.min() >= -(1 << 31) and wide.max() < 1 << 31)
    return wide.astype(np.int32) if fit else wide


def require_floats(**given: np.ndarray | None) -> None:
    """Raise ``ValueError`` if an attribute's tensor does not have a floating-point type."""
    for name, array in given.items():
        if array is not None and array.dtype.kind != "f":
            raise ValueError(f"{name} of floating-point elements expected, {array.dtype} given")


def flags(given: IntList, nodes: int) -> np.ndarray:
    """Whether each node is marked. If the list is empty, none is."""
    return ids(given) != 0 if len(given) else np.zeros(nodes, bool)


def _levels(trees: Trees) -> int:
    """The number of steps after which every path from a root has reached a leaf. Raises for a cycle.

    Each node is visited only twice, even if many paths lead to it: first when it is reached, then in the topological
    order of A. B. Kahn (1962), after all of its predecessors.
    """
    nodes = len(trees.features)
    refused = UnsupportedError(f"trees with a cycle or with more than {MAX_LEVELS} levels are not supported")

    def below(frontier: np.ndarray) -> np.ndarray:
        successors = np.concatenate([trees.yes[frontier], trees.no[frontier]])
        return successors[successors < nodes]

    reached, before = np.zeros(nodes, bool), np.zeros(nodes, np.int32)  # unvisited edges to each node
    frontier, steps = np.unique(trees.roots[trees.roots < nodes]), 0
    while len(frontier):
        steps += 1
        if steps > MAX_LEVELS:
            raise refused
        reached[frontier] = True
        successors, ways = np.unique(below(frontier), return_counts=True)
        before[successors] += ways.astype(np.int32)
        frontier = successors[~reached[successors]]
    frontier, level = np.flatnonzero(reached & (before == 0)), 0
    while len(frontier):
        level += 1
        if level > MAX_LEVELS:
            raise refused
        successors, ways = np.unique(below(frontier), return_counts=True)
        before[successors] -= ways.astype(np.int32)
        frontier = successors[before[successors] == 0]
    if np.any(before):
        raise refused
    return level


def _sets(values: np.ndarray | None, modes: np.ndarray) -> np.ndarray:
    """The set of each MEMBER node, padded with NaN, which equals no number. In the attribute, each set ends with a NaN."""
    flat = np.zeros(0) if values is None else values.reshape(-1)
    ends = np.flatnonzero(np.isnan(flat))
    owners = np.flatnonzero(modes == MEMBER)
    count = max(len(ends), 1) if len(flat) else 0
    if count != len(owners):
        raise ValueError(f"{count} sets of membership_values for {len(owners)} nodes")
    members = np.flatnonzero(~np.isnan(flat[: ends[-1]] if len(ends) else flat))
    own = np.searchsorted(ends, members)  # the set of each
    sizes = np.bincount(own, minlength=count)
    width = max(1, sizes.max(initial=0))
    checked_size(len(modes) * width, 8)
    table = np.full((len(modes), width), np.nan)
    table[owners[own], np.arange(len(members)) - (np.cumsum(sizes) - sizes)[own]] = flat[members]
    return table


@translates("TreeEnsemble", since=5, domain="ai.onnx.ml")
def tree_ensemble(
    x: Value,
    *,
    nodes_splits: np.ndarray,
    nodes_featureids: IntList,
    nodes_modes: np.ndarray,
    nodes_truenodeids: IntList,
    nodes_falsenodeids: IntList,
    nodes_trueleafs: IntList,
    nodes_falseleafs: IntList,
    tree_roots: IntList,
    leaf_targetids: IntList,
    leaf_weights: np.ndarray,
    n_targets: int = 1,
    aggregate_function: int = 1,
    post_transform: int = 0,
    membership_values: np.ndarray | None = None,
    nodes_hitrates: np.ndarray | None = None,
    nodes_missing_value_tracks_true: IntList = (),
) -> Value:
    """[N, F] to [N, n_targets]: the sum (or mean, minimum, maximum) per target of the leaves that a sample reaches."""
    if len(x.shape) != 2 or not x.shape[1]:
        raise ValueError(f"[N, F] with features expected, {x.type} given")
    if aggregate_function not in SUMS or post_transform not in range(5):
        raise ValueError(
            f"aggregate_function one of {', '.join(map(str, SUMS))} and post_transform from 0 to 4 expected, "
            f"{aggregate_function} and {post_transform} given"
        )
    require_floats(nodes_splits=nodes_splits, leaf_weights=leaf_weights, membership_values=membership_values)
    if nodes_modes.dtype.kind not in "iu" or np.any((nodes_modes < LEQ) | (nodes_modes > MEMBER)):
        raise ValueError(f"nodes_modes of whole numbers from {LEQ} to {MEMBER} expected")
    nodes, leaves, roots = len(nodes_featureids), len(leaf_targetids), ids(tree_roots)
    modes, splits, targets = nodes_modes.reshape(-1), nodes_splits.reshape(-1), ids(leaf_targetids)
    links = (nodes_truenodeids, nodes_falsenodeids, nodes_trueleafs, nodes_falseleafs)
    lengths = {len(part) for part in (modes, splits, *links, nodes_missing_value_tracks_true or modes)}
    if not nodes or not leaves or not len(roots) or lengths != {nodes} or leaf_weights.size != leaves:
        raise ValueError("trees with at least a node and a leaf, and attributes of equal lengths, expected")
    if np.any(roots < 0) or np.any(roots >= nodes) or np.any((targets < 0) | (targets >= n_targets)):
        raise ValueError("a root or a target that does not exist")
    checked_size((nodes + leaves) * n_targets, 9)
    trees = Trees(
        features=ids(nodes_featureids),
        splits=splits,
        modes=modes,
        missing=flags(nodes_missing_value_tracks_true, nodes),
        yes=_links(nodes, leaves, nodes_truenodeids, nodes_trueleafs),
        no=_links(nodes, leaves, nodes_falsenodeids, nodes_falseleafs),
        roots=roots,
        sets=_sets(membership_values, modes) if np.any(modes == MEMBER) else None,
    )
    table = np.zeros((nodes + leaves, n_targets), leaf_weights.dtype)
    given = np.zeros(table.shape, bool)
    table[nodes + np.arange(leaves), targets] = leaf_weights.reshape(-1)
    given[nodes + np.arange(leaves), targets] = True
    return transformed(aggregated(leaf_of(x, trees), table, given, aggregate_function), POSTS[post_transform])


def _narrowed(sets: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``sets`` in the type of the samples, without the members that overflow it."""
    with np.errstate(over="ignore"):
        narrow = sets.astype(dtype)
    return np.where(np.isinf(narrow) & np.isfinite(sets), np.array(np.nan, dtype), narrow)


def leaf_of(x: Value, trees: Trees) -> Value:
    """[N, F] to [N, trees]: the leaf that each sample reaches. Integers are compared as f32, as in onnxruntime."""
    x = x if x.type.dtype.is_float else cast(x, F32)
    nodes, leaves, dtype = len(trees.features), len(trees.yes) - len(trees.features), x.type.dtype
    if len(x.shape) != 2:
        raise ValueError(f"[N, F] expected, {x.type} given")
    if np.any(trees.features < 0) or np.any(trees.features >= x.shape[1]):
        raise ValueError("a feature that does not exist")

    def table(numbers: np.ndarray) -> Value:  # an additional row per leaf, which has no effect
        padded = np.zeros((nodes + leaves, *numbers.shape[1:]), numbers.dtype)
        padded[:nodes] = numbers
        return constant(padded)

    with np.errstate(over="ignore"):  # splits outside the range of samples become infinite
        splits = trees.splits.astype(dtype.numpy)
    at_node = {
        "feature": table(trees.features),
        "split": table(splits),
        "mode": table(trees.modes.astype(np.int32)),
        "missing": table(trees.missing),
    }
    members = None if trees.sets is None else table(_narrowed(trees.sets, dtype.numpy))
    links = constant(trees.yes), constant(trees.no)
    kinds = [int(mode) for mode in np.unique(trees.modes)]
    place = expand(constant(trees.roots[None, :].astype(np.int32)), (x.shape[0], len(trees.roots)))
    for _ in range(_levels(trees)):
        at_place = {name: ops.Gather(values, place, axis=0) for name, values in at_node.items()}
        value = ops.GatherElements(x, at_place["feature"], axis=1)
        holds = None
        for mode in kinds:
            passed = _compared(mode, value, at_place["split"], place, members)
            holds = (
                passed
                if holds is None
                else ops.Where(ops.Equal(at_place["mode"], like(at_place["mode"], mode)), passed, holds)
            )
        assert holds is not None
        holds = ops.Or(holds, ops.And(ops.IsNaN(value), at_place["missing"]))
        yes, no = (ops.Gather(branch, place, axis=0) for branch in links)
        place = ops.Where(holds, yes, no)
    return place


def _compared(mode: int, value: Value, split: Value, place: Value, members: Value | None) -> Value:
    match mode:
        case 0:
            return ops.LessOrEqual(value, split)
        case 1:
            return ops.Less(value, split)
        case 2:
            return ops.LessOrEqual(split, value)
        case 3:
            return ops.Less(split, value)
        case 4:
            return ops.Equal(value, split)
        case 5:
            return ops.Not(ops.Equal(value, split))
    assert members is not None
    own = ops.Gather(members, place, axis=0)
    hits = ops.Equal(unsqueeze(value, (2,)), own)
    numbers = ops.Where(hits, scalar_of(value.type.dtype, 1), scalar_of(value.type.dtype, 0))
    return ops.Less(scalar_of(value.type.dtype, 0), ops.ReduceMax(numbers, axes=(2,), keepdims=False))


def aggregated(place: Value, table: np.ndarray, given: np.ndarray, aggregate: int) -> Value:
    """[N, trees] to [N, targets]: the rows of ``table`` at ``place``, reduced over the trees where they are ``given``.

    Entries that are not given are 0 in the table. A target without any entry is 0.
    """
    kind = SUMS[aggregate]
    if kind in ("min", "max"):
        table = np.where(given, table, np.array(np.inf if kind == "min" else -np.inf, table.dtype))
    weights = ops.Gather(constant(table), place, axis=0)
    if kind in ("min", "max"):
        reduce = ops.ReduceMin if kind == "min" else ops.ReduceMax
        best = reduce(weights, axes=(1,), keepdims=False)
        return ops.Where(ops.IsInf(best), like(best, 0), best)
    reduce = ops.ReduceMean if kind == "average" else ops.ReduceSum
    return reduce(weights, axes=(1,), keepdims=False)
