"""Reads files of published measurements. What a file holds is told by its columns, never by its name.

A format is a set of columns that a file has to have; the first of ``FORMATS`` whose columns are all there reads its rows. A
line that begins with ``#`` is a comment; what it says of layouts, sizes and the device counts where no column says it.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from gpucomp.errors import UsageError
from gpucomp.kernel_bench.operations import Attend, Conv, Gemm, Operation, Rows
from gpucomp.lazy_dataclass import dataclass
from gpucomp.targets.by_name import target_of

Row = Mapping[str, str]
EAGER = 200.0  # us: five times the launch of an eager call, 25 to 40 us
EAGER_CONV = 600.0  # convolutions take 60 to 120
ROUNDED = 20.0  # us, where times are rounded to 1 us
LOGGED = 20.0  # us, of libraries' own logs: clocks and launches below that are not stated
DEVICES = ("device", "system", "gpu", "arch", "db")  # columns that tell the device
SYNONYMS = {"bfloat16": "bf16", "float16": "f16", "fp16": "f16", "half": "f16", "float32": "f32", "fp32": "f32"}
SYNONYMS |= {"float": "f32", "single": "f32", "tfloat32": "tf32", "int8": "i8", "s8": "i8"}
# Tensile's types of products in f32 or i32; with sums of f16 or of f64 there is nothing like them here
TENSILE_TYPES = {"sb": "f32", "hhs_bh": "f16", "hss_bh": "f16", "bbs_bh": "bf16", "bss_bh": "bf16"}
TENSILE_TYPES |= {"4xi8ii_bh": "i8", "i8ii_bh": "i8"}
VECTOR = {
    **dict.fromkeys(("add", "mul", "div", "sub", "pow"), "add"),
    **dict.fromkeys(("addu", "mulu", "divu", "subu", "powu"), "scaled"),
    **{name: name for name in ("relu", "tanh", "gelu", "softmax")},
    **dict.fromkeys(("ln", "layernorm", "layer_norm"), "layer_norm"),
}  # operators of vectors, by their names in files: ``u`` are those with a number


@dataclass(frozen=True)
class Measured:
    """One measurement: the device and the operator as the file names them, the data type, the kernel and its time.

    ``stated`` is off where the file has a share of a peak, from which the time is guessed.
    """

    device: str
    operator: str
    dtype: str
    spec: Operation
    us: float
    stated: bool = True


@dataclass(frozen=True)
class Table:
    """A file: its comment, and its rows by column."""

    name: str
    comment: str
    rows: Sequence[Row]

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.rows[0]) if self.rows else frozenset()


def load(path: Path) -> Table:
    """Read a file of comma-separated values, compressed or not."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    lines = text.splitlines()
    comments = [line.lstrip("# ") for line in lines if line.startswith("#")]
    plain = io.StringIO("\n".join(line for line in lines if line and not line.startswith("#")))
    return Table(path.name, " ".join(comments), list(csv.DictReader(plain)))


def device_of(table: Table, row: Row) -> str:
    return next((row[name] for name in DEVICES if row.get(name)), "") or device_in(table)


def device_in(table: Table) -> str:
    """The device that a comment tells, or else the file's name."""
    found = re.search(
        r"((?:GeForce |Quadro )?(?:RTX|GTX|TITAN|Tesla|Radeon)[ \w]*|"
        r"\b[AHBLVPTW]\d{1,4}S?\b|\bMI\d+X?\b|\b(?:Mali|Adreno)[- \w]+)",
        table.comment,
    )
    return found[1] if found else table.name.split(".")[0].replace("_", " ")


def dtype_of(table: Table, row: Row) -> str:
    said = (row.get("dtype") or row.get("type") or row.get("types") or "").lower()
    if not said:
        found = re.search(r"\b(bf16|tf32|f16|fp16|f32|fp32|int8)\b", table.comment, re.IGNORECASE)
        said = found[1].lower() if found else "f32"
    return SYNONYMS.get(said, TENSILE_TYPES.get(said, said))


def _integer(row: Row, name: str, default: int = 1) -> int:
    return int(float(row[name])) if row.get(name) else default


def _flag(row: Row, *names: str) -> bool:
    return any(row.get(name, "").lower() in ("1", "t", "true", "y") for name in names)


def time_of(row: Row) -> float:
    """The row's time in microseconds."""
    for name, factor in (("us", 1.0), ("time_us", 1.0), ("latency_us", 1.0), ("ms", 1e3), ("time_ms", 1e3)):
        if row.get(name):
            return float(row[name]) * factor
    return 0.0


