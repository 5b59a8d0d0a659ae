"""Checks the arguments of a call by the JSON schema of its tool.

It supports the part of JSON Schema that the tools use: type, properties, required,
additionalProperties, items, enum, minimum, maximum, minLength, maxItems. It knows no tool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from ullage.tools.tool import Fault

LONGEST_ARGUMENTS: Final = 8_000_000
"""Longest arguments of a call in characters; more than any model can write in one answer."""


class ArgumentsRefused(Fault):
    """Report arguments that a tool cannot accept; the message is written for a model."""


def read(arguments: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments; raises ArgumentsRefused that names the faulty ones."""
    if len(arguments) > LONGEST_ARGUMENTS:
        raise ArgumentsRefused(
            f"the arguments have {len(arguments):,} characters; the most is {LONGEST_ARGUMENTS:,}"
        )
    try:
        # Some models send an empty string for a call without arguments.
        given = json.loads(arguments, parse_constant=_no_number) if arguments.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ArgumentsRefused(f"the arguments are no JSON: {error}") from error
    if not isinstance(given, dict):
        raise ArgumentsRefused(f"the arguments are an object, not {_name_type(given)}")
    faults = list(_object(given, schema, ""))
    if faults:
        raise ArgumentsRefused("; ".join(faults[:_MOST]))
    return given


def _faults(value: object, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        yield f"{where} is {_name_type(value)}, it must be {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r:.80}, it must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        yield f"{where} is empty" if not value else f"{where} is too short"
    if isinstance(value, int | float):
        yield from _range(value, schema, where)
    if isinstance(value, dict):
        yield from _object(value, schema, where)
    if isinstance(value, list):
        yield from _array(value, schema, where)


def _object(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    known: Mapping[str, Any] = schema.get("properties", {})
    inside = f"{where}." if where else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{inside}{name} is missing"
    for name, part in value.items():
        if name in known:
            yield from _faults(part, known[name], f"{inside}{name}")
        elif not schema.get("additionalProperties", True):
            yield f"there is no argument {inside}{name!r:.80}; there are {', '.join(known)}"


def _array(value: list[Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    most = schema.get("maxItems")
    if most is not None and len(value) > most:
        yield f"{where} has {len(value)} items; the most is {most}"
        return
    for index, item in enumerate(value):
        yield from _faults(item, schema.get("items", {}), f"{where}[{index}]")


def _range(value: float, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    if value < schema.get("minimum", value):
        yield f"{where} is {value}, the least is {schema['minimum']}"
    if value > schema.get("maximum", value):
        yield f"{where} is {value}, the most is {schema['maximum']}"


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _name_type(value: object) -> str:
    if value is None:
        return "null"
    return next(
        (name for name in _TYPES if not isinstance(value, bool) and _is(value, name)), "a boolean"
    )


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


_MOST: Final = 5
"""Most faults in one error."""

_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = MappingProxyType(
    {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "array": list,
        "object": dict,
    }
)
