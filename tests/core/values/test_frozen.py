"""A change of a frozen value comes to what dataclasses makes of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest

from ullage.core.values.frozen import replace


@dataclass(frozen=True, slots=True)
class Slotted:
    """A value as nearly all are."""

    first: int
    second: str = "two"
    third: tuple[int, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Derived(Slotted):
    """One with a field more than its base."""

    fourth: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Open:
    """One without slots."""

    first: int
    second: str = "two"


@dataclass(frozen=True, slots=True)
class Single:
    """One with a single field."""

    second: str = "two"


@dataclass(frozen=True, slots=True)
class Checked:
    """One that is checked when it is made."""

    first: int
    second: str = "two"

    def __post_init__(self) -> None:
        if not self.second:
            raise ValueError("nothing is said")


@dataclass(frozen=True, slots=True)
class Worked:
    """One with a field that is worked out."""

    first: int
    second: str = "two"
    length: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.second))


MADE = [Slotted(1), Derived(1, fourth={"a": 1}), Open(1), Single(), Checked(1), Worked(1)]


@pytest.mark.parametrize("made", MADE)
def test_a_change_makes_another_value_and_keeps_the_rest(made: Any):
    before = dataclasses.asdict(made)
    for given in ({}, {"second": "x"}):
        other = replace(made, **given)
        assert type(other) is type(made)
        assert other is not made
        assert dataclasses.asdict(other) == dataclasses.asdict(dataclasses.replace(made, **given))
    assert dataclasses.asdict(made) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(made, second="x").second = "y"


@pytest.mark.parametrize("made", MADE)
def test_a_field_that_there_is_not_is_refused(made: Any):
    with pytest.raises(TypeError):
        replace(made, fifth=1)


def test_what_is_checked_when_it_is_made_is_checked_when_it_is_changed():
    with pytest.raises(ValueError, match="nothing is said"):
        replace(Checked(1), second="")
    with pytest.raises(ValueError, match="length"):
        replace(Worked(1), length=3)
