"""Takes known secrets out of what is to be recorded: as they are, and as they travel.

It knows no store and does not guess: only values that it was given are found.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

REDACTED: Final = "[redacted]"

SHORTEST: Final = 8
"""Characters below which a value is no secret worth the words that it would take out."""


class Redactor:
    """Replace secrets in text and in data. Values shorter than `SHORTEST` are left alone."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        # The longest first: one form may be the beginning of another.
        found = sorted(forms, key=lambda form: (-len(form), form))
        self._found = re.compile("|".join(map(re.escape, found))) if found else None

    def text(self, text: str) -> str:
        """Return text without secrets."""
        return text if self._found is None else self._found.sub(REDACTED, text)

    def data(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return data without secrets, keys included; untouched parts are the same objects."""
        return data if self._found is None else _mapped(data, self)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return _mapped(value, self)
        if isinstance(value, list | tuple):
            return [self._value(inner) for inner in value]
        return value


def _mapped(data: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    return {redactor.text(key): redactor._value(value) for key, value in data.items()}  # noqa: SLF001


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is and as JSON, URLs and basic authorisation carry it."""
    body = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield quote(body, safe="")
    yield quote_plus(body)
    for encode in (b64encode, urlsafe_b64encode):
        yield encode(body).decode().rstrip("=")
