"""Fuses two products whose sums are added: one product whose depth is that of both.

    a1[m, k] b1[k, n]  +  a2[m, k] b2[k, n]   =   [a1 a2] [b1; b2]

The last convolution of a residual block and the one in its shortcut are such a pair: the second adds the first's result. One
kernel has the launch and the epilogue of one, and the result between them is neither rounded nor stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.expr.core import (
    Call,
    Cast,
    Expr,
    Hole,
    Load,
    Var,
    call,
    cast,
    loads,
    select,
    substitute,
    var,
    walk,
)
from gpucomp.expr.simplify import simplify
from gpucomp.ir.size import Size
from gpucomp.kernel import Contraction, Kernel, Store
from gpucomp.kernel.forms.matrix import form_of_a
from gpucomp.kernel.passes.fuse_separable import Pair, pairs
from gpucomp.kernel.pipeline import Setting
from gpucomp.kernel.rename import canonical
from gpucomp.kernel.splice import Splice
from gpucomp.kernel.step import KernelStep, Step, is_step_of
from gpucomp.refusal import Refusal

BYTES = 2  # of an operand's element. Wider ones are multiplied by other engines, too


def fuse(steps: Sequence[Step], at: Setting) -> list[Step]:
    """Fuses products whose sums are added, where that is expected to be faster.

    Takes  two contractions over one axis each, by constants. The second one's epilogue is the only reader of the first one's
           result, and adds it to its own sum before anything else
    Gives  one contraction: where the depth of the second ends, operands are those of the first
    Leaves both if the first one's epilogue is more than a sum, if axes differ, if operands are not loaded as whole tiles, or if
           two are faster
    """

    def pays(pair: Pair) -> bool:
        return at.expected.faster([pair.both.kernel], [pair.first.kernel, pair.second.kernel])

    found: dict[Step, Pair] = {}
    for pair in pairs(steps, at.graph.outputs, fused_kernel):
        if {pair.first, pair.second}.isdisjoint({*found, *(p.first for p in found.values())}) and pays(pair):
            found[pair.second] = pair
    gone: set[Step] = {pair.first for pair in found.values()}
    return [found[step].both if step in found else step for step in steps if step not in gone]


def fused_kernel(first: KernelStep, second: KernelStep, place: int) -> KernelStep | Refusal:
    """``second`` with the product ``first``, which it reads as input ``place``, or why they cannot be fused."""
    if not is_step_of(first, Contraction) or not is_step_of(second, Contraction):
        return Refusal("they are not two contractions")
    above, below = first.kernel, second.kernel
    if reason := _not_alike(above, below):
        return Refusal(reason)
    added = _added(above)
    at = _places(above, below, place)
    if isinstance(added, Refusal):
        return added
    if isinstance(at, Refusal):
        return at
    one, two = above.body, below.body
    splice = Splice([first, second], handed=first.outputs, leading=second)
    mine, theirs = splice.renumberings
    (k,), (other,) = two.k, one.k
    depth, both = k.extent, var("k_both", k.extent + other.extent)
    beyond = at | {other: call("sub", both, depth)}

    def side_by_side(near: Expr, far: Expr) -> Expr:
        near, far = theirs(substitute(near, {k: both})), simplify(mine(substitute(far, beyond)))
        if isinstance(near, Cast) and isinstance(far, Cast) and near.value.dtype is far.value.dtype:
            return cast(select(call("lt", both, depth), near.value, far.value), near.dtype)
        return select(call("lt", both, depth), near, far)

    rest = [mine(substitute(term, at)) for term in added]
    stores = []
    for store in below.stores:
        value = _without(store.value, place, two.acc)
        if isinstance(value, Refusal):
            return value
        stores.append(Store(theirs[store.target], tuple(map(theirs, store.index)), _with(theirs(value), two.acc, rest)))
    a, b = side_by_side(two.a, one.a), side_by_side(two.b, one.b)
    body = Contraction((), two.m, two.n, (both,), a, b, two.acc, two.math)
    kernel = splice.kernel(below.family, body, stores)
    if isinstance(form := form_of_a(kernel), Refusal):
        return form
    if form.dtype.nbytes != BYTES:
        return Refusal(f"operands are {form.dtype}")
    if below.params[place].dtype is not form.dtype:
        return Refusal("the result between them is not rounded as operands are, but converted")
    return splice.step(canonical(kernel), second.name, second.why)


def _not_alike(above: Kernel[Contraction], below: Kernel[Contraction]) -> str:
    """Why the two cannot be one contraction; empty if their axes and types are alike."""
    one, two = above.body, below.body
    if type(one) is not Contraction or type(two) is not Contraction or one.tail or two.tail:
        return "one of them is not a plain contraction"
    if one.batch or two.batch or len(one.k) != 1 or len(two.k) != 1:
        return "they have a batch, or a depth of several axes"
    if one.acc.dtype is not two.acc.dtype or one.math != two.math or not one.acc.dtype.is_float:
        return "they add in different types"
    if any(isinstance(v.extent, Size) for body in (one, two) for v in (*body.m, *body.n, *body.k)):
        return "each run decides their sizes"
    for body in (one, two):
        if body.a.dtype is not two.a.dtype or body.b.dtype is not two.b.dtype:
            return "their operands have different types"
    known = ({ld.source for ld in loads(kernel.body.b)} <= kernel.constants for kernel in (above, below))
    return "" if all(known) else "b is not a constant"


def _added(kernel: Kernel[Contraction]) -> list[Expr] | Refusal:
    """What the epilogue adds to the sum; it may only round it besides."""
    if len(kernel.stores) != 1:
        return Refusal("the first has several results")
    terms = _terms(_unrounded(kernel.stores[0].value, kernel.body.acc))
    others = [t for t in terms if t is not kernel.body.acc]
    if len(others) != len(terms) - 1 or any(isinstance(n, Hole) for t in others for n in walk(t)):
        return Refusal("the first does more than add to its sum")
    return others


def _unrounded(value: Expr, acc: Hole) -> Expr:
    return value.value if isinstance(value, Cast) and value.value.dtype is acc.dtype else value


def _terms(value: Expr) -> list[Expr]:
    if isinstance(value, Call) and value.fn == "add":
        return [term for part in value.args for term in _terms(part)]
    return [value]


def _places(above: Kernel[Contraction], below: Kernel[Contraction], place: int) -> dict[Expr, Expr] | Refusal:
    """The rows and columns of ``above`` in terms of those of ``below``, which reads each result where it has its own."""
    store = above.stores[0]
    reads = {ld for e in below.expressions() for ld in loads(e) if ld.source == place}
    if len(reads) != 1 or any(ld.source == place for e in below.body.expressions() for ld in loads(e)):
        return Refusal("the result is read in several places")
    (read,) = reads
    if above.params[store.target] != below.params[place]:
        return Refusal("the stored value is read with another type or shape")
    at: dict[Expr, Expr] = {}
    for here, there in zip(store.index, read.index, strict=True):
        if isinstance(here, Var) and isinstance(there, Var) and here.extent == there.extent and here not in at:
            at[here] = there
        elif here is not there:
            return Refusal("elements are read at other indices than they are stored")
    one, two = above.body, below.body
    if [at.get(v) for v in (*one.m, *one.n)] != [*two.m, *two.n]:
        return Refusal("rows and columns differ")
    return at


def _without(value: Expr, place: int, acc: Hole) -> Expr | Refusal:
    """``value`` without the terms that load input ``place``: each is in a sum with ``acc``, and both are used nowhere else."""
    sums: dict[Expr, Expr] = {}
    stack, seen = [value], set[Expr]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        terms = _terms(node)
        others = [t for t in terms if t is not acc and not _is_load(t, place)]
        if len(others) == len(terms):
            stack += node.operands
            continue
        apart = terms.count(acc) != 1 or len(terms) - len(others) != 2
        if apart or any(n is acc or _is_load(n, place) for t in others for n in walk(t)):
            return Refusal("one of the two results is used other than in their sum")
        sums[node] = _sum([acc, *others])
    return substitute(value, sums)


def _is_load(term: Expr, place: int) -> bool:
    inner = term.value if isinstance(term, Cast) else term
    return isinstance(inner, Load) and inner.source == place


def _with(value: Expr, acc: Hole, rest: Sequence[Expr]) -> Expr:
    """``value`` with ``rest`` added to ``acc``."""
    return substitute(value, {acc: _sum([acc, *(cast(term, acc.dtype) for term in rest)])}) if rest else value


def _sum(terms: Sequence[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = call("add", total, term)
    return total
