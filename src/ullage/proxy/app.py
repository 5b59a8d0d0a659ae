"""The guard proxy as an ASGI callable: routes, and the life of the process.

It finds the kind of each request; `proxy.exchange` handles it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from ullage.guard.planning import load_dialects
from ullage.live.source import Viewer
from ullage.logs import begin_work
from ullage.proxy import head as heads
from ullage.proxy import journal, memory, pages, routes
from ullage.proxy.admission import Admission
from ullage.proxy.asked import list_doors
from ullage.proxy.body import RequestRefused
from ullage.proxy.channel import Channel
from ullage.proxy.endpoints import DOCUMENT, is_api
from ullage.proxy.exchange import ENDED, Exchange
from ullage.proxy.fitting import ReadableNames
from ullage.proxy.guarding import Guarding
from ullage.proxy.interface import ApiExchange
from ullage.proxy.keeping import Keeping
from ullage.proxy.ledger import Ledger
from ullage.proxy.replicas import Replicas
from ullage.proxy.sharing import Sharing
from ullage.proxy.stored import Histories
from ullage.proxy.unguarded import UnguardedRequests
from ullage.proxy.upstream import AiohttpSender, Sender
from ullage.proxy.watching import ConversationWatch
from ullage.proxy.worker import WorkerSetup
from ullage.proxy.workers import Workers
from ullage.runtime import Runtime, default
from ullage.storage import StoreLimits, check_store, open_store
from ullage.storage.place import PROXY, default_url
from ullage.storage.threaded import desk_of
from ullage.telemetry import metrics
from ullage.windows import Question

if TYPE_CHECKING:
    from ullage.config.serving import Serve
    from ullage.proxy.call import ProxyCall
    from ullage.proxy.guarding import Plan
    from ullage.proxy.watching import RequestEnd
    from ullage.storage import Store

log = logging.getLogger("ullage.proxy")

OPEN: Final = (*pages.OPEN, DOCUMENT)
"""Paths served without a token: they reveal nothing about anybody."""

LONGEST_PATH = 80
"""Characters of a path that a log line shows."""


SETTLE_S: Final = 0.5
"""Seconds that shutdown waits for pending writes, and then for the store to close."""


class PageFace(Protocol):
    """Pages that show a proxy: an ASGI application that finds the viewer in the scope."""

    def is_page(self, path: str) -> bool:
        """Tell whether a path is one of its pages'."""
        ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        ...

    def end_streams(self) -> None:
        """End its streams at once."""
        ...

    def renew(self) -> None:
        """Make every viewer ask anew."""
        ...

    async def aclose(self) -> None:
        """Release its resources."""
        ...


TURNS: Final = 8
"""Most requests that a worker handles at once if some wait for summaries by a model."""

REMEMBERED: Final = 16 * 1024 * 1024
"""Approximate bytes of parsed messages that a worker keeps; large ones come on top."""


