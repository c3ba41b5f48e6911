"""Forests of a million nodes: in few bytes, lists packed to a byte a number, which other files' writers do not do; and in no
order, with numbers of 64 bits.
"""

from __future__ import annotations

import numpy as np

from tests.hostile.bytes import field, plain, varint
from tests.hostile.corpus import OK, content
from tests.onnx_builders import model, node, value

FLOATS, INTS, STRINGS = 6, 7, 8  # types of attributes
A_TREE = 128
ML = b"ai.onnx.ml"


def attribute(name: str, type: int, value: bytes) -> bytes:
    return field(5, field(1, name.encode()) + value + varint(20 << 3) + varint(type))


def ints(name: str, numbers: np.ndarray) -> bytes:
    """From 0 on, packed: seven bits a byte, as many as each takes."""
    left, columns = numbers.astype(np.int64), []
    while not columns or np.any(left):
        columns.append((left & 127 | (left > 127) << 7).astype(np.uint8))
        left >>= 7
    there = [np.ones(len(numbers), bool), *(column > 127 for column in columns[:-1])]
    return attribute(name, INTS, field(8, np.stack(columns, 1)[np.stack(there, 1)].tobytes()))


def forest(trees: int, yes: np.ndarray, no: np.ndarray, modes: bytes, targets: int) -> bytes:
    """Of equal trees of ``A_TREE`` nodes, whose ``modes`` are fields; one leaf, the last of the first tree, gives something."""
    lists = {
        "treeids": np.repeat(np.arange(trees), A_TREE),
        "nodeids": np.tile(np.arange(A_TREE), trees),
        "truenodeids": np.tile(yes, trees),
        "falsenodeids": np.tile(no, trees),
    }
    return listed(lists, modes, targets, (0, A_TREE - 1))


def shuffled(trees: int, size: int) -> bytes:
    """Trees in no order, but for the roots in front: a node leads a half and a quarter of the way to the last. A tree and a node
    have numbers of more than 32 bits.
    """
    rng = np.random.default_rng(3)
    nodes = trees * size
    tree, number = rng.permutation(trees), rng.permutation(nodes)
    tree[-1] = number[-2] = 1 << 40
    at = np.arange(nodes)
    ahead = size - 1 - at % size
    order = np.concatenate([rng.permutation(at[::size]), rng.permutation(at[at % size > 0])])
    yes, no = (number[at + -(-ahead // part)][order] for part in (2, 4))
    lists = {"treeids": tree[at // size][order], "nodeids": number[order], "truenodeids": yes, "falsenodeids": no}
    branches = (ahead > 0)[order]
    ends = np.array([field(9, b"LEAF"), field(9, b"BRANCH_LT")], object)
    return listed(lists, b"".join(ends[branches.astype(int)]), 1, (int(tree[0]), int(number[size - 1])))


def listed(lists: dict[str, np.ndarray], modes: bytes, targets: int, leaf: tuple[int, int]) -> bytes:
    """A forest of these nodes; ``leaf``, by tree and number, gives something."""
    nodes = len(lists["nodeids"])
    lists |= {"featureids": np.zeros(nodes, np.int64)}
    body = b"".join(ints(f"nodes_{name}", numbers) for name, numbers in lists.items())
    body += attribute("nodes_modes", STRINGS, modes) + attribute("nodes_values", FLOATS, field(7, bytes(4 * nodes)))
    for name, number in {"treeids": leaf[0], "nodeids": leaf[1], "ids": 0}.items():
        body += ints(f"target_{name}", np.array([number]))
    body += attribute("target_weights", FLOATS, field(7, np.ones(1, np.float32).tobytes()))
    body += attribute("n_targets", 2, b"\x18" + varint(targets))
    made = field(1, b"x") + field(2, b"y") + field(4, b"TreeEnsembleRegressor") + field(7, ML)
    around = model([node("Neg", ["x"], ["q"])], [value("x", (3, 2))]).graph
    del around.node[:]
    return plain(field(1, made + body) + around.SerializeToString()) + field(8, field(1, ML) + b"\x10\x03")


def modes(trees: int, branches: int) -> bytes:
    return (field(9, b"BRANCH_LT") * branches + field(9, b"LEAF") * (A_TREE - branches)) * trees


AT = np.arange(A_TREE)
LAST = A_TREE - 1
HALVED = [np.where(AT < 63, 2 * AT + k, LAST) * (AT < 64) for k in (1, 2)]  # 64 nodes that branch, seven levels
CHAINED = [(AT + 1) * (AT < LAST), LAST * (AT < LAST)]  # as many levels as nodes
TURNING = [(2 * AT + k) % LAST * (AT < LAST) for k in (1, 2)]  # a cycle through all that branch

content("forests/nodes_of_few_bytes", OK, lambda: forest(10_233, *HALVED, modes(10_233, 64), 3))
content("forests/shuffled_nodes_of_wide_numbers", OK, lambda: shuffled(1, 700_001))
content("forests/shuffled_trees_of_wide_numbers", OK, lambda: shuffled(87_011, 8))
content("forests/nodes_in_a_chain", OK, lambda: forest(10_233, *CHAINED, modes(10_233, LAST), 3))
content(
    "forests/too_many_nodes_of_few_bytes",
    "GPC4006",
    lambda: forest(11_003, *HALVED, modes(11_003, 64), 1),
    "bytes of lists",
)
content(
    "forests/too_many_targets", "GPC4001", lambda: forest(10_007, *HALVED, modes(10_007, 64), 5), "makes a constant"
)
content(
    "forests/cycles_through_all_nodes", "GPC4001", lambda: forest(9_001, *TURNING, modes(9_001, LAST), 1), "a cycle"
)
content(
    "forests/modes_that_all_differ",
    "GPC3014",
    lambda: forest(7_001, *HALVED, b"".join(field(9, b"%d" % k) for k in range(7_001 * A_TREE)), 1),
    "different texts",
)