def _gemms(table: Table) -> Iterator[Measured]:
    """Products: NeuSight's operators have rows ``m`` by ``k`` with depth ``n``, all others ``m`` by ``n`` with depth ``k``."""
    eager, models = "split" in table.columns, "model" in table.columns
    layers = models or "F.linear" in table.comment or "W^T" in table.comment
    for row in table.rows:
        operator, device, dtype = row.get("op", ""), device_of(table, row), dtype_of(table, row)
        m, n, k = (_integer(row, name) for name in ("m", "n", "k"))
        batch, us = _integer(row, "batch"), time_of(row)
        least = EAGER if eager else ROUNDED if models else 0.0
        us = us if us >= least else 0.0
        if k:
            n, k = (k, n) if eager else (n, k)
            if operator == "linear" or layers:
                spec: Operation | None = Gemm(m * batch, n, k, dtype=dtype, b_transposed=True, constant=True)
            else:
                spec = _laid_out(table, row, Gemm(m, n, k, batch, dtype))
        else:
            spec = _between_layers(row, dtype)
        if spec is not None:
            yield Measured(device, operator or "gemm", dtype, spec, us)


def _laid_out(table: Table, row: Row, gemm: Gemm) -> Gemm:
    """``gemm`` with the layout that its row tells. BLAS's columns are contiguous: its m is our n, its A our b."""
    layout = (row.get("layout") or row.get("trans") or "").lower()
    a = _flag(row, "a_t", "ta", "trans_a", "transa", "a_transposed") or layout[:1] == "t"
    b = _flag(row, "b_t", "tb", "trans_b", "transb", "b_transposed") or layout[1:2] == "t"
    if "row-major" in table.comment or not (layout or {"a_t", "ta", "transa", "trans_a"} & table.columns):
        return Gemm(gemm.m, gemm.n, gemm.k, gemm.batch, gemm.dtype, a, b)
    return Gemm(gemm.n, gemm.m, gemm.k, gemm.batch, gemm.dtype, a_transposed=b, b_transposed=a)


def _between_layers(row: Row, dtype: str) -> Operation | None:
    """The norms, activations and additions between the layers of a language model: a row with a depth of 0."""
    operator, m, n = row.get("op", ""), _integer(row, "m"), _integer(row, "n")
    if "norm" in operator:
        return Rows("rms_norm", m, n, dtype)
    if "act" in operator:
        return Rows("gelu" if "phi" in row.get("model", "") else "gated", m, n, dtype)
    return Rows("add", m, n, dtype) if operator == "add" else None


def _attention(table: Table) -> Iterator[Measured]:
    for row in table.rows:
        dtype = dtype_of(table, row)
        batch, tokens, heads, depth = (_integer(row, name) for name in ("batch", "tokens", "heads", "head_dim"))
        spec = Attend(batch, tokens, heads, depth, dtype)
        yield Measured(device_of(table, row), "attention", dtype, spec, time_of(row))


def _eager_convs(table: Table) -> Iterator[Measured]:
    """NeuSight's: square images and windows."""
    for row in table.rows:
        batch, c, k, window, size, stride, pad = (
            _integer(row, name, 0) for name in ("batch", "cin", "cout", "window", "size", "stride", "pad")
        )
        dtype, us = dtype_of(table, row), time_of(row)
        spec = Conv(batch, c, size, size, k, window, window, (pad, pad), (max(1, stride),) * 2, dtype=dtype)
        least = EAGER_CONV if "split" in table.columns else 0.0
        yield Measured(device_of(table, row), "conv", dtype, spec, us if us >= least else 0.0)


def _convs(table: Table) -> Iterator[Measured]:
    """MIOpen's, or anyone's with the same columns: the best solver's time."""
    for row in table.rows:
        spec = conv_of(table, row)
        if spec is not None:
            us = fastest(row)[1] if row.get("solvers_ms") else time_of(row)
            yield Measured(device_of(table, row), "conv", spec.dtype, spec, us if us >= LOGGED else 0.0)


def conv_of(table: Table, row: Row) -> Conv | None:
    """The convolution of a row of MIOpen's columns; ``None`` if it has groups."""
    if _integer(row, "groups") != 1:
        return None
    n, c, h, w, k, r, s = (_integer(row, name) for name in ("n", "c", "h", "w", "k", "r", "s"))
    pad, stride, dilation = (
        (_integer(row, f"{name}h", default), _integer(row, f"{name}w", default))
        for name, default in (("p", 0), ("s", 1), ("d", 1))
    )
    nchw = row.get("layout", "NCHW") == "NCHW"
    return Conv(n, c, h, w, k, r, s, pad, stride, dilation, nchw, dtype_of(table, row))


def fastest(row: Row) -> tuple[str, float]:
    """The fastest solver of a row of MIOpen's, and its time in microseconds."""
    solvers = (part.rpartition(":")[::2] for part in row["solvers_ms"].split(";"))
    return min(((name, 1e3 * float(ms)) for name, ms in solvers), key=lambda one: one[1])


def _vectors(table: Table) -> Iterator[Measured]:
    for row in table.rows:
        operator = VECTOR.get(row["op"].lower())
        if operator is None:
            continue
        dtype, us = dtype_of(table, row), time_of(row)
        spec = Rows(operator, _integer(row, "rows"), _integer(row, "cols"), dtype)
        least = EAGER if "split" in table.columns else 0.0
        yield Measured(device_of(table, row), row["op"], dtype, spec, us if us >= least else 0.0)


PERCENT = 150.0  # no file of GFLOP/s has only smaller values


