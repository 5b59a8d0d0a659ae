"""The head of a request: its client, the client's rights, and the headers to pass on.

Only the configuration names the upstream; no header, host or path of a client changes it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

from ullage.core.dialects import registry
from ullage.proxy import routes
from ullage.proxy.body import RequestRefused, refuse_body

if TYPE_CHECKING:
    from ullage.config.serving import Serve, Upstream

Headers = Sequence[tuple[bytes, bytes]]

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

ONWARD: Final = frozenset(
    {
        *(b"accept", b"content-type", b"user-agent", b"idempotency-key", b"http-referer"),
        *(b"anthropic-version", b"anthropic-beta", b"openai-organization", b"openai-project"),
        *(b"openai-beta", b"x-title", b"x-request-id", b"x-client-request-id"),
        *(b"x-goog-api-client", b"x-goog-user-project"),
    }
)
"""Client headers that are passed to the upstream, besides the credential."""

ONWARD_STEMS: Final = (b"x-stainless-",)

BACK: Final = frozenset(
    {
        *(b"content-type", b"content-length", b"content-encoding", b"cache-control"),
        *(b"retry-after", b"retry-after-ms", b"x-request-id", b"request-id", b"x-should-retry"),
    }
)
"""Upstream headers that are passed back to the client."""

FRAMED: Final[Mapping[bytes, bytes]] = {
    b"content-encoding": b"identity",
    b"transfer-encoding": b"chunked",
    b"upgrade": b"",
}
"""Headers about the framing of a body, each with its only accepted value; `upgrade` may be anything
but a WebSocket."""

CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that no header value may hold (RFC 9110, 5.5)."""

BARE: Final = frozenset({204, 304})
"""Statuses of answers without a body, whatever length they name (RFC 9112, 6.3)."""

BACK_STEMS: Final = (b"x-ratelimit-", b"anthropic-", b"openai-")

TOKEN, AUTHORIZATION = b"x-ullage-token", b"authorization"
KEYS: Final = tuple(
    sorted({d.endpoint.auth.encode() for d in registry.dialects() if d.endpoint.auth != "bearer"})
)
"""Headers in which dialects carry a bare key."""

AZURE_KEY: Final = b"api-key"
"""The header in which Azure OpenAI takes a key (learn.microsoft.com, "Azure OpenAI REST API
reference")."""

CREDENTIALS: Final = (TOKEN, AUTHORIZATION, *KEYS, AZURE_KEY)
QUERY_KEY: Final = b"key="
"""Start of a query field that carries a key, if a dialect takes one there (Gemini API, REST)."""
KEY: Final = b"idempotency-key"
LONGEST_NAME: Final = 200

LONGEST_LENGTH: Final = 18
"""Most digits of a length; 2 ** 63 has 19 digits, and no setting reaches further."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The data of a request's head: `client` is the name of its token, or None.

    `own` are the client's credentials for the upstream, as it sent them, by header. `credential`
    identifies the client to the upstream, `other` is a second one if it sent two.
    """

    method: str
    path: str
    query: bytes
    headers: Headers = field(repr=False)
    client: str | None = None
    own: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    credential: str | None = field(default=None, repr=False)
    other: str | None = field(default=None, repr=False)
    session: str | None = None

    @property
    def party(self) -> str:
        """The owner of turns and bounds: the token's name, else a hash of the credentials."""
        if self.client is not None:
            return self.client
        shown = "|".join((self.credential or "", self.other or ""))
        return hashlib.blake2b(shown.encode(), digest_size=8).hexdigest()

    @property
    def agent(self) -> str:
        """The client's `user-agent`."""
        found = _all(self.headers, b"user-agent")
        return found[0].decode("latin-1") if found else ""

    def onward(self, upstream: Upstream, *, changed: bool = False) -> list[tuple[bytes, bytes]]:
        """Return the headers for the upstream; a changed body gets a new idempotency key."""
        made = [(k, v) for k, v in self.headers if k in ONWARD or k.startswith(ONWARD_STEMS)]
        if changed:
            made = [(k, uuid.uuid4().hex.encode() if k == KEY else v) for k, v in made]
        made.append((b"accept-encoding", b"identity"))
        return [*made, *self._credentials(upstream).items()]

    def _credentials(self, upstream: Upstream) -> Mapping[bytes, bytes]:
        """Return the credentials for the upstream, by header.

        The client's own credentials go on as they came. The operator's key replaces the one that
        the route's dialect reads; a second credential stays the client's.
        """
        if upstream.api_key is None:
            return self.own
        right, key = _right(self.path), upstream.api_key.encode("latin-1")
        kept = self.own if len(self.own) > 1 else {}
        return {**kept, right: b"Bearer " + key if right == AUTHORIZATION else key}

    def knowing(self, upstream: Upstream) -> RequestHead:
        """Return the head with the credential that this upstream receives."""
        if upstream.api_key is not None:
            return replace(self, credential=upstream.api_key)
        return self


