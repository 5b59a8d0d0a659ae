"""The pages as an ASGI application: access rights, HTML or JSON at one address, one stream.

It draws the data of a `LiveDesk` and keeps nothing. A GET changes nothing; a POST comes from these
very pages, or from a program that sends JSON. The pages load nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, Router

from ullage.core.errors import UllageError
from ullage.live.desk import LiveDesk
from ullage.live.feed import Changes
from ullage.live.source import NotPossible, UnknownConversation, Viewer
from ullage.live.values import LiveSession
from ullage.pages import paths, policies
from ullage.pages.drawing import Drawer
from ullage.pages.static import Assets
from ullage.replay.values import PolicyComparison

See = Callable[[Mapping[str, Any]], Viewer | None]
"""Returns the viewer of an ASGI scope, or None if they must send a token first."""

VIEWERS: Final = 32
"""Most streams that are open at once."""

BEAT_S: Final = 0.25
"""Seconds between two looks for changes: four frames a second are enough to see movement."""

QUIET_S: Final = 15.0
"""Seconds after which a stream without news sends a comment, to show that it is alive."""

LARGEST: Final = 64 * 1024
"""Most bytes of a form."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class About:
    """Facts about these pages: a line for people, and facts for programs.

    `replays` is the folder with the replays of policies, or None without replays. `queue` returns
    the content of a queue of turns (tenants, workers, jobs), and may block; it is None without a
    queue.
    """

    what: str
    facts: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda _: {}
    replays: Path | None = None
    queue: Callable[[], dict[str, Any]] | None = None


