"""How a model is called, and what is said to those who call it in another library's way."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from gpucomp.runtime.options import NONE

# what other libraries call it, and what it is here
ELSEWHERE = {
    "get_inputs": "exe.inputs has the name, type and shape of each input",
    "get_outputs": "exe.outputs has the name, type and shape of each output",
    "get_providers": "exe.target is what the model is compiled for",
    "forward": "run the model by exe.run({name: array})",
    "infer": "run the model by exe.run({name: array})",
    "predict": "run the model by exe.run({name: array})",
    "run_with_iobinding": "exe.run({name: array}, outputs={name: array}) takes arrays on a GPU, and writes into given ones",
    "create_execution_context": "exe.context() has memory of its own, and runs beside others",
    "infer_async": "exe.run_async({name: array}) returns a future, which can be awaited",
    "start_async": "exe.run_async({name: array}) returns a future, which can be awaited",
}
_NOTHING = object()
Method = TypeVar("Method", bound=Callable[..., Any])


def takes_a_feed(method: Method) -> Method:
    """Say how ``method`` is called if it is called in another library's way: with outputs' names, or inputs as keywords."""
    known = set(signature(method).parameters) - {"self"}
    if known == {"inputs", "outputs", "timeout", "stream"}:
        return _with_options(method)

    @wraps(method)
    def called(self: Any, *given: object, **named: object) -> Any:
        if len(given) + ("inputs" in named) != 1 or (named and not known.issuperset(named)):
            self._refuse_call(method.__name__)
        return method(self, *given, **named)

    return cast("Method", called)


def _with_options(method: Method) -> Method:
    """As ``takes_a_feed``, for a method whose calls are measured in microseconds: it makes no dict of the options."""

    @wraps(method)
    def called(
        self: Any,
        inputs: Any = _NOTHING,
        *more: object,
        outputs: Any = NONE,
        timeout: Any = None,
        stream: Any = None,
        **others: object,
    ) -> Any:
        if more or others or inputs is _NOTHING:
            self._refuse_call(method.__name__)
        return method(self, inputs, outputs=outputs, timeout=timeout, stream=stream)

    return cast("Method", called)
