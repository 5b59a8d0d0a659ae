"""Records as bytes: JSON, and behind it a hash that tells whether they are what was written.

It knows no record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeVar

from ullage.core.errors import StoreError

Record = TypeVar("Record")


class DamagedRecord(StoreError):  # noqa: N818 - named for what it is
    """Report a record that is not what was written; the store beside it is sound."""


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode

SEAL: Final = b"\n#"
"""Stands between JSON, which is on one line, and its hash."""


def seal(data: Mapping[str, Any]) -> bytes:
    """Return data as JSON with its hash."""
    text = _encode(data).encode()
    return text + SEAL + _hash(text)


def read(make: Callable[[Mapping[str, Any]], Record], body: bytes, where: str, way: str) -> Record:
    """Return what a body holds; raise DamagedRecord for one whose hash does not match.

    The error names `where` it is, and the `way` out. A record without a hash was written before
    there was one.
    """
    try:
        return make(json.loads(_unseal(body)))
    except StoreError as error:
        raise DamagedRecord(f"{where}: {error}") from error
    except (ValueError, AttributeError) as error:
        raise DamagedRecord(
            f"{where} holds a record that cannot be read ({error}): {way}"
        ) from error


def _unseal(body: bytes) -> bytes:
    text, sealed, told = body.partition(SEAL)
    if sealed and told != _hash(text):
        raise ValueError("its hash does not match its content")
    return text


def _hash(text: bytes) -> bytes:
    return blake2b(text, digest_size=16).hexdigest().encode()