class PlainJSON(JSONResponse):
    """JSON in ASCII: the lone surrogate at the end of a cut text has no bytes in UTF-8."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class LivePages:
    """The pages over one desk. `see` finds the viewer."""

    def __init__(self, desk: LiveDesk, see: See, about: About) -> None:
        self._desk = desk
        self._see = see
        self._about = about
        self._assets = Assets()
        self._drawer = Drawer(self._assets, about.what)
        self._streams = self._era = 0
        self._router = Router(
            [
                Route("/", self._answer(self._now)),
                Route(paths.LIST, self._answer(self._now)),
                Route(paths.LIVE, self._answer(self._stream)),
                Route(paths.CONVERSATION, self._answer(self._conversation)),
                Route(paths.MESSAGES, self._answer(self._messages)),
                Route(paths.COMPACTION, self._answer(self._compaction)),
                Route(paths.RECEIPT, self._answer(self._receipt)),
                Route(paths.POLICIES, self._answer(self._policies)),
                Route(paths.ACT, self._answer(self._act), methods=["POST"]),
                Route(paths.QUEUE, self._answer(self._queue)),
                Route(f"{paths.STATIC}{{name}}", self._static),
            ]
        )

    def is_page(self, path: str) -> bool:
        """Tell whether a path belongs to these pages."""
        return paths.is_page(path)

    def end_streams(self) -> None:
        """End the streams at once."""
        self._desk.is_closing = True

    def renew(self) -> None:
        """Make every viewer ask anew, since the access rights have changed."""
        self._era += 1

    async def aclose(self) -> None:
        """End the streams and close the desk."""
        await self._desk.aclose()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request (ASGI 3)."""
        await self._router(scope, receive, send)

    # --- viewers and forms ----------------------------------------------------------------------

    def _answer(
        self, page: Callable[[Request, Viewer], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            viewer = self._see(request.scope)
            try:
                if viewer is None:
                    return self._ask_for_token(request)
                response = await page(request, viewer)
            except UnknownConversation as error:
                response = self._refuse(request, 404, str(error))
            except (NotPossible, UllageError) as error:
                response = self._refuse(request, 409, str(error))
            except PermissionError as error:
                response = self._refuse(request, 403, str(error))
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return answer

    def _ask_for_token(self, request: Request) -> Response:
        text = "missing token: send it as X-Ullage-Token"
        response: Response = PlainJSON({"error": text}, 401)
        if _wants_html(request) and not _is_fragment(request):
            response = _html(self._drawer.draw("token.html", title="token"), 401)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    def _refuse(self, request: Request, status: int, text: str) -> Response:
        if not _wants_html(request):
            return PlainJSON({"error": text}, status)
        drawn = self._drawer.draw(
            "refused.html", fragment=_is_fragment(request), title=str(status), text=text
        )
        return _html(drawn, status)

    def _show(
        self, request: Request, template: str, told: dict[str, Any], **values: Any
    ) -> Response:
        """Return a page to a client that wants HTML, the same data as JSON to others."""
        if not _wants_html(request):
            return PlainJSON(told)
        drawn = self._drawer.draw(template, fragment=_is_fragment(request), **told, **values)
        return _html(drawn)

    # --- the pages ------------------------------------------------------------------------------

    async def _now(self, request: Request, viewer: Viewer) -> Response:
        self._desk.wake()
        if not self._desk.feed.version:
            await self._desk.look()
        seen = self._list_seen(viewer)
        facts = {"name": "ullage", "version": version("ullage")} | self._about.facts(request.scope)
        if not _wants_html(request):
            rows = [viewer.trim(row).to_dict() for row in seen]
            return PlainJSON({**facts, "conversations": rows})
        drawn = self._drawer.draw(
            "now.html", fragment=_is_fragment(request), title="Now", total=len(seen), facts=facts
        )
        return _html(drawn)

    def _list_seen(self, viewer: Viewer) -> list[LiveSession]:
        return [row for row in self._desk.feed.list_rows() if viewer.sees(row)]

    async def _conversation(self, request: Request, viewer: Viewer) -> Response:
        key = await self._find_key(request, viewer)
        found = await self._desk.read_detail(key, viewer)
        told = found.to_dict()
        title = found.session.title or found.session.id
        drawn = {"charts": self._drawer.chart(found), "counts": self._drawer.judge_counts(found)}
        return self._show(request, "conversation.html", told, key=key, title=title, **drawn)

    async def _messages(self, request: Request, viewer: Viewer) -> Response:
        key = await self._find_key(request, viewer)
        found = await self._desk.list_messages(key, viewer)
        told = {"messages": [one.to_dict() for one in found]}
        return self._show(request, "messages.html", told, key=key, title="Messages")

    async def _compaction(self, request: Request, viewer: Viewer) -> Response:
        key = await self._find_key(request, viewer)
        told = request.query_params.get("number", "")
        number = int(told) if told.isdecimal() and len(told) < 10 else 0
        found = await self._desk.review(key, number, viewer)
        detail = await self._desk.read_detail(key, viewer)
        return self._show(
            request,
            "compaction.html",
            found.to_dict(),
            key=key,
            title=f"Compaction {number}",
            can=sorted(detail.can),
        )

    async def _receipt(self, request: Request, viewer: Viewer) -> Response:
        key = await self._find_key(request, viewer)
        found = await self._desk.read_detail(key, viewer)
        return Response(
            self._drawer.draw_receipt(found),
            media_type="image/svg+xml",
            headers={"content-disposition": 'inline; filename="receipt.svg"'},
        )

    async def _policies(self, request: Request, viewer: Viewer) -> Response:
        """Show the result of a replay of policies; only an operator may see it."""
        if not viewer.is_operator or self._about.replays is None:
            raise PermissionError("replays of policies are shown to operators alone")
        folder, name = self._about.replays, request.query_params.get("name")
        found = await asyncio.to_thread(policies.read_kept, folder, name)
        found = found if found is not None else PolicyComparison({})
        told = {"policies": found.to_dict()["policies"], "faults": len(found.faults)}
        drawn = policies.describe(found) | {"kept": policies.list_kept(folder)}
        if not _wants_html(request):
            return PlainJSON(told)
        fragment = _is_fragment(request)
        return _html(
            self._drawer.draw("policies.html", fragment=fragment, title="Policies", **drawn)
        )

    async def _act(self, request: Request, viewer: Viewer) -> Response:
        """Do an operator's action; only these pages and programs that send JSON may ask."""
        if "hx-request" not in request.headers and not _is_json(request):
            raise PermissionError("send JSON, or use the pages: a form of another page is refused")
        key = await self._find_key(request, viewer)
        options = await _read_form(request)
        action = str(options.pop("action", ""))
        done = await self._desk.act(key, action, options, viewer)
        return self._show(request, "done.html", {"done": done}, action=action, key=key)

    async def _queue(self, request: Request, viewer: Viewer) -> Response:
        """Show the waiting and running jobs of a queue, without the texts of jobs."""
        if not viewer.is_operator:
            raise PermissionError("the queue is the operator's to see")
        if self._about.queue is None:
            raise UnknownConversation("no queue is watched here: ullage ui --queue watches one")
        told = await asyncio.to_thread(self._about.queue)
        return self._show(request, "queue.html", told, title="Queue")

    async def _find_key(self, request: Request, viewer: Viewer) -> str:
        """Return the requested key; a forbidden key takes as long as an unknown one."""
        key = request.query_params.get("of", "")
        row = self._desk.feed.get(key)
        if row is None or not viewer.sees(row):
            await self._desk.look()
        return key

    # --- the stream -----------------------------------------------------------------------------

    async def _stream(self, request: Request, viewer: Viewer) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._streams >= VIEWERS:
            return PlainJSON(
                {"error": f"{VIEWERS} viewers are here already: close another page"},
                503,
                {"retry-after": "5"},
            )
        return StreamingResponse(
            self._tell(request, viewer), media_type="text/event-stream", headers=HEADERS
        )

    async def _tell(self, request: Request, viewer: Viewer) -> AsyncIterator[bytes]:
        """Yield changes until the viewer leaves or the desk closes."""
        self._streams += 1
        era, known = self._era, set[str]()
        try:
            version, quiet = -1, 0.0
            while not self._desk.is_closing and era == self._era:
                self._desk.wake()
                changes = self._desk.feed.list_changes(max(0, version))
                forgets = changes.whole and (version < 0 or bool(known))
                told = tell_changes(changes, viewer, known)
                if told["rows"] or told["gone"] or forgets:
                    yield f"data: {json.dumps(told)}\n\n".encode()
                    quiet = 0.0
                elif quiet >= QUIET_S:
                    yield b": still here\n\n"
                    quiet = 0.0
                version = changes.version
                await asyncio.sleep(BEAT_S)
                quiet += BEAT_S
                if await request.is_disconnected():
                    return
        finally:
            self._streams -= 1

    async def _static(self, request: Request) -> Response:
        found = self._assets.find(request.path_params["name"])
        if found is None:
            return PlainJSON({"error": "there is no such file"}, 404)
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(found.data, media_type=found.kind, headers={**HEADERS, **headers})


def tell_changes(changes: Changes, viewer: Viewer, known: set[str]) -> dict[str, Any]:
    """Return the changes that a viewer may see; `known` are the keys they have received.

    Changes of other people's conversations are hidden entirely.
    """
    rows = [row for row in changes.rows if viewer.sees(row)]
    gone = [key for key in changes.gone if key in known]
    if changes.whole:
        known.clear()
    known.difference_update(gone)
    known.update(row.key for row in rows)
    shown = [viewer.trim(row).to_dict() for row in rows]
    return {"rows": shown, "gone": gone, "whole": changes.whole}


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") or _is_fragment(request)


def _is_fragment(request: Request) -> bool:
    """Tell whether a page asks for a part of itself."""
    return "hx-request" in request.headers


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json"


def is_own_origin(origin: str, host: str) -> bool:
    """Tell whether an `Origin` names the same server as the `Host` of the request."""
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower() != ""


async def _read_form(request: Request) -> dict[str, Any]:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST:
            raise NotPossible(f"the form is too large: it may have at most {LARGEST:,} bytes")
    try:
        if _is_json(request):
            value = json.loads(data or b"{}")
            return dict(value) if isinstance(value, dict) else {}
        return dict(parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=50))
    except (ValueError, RecursionError) as error:
        raise NotPossible(f"the form cannot be read: {error}") from error


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html")
