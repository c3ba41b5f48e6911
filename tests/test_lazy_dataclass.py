"""The lazy ``dataclass`` makes the classes that the standard one makes."""

from __future__ import annotations

import abc
import copy
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from gpucomp.lazy_dataclass import dataclass as lazy

T = TypeVar("T")
HOW: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"slots": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"repr": False},
    {"frozen": True, "eq": False, "repr": False},
]
both = pytest.mark.parametrize("decorator", [dataclasses.dataclass, lazy], ids=["standard", "lazy"])


def point(decorator: Callable[..., Any], **how: bool) -> Any:
    """A class with fields of all kinds."""

    @decorator(**how)
    class Point:
        x: int
        y: int = 2
        notes: list[int] = field(default_factory=list, compare=False)
        weight: float = field(default=1.0, hash=False, repr=False)
        name: str = field(default="p", kw_only=True)
        count: ClassVar[int] = 7

    return Point


@both
@pytest.mark.parametrize("how", HOW, ids=str)
def test_the_same_class(decorator, how):
    made = point(decorator, **how)
    one, same, other = made(1, notes=[3]), made(1, 2), made(1, 5, name="q")

    assert [f.name for f in fields(made)] == ["x", "y", "notes", "weight", "name"]
    assert made.__match_args__ == ("x", "y", "notes", "weight")
    assert (one.x, one.y, one.notes, other.name, made.count) == (1, 2, [3], "q", 7)
    assert replace(one, x=4).x == 4
    assert (one == same) is how.get("eq", True)
    assert one != other
    assert ("notes=[3]" in repr(one)) is how.get("repr", True)
    assert "weight" not in repr(one)
    if not how.get("frozen") and how.get("eq", True):
        assert made.__hash__ is None
    else:
        assert (hash(one) == hash(same)) is how.get("eq", True)
    assert [getattr(copy.deepcopy(one), f.name) for f in fields(one)] == [1, 2, [3], 1.0, "p"]
    assert hasattr(one, "__dict__") is not how.get("slots", False)


@both
@pytest.mark.parametrize("slots", [False, True])
def test_a_frozen_object_stays_as_it_is(decorator, slots):
    one = point(decorator, frozen=True, slots=slots)(1)

    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    with pytest.raises(
        (dataclasses.FrozenInstanceError, TypeError)
    ):  # a standard one with slots finds its class no more
        one.z = 2
    assert one.x == 1


@both
def test_wrong_arguments_are_told_by_the_name_of_the_class(decorator):
    made = point(decorator)

    for _ in range(2):  # before and after the method is generated
        with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
            made()


@both
def test_what_a_class_has_itself_stays(decorator):
    @decorator(frozen=True)
    class Own:
        x: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.x)

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

        @cached_property
        def thrice(self) -> int:
            return 3 * self.x

    @decorator(frozen=True)
    class Hashed:
        x: int

        def __hash__(self) -> int:
            return 5

    assert Own(1) == Own(2)
    assert hash(Own(1)) != hash(Own(2))
    assert (repr(Own(1)), Own(4).twice, Own(4).thrice) == ("own", 8, 12)
    assert hash(Hashed(1)) == 5
    assert Hashed(1) == Hashed(1)


