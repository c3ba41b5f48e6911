"""``dataclass``: the standard one, which generates the methods of a class when the first of them is called.

A program uses a part of the classes that it imports, and of most of them some methods. Generating all of them took
longer than everything else that an import does: 0.5 ms for each class. From their first call on they are the standard
library's, so they take the same time as there. Type checkers see the standard decorator.

Two kinds of modules have the standard one: those with classes that users make objects of, since the generator of the
documentation knows constructors by it, and those that an engine's hash covers (``gpucomp.schedule.engine_hash``), since
records of tuning are for their text. Not here: ``order``, ``unsafe_hash`` and ``InitVar``.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

FLAGS = {"__init__": "init", "__repr__": "repr", "__eq__": "eq", "__hash__": "unsafe_hash"}  # what generates a method


def _lazy_dataclass(
    cls: type | None = None,
    /,
    *,
    eq: bool = True,
    repr: bool = True,
    frozen: bool = False,
    slots: bool = False,
) -> Any:
    """A class decorator, to be used as that of ``dataclasses``. Raises ``TypeError`` where that does."""

    def decorate(cls: type) -> Any:
        own = vars(cls).keys()  # a method that the class has itself stays
        if frozen and (setters := own & {"__setattr__", "__delattr__"}):
            raise TypeError(f"Cannot overwrite attribute {max(setters)} in class {cls.__name__}")
        cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise its signature, which takes long to find out
        has_hash = "__hash__" in own and not (vars(cls)["__hash__"] is None and "__eq__" in own)
        methods = {"__init__"} | ({"__repr__"} if repr else set()) | ({"__eq__"} if eq else set())
        methods -= own
        if eq and not has_hash:
            cls.__hash__ = None  # type: ignore[assignment]
            if frozen:
                methods.add("__hash__")
        inherits = frozen and any(
            map(dataclasses.is_dataclass, cls.__mro__[1:])
        )  # the standard one compares the two then
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, frozen=inherits)(cls)
        made.__dataclass_params__.frozen = frozen
        for name in methods:
            setattr(made, name, _stub(made, name, frozen, slots))
        if frozen and not inherits:
            _freeze(made, slots)
        abc.update_abstractmethods(made)  # a stub implements what a base class leaves open
        return made

    return decorate if cls is None else decorate(cls)


def _stub(cls: type, name: str, frozen: bool, slots: bool) -> Callable[..., Any]:
    """A method that puts the generated one into its place, unless that has another one by now, and calls it."""
    method: Callable[..., Any] | None = None

    def stub(self: Any, /, *args: Any, **named: Any) -> Any:
        nonlocal method
        if method is None:
            method = _generated(cls, name, frozen, slots)
        if vars(cls).get(name) is stub:  # else somebody has wrapped or replaced it
            setattr(cls, name, method)
        return method(self, *args, **named)

    stub.__name__, stub.__qualname__, stub.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
    return stub


def _generated(cls: type, name: str, frozen: bool, slots: bool) -> Callable[..., Any]:
    """The method ``name`` that the standard library generates for the fields of ``cls``."""
    fields = [(one.name, one.type, one) for one in dataclasses.fields(cls)]
    after = {"__post_init__": cls.__post_init__} if hasattr(cls, "__post_init__") else {}
    flags: dict[str, Any] = dict.fromkeys(FLAGS.values(), False) | {FLAGS[name]: True}
    if name == "__init__":  # with slots no default is an attribute of the class, so it sets those of all fields
        flags |= {"frozen": frozen, "slots": slots}
    flags |= {"namespace": {"__doc__": cls.__name__, **after}}
    method: Callable[..., Any] = vars(dataclasses.make_dataclass(cls.__name__, fields, **flags))[name]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return method


def _freeze(cls: Any, slots: bool) -> None:
    """Let fields be set by the constructor only."""
    names = frozenset(one.name for one in dataclasses.fields(cls))

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__
    for name, method in (("__getstate__", _state), ("__setstate__", _set_state)):
        if slots and name not in vars(cls):
            setattr(cls, name, method)


def _state(self: Any) -> list[Any]:
    """What a copy of a frozen class with slots is made from."""
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _lazy_dataclass