def read(
    scope: Mapping[str, Any],
    serve: Serve,
    bound: str,
    *,
    strangers: bool = False,
    from_pages: bool = False,
) -> RequestHead:
    """Return the head of an ASGI request; raises RequestRefused if it is not allowed.

    `bound` is the address that the server listens on. `strangers` may ask without a token.
    `from_pages` says that the request is for the proxy's own pages: it may only come from their own
    origin.
    """
    headers = [(bytes(k).lower(), bytes(v)) for k, v in scope["headers"]]
    _check_host(headers, serve, bound)
    _check_origins(headers, serve, from_pages=from_pages)
    for name, value in headers:
        if name in FRAMED:
            _check_frame(name, value.strip().lower())
        elif name == b"content-length" and _is_over(value, serve.max_body):
            raise refuse_body(serve.max_body)
    path = _path(scope)
    query = _without_key(scope.get("query_string", b""), path, headers)
    client, own = (None, dict[bytes, bytes]()) if strangers else _authenticate(headers, serve)
    first, second = _order_credentials(own, path) if own else (None, None)
    return RequestHead(
        scope["method"], path, query, headers, client, own, first, second, _session(headers)
    )


def _is_over(length: bytes, most: int) -> bool:
    """Tell whether a length exceeds a number; leading zeros are ignored."""
    digits = length.strip().lstrip(b"0")
    return digits.isdigit() and (len(digits) > LONGEST_LENGTH or int(digits) > most)


def _order_credentials(own: Mapping[bytes, bytes], path: str) -> tuple[str | None, str | None]:
    """Return the credential that identifies the client to the upstream, and the second of two."""
    right = own.get(_right(path))
    others = [value for value in own.values() if value is not right]
    named = [_bare(value) for value in ([right] if right is not None else []) + others]
    return named[0], named[1] if len(named) > 1 else None


def _check_origins(headers: Headers, serve: Serve, *, from_pages: bool) -> None:
    """Raise RequestRefused for a browser page of a forbidden origin."""
    origins = [origin.decode("latin-1") for origin in _all(headers, b"origin")]
    if not origins:
        return
    allowed = serve.origins
    if from_pages:
        host = next(iter(_all(headers, b"host")), b"").decode("latin-1").lower()
        origins = [one.lower() for one in origins]
        allowed = (f"http://{host}", f"https://{host}")  # a proxy for TLS may stand in front
    if any(origin not in allowed for origin in origins):
        raise RequestRefused(403, "origin_refused", "pages in browsers may not use this proxy")


def back(
    headers: Iterable[tuple[bytes, bytes]], status: int, *, sized: bool
) -> list[tuple[bytes, bytes]]:
    """Return the headers for the client; the length is left out unless `sized`.

    Also leaves out the length of answers without a body, and invalid values.
    """
    sized = sized and status not in BARE
    made = []
    for name, value in headers:
        low = name.lower()
        if low == b"content-length" and not sized:
            continue
        if CONTROL.search(value):
            continue
        if low in BACK or low.startswith(BACK_STEMS):
            made.append((low, value))
    return made


