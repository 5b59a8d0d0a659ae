"""The JSON edge: mappings and SDK objects, in the form that every codec and report reads.

This module knows no dialect and no field names.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from ullage.core.errors import MalformedHistoryError

FINGERPRINT_FORMAT: Final = 2
"""The last marshal format that writes equal values as equal bytes: later ones mark shared and
interned objects (CPython, Python/marshal.c).
"""

FINGERPRINT_BYTES: Final = 16


def mapping(value: object) -> Mapping[str, Any] | None:
    """Return a mapping as it is, an SDK object as a mapping without nulls, otherwise None."""
    if value is None:
        return None
    if type(value) is dict or isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    fields = dump(exclude_none=True) if callable(dump) else None
    return fields if isinstance(fields, Mapping) else None


def as_text(value: object) -> str:
    """Return text unchanged, None as an empty text, anything else as `str` writes it."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def json_text(value: object, index: int) -> str:
    """Return JSON text; raises MalformedHistoryError for values that JSON cannot represent."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedHistoryError(
            f"messages[{index}] holds what JSON cannot carry: {error}", index=index
        ) from error


def _plain(value: object) -> object:
    return mapping(value) or str(value)


def fingerprint(raw: object) -> bytes | None:
    """Return a short hash of the whole content of a plain mapping, or None for other values.

    Equal fingerprints mean equal content, including types: 1, 1.0 and True differ.
    """
    if type(raw) is not dict:
        return None
    try:
        data = marshal.dumps(raw, FINGERPRINT_FORMAT)
    except ValueError:  # contains an object, or is nested too deeply for marshal
        return None
    return blake2b(data, digest_size=FINGERPRINT_BYTES).digest()


def field_of(value: Any, name: str) -> Any:
    """Return a field of a mapping or of an SDK object, or None if it is missing."""
    if type(value) is dict or isinstance(value, Mapping):  # the first check is the fast one
        return value.get(name)
    return getattr(value, name, None)


def is_listed(value: Any) -> bool:
    """Tell whether a value is a sequence other than text."""
    if type(value) is list:
        return True
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | Mapping)


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """Return a mapping unchanged, an SDK object as a mapping, anything else as None."""
    if type(value) is dict or value is None or isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        fields = dump()
        return fields if isinstance(fields, Mapping) else None
    return None


def pick(value: Any, name: str) -> Any:
    """Return a field of a mapping or of an SDK object, or None if it is missing.

    pydantic is slow to report a missing field, and a stream has many events.
    """
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(name)
    fields = getattr(value, "__dict__", None)
    if fields is not None and name in fields:
        return fields[name]
    extra = getattr(value, "__pydantic_extra__", None)
    return extra.get(name) if extra is not None else getattr(value, name, None)
