"""RNN, GRU and LSTM as loops over primitive operators, one loop for each direction. A single step is no loop."""

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
    transpose,
    unsqueeze,
)
from gpucomp.frontend.onnx.repeat import is_loop, repeat
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value
from gpucomp.ir import types as t

Activation = Callable[[Value], Value]
State = tuple[Value, ...]
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
        built.append(lambda x, build=build, alpha=alpha, beta=beta: build(x, alpha, beta))  # type: ignore[misc]
    return [built[k * len(defaults) : (k + 1) * len(defaults)] for k in range(directions)]


DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
DIRECTIONS["foward"] = DIRECTIONS["forward"]  # misspelt default in the schema of GRU, opset 1


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
        self.hidden = r.shape[2]
        self.w, self.r = w, r
        if hidden is not None and hidden != self.hidden:
            raise ValueError(f"hidden_size is {hidden}, but the weights have {self.hidden} hidden elements")
        expected = (len(self.backward), gates * self.hidden, self.width)
        if w.shape != expected or r.shape != (*expected[:2], self.hidden):
            raise ValueError(f"w of shape {list(expected)} expected")
        if lengths is not None and lengths.shape != (self.batch,):
            raise ValueError(f"{self.batch} sequence lengths expected")
        self.lengths = None if lengths is None else reshape(cast(lengths, t.I64), (self.batch, 1))

    def weights(self, value: Value, d: int) -> Value:
        """Direction ``d`` of w or r, transposed to be a right operand."""
        return transpose(squeeze(part(value, 0, d, 1), (0,)), (1, 0))

    def vector(self, value: Value | None, d: int, size: int) -> Value | None:
        if value is None:
            return None
        if value.shape != (len(self.backward), size):
            raise ValueError(f"[{len(self.backward)}, {size}] expected, {value.type} given")
        return squeeze(part(value, 0, d, 1), (0,))

    def initial(self, value: Value | None, d: int) -> Value:
        if value is None:
            return expand(scalar_of(self.x.type.dtype, 0), (self.batch, self.hidden))
        value = transpose(value, (1, 0, 2)) if self.layout else value
        if value.shape != (len(self.backward), self.batch, self.hidden):
            raise ValueError(f"an initial state of {len(self.backward)} x {self.batch} x {self.hidden} expected")
        return squeeze(part(value, 0, d, 1), (0,))

    def of_input(self, d: int) -> Activation:
        """The product of the input with its weights of direction ``d``."""
        weights = self.weights(self.w, d)
        return lambda x: ops.MatMul(x, weights)

    def of_state(self, d: int) -> Activation:
        """The product of the previous state with its weights of direction ``d``."""
        weights = self.weights(self.r, d)
        return lambda h: ops.MatMul(h, weights)

    def projected(self, d: int, bias: Value | None) -> Value:
        """x w^T + bias of all steps at once: [time, batch, gates * hidden]."""
        flat = reshape(self.x, (self.time * self.batch, self.width))
        y = self.of_input(d)(flat)
        y = y if bias is None else ops.Add(y, bias)
        return reshape(y, (self.time, self.batch, y.shape[1]))

    def run(self, cells: Sequence[Cell], inputs: Sequence[Value], states: Sequence[State]) -> tuple[Value, ...]:
        """Y [time, directions, batch, hidden], then each state's last value [directions, batch, hidden]."""
        found = [self._direction(d, cells[d], inputs[d], states[d]) for d in range(len(self.backward))]
        finals = [concat([unsqueeze(last[k], (0,)) for last, _ in found], 0) for k in range(len(states[0]))]
        y = concat([unsqueeze(rows, (1,)) for _, rows in found], 1)
        if self.layout:
            return transpose(y, (2, 0, 1, 3)), *(transpose(v, (1, 0, 2)) for v in finals)
        return y, *finals

    def _direction(self, d: int, cell: Cell, source: Value, initial: State) -> tuple[State, Value]:
        """The last state of direction ``d``, and its h of all steps [time, batch, hidden]."""
        if self.time == 0:
            return initial, expand(scalar_of(self.x.type.dtype, 0), (0, self.batch, self.hidden))
        scanned = [source]
        if self.lengths is not None:
            scanned.append(ops.Less(reshape(iota(self.time), (self.time, 1, 1)), self.lengths))
        backward = self.backward[d]
        if is_loop(self.time):

            def build(state: Sequence[Value], slices: Sequence[Value]) -> tuple[State, State]:
                after, output = self._step(cell, tuple(state), *slices)
                return after, (output,)

            *last, rows = repeat(self.time, initial, [(v, backward) for v in scanned], build, (backward,))
            return tuple(last), rows
        state, outputs = initial, []
        for step in range(self.time):
            place = self.time - 1 - step if backward else step
            state, output = self._step(cell, state, *(squeeze(part(v, 0, place, 1), (0,)) for v in scanned))
            outputs.append(unsqueeze(output, (0,)))
        return state, concat(outputs[::-1] if backward else outputs, 0)

    def _step(self, cell: Cell, state: State, now: Value, active: Value | None = None) -> tuple[State, Value]:
        """The state after a step, and its h. Sentences that have ended keep their state, and their h is 0."""
        after = cell(now, state)
        if active is None:
            return after, after[0]
        kept = tuple(ops.Where(active, new, old) for new, old in zip(after, state, strict=True))
        return kept, ops.Where(active, after[0], like(after[0], 0))


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
    cells: list[Cell] = []
    inputs, states = [], []
    for d, (f,) in enumerate(functions):
        both = it.vector(bias, d, 2 * it.hidden)
        inputs.append(it.projected(d, None if both is None else ops.Add(*_gates(both, 2))))
        states.append((it.initial(initial_h, d),))
        weights = it.weights(r, d)

        def cell(now: Value, state: State, f: Activation = f, weights: Value = weights) -> State:
            return (f(limit(ops.Add(now, ops.MatMul(state[0], weights)))),)

        cells.append(cell)
    return it.run(cells, inputs, states)


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
    cells: list[Cell] = []
    inputs, states = [], []
    for d, (f, g) in enumerate(functions):
        both = it.vector(bias, d, 6 * it.hidden)
        wb = None if both is None else part(both, 0, 0, 3 * it.hidden)
        rb = None if both is None else _gates(part(both, 0, 3 * it.hidden, 3 * it.hidden), 3)
        inputs.append(it.projected(d, wb))
        states.append((it.initial(initial_h, d),))
        weights = _gates(it.weights(r, d), 3)

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

        cells.append(cell)
    return it.run(cells, inputs, states)


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
    cells: list[Cell] = []
    inputs, states = [], []
    for d, (f, g, h) in enumerate(functions):
        both = it.vector(bias, d, 8 * it.hidden)
        inputs.append(it.projected(d, None if both is None else ops.Add(*_gates(both, 2))))
        states.append((it.initial(initial[0], d), it.initial(initial[1], d)))
        diagonals = it.vector(peepholes, d, 3 * it.hidden)
        peep = None if diagonals is None else _gates(diagonals, 3)
        product = it.of_state(d)

        def cell(
            now: Value,
            state: State,
            f: Activation = f,
            g: Activation = g,
            h: Activation = h,
            product: Activation = product,
            peep: list[Value] | None = peep,
        ) -> State:
            before, memory = state
            si, so, sf, sc = _gates(ops.Add(now, product(before)), 4)

            def gate(total: Value, k: int, cell_state: Value) -> Value:
                total = total if peep is None else ops.Add(total, ops.Mul(peep[k], cell_state))
                return f(limit(total))

            i = gate(si, 0, memory)
            forget = ops.Sub(like(i, 1), i) if input_forget else gate(sf, 2, memory)
            new = ops.Add(ops.Mul(forget, memory), ops.Mul(i, g(limit(sc))))
            return ops.Mul(gate(so, 1, new), h(new)), new

        cells.append(cell)
    return it.run(cells, inputs, states)
