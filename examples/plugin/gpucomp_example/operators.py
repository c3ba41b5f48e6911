"""The operator ``com.example.Cube``: x³, with an algorithm that kernels are made from, and a numpy reference."""

from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import Value
from gpucomp.ops.registry import elementwise

Cube = elementwise("example.Cube", lambda x: x * x * x, lambda x: x * x * x, operands=1, kinds="fiu")


@translates("Cube", domain="com.example")
def cube(x: Value) -> Value:
    """The ONNX node ``com.example.Cube`` as the operator above."""
    return Cube(x)
