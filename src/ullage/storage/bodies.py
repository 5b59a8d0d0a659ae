"""Records as bytes: JSON, followed by a hash that detects damage.

It knows no kind of record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeVar

from ullage.core.errors import StoreError

Record = TypeVar("Record")


class DamagedRecord(StoreError):  # noqa: N818 - named for what it is
    """Report a record that differs from what was written; the rest of the store is sound."""


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode

SEAL: Final = b"\n#"
"""Separates the JSON, which is on one line, from its hash."""


def seal(data: Mapping[str, Any]) -> bytes:
    """Return data as JSON with its hash."""
    text = _encode(data).encode()
    return text + SEAL + _hash(text)


def read(make: Callable[[Mapping[str, Any]], Record], body: bytes, where: str, way: str) -> Record:
    """Return the record in a body; raise DamagedRecord if the hash does not match.

    The error names `where` the record is, and the `way` to repair it. A record without a hash is
    accepted: older versions wrote none.
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
