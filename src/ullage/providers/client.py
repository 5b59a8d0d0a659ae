"""Calls one model and streams its answer, with retries if they may help.

It holds connections and facts about its server, but no conversation. For one event loop.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ullage.core.dialects import registry
from ullage.core.dialects.overflow import classify
from ullage.core.dialects.reply import Assembly, Reply
from ullage.core.dialects.sse import Garbled
from ullage.providers import bodies, retries
from ullage.providers.failure import CallFailed, FailureFacts
from ullage.providers.listening import Hear, listen
from ullage.providers.provider import Provider
from ullage.transport import (
    Broken,
    HttpRequest,
    Incoming,
    StreamingClient,
    Timeouts,
    mask_url,
    redact,
)

Wait = Callable[[str, float], object]

SHOWN: Final = 500
"""Characters quoted from a server's error; the whole body is passed on, too."""

REFUSALS: Final = frozenset({400, 422})
"""Status codes with which servers refuse a field: 422 comes from Python servers (FastAPI)."""

TOO_LARGE: Final = frozenset({"input", "total", "output_cap", "bytes", "media"})

ERROR_BYTES: Final = 1024 * 1024
"""Most bytes read of an error."""


class Client:
    """Send requests to one model.

    `chance` returns 0 to 1. `asleep` waits for seconds (None: asyncio's sleep).
    """

    def __init__(
        self,
        provider: Provider,
        *,
        chance: Callable[[], float] = random.random,
        asleep: Callable[[float], Awaitable[object]] | None = None,
    ) -> None:
        limits = provider.limits
        self.provider = provider
        self._chance = chance
        self._asleep = asleep
        self._line = StreamingClient(Timeouts(limits.connect_s, limits.stall_s))
        self._quirks: list[bodies.Quirk] = []

    def __repr__(self) -> str:
        return f"Client({self.provider!r})"

    async def send(
        self, fields: Mapping[str, Any], hear: Hear, *, wait: Wait | None = None
    ) -> Reply:
        """Return the model's answer; `hear` gets the pieces to show as they arrive.

        `fields` are those of a view (`View.kwargs`). Retries if no part of an answer had arrived
        and another attempt may help; `wait` gets the reason and the seconds of the pause. Raises
        CallFailed.
        """
        limits, attempt = self.provider.limits, 0
        while True:
            made = bodies.body(self.provider, fields, self._quirks)
            try:
                return await self._attempt(made, hear)
            except CallFailed as failed:
                trouble = failed
            if self._learn_quirk(trouble, made):
                continue
            attempt += 1
            trouble.attempts = attempt
            if attempt >= limits.attempts or not retries.worthwhile(trouble):
                raise trouble
            seconds = retries.wait_s(trouble, attempt, limits.longest_wait_s, self._chance)
            if wait is not None:
                wait(str(trouble), seconds)
            await (self._asleep or _asleep)(seconds)

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        await self._line.aclose()

    def _learn_quirk(self, trouble: CallFailed, made: Mapping[str, Any]) -> bool:
        """Tell whether a refusal shows that one of our fields must go; it is remembered."""
        if trouble.status not in REFUSALS or trouble.kind.kind in TOO_LARGE:
            return False
        words = trouble.body if isinstance(trouble.body, str) else json.dumps(trouble.body)
        quirk = bodies.find_quirk(made, self.provider, words)
        if quirk is None or quirk in self._quirks:
            return False
        self._quirks.append(quirk)
        return True

    async def _attempt(self, made: Mapping[str, Any], hear: Hear) -> Reply:
        ask = bodies.ask(self.provider, made)
        dialect, limits = self.provider.dialect, self.provider.limits
        into = registry.make_reader(dialect, repr(self._chance()))
        try:
            incoming = await self._line.open(ask)
            try:
                if not 200 <= incoming.status < 300:
                    raise await _refusal(ask, incoming)
                await self._listen(incoming, into, hear)
            finally:
                await incoming.aclose()
        except Broken as broken:
            facts = self._explain_broken(ask, broken)
        except Garbled as garbled:
            facts = _explain_garbled(ask, garbled, lost=garbled.torn or into.begun)
        except TimeoutError:
            facts = FailedAttempt(f"{_where(ask)} {limits.refuse_time()}", {"stalled": True})
        else:
            if into.failed is not None:
                facts = _error(ask, into.failed)
            elif into.ended:
                reply = into.reply()
                refused = limits.refuse_calls(len(reply.calls))
                if not refused:
                    return reply
                facts = FailedAttempt(f"{_where(ask)} {refused}", {})
            else:
                said = f"{_where(ask)} ended its stream before the end of the answer"
                facts = FailedAttempt(said, {"lost": True})
        raise facts.failure(ask, into)

    async def _listen(self, incoming: Incoming, into: Assembly, hear: Hear) -> None:
        """Read an answer within its limits; raises TimeoutError after the time limit."""
        import asyncio

        limits, spoken = self.provider.limits, registry.find(self.provider.dialect)
        async with asyncio.timeout(limits.answer_s):
            await listen(incoming, into, hear, spoken, most_bytes=limits.answer_bytes)

    def _explain_broken(self, ask: HttpRequest, broken: Broken) -> FailedAttempt:
        """Return the error for a connection that broke or was never made."""
        where, limits = _where(ask), self.provider.limits
        if broken.how == "unreached":
            return FailedAttempt(f"{where} cannot be reached: {broken}", {"unreached": True})
        if broken.how == "stalled":
            said = f"{where} was silent for {limits.stall_s:g} s, the longest that is waited"
            return FailedAttempt(f"{said}: ask again, or raise stall_s", {"stalled": True})
        if broken.how == "lost":
            return FailedAttempt(f"{where} broke the connection: {broken}", {"lost": True})
        return FailedAttempt(f"{where} cannot be asked: {broken}", {})