def _tensile_logic(table: Table) -> Iterator[Measured]:
    """Sizes of rocBLAS's logic, as BLAS has them: GFLOP/s, or per cent of the peak where no value is larger.

    Per cent become a time through the model's own peak, so their ratio tells little.
    """
    most: dict[tuple[str, str], float] = {}
    for row in table.rows:
        key = (row["arch"], row["types"])
        most[key] = max(most.get(key, 0.0), float(row["value"]))
    for row in table.rows:
        dtype = dtype_of(table, row)
        m, n, k, batch = (_integer(row, name) for name in ("m", "n", "k", "batch"))
        value = float(row["value"])
        if dtype not in ("f32", "f16", "bf16", "i8") or value <= 0 or not min(m, n, k, batch):
            continue
        spec = Gemm(n, m, k, batch, dtype, *transposed(row["layout"]))
        percent = most[row["arch"], row["types"]] <= PERCENT
        gflops = value / 100 * peak_gflops(row["arch"], dtype) if percent else value
        us = 2e-3 * m * n * k * batch / gflops if gflops else 0.0
        yield Measured(row["arch"], row["layout"], dtype, spec, us if us >= LOGGED else 0.0, stated=not percent)


def peak_gflops(device: str, dtype: str) -> float:
    target = target_of(device)
    return 2e-3 * target.device.rate(dtype if dtype != "i8" else "s8") if target and target.device else 0.0


def transposed(layout: str) -> tuple[bool, bool]:
    """Whether our a and b are: Tensile's B and A, whose first index is contiguous. ``Ailk_Bljk`` has neither transposed."""
    a, _, b = layout.lower().partition("_")
    return b[1:2] == "j", a[1:2] == "l"


def clblast_problem(table: Table) -> Gemm:
    """The product that a space of CLBlast's is of, as its comment tells. Raises ``UsageError`` (GPC2001)."""
    found = re.search(r"(\d+)\s*(?:\^3|x\s*(\d+)\s*x\s*(\d+))", table.comment)
    if found is None:
        raise UsageError(f"{table.name}: its comment does not tell the problem, such as 4096^3", code="GPC2001")
    m, n, k = (int(found[i] or found[1]) for i in (1, 2, 3))
    return Gemm(n, m, k, a_transposed=True)


def tensile_problem(row: Row) -> Gemm:
    """The product of a row of a space of Tensile's, whose m and n are ours already."""
    a, b = transposed(row["layout"])
    m, n, k, batch = (int(row[name]) for name in ("m", "n", "k", "batch"))
    return Gemm(m, n, k, batch, a_transposed=a, b_transposed=b)


def tensile_device(table: Table, row: Row) -> str:
    """An MI100 for matrix instructions and an MI50 otherwise, unless the file tells."""
    named = re.search(r"MI\d+X?|gfx9\w+", f"{table.comment} {table.name}")
    return named[0] if named else "MI100" if row["mi"] else "MI50"


def _clblast_space(table: Table) -> Iterator[Measured]:
    gemm, device = clblast_problem(table), device_in(table)
    return (Measured(device, "gemm", gemm.dtype, gemm, time_of(row)) for row in table.rows)


def _tensile_space(table: Table) -> Iterator[Measured]:
    for row in table.rows:
        gemm = tensile_problem(row)
        yield Measured(tensile_device(table, row), "gemm", gemm.dtype, gemm, time_of(row))


Reader = Callable[[Table], Iterator[Measured]]


@dataclass(frozen=True)
class Format:
    """What a file with these columns holds: how its rows are read; or a space, with a row for each configuration of a kernel,
    which ``bench.measured.spaces`` reads as schedules.
    """

    name: str
    columns: frozenset[str]
    read: Reader | None = None
    space: Reader | None = None


FORMATS = (
    Format(
        "tensile_space",
        frozenset({"layout", "m", "n", "k", "mt_i", "mt_j", "depth", "gsu"}),
        space=_tensile_space,
    ),
    Format("clblast_space", frozenset({"MWG", "NWG", "KWG", "MDIMC", "NDIMC", "us"}), space=_clblast_space),
    Format("rocblas", frozenset({"arch", "layout", "types", "m", "n", "k", "value"}), _tensile_logic),
    Format("attention", frozenset({"batch", "tokens", "heads", "head_dim"}), _attention),
    Format("eager conv", frozenset({"batch", "cin", "cout", "window", "size"}), _eager_convs),
    Format("conv", frozenset({"n", "c", "h", "w", "k", "r", "s"}), _convs),
    Format("vectors", frozenset({"op", "rows", "cols"}), _vectors),
    Format("gemm", frozenset({"m", "n", "k"}), _gemms),
)


def format_of(table: Table) -> Format | None:
    return next((one for one in FORMATS if one.columns <= table.columns), None)


def sampled(rows: Sequence[Measured], most: int) -> list[Measured]:
    """At most ``most`` rows, the same ones in each run: in the order of their operators and times, evenly far apart."""
    ordered = sorted(rows, key=lambda row: (row.operator, row.us, str(row.spec)))
    if len(ordered) <= most:
        return ordered
    return [ordered[(2 * i + 1) * len(ordered) // (2 * most)] for i in range(most)]