def counted(method: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """``method``, with a list of its calls."""

    def wrapper(*args: Any, **named: Any) -> Any:
        calls.append(method.__name__)
        return method(*args, **named)

    return wrapper


@both
def test_a_wrapped_method_stays_wrapped(decorator):
    made, names = point(decorator, frozen=True), ("__init__", "__repr__", "__eq__", "__hash__")
    calls: list[str] = []
    for name in names:
        setattr(made, name, counted(getattr(made, name), calls))

    one = made(3, name="a")
    for _ in range(3):
        assert one == made(3, name="a")
        assert hash(one) == hash((3, 2, "a"))
        assert repr(one).endswith("Point(x=3, y=2, notes=[], name='a')")
    assert [calls.count(name) for name in names] == [4, 3, 3, 3]


@both
@pytest.mark.parametrize("how", HOW, ids=str)
def test_fields_that_are_no_arguments_have_their_defaults(decorator, how):
    @decorator(**how)
    class Counted:
        x: int
        count: int = field(init=False, default=7)
        notes: list[int] = field(init=False, default_factory=list)

    for _ in range(2):
        one = Counted(5)
        assert (one.x, one.count, one.notes) == (5, 7, [])
    with pytest.raises(TypeError, match="count"):
        Counted(5, count=8)


@both
def test_own_ways_to_copy_stay(decorator):
    @decorator(frozen=True, slots=True)
    class Copied:
        x: int

        def __getstate__(self) -> list[int]:
            return [self.x + 1]

        def __setstate__(self, state: list[int]) -> None:
            object.__setattr__(self, "x", 10 * state[0])

    assert copy.copy(Copied(3)).x == 40


@both
@pytest.mark.parametrize("name", ["__setattr__", "__delattr__"])
def test_a_frozen_class_with_own_setters_is_refused(decorator, name):
    own = {name: lambda *args: None}

    with pytest.raises(TypeError, match=f"Cannot overwrite attribute {name} in class Own"):
        decorator(frozen=True)(type("Own", (), dict(own)))
    assert decorator(type("Own", (), dict(own)))


@both
def test_a_field_can_be_named_self(decorator):
    @decorator
    class Named:
        self: int

    assert Named(self=3) == Named(3) != Named(4)


@both
def test_generated_methods_implement_abstract_ones(decorator):
    class Abstract(abc.ABC):
        @abc.abstractmethod
        def __repr__(self) -> str: ...

        @abc.abstractmethod
        def other(self) -> int: ...

    @decorator
    class Open(Abstract):
        x: int

    @decorator
    class Whole(Abstract):
        x: int

        def other(self) -> int:
            return self.x

    assert Whole(3).other() == 3
    with pytest.raises(TypeError, match="other"):
        Open(3)


@both
def test_subclasses(decorator):
    @decorator(frozen=True)
    class Base(Generic[T]):
        x: T
        y: int = 1

    @decorator(frozen=True)
    class Derived(Base[int]):
        z: int = 3

    class Plain(Base[int]):
        pass

    @dataclasses.dataclass(eq=False)
    class Standard(point(decorator)):  # type: ignore[misc]
        z: int = 3

    assert Derived(5, 6, 7) == Derived(5, 6, 7) != Base(5, 6)
    assert repr(Derived(5)).endswith("Derived(x=5, y=1, z=3)")
    assert Base[int](5) == Base(5)
    assert Plain(5) == Plain(5) != Base(5)
    Plain(5).other = 1  # only the fields of a subclass that is no dataclass are frozen
    with pytest.raises(dataclasses.FrozenInstanceError):
        Plain(5).x = 1
    assert Standard(1, z=4).z == 4


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("base", [dataclasses.dataclass, lazy], ids=["of standard", "of lazy"])
@both
def test_both_can_be_bases_of_both(decorator, base, frozen, slots):
    class Derived(point(base, frozen=frozen)):  # type: ignore[misc]
        z: int = 3

    made = decorator(frozen=frozen, slots=slots)(Derived)
    one = made(1, z=4)
    assert (one.x, one.z) == (1, 4)
    assert one == made(1, z=4) != made(1)
    assert copy.copy(one) == one
    if frozen:
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.z = 5
    with pytest.raises(TypeError, match="cannot inherit"):
        decorator(frozen=not frozen)(type("Other", (point(base, frozen=frozen),), {}))


def test_methods_are_generated_when_they_are_called():
    made = point(lazy)
    stub = made.__repr__

    one = made(1)
    assert made.__repr__ is stub
    assert repr(one) == stub(one)
    assert made.__repr__ is not stub
    assert list(inspect.signature(made.__init__).parameters) == ["self", "x", "y", "notes", "weight", "name"]
