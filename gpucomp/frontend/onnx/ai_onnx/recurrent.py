"""RNN, GRU and LSTM as loops over primitive operators. A few steps are written out.

Two directions are two loops, or one if the weights of both stay in a processor's cache from step to step. Values of a loop
have a leading axis for its directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpucomp import ops
from gpucomp.frontend.onnx.compose import (
    cast,
    concat,
    expand,
    iota,
    like,
    part,
    reshape,
    scalar_of,
    squeeze,
    strided,
    transpose,
    unsqueeze,
)
from gpucomp.frontend.onnx.repeat import is_loop, repeat
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value
from gpucomp.ir import types as t
from gpucomp.lazy_dataclass import dataclass

Activation = Callable[[Value], Value]  # those of the same name and numbers are equal
State = tuple[Value, ...]
Product = Callable[[Value, Value], Value]  # the projected input of one step and h
Cell = Callable[[Value, State], State]  # the projected input of one step and the state -> the new state, h first


def _scaled_tanh(x: Value, alpha: float, beta: float) -> Value:
    return ops.Mul(ops.Tanh(ops.Mul(x, like(x, beta))), like(x, alpha))


def _affine(x: Value, alpha: float, beta: float) -> Value:
    return ops.Add(ops.Mul(x, like(x, alpha)), like(x, beta))


# name -> (default alpha, default beta, function that builds it)
ACTIVATIONS: dict[str, tuple[float, float, Callable[[Value, float, float], Value]]] = {
    "relu": (0, 0, lambda x, a, b: ops.Relu(x)),
    "tanh": (0, 0, lambda x, a, b: ops.Tanh(x)),
    "sigmoid": (0, 0, lambda x, a, b: ops.Sigmoid(x)),
    "softsign": (0, 0, lambda x, a, b: ops.Softsign(x)),
    "softplus": (0, 0, lambda x, a, b: ops.Softplus(x)),
    "affine": (1, 0, _affine),
    "leakyrelu": (0.01, 0, lambda x, a, b: ops.LeakyRelu(x, alpha=a)),
    "thresholdedrelu": (1, 0, lambda x, a, b: ops.ThresholdedRelu(x, alpha=a)),
    "scaledtanh": (1, 1, _scaled_tanh),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: ops.HardSigmoid(x, alpha=a, beta=b)),
    "elu": (1, 0, lambda x, a, b: ops.Elu(x, alpha=a)),
}
TAKES_ALPHA = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
TAKES_BETA = {"affine", "scaledtanh", "hardsigmoid"}


@dataclass(frozen=True)
class _Activation:
    build: Callable[[Value, float, float], Value]
    alpha: float
    beta: float

    def __call__(self, x: Value) -> Value:
        return self.build(x, self.alpha, self.beta)


def chosen_activations(
    names: Sequence[str] | None,
    defaults: Sequence[str],
    directions: int,
    alphas: Sequence[float],
    betas: Sequence[float],
) -> list[list[Activation]]:
    """The activations f, g, h of each direction. Those with an alpha or a beta take the given ones in order."""
    names = list(defaults) * directions if not names else list(names)
    if len(names) != len(defaults) * directions:
        raise ValueError(f"{len(defaults) * directions} activations expected, {len(names)} given")
    left_alphas, left_betas = list(alphas), list(betas)
    built: list[Activation] = []
    for name in names:
        key = name.lower()
        if key not in ACTIVATIONS:
            raise ValueError(f"activation {name!r}: one of {', '.join(ACTIVATIONS)} expected")
        alpha, beta, build = ACTIVATIONS[key]
        alpha = left_alphas.pop(0) if key in TAKES_ALPHA and left_alphas else alpha
        beta = left_betas.pop(0) if key in TAKES_BETA and left_betas else beta
        built.append(_Activation(build, alpha, beta))
    return [built[k * len(defaults) : (k + 1) * len(defaults)] for k in range(directions)]


DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
DIRECTIONS["foward"] = DIRECTIONS["forward"]  # misspelt default in the schema of GRU, opset 1
TOGETHER_BYTES = 1 << 20  # of the weights of the state in both directions


@dataclass(frozen=True)
class Lanes:
    """Directions ``first`` to ``first + count - 1``, which run in one loop."""

    first: int
    count: int

    def of(self, value: Value) -> Value:
        """Their part of an operand with a leading axis for all directions."""
        return part(value, 0, self.first, self.count)


def split(value: Value) -> list[Value]:
    """The parts of ``value`` along its first axis."""
    return [squeeze(part(value, 0, k, 1), (0,)) for k in range(value.shape[0])]


def stacked(parts: Sequence[Value]) -> Value:
    """``parts`` along a new first axis."""
    return concat([unsqueeze(v, (0,)) for v in parts], 0)


class Recurrence:
    """The common part of the three operators: checks operands, splits them by direction, loops, masks and stacks."""

    def __init__(
        self,
        x: Value,
        w: Value,
        r: Value,
        lengths: Value | None,
        direction: str,
        hidden: int | None,
        gates: int,
        layout: int,
    ) -> None:
        if direction not in DIRECTIONS:
            raise ValueError(f"direction {direction!r}: one of {', '.join(DIRECTIONS)} expected")
        if len(x.shape) != 3 or len(w.shape) != 3 or len(r.shape) != 3:
            raise ValueError("x [time, batch, input], w and r [directions, gates * hidden, ...] expected")
        self.backward = DIRECTIONS[direction]
        self.layout = layout
        self.x = transpose(x, (1, 0, 2)) if layout else x
        self.time, self.batch, self.width = self.x.shape
        self.hidden, self.columns = r.shape[2], r.shape[1]
        self.w, self.r = w, r
        if hidden is not None and hidden != self.hidden:
            raise ValueError(f"hidden_size is {hidden}, but the weights have {self.hidden} hidden elements")
        expected = (len(self.backward), gates * self.hidden, self.width)
        if w.shape != expected or r.shape != (*expected[:2], self.hidden):
            raise ValueError(f"w of shape {list(expected)} expected")
        if lengths is not None and lengths.shape != (self.batch,):
            raise ValueError(f"{self.batch} sequence lengths expected")
        self.lengths = None if lengths is None else reshape(cast(lengths, t.I64), (self.batch, 1))

    def lanes(
        self, functions: Sequence[Sequence[Activation]], *, together: bool = True
    ) -> list[tuple[Lanes, Sequence[Activation]]]:
        """The loops, and the activations of each; one for two directions only if ``together``."""
        count = len(self.backward)
        small = count > 1 and is_loop(self.time) and self.r.type.nbytes <= TOGETHER_BYTES
        if small and together and all(one == functions[0] for one in functions):
            return [(Lanes(0, count), functions[0])]
        return [(Lanes(d, 1), functions[d]) for d in range(count)]

    def vector(self, value: Value | None, lanes: Lanes, size: int) -> Value | None:
        if value is None:
            return None
        if value.shape != (len(self.backward), size):
            raise ValueError(f"[{len(self.backward)}, {size}] expected, {value.type} given")
        return reshape(lanes.of(value), (lanes.count, 1, size))

    def initial(self, value: Value | None, lanes: Lanes) -> Value:
        if value is None:
            return expand(scalar_of(self.x.type.dtype, 0), (lanes.count, self.batch, self.hidden))
        value = transpose(value, (1, 0, 2)) if self.layout else value
        if value.shape != (len(self.backward), self.batch, self.hidden):
            raise ValueError(f"an initial state of {len(self.backward)} x {self.batch} x {self.hidden} expected")
        return lanes.of(value)

    def of_input(self, x: Value, lanes: Lanes) -> Value:
        """The product of the input [time * batch, width] with its weights: columns for each direction in turn."""
        weights = reshape(lanes.of(self.w), (lanes.count * self.columns, self.width))
        return ops.MatMul(x, transpose(weights, (1, 0)))

    def of_state(self, lanes: Lanes) -> Product:
        """now + h r^T, for the projected input and the previous state.

        Two directions are two products: a batch of vectors has no fast kernel.
        """
        weights = [transpose(v, (1, 0)) for v in split(lanes.of(self.r))]
        if lanes.count == 1:
            return lambda now, h: ops.Add(now, ops.MatMul(h, weights[0]))
        return lambda now, h: stacked(
            [ops.Add(x, ops.MatMul(own, w)) for x, own, w in zip(split(now), split(h), weights, strict=True)]
        )

    def projected(self, lanes: Lanes, bias: Value | None) -> Value:
        """x w^T + bias of all steps at once: [time, batch, directions * gates * hidden]."""
        flat = reshape(self.x, (self.time * self.batch, self.width))
        y = self.of_input(flat, lanes)
        y = y if bias is None else ops.Add(y, reshape(bias, (lanes.count * self.columns,)))
        return reshape(y, (self.time, self.batch, lanes.count * self.columns))

    def run(self, loops: Sequence[tuple[Lanes, Cell, Value, State]]) -> tuple[Value, ...]:
        """Y [time, directions, batch, hidden], then each state's last value [directions, batch, hidden].

        ``loops`` have a step, the projected input and the initial state of each loop.
        """
        found = [self._loop(*one) for one in loops]
        finals = [concat(list(states), 0) for states in zip(*(last for last, _ in found), strict=True)]
        y = concat([rows for _, rows in found], 1)
        if self.layout:
            return transpose(y, (2, 0, 1, 3)), *(transpose(v, (1, 0, 2)) for v in finals)
        return y, *finals

    def _loop(self, lanes: Lanes, cell: Cell, source: Value, initial: State) -> tuple[State, Value]:
        """The last state, and the h of all steps [time, directions, batch, hidden]."""
        if self.time == 0:
            shape = (0, lanes.count, self.batch, self.hidden)
            return initial, expand(scalar_of(self.x.type.dtype, 0), shape)
        backward = self.backward[lanes.first : lanes.first + lanes.count]
        scanned = [(source, reverse) for reverse in backward]
        if self.lengths is not None:
            active = ops.Less(reshape(iota(self.time), (self.time, 1, 1)), self.lengths)
            scanned += [(active, reverse) for reverse in backward]

        def step(state: Sequence[Value], slices: Sequence[Value]) -> tuple[State, State]:
            after, output = self._step(cell, tuple(state), slices[: lanes.count], slices[lanes.count :])
            return after, (output,)

        if is_loop(self.time):
            (*last, rows) = repeat(self.time, initial, scanned, step, (backward == (True,),))
            return tuple(last), self._ordered(rows, lanes)
        state, outputs = initial, []
        for number in range(self.time):
            places = [(v, self.time - 1 - number if reverse else number) for v, reverse in scanned]
            state, (output,) = step(state, [squeeze(part(v, 0, place, 1), (0,)) for v, place in places])
            outputs.append(unsqueeze(output, (0,)))
        return state, concat(outputs[::-1] if backward == (True,) else outputs, 0)

    def _ordered(self, rows: Value, lanes: Lanes) -> Value:
        """``rows`` of the steps of one loop by time: with two directions, those of the second are in reverse."""
        if lanes.count == 1:
            return rows
        ahead, back = (part(rows, 1, k, 1) for k in range(2))
        return concat([ahead, strided(back, {0: (self.time - 1, -1, self.time)})], 1)

    def _step(self, cell: Cell, state: State, now: Sequence[Value], active: Sequence[Value]) -> tuple[State, Value]:
        """The state after a step, and its h. Sentences that have ended keep their state, and their h is 0.

        ``now`` has the projected input of all directions, once for each, at the place in time where it is.
        """
        own = [part(v, 1, k * self.columns, self.columns) for k, v in enumerate(now)]
        after = cell(stacked(own), state)
        if not active:
            return after, after[0]
        mask = stacked(active)
        kept = tuple(ops.Where(mask, new, old) for new, old in zip(after, state, strict=True))
        return kept, ops.Where(mask, after[0], like(after[0], 0))


def _clipped(clip: float | None) -> Activation:
    return lambda x: x if clip is None else ops.Clip(x, low=-clip, high=clip)


def _gates(x: Value, count: int) -> list[Value]:
    size = x.shape[-1] // count
    return [part(x, len(x.shape) - 1, k * size, size) for k in range(count)]


@translates("RNN")
def rnn(
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    *,
    activations: tuple[str, ...] | None = None,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Value, ...]:
    """h' = f(x w^T + h r^T + wb + rb)"""
    it = Recurrence(x, w, r, lengths, direction, hidden_size, 1, layout)
    if activations == ("Tanh", "Tanh"):  # the default of the schema is for two directions
        activations = None
    functions = chosen_activations(activations, ("Tanh",), len(it.backward), activation_alpha, activation_beta)
    limit = _clipped(clip)
    loops = []
    for lanes, (f,) in it.lanes(functions):
        both = it.vector(bias, lanes, 2 * it.hidden)
        projected = it.projected(lanes, None if both is None else ops.Add(*_gates(both, 2)))
        product = it.of_state(lanes)

        def cell(now: Value, state: State, f: Activation = f, product: Product = product) -> State:
            return (f(limit(product(now, state[0]))),)

        loops.append((lanes, cell, projected, (it.initial(initial_h, lanes),)))
    return it.run(loops)


