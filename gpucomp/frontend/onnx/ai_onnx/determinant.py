"""Det: small matrices by cofactors, larger ones by Gaussian elimination with partial pivoting, unrolled."""

from __future__ import annotations

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import accumulation, cast, expand, iota, like, part, reshape, scalar_of, unsqueeze
from gpucomp.frontend.onnx.translate import Site, translates
from gpucomp.ir import Value

BY_COFACTORS = 4  # matrices of up to so many rows need few products, and no divisions
MOST = 128  # largest number of rows
STEP_NODES = 20  # approximate number of nodes of one elimination step


@translates("Det", since=11)
def determinant(x: Value, *, site: Site) -> Value:
    """[..., n, n] to [...]; 1 if n is 0."""
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"square matrices expected, {x.type} given")
    n, rank = x.shape[-1], len(x.shape)
    if n > MOST:
        raise UnsupportedError(f"determinants of {n} x {n} matrices are not supported, up to {MOST} are")
    if n > BY_COFACTORS:
        site.importer.count(n * STEP_NODES, site)
        return cast(_by_elimination(cast(x, accumulation(x.type.dtype))), x.type.dtype)
    cells = {
        (i, j): reshape(part(part(x, rank - 2, i, 1), rank - 1, j, 1), x.shape[:-2]) for i in range(n) for j in range(n)
    }
    return _by_cofactors(cells, list(range(n)), list(range(n))) if n else expand(like(x, 1), x.shape[:-2])


def _by_cofactors(cells: dict[tuple[int, int], Value], rows: list[int], columns: list[int]) -> Value:
    """The determinant by expansion along the first row."""
    if len(rows) == 1:
        return cells[rows[0], columns[0]]
    total: Value | None = None
    for k, column in enumerate(columns):
        minor = _by_cofactors(cells, rows[1:], columns[:k] + columns[k + 1 :])
        term = ops.Mul(cells[rows[0], column], minor)
        total = term if total is None else (ops.Sub if k % 2 else ops.Add)(total, term)
    assert total is not None
    return total


def _by_elimination(x: Value) -> Value:
    """The product of the pivots, negated for each exchange of rows. Each pivot is the largest element of its column."""
    batch, rank = x.shape[:-2], len(x.shape)
    result = expand(scalar_of(x.type.dtype, 1), batch)
    while (m := x.shape[-1]) > 0:
        column = reshape(part(x, rank - 1, 0, 1), (*batch, m))
        place = ops.ArgMax(ops.Abs(column), axis=rank - 2, keepdims=True, select_last_index=False)
        chosen = unsqueeze(ops.Equal(place, iota(m)), (rank - 1,))  # [..., m, 1]
        row = ops.ReduceSum(ops.Where(chosen, x, like(x, 0)), axes=(rank - 2,), keepdims=True)
        pivot = part(row, rank - 1, 0, 1)
        pivot_first = ops.Equal(reshape(place, batch), like(place, 0))
        sign = ops.Where(pivot_first, like(result, 1), like(result, -1))
        result = ops.Mul(result, ops.Mul(sign, reshape(pivot, batch)))
        if m == 1:
            break
        others = part(
            ops.Where(chosen, part(x, rank - 2, 0, 1), x), rank - 2, 1, m - 1
        )  # with the first row where the pivot's was
        divisor = ops.Where(ops.Equal(pivot, like(pivot, 0)), like(pivot, 1), pivot)  # then the result is 0 already
        factor = ops.Div(part(others, rank - 1, 0, 1), divisor)
        x = ops.Sub(part(others, rank - 1, 1, m - 1), ops.Mul(factor, part(row, rank - 1, 1, m - 1)))
    return result
