"""Quick frozen values are what dataclasses makes of them, in less time."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field

import pytest

from ullage.core.values.frozen import quicken, replace


@dataclass(frozen=True, slots=True)
class Plain:
    """A value as dataclasses makes it."""

    first: int
    second: str = "two"
    third: float | None = None


@quicken
@dataclass(frozen=True, slots=True)
class Quick:
    """The same value, made quickly."""

    first: int
    second: str = "two"
    third: float | None = None


@quicken
@dataclass(frozen=True, slots=True)
class Checked:
    """A value that is checked when it is made."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("a size is 0 or more")


def test_a_quick_value_is_made_as_a_plain_one_is():
    assert Quick(1) == Quick(1, "two", None) == Quick(first=1)
    assert hash(Quick(1)) == hash(Plain(1))
    assert inspect.signature(Quick) == inspect.signature(Plain)
    assert pickle.loads(pickle.dumps(Quick(1, "x"))) == Quick(1, "x")
    for wrong in ({}, {"first": 1, "fourth": 2}):
        with pytest.raises(TypeError):
            Quick(**wrong)  # type: ignore[arg-type]  # what is wrong is the point


def test_a_quick_value_cannot_be_changed():
    made = Quick(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.first = 2  # type: ignore[misc]  # what is refused is the point
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.second


@pytest.mark.parametrize("made", [Plain(1), Quick(1)])
def test_a_change_makes_another_value_and_keeps_the_rest(made: Plain | Quick):
    other = replace(made, second="x", third=None)
    assert dataclasses.astuple(other) == (1, "x", None)
    assert dataclasses.astuple(made) == (1, "two", None)
    assert other == dataclasses.replace(made, second="x")
    with pytest.raises(TypeError):
        replace(made, fourth=1)  # type: ignore[call-arg]  # what is refused is the point


def test_what_is_checked_when_it_is_made_is_checked_when_it_is_changed():
    with pytest.raises(ValueError, match="0 or more"):
        replace(Checked(1), size=-1)


def test_a_class_whose_fields_are_no_plain_arguments_is_refused():
    @dataclass(frozen=True, slots=True)
    class Listed:
        items: list[int] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Derived:
        size: int = field(init=False, default=0)

    for kind in (Listed, Derived):
        with pytest.raises(TypeError, match="no argument"):
            quicken(kind)
