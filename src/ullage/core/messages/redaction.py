"""Takes known secrets out of what is to be recorded: as they are, and as they travel.

It knows no store and does not guess: only values that it was given are found.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

REDACTED: Final = "[redacted]"

SHORTEST: Final = 8
"""Characters below which a value is no secret worth the words that it would take out."""


class Redactor:
    """Replace secrets in text and in data. Values shorter than `SHORTEST` are left alone."""

    def __init__(self, secrets: Iterable[str] = (), shortest: int = SHORTEST) -> None:
        forms = {form for secret in secrets if len(secret) >= shortest for form in _forms(secret)}
        # The longest first: one form may be the beginning of another.
        found = sorted(forms, key=lambda form: (-len(form), form))
        self._found = re.compile("|".join(map(re.escape, found))) if found else None
        self._longest = len(found[0]) if found else 0
        self._begun = frozenset(form[:n] for form in found for n in range(1, len(form)))

    def text(self, text: str) -> str:
        """Return text without secrets."""
        return text if self._found is None else self._found.sub(REDACTED, text)

    def piece(self, text: str) -> tuple[str, str]:
        """Return what may be shown of a text that goes on, without secrets, and what is held back.

        What is held back could be the beginning of a secret: put it before what comes next.
        """
        text = self.text(text)
        for start in range(max(len(text) - self._longest + 1, 0), len(text)):
            if text[start:] in self._begun:
                return text[:start], text[start:]
        return text, ""

    def data(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return data without secrets, keys included; untouched parts are the same objects."""
        return data if self._found is None else _redact_mapping(data, self)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return _redact_mapping(value, self)
        if isinstance(value, list | tuple):
            return [self._value(inner) for inner in value]
        return value


def _redact_mapping(data: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    return {redactor.text(key): redactor._value(value) for key, value in data.items()}  # noqa: SLF001


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is and as JSON, URLs and basic authorisation carry it."""
    body = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(json.dumps(secret)[1:-1])[1:-1]
    yield repr(secret)[1:-1]
    for url in (quote(body, safe=""), quote_plus(body)):
        yield url
        yield re.sub("%..", lambda found: found[0].lower(), url)
    for encode in (b64encode, urlsafe_b64encode):
        yield encode(body).decode().rstrip("=")
        for before in range(3):
            yield _within(encode, body, before)


def _within(encode: Callable[[bytes], bytes], body: bytes, before: int) -> str:
    """Return the base64 of a secret that stands behind so many bytes (modulo 3), amid others.

    The characters that its neighbours have a part in are left out.
    """
    whole = encode(bytes(before) + body).decode().rstrip("=")
    end = len(whole) - 1 if (before + len(body)) % 3 else len(whole)
    return whole[(0, 2, 3)[before] : end]