async def _asleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


class FailedAttempt(NamedTuple):
    """The failure of an attempt, in words and as facts."""

    said: str
    facts: FailureFacts

    def failure(self, ask: HttpRequest, into: Assembly) -> CallFailed:
        """Return the exception, with the parts that had arrived by then."""
        facts: FailureFacts = {
            **self.facts,
            "begun": into.begun,
            "called": into.called,
            "partial": into.text,
        }
        return CallFailed(redact(self.said, ask.secrets()), **facts)


async def _refusal(ask: HttpRequest, incoming: Incoming) -> CallFailed:
    """Return the error for a server's refusal."""
    text = (await incoming.body(ERROR_BYTES)).decode("utf-8", "replace")
    secrets, status = ask.secrets(), incoming.status
    kind = classify(status, text, headers=incoming.headers)
    body = _redact_body(text, secrets)
    headers = {name: redact(value, secrets) for name, value in incoming.headers.items()}
    said = redact(f"{_where(ask)} answered {status}: {_words(body)}", secrets)
    return CallFailed(said, kind=kind, status=status, body=body, headers=headers)


def _explain_garbled(ask: HttpRequest, garbled: Garbled, *, lost: bool) -> FailedAttempt:
    """Return the failure for an invalid response."""
    sample = redact(garbled.sample, ask.secrets())[:SHOWN]
    met = f"{garbled}: {sample!r}" if sample else str(garbled)
    return FailedAttempt(f"{_where(ask)} sent an invalid response: {met}", {"lost": lost})


def _error(ask: HttpRequest, event: Mapping[str, Any]) -> FailedAttempt:
    """Return the failure for an error event inside a stream."""
    body = _redact_body(json.dumps(event), ask.secrets())
    said = f"{_where(ask)} reported an error within its answer: {_words(body)}"
    return FailedAttempt(said, {"kind": classify(200, event), "status": 200, "body": body})


def _where(ask: HttpRequest) -> str:
    model = (ask.body or {}).get("model")
    return f"{model} at {mask_url(ask.url)}"


def _redact_body(text: str, secrets: Iterable[str]) -> Any:
    """Return a body, parsed if it is JSON, without secrets in any escaped form."""
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        return json.loads(redact(plain, secrets))
    except (ValueError, RecursionError):
        return redact(text, secrets)


def _words(body: Any) -> str:
    """Return the message in the body of an error, shortened."""
    said = body
    for name in ("response", "error", "message", "detail"):
        if isinstance(said, Mapping) and said.get(name):
            said = said[name]
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    text = " ".join(text.split()) or "nothing"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
