"""What a file says of a model for a range of sizes: dimensions, formulas, conditions. Converts it to plain data and back.

Files are not trusted. What is right at every size is checked here, once; ``OpenPlan.at`` checks the numbers of each size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from gpucomp.artifact import manifest
from gpucomp.artifact.formulas import LARGEST, LEAST, QUOTIENT, SUM, Formulas, Step, steps_of
from gpucomp.artifact.manifest import refuse
from gpucomp.artifact.open_plan import OPPOSITES, Choices, OpenPlan, Place, Stack
from gpucomp.artifact.plan import COUNTER, INPUT, TEMP, WEIGHT, Plan
from gpucomp.errors import UsageError, quote
from gpucomp.ir.dim import ANY, Dim
from gpucomp.ir.dims import OpenShapes
from gpucomp.ir.extremes import largest, smallest
from gpucomp.ir.size import Size, quotient, size_of
from gpucomp.ir.types import STRING
from gpucomp.lazy_dataclass import dataclass

FIELDS = {"dims", "steps", "conditions", "orders", "alignment", "outputs", "choices"}
MOST_TERMS = 100  # of an output's extent that is written as a formula again
MOST_ALIGNMENT = 1 << 20
CHOICE = {"kernel", "points", "starts", "kernels", "regrets"}
MOST_VARIANTS, MOST_REGRETS = 64, 10_000
MOST_FACTORS = 16  # of a term
MOST_ORDERS = 4  # of the temporaries in the arena
Data = Mapping[str, Any]


@dataclass(frozen=True)
class OpenModel:
    """``plan`` for the sizes of ``shapes``. ``outputs`` are the shapes of the outputs as they are shown: a number, a place
    among the plan's formulas, or a dimension. ``example`` has sizes that fit.
    """

    shapes: OpenShapes
    plan: OpenPlan
    outputs: tuple[tuple[int | Place | Dim, ...], ...]
    example: Mapping[str, int]

    def shape(self, extents: Sequence[int | Place | Dim]) -> tuple[Any, ...]:
        """The shape with a ``Dim``, or a ``Size``, where each run decides."""
        dims, formulas = self.shapes.dims, self.plan.formulas

        def extent(n: int | Place | Dim) -> Any:
            if isinstance(n, Place):
                found = _size(formulas, n.number, dims, self.example)
                return Dim(formulas.texts[n.number], 0, ANY) if found is None else found
            return n

        return tuple(map(extent, extents))


def _size(formulas: Formulas, place: int, dims: Mapping[str, Dim], example: Mapping[str, int]) -> Any:
    """The number at ``place`` as a size; ``None`` if it would be long, or is none in the whole range."""
    values: dict[int, Any] = {}
    count = len(formulas.dims)
    try:
        for number in formulas.needed(place):
            if number < count:
                name = formulas.dims[number]
                values[number] = size_of(dims[name], example[name])
            else:
                values[number] = _value(formulas.steps[number - count], values)
            _check_short(values[number])
    except (TypeError, ArithmeticError, AssertionError):
        return None
    return values[place]


def _check_short(value: Any) -> None:
    """Raise ``ArithmeticError`` for a size that would take long to compute with."""
    terms = value.terms.items() if isinstance(value, Size) else (((), value),)
    if len(terms) > MOST_TERMS or any(len(factors) > MOST_FACTORS or abs(c) > LARGEST for factors, c in terms):
        raise ArithmeticError("a long formula")


def _value(step: Step, values: Mapping[int, Any]) -> Any:
    if step[0] == SUM:
        total = step[1]
        for factor, places in step[2]:
            product = factor
            for place in places:
                product = values[place] * product
                _check_short(product)
            total = product + total
        return total if step[3] == 1 else total / step[3]
    if step[0] == QUOTIENT:
        return quotient(values[step[1]], values[step[2]])
    return (smallest if step[0] == LEAST else largest)(*(values[place] for place in step[1]))


def data_of(model: OpenModel) -> dict[str, object]:
    """Everything but the plan itself as data for JSON."""
    plan, dims = model.plan, model.shapes.dims
    told = {name: {"said": model.shapes.said[name], "example": model.example[name]} for name in dims}
    return {
        "dims": [
            {"name": name, "low": dim.low, "high": dim.high, "multiple": dim.multiple, **told[name]}
            for name, dim in ((name, dims[name]) for name in plan.formulas.dims)
        ],
        "steps": plan.formulas.steps,
        "conditions": plan.conditions,
        "orders": [[(stack.buffers, stack.above) for stack in order] for order in plan.orders],
        "alignment": plan.alignment,
        "choices": [
            {
                "kernel": one.kernel,
                "points": one.points,
                "starts": one.starts,
                "kernels": one.kernels,
                "regrets": one.regrets,
            }
            for one in plan.choices
        ],
        "outputs": [[n.name if isinstance(n, Dim) else n for n in shape] for shape in model.outputs],
    }


def model_of(data: object, plan_data: object) -> OpenModel:
    """What the parsed JSON describes. Raises ``ArtifactError`` naming the first thing that is wrong."""
    if not isinstance(data, dict) or data.keys() != FIELDS:
        refuse("open", f"the fields {', '.join(sorted(FIELDS))} expected")
    dims, said, example = _dims(data["dims"])
    if not isinstance(data["steps"], list):
        refuse("open.steps", "a list expected")
    formulas = Formulas(tuple(dims), steps_of(data["steps"]))
    plan = manifest.plan_of(plan_data, places=len(formulas))
    orders = tuple(_order(one, f"open.orders[{k}]") for k, one in _items(data["orders"], "orders"))
    conditions = tuple(_condition(one, len(formulas), f"open.conditions[{k}]") for k, one in _items(data["conditions"]))
    alignment = manifest.integer(1, MOST_ALIGNMENT)(data["alignment"], "open.alignment")
    shapes = OpenShapes(_inputs(plan, dims), said, dict.fromkeys(plan.input_containers))
    if missing := dims.keys() - shapes.dims.keys():
        refuse("open.dims", f"no input has a dimension {quote(min(missing))}")
    outputs = tuple(
        _output(one, dims, len(formulas), f"open.outputs[{k}]") for k, one in _items(data["outputs"], "outputs")
    )
    ranks = [len(plan.buffers[position].shape) for position in plan.outputs]
    if len(outputs) != len(ranks):
        refuse("open.outputs", f"{len(ranks)} shapes expected")
    choices = tuple(_choice(one, plan, formulas, f"open.choices[{k}]") for k, one in _items(data["choices"], "choices"))
    variants = [k for one in choices for k in {*one.kernels, one.kernel}]
    others = {k for one in choices for k in one.kernels if k != one.kernel}
    if len(set(variants)) < len(variants) or others & {launch.kernel for launch in plan.launches}:
        refuse("open.choices", "a variant of a kernel is launched elsewhere")
    opened = OpenPlan(plan, formulas, conditions, orders, alignment, choices)
    made = OpenModel(shapes, opened, outputs, example)
    check(made)
    return made


def check(model: OpenModel) -> None:
    """Raise ``ArtifactError`` unless the plan is one for any size: an order holds each temporary once, weights are fixed."""
    plan = model.plan.plan
    for k, buffer in enumerate(plan.buffers):
        shape: tuple[Any, ...] = buffer.shape
        where, places = f"plan.buffers[{k}]", [n.number for n in shape if isinstance(n, Place)]
        if not places:
            continue
        if buffer.kind == WEIGHT or (buffer.kind == COUNTER and plan.kind == "cpu"):  # all sizes share them
            refuse(where, f"a {buffer.kind} has the same shape at every size")
        if buffer.kind == INPUT and max(places) >= len(model.plan.formulas.dims):
            refuse(where, "an extent of an input is a number or a dimension")
        if buffer.dtype == STRING.name:
            refuse(where, "strings have the same shape at every size")
    temporaries = [k for k, buffer in enumerate(plan.buffers) if buffer.kind == TEMP]
    for order in model.plan.orders:
        if sorted(chain.from_iterable(stack.buffers for stack in order)) != temporaries:
            refuse("open.orders", "every temporary expected, each once")
    if not 1 <= len(model.plan.orders) <= MOST_ORDERS:
        refuse("open.orders", f"1 to {MOST_ORDERS} expected")
    variants = {choice.kernel: choice.kernels for choice in model.plan.choices}
    for k, launch in enumerate(plan.launches):
        for kernel in variants.get(launch.kernel, (launch.kernel,)) if launch.kernel >= 0 else ():
            if any(m.parameter >= len(launch.args) for m in plan.kernels[kernel].tensor_maps):
                refuse(f"plan.launches[{k}]", "a tensor map of a parameter that it lacks")


def _items(data: object, what: str = "conditions") -> list[tuple[int, Any]]:
    if not isinstance(data, list):
        refuse(f"open.{what}", "a list expected")
    return list(enumerate(data))


def _dims(data: object) -> tuple[dict[str, Dim], dict[str, str], dict[str, int]]:
    """The dimensions, who said so, and the sizes of the example, all by name."""
    dims: dict[str, Dim] = {}
    said: dict[str, str] = {}
    example: dict[str, int] = {}
    for k, one in _items(data, "dims"):
        where, known = f"open.dims[{k}]", {"name", "low", "high", "multiple", "said", "example"}
        if not isinstance(one, dict) or one.keys() != known:
            refuse(where, f"the fields {', '.join(sorted(known))} expected")
        if not isinstance(one["said"], str):
            refuse(where, f"who says so is a text, found {quote(one['said'])}")
        try:
            dim = Dim(one["name"], one["low"], one["high"], one["multiple"])
        except UsageError as error:
            refuse(where, error.message)
        if dim.name in dims:
            refuse(where, f"a second dimension {quote(dim.name)}")
        if type(one["example"]) is not int or one["example"] not in dim:
            refuse(where, f"{quote(one['example'])} is not {dim.range}")
        dims[dim.name], said[dim.name], example[dim.name] = dim, one["said"], one["example"]
    if not dims:
        refuse("open.dims", "at least one dimension expected")
    return dims, said, example


def _inputs(plan: Plan, dims: Mapping[str, Dim]) -> dict[str, tuple[int | Dim, ...]]:
    """The shapes of the inputs that are tensors."""
    parts = {name for names in plan.input_containers.values() for name in names or ()}
    order = list(dims.values())
    found: dict[str, tuple[int | Dim, ...]] = {}
    grown = {state.input: state for state in plan.states if state.grows}
    for position in plan.inputs:
        buffer = plan.buffers[position]
        if any(isinstance(n, Place) and n.number >= len(order) for n in buffer.shape):
            refuse(f"plan.buffers[{position}]", "an extent of an input is a number or a dimension")
        shape: tuple[int | Dim, ...] = tuple(order[n.number] if isinstance(n, Place) else n for n in buffer.shape)
        if (state := grown.get(buffer.name)) is not None:  # the buffer has its capacity
            if state.dim not in dims or dims[state.dim].high != shape[state.axis]:
                refuse(
                    "plan.states", f"a dimension that ends at {shape[state.axis]} expected, found {quote(state.dim)}"
                )
            shape = (*shape[: state.axis], dims[state.dim], *shape[state.axis + 1 :])
        if buffer.name not in parts:
            found[buffer.name] = shape
        elif any(isinstance(n, Dim) for n in shape):
            refuse(f"plan.buffers[{position}]", "an element of a sequence has the same shape at every size")
    return found


def _condition(data: object, count: int, where: str) -> tuple[int, str, bool]:
    place, relation, truth = data if isinstance(data, list) and len(data) == 3 else (None, None, None)
    if not isinstance(relation, str) or relation not in OPPOSITES or not isinstance(truth, bool):
        refuse(where, f"a place, a relation, and whether it holds expected, found {quote(data)}")
    return manifest.integer(0, count - 1)(place, where), relation, truth


def _choice(data: object, plan: Plan, formulas: Formulas, where: str) -> Choices:
    if not isinstance(data, dict) or data.keys() != CHOICE:
        refuse(where, f"the fields {', '.join(sorted(CHOICE))} expected")
    kernel = manifest.integer(0, len(plan.kernels) - 1)
    points = manifest.integer(0, len(formulas) - 1)(data["points"], where)
    starts = manifest.list_of(manifest.integer(0, LARGEST), most=MOST_VARIANTS)(data["starts"], where)
    kernels = manifest.list_of(kernel, length=len(starts))(data["kernels"], where)
    if not starts or starts[0] != 0 or list(starts) != sorted(set(starts)):
        refuse(where, f"starts that rise from 0 expected, found {quote(list(starts))}")
    found = Choices(kernel(data["kernel"], where), points, starts, kernels, _regrets(data["regrets"], formulas, where))
    own = plan.kernels[found.kernel]
    for other in (plan.kernels[k] for k in kernels):  # they are called with the same arguments
        alike = [(one.language, bool(one.numbers)) for one in (other, own)]
        if alike[0] != alike[1]:
            refuse(where, f"kernel {other.name} cannot take the place of {own.name}")
    return found


def _regrets(data: object, formulas: Formulas, where: str) -> tuple[tuple[tuple[int, ...], float], ...]:
    found = []
    for one in data if isinstance(data, list) and len(data) <= MOST_REGRETS else (None,):
        sizes, ratio = one if isinstance(one, list) and len(one) == 2 else (None, None)
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio <= LARGEST:
            refuse(where, f"sizes and a ratio expected, found {quote(one)}")
        counted = manifest.list_of(manifest.integer(0, ANY), length=len(formulas.dims))
        found.append((counted(sizes, where), float(ratio)))
    return tuple(found)


def _order(data: object, where: str) -> tuple[Stack, ...]:
    if not isinstance(data, list):
        refuse(where, f"a list of stacks expected, found {quote(data)}")
    return tuple(_stack(one, number, f"{where}[{number}]") for number, one in enumerate(data))


def _stack(data: object, number: int, where: str) -> Stack:
    if not isinstance(data, list) or len(data) != 2:
        refuse(where, f"two lists of positions expected, found {quote(data)}")
    buffers = manifest.POSITIONS(data[0], where)
    above = manifest.list_of(manifest.integer(0, number - 1))(data[1], where)
    return Stack(buffers, above)


def _output(data: object, dims: Mapping[str, Dim], count: int, where: str) -> tuple[int | Place | Dim, ...]:
    if not isinstance(data, list) or len(data) > manifest.MAX_RANK:
        refuse(where, f"a list of at most {manifest.MAX_RANK} extents expected")
    found: list[int | Place | Dim] = []
    for one in data:
        match one:
            case str() if 0 < len(one) <= 1_000:
                found.append(dims.get(one) or Dim(one, 0, ANY))
            case {"place": place, **rest} if not rest:
                found.append(Place(manifest.integer(0, count - 1)(place, where)))
            case _:
                found.append(manifest.integer(0, manifest.MAX_SIZE)(one, where))
    return tuple(found)
