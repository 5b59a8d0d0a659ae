"""The accepted values of a field of the schema, in words: for errors, and for the settings page."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from msgspec import Meta

from ullage.config.schema import MOST_SECONDS, PolicyTable, SummarizerTable, Table

WORDS: Final = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
)
MANY: Final = (("a whole number", "whole numbers"), ("a number", "numbers"), ("text", "texts"))


def bare(kind: Any) -> Any:
    """Return a type without None and without annotations."""
    if get_origin(kind) is Annotated:
        return bare(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        rest = [each for each in get_args(kind) if each is not NoneType]
        return bare(rest[0]) if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007 - of a list
    return kind


def metas(kind: Any) -> list[Meta]:
    """Return the annotations of a type, or of the one type besides None."""
    if get_origin(kind) is Annotated:
        inner, *found = get_args(kind)
        return [*metas(inner), *(meta for meta in found if isinstance(meta, Meta))]
    if get_origin(kind) in (Union, UnionType):
        rest = [each for each in get_args(kind) if each is not NoneType]
        return metas(rest[0]) if len(rest) == 1 else []
    return []


def extra(kind: Any, name: str) -> Any:
    """Return an extra of a type's annotations, or None."""
    return next((m.extra[name] for m in metas(kind) if m.extra and name in m.extra), None)


NAMES: Final[Mapping[type, str]] = MappingProxyType(
    {PolicyTable: "the name of a policy", SummarizerTable: '"same"'}
)
"""Texts that may replace a table."""


def describe(kind: Any) -> str:
    """Describe the accepted values of a type, such as `a whole number of 1 or more`."""
    inner, known = bare(kind), extra(kind, "known")
    if known is not None:
        return f"one of {', '.join(known())}"
    form, parts = get_origin(inner), get_args(inner)
    if form is not None:
        return _describe_form(form, parts)
    if issubclass(inner, Table):
        return f"{NAMES[inner]}, or a table" if inner in NAMES else "a table"
    return next(word for each, word in WORDS if inner is each) + _bounds(metas(kind))


def _describe_form(form: Any, parts: tuple[Any, ...]) -> str:
    """Describe the accepted values of a choice, a list or a table of names."""
    if form is Literal:
        return f"{'one of ' if len(parts) > 1 else ''}{', '.join(parts)}"
    if form is list:
        return f"a list of {_many(parts[0])}"
    if form is dict:
        return f"a table of names and {_many(parts[1])}"
    return " or ".join(describe(each) for each in parts)


def _many(kind: Any) -> str:
    inner = bare(kind)
    if isinstance(inner, type) and issubclass(inner, Table):
        return "tables"
    text = describe(kind)
    for one, many in MANY:
        if text.startswith(one):
            return many + text.removeprefix(one)
    return f"names, each {text}"


def _bounds(found: list[Meta]) -> str:
    least = next((m.ge for m in found if m.ge is not None), None)
    above = next((m.gt for m in found if m.gt is not None), None)
    most = next((m.le for m in found if m.le is not None and m.le != MOST_SECONDS), None)
    below = next((m.lt for m in found if m.lt is not None), None)
    if least is None and above is None:
        return ""
    low = f"{least:,} or more" if least is not None else f"above {above:,}"
    if most is not None:
        return f" from {least:,} to {most:,}" if least is not None else f" {low}, at most {most:,}"
    if below is not None:
        return f" of {low} and below {below:,}"
    return f" of {low}" if least is not None else f" {low}"