def _check_frame(name: bytes, value: bytes) -> None:
    """Raise RequestRefused for a header that announces an unsupported framing."""
    if name == b"upgrade" and value == b"websocket":
        raise RequestRefused(
            400, "upgrade_refused", "WebSocket is not supported here: send requests over HTTP/1.1"
        )
    if name != b"upgrade" and value != FRAMED[name]:
        raise RequestRefused(415, "encoding_refused", "compressed request bodies are not accepted")


def _all(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _path(scope: Mapping[str, Any]) -> str:
    """Return the path as it was written; empty if it has escapes, which match no route."""
    raw = scope.get("raw_path") or scope["path"].encode()
    path: str = raw.decode("latin-1")
    return path if "%" not in path else ""


def _check_host(headers: Headers, serve: Serve, bound: str) -> None:
    hosts = _all(headers, b"host")
    if len(hosts) != 1:
        raise RequestRefused(400, "host_missing", "a request names its host once")
    name = _read_host(hosts[0].decode("latin-1"))
    if name in LOOPBACK or name == bound.lower() or name == serve.host.lower():
        return
    if name is None or all(name != host.lower() for host in serve.hosts):
        raise RequestRefused(
            403, "host_refused", "this proxy does not serve that host: see `hosts`"
        )


@lru_cache(maxsize=256)
def _read_host(written: str) -> str | None:
    """Return the name in a `Host` header, or None if it is no host with or without a port."""
    try:
        parts = urlsplit(f"//{written}")
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return None
    return parts.hostname if parts.netloc == written and "@" not in written else None


def _authenticate(headers: Headers, serve: Serve) -> tuple[str | None, dict[bytes, bytes]]:
    """Return the client's name and credentials to pass on; raises RequestRefused for a stranger."""
    held = [(name, value) for name, value in headers if name in CREDENTIALS]
    sent = dict(held)
    if len(sent) < len(held):
        raise RequestRefused(
            400, "credential_twice", "a request carries each of its credentials once"
        )
    own = {name: value for name, value in sent.items() if name != TOKEN}
    if not serve.tokens:
        return None, own
    for shown in sorted(sent, key=CREDENTIALS.index):
        for name, token in serve.tokens.items():
            if hmac.compare_digest(_read_token(shown, sent[shown]), token.encode()):
                return name, {k: v for k, v in own.items() if not _ours(_read_token(k, v), serve)}
    raise RequestRefused(
        401, "token_missing", "missing token: send it as x-ullage-token or the API key"
    )


def _right(path: str) -> bytes:
    """Return the header in which the dialect of a route carries its key."""
    auth = registry.find(routes.dialect(path)).endpoint.auth
    return AUTHORIZATION if auth == "bearer" else auth.encode()


def _without_key(query: bytes, path: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a query without its key, which is moved to the headers as a credential.

    So the key is checked, separated and replaced like any other, and stands in no log.
    """
    if QUERY_KEY not in query or not registry.find(routes.dialect(path)).endpoint.key_in_query:
        return query
    parts = query.split(b"&")
    for part in parts:
        if part.startswith(QUERY_KEY):
            headers.append((_right(path), unquote_to_bytes(part[len(QUERY_KEY) :])))
    return b"&".join(part for part in parts if not part.startswith(QUERY_KEY))


def _bare(value: bytes) -> str:
    """Return a credential without the word `Bearer`."""
    return value[7:].decode("latin-1") if _is_bearer(value) else value.decode("latin-1")


def _read_token(name: bytes, value: bytes) -> bytes:
    """Return the possible token in a credential's header."""
    if name != AUTHORIZATION:
        return value
    return value[7:] if _is_bearer(value) else b""


def _is_bearer(value: bytes) -> bool:
    return value[:7].lower() == b"bearer "


def _ours(shown: bytes, serve: Serve) -> bool:
    """Tell whether a credential is one of the proxy's tokens, which no upstream may see."""
    return any(hmac.compare_digest(shown, token.encode()) for token in serve.tokens.values())


def _session(headers: Headers) -> str | None:
    names = _all(headers, b"x-ullage-session")
    if not names:
        return None
    name = names[0].decode("latin-1")
    if len(names) > 1 or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise RequestRefused(
            400, "session_name", f"x-ullage-session is 1 to {LONGEST_NAME} printable characters"
        )
    return name
