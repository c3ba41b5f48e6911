"""onnxruntime's LSTM with 8-bit weights, domain com.microsoft. Its dynamic quantisation replaces every LSTM by it."""

from __future__ import annotations

from gpucomp import ops
from gpucomp.frontend.onnx.ai_onnx.quantize import centred, dynamically_quantized
from gpucomp.frontend.onnx.ai_onnx.recurrent import (
    LSTM_ACTIVATIONS,
    Lanes,
    Product,
    Recurrence,
    chosen_activations,
    run_lstm,
)
from gpucomp.frontend.onnx.compose import cast, expand, reshape, squeeze, transpose
from gpucomp.frontend.onnx.microsoft.common import MICROSOFT
from gpucomp.frontend.onnx.microsoft.quantized import dynamic_quantize_matmul
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value
from gpucomp.ir import types as t

Weights = tuple[
    Value, Value, Value
]  # codes [directions, inputs, columns], scale and zero point, both per direction or per column


class QuantizedRecurrence(Recurrence):
    """Both products are of codes. The operand of the weights is quantized dynamically, by its own range.

    For the input, this is the range over all steps; for the state, the range of a direction over all sentences.
    """

    def __init__(
        self,
        x: Value,
        w: Weights,
        r: Weights,
        lengths: Value | None,
        direction: str,
        hidden: int | None,
    ) -> None:
        if len(w[0].shape) != 3 or len(r[0].shape) != 3:
            raise ValueError(f"[directions, inputs, columns] expected, {w[0].type} and {r[0].type} given")
        super().__init__(x, transpose(w[0], (0, 2, 1)), transpose(r[0], (0, 2, 1)), lengths, direction, hidden, 4, 0)
        self.quantized = w, r

    def of_input(self, x: Value, lanes: Lanes) -> Value:
        codes, *parameters = (lanes.of(v) for v in self.quantized[0])
        columns = lanes.count * self.columns
        scale, zero = (self._of_columns(v, lanes) for v in parameters)
        return dynamic_quantize_matmul(x, reshape(transpose(codes, (1, 0, 2)), (self.width, columns)), scale, zero)

    def _of_columns(self, parameter: Value, lanes: Lanes) -> Value:
        """A parameter of all columns, or one for each column of each direction."""
        if parameter.type.size == 1:
            return reshape(parameter, ())
        wide = expand(
            reshape(parameter, (lanes.count, parameter.type.size // lanes.count)), (lanes.count, self.columns)
        )
        return reshape(wide, (lanes.count * self.columns,))

    def of_state(self, lanes: Lanes) -> Product:
        codes, scale, zero = (lanes.of(v) for v in self.quantized[1])
        if lanes.count == 1:
            own = [squeeze(v, (0,)) for v in (codes, scale, zero)]
            return lambda now, h: ops.Add(now, dynamic_quantize_matmul(h, *own))
        scale, zero = (reshape(v, (lanes.count, 1, v.type.size // lanes.count)) for v in (scale, zero))
        weights = centred(codes, zero)

        def product(now: Value, h: Value) -> Value:
            left, own_scale, own_zero = dynamically_quantized(h, (1, 2), keepdims=True)
            total = ops.MatMul(centred(left, own_zero), weights)
            return ops.Add(now, ops.Mul(cast(total, t.F32), ops.Mul(own_scale, scale)))

        return product


@translates("DynamicQuantizeLSTM", since=1, domain=MICROSOFT)
def dynamic_quantize_lstm(
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None,
    lengths: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    peepholes: Value | None,
    w_scale: Value,
    w_zero: Value,
    r_scale: Value,
    r_zero: Value,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Value, ...]:
    """The standard's LSTM, with ``w`` [directions, inputs, 4 hidden] and ``r`` [directions, hidden, 4 hidden]."""
    it = QuantizedRecurrence(x, (w, w_scale, w_zero), (r, r_scale, r_zero), lengths, direction, hidden_size)
    functions = chosen_activations(activations, LSTM_ACTIVATIONS, len(it.backward), activation_alpha, activation_beta)
    return run_lstm(it, functions, bias, (initial_h, initial_c), peepholes, clip, bool(input_forget))
