"""A random model as it grows: every node is computed by the judges when it is added, and left out where they do not decide.

So the standard's dark corners are avoided by looking at the numbers, not by rules for each operator:

- NaN and infinities: a result that has any is not used. What the standard says of them, the conformance suite tests.
- Large and tiny floats: results beyond ``LARGEST_FLOAT`` are not used, so overflow is no question of summation order.
- Integer overflow, which the standard leaves open: a node is computed in int64 as well, and has to give the same.
- Division by zero, INT_MIN / -1, shifts by the width or more, casts of what the type does not hold: not drawn.
- Jumps (Floor, comparisons, casts to integers, TopK ...) at numbers that rounding may put on either side: every value
  has noisy twins, in which each rounding is a thousand times as large; where an integer or a choice changes between
  them, the node is not used. The second twin's noise is the first one's with its sign changed, so that one of the two
  decides a tie otherwise; in the third, what is no more than noise is nothing. How far the twins of a float are apart is
  also what its tolerance is made of.
- Sums that cancel: the operands of what adds many numbers are moved by that noise too, as if each addend were rounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.judges import judge

LARGEST = 3000  # elements of one value; of a large model 20 times as many
LARGEST_FLOAT = {"float64": 1e4, "float32": 1e4, "float16": 200.0, "bfloat16": 200.0}
LARGEST_INTEGER = 1 << 20  # of 32 and 64 bits: products of two stay exact
MOST_AXES = 6
IR_VERSION = 10
OPSETS = (11, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23, 23, 24, 25, 26)
TWINS = 3

BF16 = np.dtype(ml_dtypes.bfloat16)
F64, F32, F16 = (np.dtype(name) for name in ("float64", "float32", "float16"))
FLOATS = (F64, F32, F16, BF16)
BOOL = np.dtype(bool)
SIGNED = tuple(np.dtype(name) for name in ("int8", "int16", "int32", "int64"))
UNSIGNED = tuple(np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))
INTEGERS = (*SIGNED, *UNSIGNED)
I32, I64, I8, U8 = (np.dtype(name) for name in ("int32", "int64", "int8", "uint8"))
ALL = (*FLOATS, *INTEGERS, BOOL)

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
NOISE = {"float64": 2.0**-43, "float32": 2.0**-14, "float16": 2.0**-9, "bfloat16": 2.0**-6}
# tolerance, of the distance between twins: 256 roundings an operator in the wide types, 8 in the narrow
SHARE = {"float64": 256 * 2.0**-10, "float32": 256 * 2.0**-10, "float16": 8 * 2.0**-2, "bfloat16": 8 * 2.0**-2}
MOST_SENSITIVE = 0.05  # of its largest element that a value may move between twins; 0.5 in the narrow types

# results that are elements of the operands, unrounded
EXACT = frozenset((
    "Abs", "Neg", "Relu", "Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split",
    "Slice", "Expand", "Tile", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Pad",
    "DepthToSpace", "SpaceToDepth", "Trilu", "Compress", "ReverseSequence", "CenterCropPad", "Max", "Min", "Where",
    "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "Clip", "Dropout", "Constant", "ConstantOfShape",
    "Range", "EyeLike", "OneHot", "MaxUnpool", "Not", "And", "Or", "Xor", "Shape", "Size", "Optional", "Unique",
    "NonZero",
))  # fmt: skip
# results whose rounding is that of addends larger than they are
SUMS = frozenset((
    "ReduceSum", "ReduceMean", "ReduceLogSum", "Sum", "Mean", "CumSum", "MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose",
    "DeformConv", "AveragePool", "GlobalAveragePool", "Col2Im", "DFT", "STFT", "Det", "Attention", "RNN", "LSTM", "GRU",
    "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization",
    "MeanVarianceNormalization", "Resize", "Upsample", "GridSample", "RoiAlign", "AffineGrid",
    "FusedMatMul", "FusedConv",
))  # fmt: skip
OVERFLOWING = frozenset((
    "Add", "Sub", "Mul", "Neg", "Abs", "Sum", "ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceL1", "MatMul",
    "Gemm", "CumSum", "CumProd", "Pow", "Cast", "CastLike", "BitShift", "Div", "Mod", "Range", "Einsum", "Clip",
    "ScatterElements", "ScatterND", "Mean",
))  # fmt: skip
# operators of whose f64 every judge that knows it computes a part in f32: table entries, weights, a constant 1/6, an
# attribute divided by another, the statistics for which stash_type asks
IN_F32 = frozenset(("Erf", "Gelu", "HardSwish", "Resize", "GridSample", "RoiAlign", "LRN", "GroupNormalization"))


@dataclass(frozen=True, eq=False)
class Value:
    """A named tensor: what it holds (``array``), what its noisy twins hold, whether it is known at compile time."""

    name: str
    array: np.ndarray
    twins: tuple[np.ndarray, ...]
    fixed: bool = False
    share: float = 0.0  # of the twins' distance: the largest of what it was made from

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def exact(self) -> bool:
        return all(np.array_equal(self.array, twin) for twin in self.twins)

    @property
    def tolerance(self) -> float:
        """How far an element may be off: by the distance of the twins, and two roundings of the largest element."""
        if self.dtype.name not in UNIT_ROUNDOFF:
            return 0.0
        rounding = (
            2 * UNIT_ROUNDOFF[self.dtype.name] * max(_largest(self.array), 1e-3)
        )  # what cancels leaves less than one
        return max(self.share, SHARE[self.dtype.name]) * self._apart() + rounding

    def _apart(self) -> float:
        wide = self.array.astype(np.float64)
        return max(float(np.abs(twin.astype(np.float64) - wide).max(initial=0.0)) for twin in self.twins)


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array.astype(np.float64)).max(initial=0.0))


def onnx_type(dtype: np.dtype) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))


@dataclass(eq=False)
class Draft:
    """The nodes so far, and what each drawing function needs to add more. ``refused`` counts what was not used, and why."""

    rng: np.random.Generator
    opset: int = 23
    main: np.dtype = F32
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    largest: int = LARGEST
    ml_opset: int = 5
    prefix: str = ""  # of the names in a body, which must not hide those around it
    functions: dict[tuple[str, str], onnx.FunctionProto] = field(default_factory=dict)
    _count: int = 0

    # --- choices

    def number(self, low: int, high: int) -> int:
        """From ``low`` to before ``high``."""
        return int(self.rng.integers(low, high))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def one(self, items: Sequence[Any]) -> Any:
        return items[self.number(0, len(items))]

    def some(self, items: Sequence[Any], least: int = 1) -> list[Any]:
        """A random subset, in order."""
        kept = sorted(self.rng.choice(len(items), self.number(least, len(items) + 1), replace=False).tolist())
        return [items[k] for k in kept]

    def extent(self, zero: float = 0.01) -> int:
        roll = self.rng.random()
        if self.largest > LARGEST and roll > 0.5:
            return self.one((24, 31, 32, 33, 48, 63, 64, 65, 97, 128))
        return 0 if roll < zero else 1 if roll < 0.15 else self.one((2, 3, 3, 4, 5, 5, 7, 8, 9, 11, 13, 16, 17))

    def axis(self, rank: int) -> int:
        """An axis, at times counted from the end."""
        return self.number(0, rank) - (rank if self.chance(0.4) else 0)

    def pick(
        self,
        dtypes: Iterable[np.dtype] = FLOATS,
        ranks: Iterable[int] = range(MOST_AXES + 1),
        where: Callable[[Value], bool] = lambda value: True,
    ) -> Value | None:
        """One of the values so far, rather a late one."""
        dtypes, ranks = tuple(dtypes), tuple(ranks)
        fitting = [v for v in self.values if v.dtype in dtypes and v.rank in ranks and where(v)]
        if not fitting:
            return None
        return self.one(fitting[-5:] if self.chance(0.7) else fitting)

    # --- values from nothing

    def fresh(self) -> str:
        self._count += 1
        return f"{self.prefix}v{self._count}"

    def floats(self, *shape: int, scale: float = 1.0, dtype: np.dtype | None = None) -> Value:
        """Weights: uniform between -scale and scale."""
        return self.data((self.rng.uniform(-1, 1, shape) * scale).astype(dtype or self.main))

    def data(self, array: np.ndarray) -> Value:
        """An operand that may be known at compile time or not: mostly an initialiser, at times an input."""
        if self.prefix or self.chance(0.85):
            return self.constant(array)
        return self.input(array)

    def input(self, array: np.ndarray) -> Value:
        value = Value(f"x{len(self.inputs)}", np.asarray(array), (np.asarray(array),) * TWINS)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def constant(self, array: Any) -> Value:
        """An initialiser or the result of a Constant node: the standard wants some operands known."""
        array = np.asarray(array)
        name = self.fresh()
        tensor = numpy_helper.from_array(array, name)
        if self.chance(0.15):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.weights.append(tensor)
        return Value(name, array, (array,) * TWINS, fixed=True)

    def ints(self, *numbers: int) -> Value:
        return self.constant(np.array(numbers, np.int64))

    # --- nodes

    def add(
        self,
        op: str,
        operands: Sequence[Value | None],
        *,
        outputs: int | Sequence[bool] = 1,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value] | None:
        """Append the node unless the judges or the numbers speak against it; its results.

        ``None`` among ``operands`` leaves an optional one out, ``False`` among ``outputs`` an optional result.
        """
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names = [self.fresh() if kept else "" for kept in wanted]
        given = list(operands)
        while given and given[-1] is None:
            given.pop()
        node = helper.make_node(
            op,
            [v.name if v else "" for v in given],
            names,
            name=f"{self.prefix}n{len(self.nodes)}",
            domain=domain,
            **attributes,
        )
        used = list(dict.fromkeys(v for v in given if v))
        return self.append(node, used)

    def append(self, node: onnx.NodeProto, used: Sequence[Value]) -> list[Value] | None:
        """``node``, which reads ``used``: also those that only its bodies read."""
        return self.group([node], used)

    def group(
        self,
        nodes: Sequence[onnx.NodeProto],
        used: Sequence[Value],
        weights: Sequence[TensorProto] = (),
        *,
        levels: bool = False,
    ) -> list[Value] | None:
        """``nodes`` as one that gives the results of its last: between them are sequences, or types that numpy has not.

        ``weights``: initialisers that only they read. ``levels``: floats of few levels, from which noise must not move them.
        """
        op = nodes[-1].op_type
        kept = [name for name in nodes[-1].output if name]
        if any(node.op_type in IN_F32 for node in nodes) and any(v.dtype == F64 for v in used):
            self.refused[op, "no judge is good enough"] += 1
            return None
        alone = self._alone(nodes, used, weights)
        shapes = _inferred(alone)
        if shapes is None:
            self.refused[op, "not valid"] += 1
            return None
        shaken = not levels and any(self._sums(node) for node in nodes)
        twins_of = [{v.name: self._shaken(v.twins[k]) if shaken else v.twins[k] for v in used} for k in range(TWINS)]
        verdict = judge(alone, [{v.name: v.array for v in used}, *twins_of])
        if verdict.reason:
            self.refused[op, verdict.reason] += 1
            return None
        truth, *twins = verdict.answers
        values = []
        for k, name in enumerate(kept):
            array, others = np.asarray(truth[k]), [np.asarray(twin[k]) for twin in twins]
            reason = _unusable(array, others, self.largest)
            if not reason and levels and not all(np.array_equal(array, twin) for twin in others):
                reason = "a jump"
            if not reason and shapes.get(name) not in (None, array.shape):
                reason = "both refuse: the evaluator's shape breaks the standard's rule"
            if reason or (op in OVERFLOWING and array.dtype in INTEGERS and self._overflows(nodes, used, k, array)):
                self.refused[op, reason or "integer overflow"] += 1
                return None
            noisy = self._noisy(op, others)
            share = max([v.share for v in used] + [SHARE.get(array.dtype.name, 0.0)])
            values.append(Value(name, array, noisy, all(v.fixed for v in used), share))
        self.nodes.extend(nodes)
        self.weights.extend(weights)
        self.values.extend(values)
        return values

    def _alone(
        self, nodes: Sequence[onnx.NodeProto], used: Sequence[Value], weights: Sequence[TensorProto] = ()
    ) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(v.name, onnx_type(v.dtype), v.shape) for v in used]
        outputs = [onnx.ValueInfoProto(name=name) for name in nodes[-1].output if name]
        functions = list(self.functions.values())
        return self._model(helper.make_graph(nodes, "alone", infos, outputs, weights), functions)

    def _model(self, graph: onnx.GraphProto, functions: Sequence[onnx.FunctionProto] = ()) -> onnx.ModelProto:
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid("ai.onnx.ml", self.ml_opset), helper.make_opsetid("com.microsoft", 1)]
        opsets += [helper.make_opsetid(domain, 1) for domain in {domain for domain, _ in self.functions}]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, functions=functions)

    def _noisy(self, op: str, twins: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The twins with the error of this node's own rounding added, a thousand times as large as it is."""
        if twins[0].dtype.name not in NOISE or op in EXACT:
            return tuple(twins)
        found, last = [], np.zeros(())
        for k, twin in enumerate(twins):
            wide = twin.astype(np.float64)
            most = NOISE[twin.dtype.name] * (np.abs(wide) + 0.1 * _largest(wide))
            last = -last if k == 1 else self.rng.uniform(-1, 1, wide.shape)
            found.append(np.where((np.abs(wide) < most) & (k > 1), 0, wide + most * last).astype(twin.dtype))
        return tuple(found)

    def _shaken(self, operand: np.ndarray) -> np.ndarray:
        """An operand of a sum, each element moved by as much as a twin's rounding; 16 bits are summed in more of them."""
        if operand.dtype not in (F32, F64):
            return operand
        return (operand * (1 + NOISE[operand.dtype.name] * self.rng.uniform(-1, 1, operand.shape))).astype(
            operand.dtype
        )

    def _sums(self, node: onnx.NodeProto) -> bool:
        """Whether the node adds many numbers, or something in its bodies or in the function that it calls does."""
        bodies = [list(a.g.node) for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
        function = self.functions.get((node.domain, node.op_type))
        bodies += [list(function.node)] if function is not None else []
        return node.op_type in SUMS or any(self._sums(inner) for body in bodies for inner in body)

    def _overflows(self, nodes: Sequence[onnx.NodeProto], used: Sequence[Value], which: int, array: np.ndarray) -> bool:
        """Whether the nodes give something else in int64, by the reference evaluator, which looks at no types."""
        wide = [Value(v.name, v.array.astype(np.int64) if v.dtype in INTEGERS else v.array, ()) for v in used]
        if nodes[-1].op_type in ("Cast", "CastLike"):
            info = np.iinfo(array.dtype)
            source = wide[0].array.astype(np.float64)
            return bool(source.size) and not (info.min <= source.min() and source.max() <= info.max)
        verdict = judge(self._alone(nodes, wide), [{v.name: v.array for v in wide}])
        if verdict.reason:
            return True
        found = np.asarray(verdict.answers[0][which])
        return not np.array_equal(found.astype(np.float64), array.astype(np.float64))

    # --- the whole

    def used_names(self) -> set[str]:
        return {name for node in self.nodes for name in names_read(node)}

    def finish(self) -> Drawn | None:
        """The model: ends are its outputs, and some other values, initialisers and inputs at times too. ``None`` if empty."""
        used = self.used_names()
        made = [v for v in self.values if not v.name.startswith("x")]
        ends = [v for v in made if v.name not in used]
        if not ends:
            return None
        if len(ends) > 1 and self.chance(0.15):
            ends.pop(self.number(0, len(ends)))  # its nodes are dead code
        inner = [v for v in made if v.name in used]
        if inner and self.chance(0.5):
            ends += self.some(inner)[:3]
        if self.inputs and self.chance(0.06):
            ends.append(self.one(self.inputs))
        weights = [w for w in self.weights if w.name in used]
        if weights and self.chance(0.06):
            array = numpy_helper.to_array(self.one(weights))
            name = self.fresh()
            weights.append(numpy_helper.from_array(array, name))
            ends.append(Value(name, array, (array,) * TWINS, fixed=True))
        inputs = [v for v in self.inputs if v.name in used or v in ends]
        if inputs and self.chance(0.04):
            idle = self.input(self.rng.uniform(-1, 1, self.one(((), (3,), (2, 0)))).astype(self.main))
            inputs.insert(self.number(0, len(inputs) + 1), idle)  # that nobody reads
        order = [ends[k] for k in self.rng.permutation(len(ends))]
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "random",
            [info(v.name, onnx_type(v.dtype), v.shape) for v in inputs],
            [info(v.name, onnx_type(v.dtype), v.shape) for v in order],
            weights,
        )
        return Drawn(self._model(graph, list(self.functions.values())), tuple(inputs), tuple(order), self.refused)


