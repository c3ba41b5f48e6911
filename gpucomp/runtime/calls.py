"""How a model is called, and what is said to those who call it in another library's way."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

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
Method = TypeVar("Method", bound=Callable[..., Any])


def takes_a_feed(method: Method) -> Method:
    """Say how ``method`` is called if it is called in another library's way: with outputs' names, or inputs as keywords."""
    known = set(signature(method).parameters) - {"self"}

    @wraps(method)
    def called(self: Any, *given: object, **named: object) -> Any:
        if len(given) + ("inputs" in named) != 1 or (named and not known.issuperset(named)):
            self._refuse_call(method.__name__)
        return method(self, *given, **named)

    return cast("Method", called)
