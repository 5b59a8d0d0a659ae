"""The proxy in front of the two servers, watched from both sides while a client talks.

It knows no client: requests are counted at the proxy's door, refusals where its upstream answers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from tests.clients.upstream import Pair, read
from tests.proxy.serving import listening
from ullage.config.serving import Serve, Upstream
from ullage.proxy.app import App
from ullage.runtime import Runtime
from ullage.storage.memory import MemoryStore

log = logging.getLogger(__name__)

WINDOWS: Final = 5
"""What a conversation must come to."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A request of a client, and how it was answered. `told` are the proxy's own headers."""

    path: str
    body: bytes
    status: int
    told: dict[str, str]

    @property
    def streamed(self) -> bool:
        """Whether a stream was asked for."""
        return bool(json.loads(self.body).get("stream"))

    @property
    def compacted(self) -> bool:
        """Whether it was sent on with a compacted history."""
        return "x-ullage-compaction" in self.told


class Door:
    """An application, and what passed through its door by POST."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.passed: list[Passed] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand one request through."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await read(receive)
        whole = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return whole.pop() if whole else await receive()

        async def watched(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = {k.decode(): v.decode() for k, v in message["headers"]}
                own = {k: v for k, v in headers.items() if k.startswith("x-ullage-")}
                self.passed.append(Passed(scope["path"], body, message["status"], own))
            await send(message)

        await self._app(scope, again, watched)


@dataclass(frozen=True)
class Guarded:
    """A proxy under watch: `url` is for the client, `direct` what stands behind it."""

    url: str
    direct: str
    pair: Pair
    door: Door
    before: int

    @property
    def refusals(self) -> int:
        """How often the servers behind refused what the proxy sent."""
        return sum(status >= 400 for status in self.pair.statuses[self.before :])

    @property
    def compactions(self) -> int:
        """How many different compactions the headers of the answers told of."""
        made = [each.told["x-ullage-compaction"] for each in self.door.passed if each.compacted]
        return len(set(made))

    def tokens(self) -> int:
        """Return the tokens of the client's latest request, as the server behind refuses it."""
        last = max(self.door.passed, key=lambda each: len(each.body))
        with httpx2.Client(timeout=60, trust_env=False) as client:
            named = {"content-type": "application/json"}
            answer = client.post(self.direct + last.path, content=last.body, headers=named)
        assert answer.status_code == 400, answer.text
        return int(answer.json()["error"]["n_prompt_tokens"])

    def summary(self) -> dict[str, Any]:
        """Return what is reported of a conversation, as numbers."""
        passed = self.door.passed
        refusals = self.refusals  # before the last request is sent once more, to be refused
        return {
            "requests": len(passed),
            "streamed": sum(each.streamed for each in passed),
            "failed": sum(each.status != 200 for each in passed),
            "compacted": sum(each.compacted for each in passed),
            "compactions": self.compactions,
            "refusals": refusals,
            "tokens": self.tokens(),
        }

    def held(self, who: str) -> dict[str, Any]:
        """Demand that all went well for five windows; log and return the numbers."""
        found = self.summary()
        log.info("%s: %s", who, found)
        assert found["failed"] == 0, found
        assert found["refusals"] == 0, found
        assert found["compactions"] > 1, found
        assert found["tokens"] >= WINDOWS * self.pair.window, found
        return found


@contextmanager
def guarded(pair: Pair, direct: str) -> Iterator[Guarded]:
    """Put a proxy with nothing but its upstream's address before the servers, and watch it."""
    serve = Serve((Upstream("llama", direct),), store="memory:")
    door = Door(App(serve, runtime=Runtime(), store=MemoryStore()))
    with listening(door) as url:  # type: ignore[arg-type]  # any ASGI application will do
        yield Guarded(url, direct, pair, door, len(pair.statuses))