@translates("GRU")
def gru(
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    *,
    activations: tuple[str, ...] | None = None,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Value, ...]:
    """Gates z, r, h: h' = (1 - z) n + z h, with the reset gate before or after the product with the state."""
    it = Recurrence(x, w, r, lengths, direction, hidden_size, 3, layout)
    functions = chosen_activations(
        activations, ("Sigmoid", "Tanh"), len(it.backward), activation_alpha, activation_beta
    )
    limit = _clipped(clip)
    loops = []
    for lanes, (f, g) in it.lanes(functions, together=False):
        both = it.vector(bias, lanes, 6 * it.hidden)
        wb = None if both is None else part(both, 2, 0, 3 * it.hidden)
        rb = None if both is None else _gates(part(both, 2, 3 * it.hidden, 3 * it.hidden), 3)
        projected = it.projected(lanes, wb)
        weights = _gates(transpose(squeeze(lanes.of(r), (0,)), (1, 0)), 3)

        def cell(
            now: Value,
            state: State,
            f: Activation = f,
            g: Activation = g,
            weights: list[Value] = weights,
            rb: list[Value] | None = rb,
        ) -> State:
            h = state[0]

            def recurrent(operand: Value, k: int) -> Value:
                y = ops.MatMul(operand, weights[k])
                return y if rb is None else ops.Add(y, rb[k])

            xz, xr, xh = _gates(now, 3)
            z = f(limit(ops.Add(xz, recurrent(h, 0))))
            reset = f(limit(ops.Add(xr, recurrent(h, 1))))
            if linear_before_reset:
                new = g(limit(ops.Add(xh, ops.Mul(reset, recurrent(h, 2)))))
            else:
                new = g(limit(ops.Add(xh, recurrent(ops.Mul(reset, h), 2))))
            return (ops.Add(ops.Mul(ops.Sub(like(z, 1), z), new), ops.Mul(z, h)),)

        loops.append((lanes, cell, projected, (it.initial(initial_h, lanes),)))
    return it.run(loops)


