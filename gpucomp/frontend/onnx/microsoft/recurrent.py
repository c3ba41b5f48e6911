"""onnxruntime's LSTM with 8-bit weights, domain com.microsoft. Its dynamic quantisation replaces every LSTM by it."""

from __future__ import annotations

from gpucomp.frontend.onnx.ai_onnx.recurrent import (
    LSTM_ACTIVATIONS,
    Activation,
    Recurrence,
    chosen_activations,
    run_lstm,
)
from gpucomp.frontend.onnx.compose import part, squeeze, transpose
from gpucomp.frontend.onnx.microsoft.common import MICROSOFT
from gpucomp.frontend.onnx.microsoft.quantized import dynamic_quantize_matmul
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value

Weights = tuple[
    Value, Value, Value
]  # codes [directions, inputs, columns], scale and zero point, both per direction or per column


class QuantizedRecurrence(Recurrence):
    """Both products are of codes. The operand of the weights is quantized dynamically, by its own range.

    For the input, this is the range over all steps; for the state, the range over all sentences.
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

    def of_input(self, d: int) -> Activation:
        return self._product(self.quantized[0], d)

    def of_state(self, d: int) -> Activation:
        return self._product(self.quantized[1], d)

    def _product(self, weights: Weights, d: int) -> Activation:
        codes, scale, zero = (squeeze(part(v, 0, d, 1), (0,)) for v in weights)
        return lambda x: dynamic_quantize_matmul(x, codes, scale, zero)


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
