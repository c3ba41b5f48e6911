import pytest

from gpucomp import ops
from gpucomp.errors import VerifyError
from gpucomp.ir import Node, Value, constant, format_graph
from gpucomp.rewrite.rule import apply_rules, counting, rule
from tests.builders import chain, graph_of, ops_of, scalar, tensor


@rule(ops.Transpose)
def merge(node):
    """transpose(transpose(x, p), q)  ->  transpose(x, p∘q)"""
    match node:
        case Node(_, (Value(ops.Transpose, (x,), {"perm": inner}),), {"perm": outer}):
            return ops.Transpose(x, perm=tuple(inner[i] for i in outer))
    return None


@rule(ops.Transpose)
def drop_identity(node):
    """transpose(x, (0, 1, ...))  ->  x"""
    return node.inputs[0] if node.attrs["perm"] == tuple(range(len(node.attrs["perm"]))) else None


@rule(ops.Relu)
def fuse_single_use(node, uses):
    """relu(a + b) -> relu(b + a), once and only where the sum has no other reader"""
    match node:
        case Node(_, (Value(ops.Add, (a, b)) as total,)) if uses(total) == 1 and b.op is ops.Constant:
            return ops.Relu(ops.Add(b, a))
    return None


def test_rules_run_to_a_fixed_point_in_one_chain():
    x = tensor("x", 2, 3, 5)
    y = chain(x, 3, lambda v, _: ops.Transpose(v, perm=(1, 2, 0)))

    after = apply_rules(graph_of(ops.Relu(y)), [merge, drop_identity])

    assert format_graph(after) == ("graph(%x: f32[2,3,5]) {\n  %1 = Relu(%x) : f32[2,3,5]\n  return %1\n}\n")


def test_a_graph_where_nothing_fires_is_returned_itself():
    graph = graph_of(ops.Relu(ops.Transpose(tensor("x", 2, 3), perm=(1, 0))))

    assert apply_rules(graph, [merge, drop_identity]) is graph


def test_a_chain_of_twenty_thousand_nodes_is_no_recursion():
    y = chain(tensor("x", 2, 3), 20_000, lambda v, _: ops.Transpose(v, perm=(1, 0)))

    after = apply_rules(graph_of(y), [merge, drop_identity])

    assert ops_of(after) == []


def test_what_a_rule_builds_inside_is_rewritten_too():
    @rule(ops.Neg)
    def expand(node):
        """-x -> relu(x'')"""
        twice = ops.Transpose(ops.Transpose(node.inputs[0], perm=(1, 0)), perm=(1, 0))
        return ops.Relu(twice)

    after = apply_rules(graph_of(ops.Neg(tensor("x", 2, 3))), [expand, merge, drop_identity])

    assert ops_of(after) == ["Relu"]


def test_the_replacing_node_inherits_the_name():
    x = tensor("x", 2, 3, 5)
    inner = ops.Transpose(x, perm=(1, 2, 0), name="first")
    outer = ops.Transpose(inner, perm=(0, 2, 1), name="second")

    after = apply_rules(graph_of(outer), [merge])

    assert after.outputs[0].node.name == "second"


def test_uses_are_counted_while_the_graph_changes():
    x, c = tensor("x", 3), scalar(2.0)
    total = ops.Add(x, c)
    shared = graph_of(ops.Relu(total), ops.Transpose(ops.Transpose(total, perm=(0,)), perm=(0,)))
    single = graph_of(ops.Relu(ops.Transpose(total, perm=(0,))))

    assert ops_of(apply_rules(shared, [fuse_single_use, drop_identity])) == ["Add", "Relu"]
    with counting() as fired:
        apply_rules(shared, [fuse_single_use, drop_identity])
        apply_rules(single, [fuse_single_use, drop_identity])
    assert fired == {"drop_identity": 3, "fuse_single_use": 1}


def test_a_use_that_vanishes_later_makes_the_rule_fire_in_the_next_sweep():
    @rule(ops.Mul)
    def times_one(node):
        """x * 1 -> x"""
        return node.inputs[0] if node.inputs[1].op is ops.Constant else None

    @rule(ops.Max)
    def same(node):
        """max(a, b) -> a"""
        return node.inputs[0]

    x, c = tensor("x", 3), scalar(2.0)
    total = ops.Add(x, c)
    graph = graph_of(ops.Max(ops.Relu(total), ops.Neg(total)))

    after = apply_rules(graph, [fuse_single_use, times_one, same])

    assert after.outputs[0].inputs[0].inputs[0].op is ops.Constant


def test_rules_that_undo_each_other_are_named():
    @rule(ops.Add)
    def swap(node):
        """a + b -> b + a"""
        return ops.Add(node.inputs[1], node.inputs[0])

    with pytest.raises(VerifyError, match=r"no fixed point after \d+ rewrites; these fired most: swap"):
        apply_rules(graph_of(ops.Add(tensor("a", 3), tensor("b", 3))), [swap])


def test_a_rule_that_changes_a_type_is_named():
    @rule(ops.Relu)
    def wrong(node):
        """relu(x) -> 0"""
        return scalar(0.0)

    with pytest.raises(VerifyError, match=r"rule wrong replaces Relu : f32\[3\] by f32\[\]"):
        apply_rules(graph_of(ops.Relu(tensor("x", 3))), [wrong])


def test_a_rule_that_builds_on_its_own_root_is_named():
    @rule(ops.Relu)
    def loop(node):
        """relu(x) -> -relu(x)"""
        return ops.Neg(node[0])

    with pytest.raises(VerifyError, match="rule loop builds on the node that it replaces"):
        apply_rules(graph_of(ops.Relu(tensor("x", 3))), [loop])


def test_a_rule_without_roots_is_tried_on_every_operator():
    @rule()
    def to_zero(node):
        """f(c) -> c"""
        return node.inputs[0] if node.inputs and node.inputs[0].op is ops.Constant else None

    after = apply_rules(graph_of(ops.Relu(constant([1.0])), ops.Neg(constant([2.0]))), [to_zero])

    assert ops_of(after) == []


def test_a_replaced_reader_does_not_count_as_a_use():
    seen = []

    @rule(ops.Neg)
    def rebuild(node):
        """-x -> |x|"""
        return ops.Abs(node.inputs[0])

    @rule(ops.Exp)
    def look(node, uses):
        """exp(f(x)) -> nothing; notes how often x is read"""
        seen.append(uses(node.inputs[0].inputs[0]))

    apply_rules(graph_of(ops.Exp(ops.Neg(ops.Relu(tensor("x", 3))))), [rebuild, look])

    assert set(seen) == {1}