@translates("LSTM")
def lstm(
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    peepholes: Value | None = None,
    *,
    activations: tuple[str, ...] | None = None,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Value, ...]:
    """Gates i, o, f, c: c' = f c + i g, h' = o h(c'); peepholes add p c to the gates' sums."""
    it = Recurrence(x, w, r, lengths, direction, hidden_size, 4, layout)
    functions = chosen_activations(activations, LSTM_ACTIVATIONS, len(it.backward), activation_alpha, activation_beta)
    return run_lstm(it, functions, bias, (initial_h, initial_c), peepholes, clip, bool(input_forget))


LSTM_ACTIVATIONS = ("Sigmoid", "Tanh", "Tanh")


def run_lstm(
    it: Recurrence,
    functions: Sequence[Sequence[Activation]],
    bias: Value | None,
    initial: tuple[Value | None, Value | None],
    peepholes: Value | None,
    clip: float | None,
    input_forget: bool,
) -> tuple[Value, ...]:
    limit = _clipped(clip)
    loops = []
    for lanes, (f, g, h) in it.lanes(functions):
        both = it.vector(bias, lanes, 8 * it.hidden)
        projected = it.projected(lanes, None if both is None else ops.Add(*_gates(both, 2)))
        diagonals = it.vector(peepholes, lanes, 3 * it.hidden)
        peep = None if diagonals is None else _gates(diagonals, 3)
        product = it.of_state(lanes)

        def cell(
            now: Value,
            state: State,
            f: Activation = f,
            g: Activation = g,
            h: Activation = h,
            product: Product = product,
            peep: list[Value] | None = peep,
        ) -> State:
            before, memory = state
            si, so, sf, sc = _gates(product(now, before), 4)

            def gate(total: Value, k: int, cell_state: Value) -> Value:
                total = total if peep is None else ops.Add(total, ops.Mul(peep[k], cell_state))
                return f(limit(total))

            i = gate(si, 0, memory)
            forget = ops.Sub(like(i, 1), i) if input_forget else gate(sf, 2, memory)
            new = ops.Add(ops.Mul(forget, memory), ops.Mul(i, g(limit(sc))))
            return ops.Mul(gate(so, 1, new), h(new)), new

        loops.append((lanes, cell, projected, (it.initial(initial[0], lanes), it.initial(initial[1], lanes))))
    return it.run(loops)