class App:
    """One proxy. `upstream` replaces the HTTP client; `store` keeps checkpoints.

    `face` makes the pages that show it in a browser.

    The first request, or the lifespan startup, raises the errors of opening the store.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        runtime: Runtime | None = None,
        store: Store | None = None,
        upstream: Sender | None = None,
        face: Callable[[App], PageFace] | None = None,
    ) -> None:
        load_dialects()
        self.serve = serve
        self.ledger = Ledger(serve.cache_conversations)
        self.runtime = runtime if runtime is not None else default()
        sharing = Sharing()
        self.replicas = Replicas(sharing, self.runtime)
        self.histories = Histories(sharing=sharing)
        self.readable = ReadableNames(sharing)
        self._sender = upstream
        self._store = check_store(store)
        self._own: Store | None = None
        self._kept: Keeping | None = None
        self._guarding: Guarding | None = None
        self.is_leaving = False
        self._workers: Workers | None = None
        self._asgi: Any = None
        self.metrics = metrics.enable(self.runtime)
        self.meters = metrics.ProxyMeters(self.metrics.registry)
        self.unguarded = UnguardedRequests(self.meters)
        self.watch = ConversationWatch(
            self.runtime,
            reads=serve.reads_text,
            most=2 * serve.cache_conversations,  # pages know them longer than requests need
            most_bytes=serve.page_bytes,
        )
        self.face = None if face is None else face(self)
        self.admission = Admission(serve, self.meters.refuse)
        self.pages = pages.Pages(
            self.ledger,
            self._render,
            lambda: self.serve.upstreams,
            pages.Readiness(pages.reaching(self.runtime.transport)),
            self._find_away,
            lambda: self.is_leaving,
            lambda: self.admission.crowding,
        )

    def reload(self, serve: Serve) -> None:
        """Switch to another configuration: new requests use it, running ones keep the old one."""
        readers, self.serve = self.serve.tokens, serve
        self.admission.bounds = serve
        if not serve.reads_text or serve.tokens != readers:
            self.watch.forget_texts()
        if self.face is not None:
            self.face.renew()
        self.watch.reads = serve.reads_text
        self._asgi = None
        self.runtime.windows.doubt()
        self._guarding = self._make_guarding(self.guarding)
        if self._workers is not None:
            self._workers.renew(serve.workers, self._turns)

    @property
    def guarding(self) -> Guarding:
        """The guards for the current configuration."""
        if self._guarding is None:
            self._guarding = self._make_guarding()
        return self._guarding

    def _make_guarding(self, before: Guarding | None = None) -> Guarding:
        made = Guarding(self.serve, self.runtime, self.kept, self.ledger, self.histories)
        return self.replicas.join(made, before)

    def forget(self, question: Question) -> None:
        """Forget the lessons about a model, at every replica."""
        self.replicas.forget(question)

    @property
    def store(self) -> Store:
        """The store of checkpoints: the given one, else the configured one."""
        if self._store is None:
            limits = StoreLimits(ttl_s=self.serve.ttl_s)
            url = self.serve.store or default_url(PROXY)
            embeddings = self.runtime.settings.embeddings
            self._store = self._own = open_store(url, limits=limits, embeddings=embeddings)
        return self._store

    @property
    def kept(self) -> Keeping:
        """The store as guards use it; its memory survives a change of configuration."""
        if self._kept is None:
            near = self.serve.cache_conversations
            self._kept = Keeping(self.store, StoreLimits(ttl_s=self.serve.ttl_s), near)
        return self._kept

    def show(self, call: ProxyCall, plan: Plan, end: RequestEnd) -> None:
        """Report a finished request to the pages."""
        about = plan.about
        entry = self.ledger.get(about.name) if about is not None and self.serve.pages else None
        if entry is not None:
            question = self.guarding.make_question(call)
            self.watch.take(call, plan, entry, question, end)

    def _find_away(self) -> float | None:
        return None if self._kept is None else self._kept.away_s

    def _render(self) -> str:
        if self._kept is not None:
            self.meters.store(self._kept.away_s, self._kept.backlog + self.replicas.backlog)
        workers = self._workers
        waiting, pids = (0, []) if workers is None else (workers.waiting, workers.pids)
        resident = sum(map(memory.measure, [os.getpid(), *pids]))
        self.meters.load(waiting, self.admission.size, resident)
        return self.metrics.render()

    @property
    def workers(self) -> Workers | None:
        """The processes for large requests, or None without workers."""
        if self._workers is None and self.serve.workers:
            doors = list_doors(self.kept, self.runtime, self.histories, self.meters)
            told, most = self.meters.end_worker, self.serve.workers
            self._workers = Workers(most, self._set_up, doors, told, turns=self._turns)
        return self._workers if self.serve.workers else None

    @property
    def _turns(self) -> int:
        waits = self.serve.summarizer or self.runtime.settings.summarizer
        return TURNS if waits else 1

    def _set_up(self) -> WorkerSetup:
        """Return the setup of a worker: it gets random values instead of the clients' tokens."""
        hidden = {name: secrets.token_hex(16) for name in self.serve.tokens}
        searches = hasattr(self.kept.originals, "search")
        serve = replace(self.serve, tokens=hidden)
        return WorkerSetup(serve, self.runtime.settings, REMEMBERED, searches)

    @property
    def sender(self) -> Sender:
        """The client of the upstreams."""
        if self._sender is None:
            self._sender = AiohttpSender(self.serve)
        return self._sender

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request, or the life of the process (ASGI 3)."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            if self._asgi is None:
                self._asgi = _open_to(self.serve.origins, self._http)
            await self._asgi(scope, receive, send)

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        began, path = time.perf_counter(), str(scope["path"])
        line = journal.RequestLine(scope["method"], path[:LONGEST_PATH])
        line.request_id = journal.choose_id(scope["headers"])
        begin_work(line.context)
        channel = Channel(receive, send, self.serve.idle_s, line.request_id)
        try:
            await self._answer_request(scope, channel, line)
        finally:
            line.status = channel.status or line.status
            line.left, line.code, line.why = channel.gone, channel.code, channel.why
            line.seconds = time.perf_counter() - began
            journal.write(line, page=pages.is_page(path) or self._is_own(path))

    async def _answer_request(
        self, scope: Any, channel: Channel, line: journal.RequestLine
    ) -> None:
        path = scope["path"]
        dialect = "" if is_api(path) else routes.dialect(path)
        try:
            bound = str((scope.get("server") or ("",))[0])
            if self.face is not None and self._is_faced(scope):
                await self.face(self._let_see(scope, bound), channel.receive, channel.send)
                return
            head = heads.read(scope, self.serve, bound, strangers=path in OPEN)
            line.client = journal.name_client(head.agent, head.client)
            if pages.is_page(head.path) and not routes.plain(head.method, head.path):
                seen = {**scope, pages.VIEWER: self._make_viewer(head)}
                await self.pages(seen, channel.receive, channel.send)
                return
            await self._route_request(head, channel, line)
        except RequestRefused as refused:
            await channel.refuse(dialect, refused)
        except asyncio.CancelledError:  # the server is ending: this task does nothing more
            await channel.refuse(dialect, RequestRefused(503, "proxy_ended", ENDED))
        except Exception:
            if channel.begun:
                raise
            log.exception("a request failed in the proxy itself")
            self.meters.fault()
            await channel.refuse(
                dialect, RequestRefused(500, "proxy_failed", "the proxy itself failed")
            )

    def _is_own(self, path: str) -> bool:
        return self.face is not None and self.serve.pages and self.face.is_page(path)

    def _is_faced(self, scope: Any) -> bool:
        """Tell whether a request is for the pages; on `/` only if it accepts HTML."""
        path = scope["path"]
        return self._is_own(path) and (
            path != "/"
            or any(k.lower() == b"accept" and b"text/html" in v for k, v in scope["headers"])
        )

    def _let_see(self, scope: Any, bound: str) -> Any:
        """Return the scope with the viewer added, or with None if the token is missing or wrong."""
        try:
            head = heads.read(scope, self.serve, bound, from_pages=True)
        except RequestRefused as refused:
            if refused.status != 401:
                raise
            heads.read(scope, self.serve, bound, strangers=True, from_pages=True)
            return {**scope, pages.VIEWER: None}
        return {**scope, pages.VIEWER: self._make_viewer(head)}

    def _make_viewer(self, head: heads.RequestHead) -> Viewer:
        operator = self.serve.is_operator(head.client)
        return Viewer(head.client or "", operator, operator and self.serve.reads_text)

    async def _route_request(
        self, head: heads.RequestHead, channel: Channel, line: journal.RequestLine
    ) -> None:
        async with self.admission.admit(head.party) as admitted:
            if is_api(head.path):
                await ApiExchange(self, head, channel, admitted, line).answer()
            else:
                exchange = Exchange(self, head, channel, admitted, line)
                await self._exchange(exchange, head, line.path)

    async def _exchange(self, exchange: Exchange, head: heads.RequestHead, asked: str) -> None:
        form = routes.find_form(head.path) if head.method == "POST" else None
        checked, model = routes.find_checked(head.path)
        if form is not None:
            await exchange.converse(form)
        elif head.method == "POST" and checked:
            await exchange.check(model)
        elif routes.plain(head.method, head.path):
            await exchange.forward()
        else:
            raise RequestRefused(
                404,
                "no_such_route",
                f"there is no {head.method} {quote(asked):.80} here: see GET /",
            )

    async def _lifespan(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    _ = self.store, self.sender
                    self._warm()
                    await self.replicas.begin(self.store)
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    raise
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _warm(self) -> None:
        """Load what nearly every request needs, so that no client waits for it.

        This does not run in a thread, since other threads could not reuse the memory that loading
        frees.
        """
        self.runtime.text_meter(None).counter.count("warm")
        self.runtime.windows.window(Question("warm"))

    def leave(self) -> None:
        """Announce that the process will end soon, so that no new requests are sent here."""
        self.is_leaving = True

    def end_streams(self) -> None:
        """End the streams of pages, which would otherwise go on for ever."""
        if self.face is not None:
            self.face.end_streams()

    async def _settle(self) -> None:
        """Finish all pending writes."""
        if self._kept is not None:
            await self._kept.settle()
        await self.replicas.aclose()

    async def aclose(self) -> None:
        """Close everything that this app opened."""
        if self.face is not None:
            await self.face.aclose()
        workers, self._workers = self._workers, None
        if workers is not None:
            await workers.aclose()
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.aclose()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settle(), SETTLE_S)
        lost = 0 if self._kept is None else self._kept.backlog
        if lost:
            log.warning("%d changes were not written: the store is away", lost)
        own, self._own = self._own, None
        if own is not None:
            self._store = self._kept = self._guarding = None
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(desk_of(own).writes.run(own.close), SETTLE_S)


def _open_to(origins: tuple[str, ...], app: Any) -> Any:
    """Return an ASGI callable that allows these origins (CORS), or `app` itself without origins.

    Pages set keys and tokens in headers, so cookies are never allowed.
    """
    if not origins:
        return app
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "HEAD", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("*",),
    )
