"""The tools as a server of the Model Context Protocol, and the access check over HTTP.

It knows the official SDK (mcp 2.3) and no function of the library.
"""

from __future__ import annotations

import functools
import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from ullage.core.errors import UllageError
from ullage.mcp_tools.tools import HostTools

INSTRUCTIONS: Final = (
    "What ullage knows of context windows: how large a model's window is, what a conversation "
    "takes of it, what fills it, what a compaction would leave out, and the texts that were left "
    "out. Everything is read only."
)

TITLES: Final[Mapping[str, str]] = {
    "window": "Size of a context window",
    "count": "Count tokens",
    "context": "What fills the window",
    "search": "Search what was left out",
    "recall": "Read what was left out",
    "compact": "What a compaction would do",
}

ASKING: Final = frozenset({"window", "count", "context", "compact"})
"""Tools that may query a model's server or a provider's listing for a window or a count."""

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]


def make_server(tools: HostTools, version: str, report: Mapping[str, Any]) -> MCPServer[Any]:
    """Return the server of these tools; `report` is the schema of the result of `context`."""
    server: MCPServer[Any] = MCPServer(
        "ullage", title="ullage", version=version, instructions=INSTRUCTIONS, log_level="ERROR"
    )
    for name, title in TITLES.items():
        method = getattr(tools, name)
        annotations = ToolAnnotations(
            title=title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=name in ASKING,
        )
        server.add_tool(
            _translate_errors(method),
            name=name,
            title=title,
            description=method.__doc__,
            annotations=annotations,
            structured_output=True,
        )
    known = server._tool_manager.get_tool("context")  # noqa: SLF001 - there is no public way to set a schema
    if known is not None:
        known.fn_metadata.output_schema = dict(report)
    return server


def _translate_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool that reports ullage's errors as tool errors, not as server failures."""

    @functools.wraps(method)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return method(*args, **given)
        except UllageError as error:
            raise ToolError(str(error)) from error

    return call


class Gate:
    """Accepts only requests with the key, and none from a page of another site.

    Browsers name the page that sends a request in `Origin`; programs do not. The origin must be
    this machine or the requested host. If there is no key, the requested host must be a name of
    this machine, so that no other name leads here (DNS rebinding).
    """

    def __init__(self, inner: Application, key: str | None) -> None:
        self._inner = inner
        self._key = key

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer or refuse: 401 for a missing or wrong key, 403 for an origin, 421 for a host."""
        if scope["type"] == "http":
            fault = self.find_fault({k.decode("latin-1"): v.decode("latin-1")
                                     for k, v in scope["headers"]})  # fmt: skip
            if fault is not None:
                await _refuse(send, *fault)
                return
        await self._inner(scope, receive, send)

    def find_fault(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return the status and text of a refusal, or None if the request is allowed."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None:
            same = origin.partition("://")[2] == host
            if _name(origin) not in LOCAL and not same:
                return 403, f"the origin {origin} is not this machine's: ask from a program"
        if self._key is None:
            if _name(f"http://{host}") not in LOCAL:
                return 421, "ask for 127.0.0.1 or localhost: no key is set for other names"
            return None
        said = headers.get("authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(said, f"Bearer {self._key}".encode()):
            return 401, "missing or wrong key: send it as Authorization: Bearer KEY"
        return None


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


async def _refuse(send: Any, status: int, text: str) -> None:
    kind = (b"content-type", b"text/plain; charset=utf-8")
    headers = [kind, *([(b"www-authenticate", b"Bearer")] if status == 401 else [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode("utf-8", "replace")})


def make_application(server: MCPServer[Any], key: str | None) -> Application:
    """Return the server over streamable HTTP, at /mcp, with the access check."""
    from mcp.server.transport_security import TransportSecuritySettings

    gated = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the gate does both
    inner = server.streamable_http_app(
        json_response=True, stateless_http=True, transport_security=gated
    )
    return Gate(inner, key)