def _inferred(model: onnx.ModelProto) -> dict[str, tuple[int, ...]] | None:
    """The shapes of the results as far as the standard's rules tell; ``None`` where the schema does not allow the types."""
    try:
        found = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        checked = onnx.ModelProto()
        checked.CopyFrom(found)
        for output in checked.graph.output:  # the checker wants types and shapes, which no rule tells of some operators
            type = output.type.tensor_type
            type.elem_type = type.elem_type or TensorProto.FLOAT
            type.shape.SetInParent()
        onnx.checker.check_model(checked)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError):
        return None
    types = {output.name: output.type.tensor_type for output in found.graph.output}
    return {
        name: tuple(d.dim_value for d in type.shape.dim)
        for name, type in types.items()
        if type.HasField("shape") and all(d.HasField("dim_value") for d in type.shape.dim)
    }


def names_read(node: onnx.NodeProto) -> set[str]:
    """What ``node`` and its bodies read; names that the bodies define themselves are among them."""
    names = set(node.input) - {""}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            names |= {output.name for output in attribute.g.output}
            for inner in attribute.g.node:
                names |= names_read(inner)
    return names


def _unusable(array: np.ndarray, twins: Sequence[np.ndarray], largest: int) -> str:
    """Why a result cannot be compared; empty when it can."""
    if array.size > largest or array.ndim > MOST_AXES:
        return "too large"
    if array.dtype not in ALL:
        return f"dtype {array.dtype}"
    if any(twin.shape != array.shape for twin in twins):
        return "a jump: the shape depends on rounding"
    if array.dtype.name not in NOISE:
        if array.dtype in (I64, I32, *UNSIGNED[2:]) and _largest(array) > LARGEST_INTEGER:
            return "too large an integer"
        return "" if all(np.array_equal(array, twin) for twin in twins) else "a jump"
    name = array.dtype.name
    wide = array.astype(np.float64)
    if not np.isfinite(wide).all() or _largest(wide) > LARGEST_FLOAT[name]:
        return "not finite or too large"
    apart = max(float(np.abs(t.astype(np.float64) - wide).max(initial=0.0)) for t in twins)
    if not apart <= (MOST_SENSITIVE if name in ("float32", "float64") else 0.5) * max(_largest(wide), 1e-3):
        return "a jump, or too sensitive"
    return ""


@dataclass(frozen=True)
class Drawn:
    """A finished model with the inputs to run it on and the outputs that it has to give."""

    model: onnx.ModelProto
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    refused: Counter[tuple[str, str]]

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {v.name: v.array for v in self.inputs}

    @property
    def operators(self) -> list[str]:
        return sorted(node.op_type for node in self.model.graph.node)

    @property
    def undecided(self) -> list[str]:
        """The nodes that the judges disagree on, or both refuse, a line each."""
        kinds = ("both refuse", "they disagree")
        return [
            f"{op}: {why}" for (op, why), count in self.refused.items() for _ in range(count) if why.startswith(kinds)
        ]
