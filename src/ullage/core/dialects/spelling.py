"""Names of fields in Google's two spellings: camelCase in JSON, snake_case in its SDK."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any


@cache
def to_snake(name: str) -> str:
    """Return a camelCase name in snake_case."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def find_key(fields: Mapping[str, Any], name: str) -> str:
    """Return a camelCase name as these fields spell it; unchanged if they lack it."""
    snake = to_snake(name)
    return snake if name not in fields and snake in fields else name


def pick_field(fields: Mapping[str, Any], name: str) -> Any:
    """Return a field by its camelCase name, in either spelling, or None if it is missing."""
    value = fields.get(name)
    return fields.get(to_snake(name)) if value is None else value
