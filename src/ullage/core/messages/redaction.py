"""Removes secrets from data to be recorded: known secrets in all their forms, and well-known keys.

Known secrets are the values passed in. Keys are recognised by the prefixes of their issuers; a
secret without such a prefix is not guessed. This module knows no store.
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
"""Fewest characters of a secret: a shorter one would also remove ordinary words."""


KEYS: Final[Mapping[str, str]] = {
    "private key": (
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{1,20000}(?:-----END [A-Z ]{0,30}PRIVATE "
        r"KEY-----)?"
    ),
    "AWS access key": r"(?:AKIA|ASIA)[A-Z2-7]{16}(?![\w-])",
    "GitHub token": r"gh[oprsu]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255}",
    "GitLab token": r"glpat-[\w-]{20,300}",
    "Anthropic key": r"sk-ant-[a-z0-9]{2,12}-[\w-]{40,300}",
    "OpenAI key": r"sk-(?:proj|svcacct|admin)-[\w-]{40,300}|sk-[A-Za-z0-9]{32,300}(?![\w-])",
    "OpenRouter key": r"sk-or-v1-[0-9a-f]{64}",
    "Google key": r"AIza[\w-]{35}(?![\w-])",
    "Slack token": r"xox[abeoprs]-[0-9]{5,20}-[A-Za-z0-9-]{10,300}",
    "Stripe key": r"[rs]k_(?:live|test)_[A-Za-z0-9]{20,300}",
    "npm token": r"npm_[A-Za-z0-9]{36}(?!\w)",
    "PyPI token": r"pypi-AgE[\w-]{60,400}",
    "Hugging Face token": r"hf_[A-Za-z]{34}(?!\w)",
    "JSON web token": r"eyJ[\w-]{10,4000}\.eyJ[\w-]{10,8000}\.[\w-]{20,2000}",
}
"""Patterns of well-known keys, by the pages of their issuers and the rules of gitleaks 8.

(docs.aws.amazon.com "IAM identifiers"; github.blog "Behind GitHub's new authentication token
formats"; docs.gitlab.com "Token overview"; docs.stripe.com "API keys"; RFC 7468; RFC 7519.) Each
begins at the start of a word, and every repeat has a bound, so the time is linear in the text.
"""

_KEY: Final = re.compile(
    "(?<![A-Za-z0-9_-])(?:" + "|".join(f"({pattern})" for pattern in KEYS.values()) + ")"
)


def find_keys(text: str) -> Iterator[str]:
    """Yield the kinds of well-known keys in a text, one name per key."""
    names = tuple(KEYS)
    for found in _KEY.finditer(text):
        yield names[(found.lastindex or 1) - 1]


class Redactor:
    """Replace secrets in text and in data. Values shorter than `SHORTEST` are left alone.

    With `keys`, well-known keys (`KEYS`) are replaced too. In a text that comes in pieces, a key is
    replaced only if one piece contains all of it.
    """

    def __init__(
        self, secrets: Iterable[str] = (), shortest: int = SHORTEST, *, keys: bool = False
    ) -> None:
        self._keys = keys
        forms = {form for secret in secrets if len(secret) >= shortest for form in _forms(secret)}
        # The longest first: one form may be the beginning of another.
        found = sorted(forms, key=lambda form: (-len(form), form))
        self._found = re.compile("|".join(map(re.escape, found))) if found else None
        self._longest = len(found[0]) if found else 0
        self._begun = frozenset(form[:n] for form in found for n in range(1, len(form)))

    def text(self, text: str) -> str:
        """Return text without secrets."""
        if self._found is not None:
            text = self._found.sub(REDACTED, text)
        return _KEY.sub(REDACTED, text) if self._keys else text

    def piece(self, text: str) -> tuple[str, str]:
        """Return the part of a growing text that may be shown, without secrets, and the rest.

        The rest could be the beginning of a secret: put it before the next piece.
        """
        text = self.text(text)
        for start in range(max(len(text) - self._longest + 1, 0), len(text)):
            if text[start:] in self._begun:
                return text[:start], text[start:]
        return text, ""

    def data(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return data without secrets, keys included; untouched parts are the same objects."""
        return data if self._found is None and not self._keys else _redact_mapping(data, self)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return _redact_mapping(value, self)
        if isinstance(value, list | tuple):
            return [self._value(inner) for inner in value]
        return value


def _redact_mapping(data: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    return {redactor._value(key): redactor._value(value) for key, value in data.items()}  # noqa: SLF001


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is and in its forms in JSON, URLs and basic authentication."""
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
    """Return the base64 of a secret that follows `before` bytes (modulo 3) of other text.

    Characters that its neighbours also affect are left out.
    """
    whole = encode(bytes(before) + body).decode().rstrip("=")
    end = len(whole) - 1 if (before + len(body)) % 3 else len(whole)
    return whole[(0, 2, 3)[before] : end]
