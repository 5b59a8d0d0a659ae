"""What is sent: requests of 1 KB, streams, prompts of 100,000 tokens, streams that stand still.

Values and files of bodies; it sends nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from bench.proxy.load import MARK
from bench.transcript import Message, Shape, write

PATH: Final = "/v1/chat/completions"
MODEL: Final = "bench"
SMALL_BYTES: Final = 1_000
LONG_MESSAGES: Final = 660
"""Messages of a transcript of about 100,000 tokens (o200k_base)."""

CHUNKS: Final = 200
TOKENS_S: Final = 50
"""Chunks a second of one stream."""

STREAMS: Final = 8
"""Streams open at a time where there is no crowd."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of one kind: `count` of them, `rate` a second; how the fake answers them.

    A request not answered `limit_s` after the last was sent, is counted as unfinished.
    """

    name: str
    rate: float
    count: int
    settings: Mapping[str, Any]
    bodies: tuple[str, ...]
    limit_s: float = 30.0
    aborts: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; seconds, counts and rounds."""

    rounds: int = 5
    small_s: float = 4.0
    streams: int = 12
    chunks: int = CHUNKS
    crowd_rounds: int = 2
    crowd: int = 400
    crowd_s: float = 8.0
    crowd_limit_s: float = 15.0
    sessions: int = 5
    idle: int = 400
    names: tuple[str, ...] = ()
    soak_min: float = 0.0
    """How long to soak, in minutes."""


QUICK: Final = Plan(
    rounds=2, small_s=1.0, streams=12, chunks=50, crowd_rounds=1, crowd=200, crowd_s=1.5,
    crowd_limit_s=5.0, sessions=2, idle=100,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bodies:
    """Writes bodies to files, once each."""

    folder: Path
    plan: Plan
    written: dict[str, str] = field(default_factory=dict)

    def small(self) -> Workload:
        """Return requests of 1 KB at 200 a second, answered at once."""
        count = round(200 * self.plan.small_s)
        settings = {"chunks": 20, "interval_s": 0.0}
        return Workload("small", 200, count, settings, (self._small("small", stream=False),))

    def calm(self) -> Workload:
        """Return the same at 20 a second, which a slow proxy keeps up with, too."""
        return replace(self.small(), name="calm", rate=20, count=round(20 * self.plan.small_s))

    def stream(self) -> Workload:
        """Return streams of which eight are open at a time, which a slow proxy keeps up with."""
        rate = STREAMS * TOKENS_S / self.plan.chunks
        return Workload("stream", rate, self.plan.streams, self._pace(), (self._streamed(),))

    def crowd(self) -> Workload:
        """Return as many streams begun a second as keep the crowd's number open."""
        plan = self.plan
        rate = plan.crowd * TOKENS_S / plan.chunks
        count = round(rate * plan.crowd_s)
        return Workload("crowd", rate, count, self._pace(), (self._streamed(),), plan.crowd_limit_s)

    def idle(self) -> Workload:
        """Return streams that stand still after their first chunk, and are left by their client."""
        settings = {"chunks": 2, "interval_s": 60.0}
        return Workload("idle", 200, self.plan.idle, settings, (self._streamed(),), 2.0)

    def long(self, number: int, *, again: bool) -> Workload:
        """Return prompts of 100,000 tokens, each another session; `again`: with one turn more."""
        names = tuple(
            self._long(number * self.plan.sessions + place, again=again)
            for place in range(self.plan.sessions)
        )
        name = "again" if again else "first"
        return Workload(name, 4, len(names), {"chunks": 20, "interval_s": 0.0}, names)

    def soak(self) -> Workload:
        """Return streams for as long as the soak lasts, some of them left by their client."""
        settings = {"chunks": 25, "interval_s": 1 / TOKENS_S}
        count = round(self.plan.soak_min * 60 * 50)
        return Workload("soak", 50, count, settings, (self._streamed(),), 30.0, 0.1)

    def _pace(self) -> dict[str, Any]:
        return {"chunks": self.plan.chunks, "interval_s": 1 / TOKENS_S}

    def _streamed(self) -> str:
        return self._small("streamed", stream=True)

    def _small(self, name: str, *, stream: bool) -> str:
        text = "Say in a few words what the tests of this repository are for. "
        body = _request([{"role": "user", "content": ""}], stream=stream)
        room = SMALL_BYTES - len(json.dumps(body))
        said = (MARK.decode() + ": " + text * (room // len(text) + 1))[:room]
        return self._file(name, _request([{"role": "user", "content": said}], stream=stream))

    def _long(self, seed: int, *, again: bool) -> str:
        name = f"long-{seed}{'-again' if again else ''}"
        if name in self.written:
            return self.written[name]
        messages = write(Shape(LONG_MESSAGES, seed=seed))
        if again:
            messages.append({"role": "assistant", "content": "It is done, and the tests pass."})
            messages.append({"role": "user", "content": "Now the same for the other one."})
        return self._file(name, _request(messages, stream=False))

    def _file(self, name: str, body: Mapping[str, Any]) -> str:
        if name not in self.written:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = self.folder / f"{name}.json"
            file.write_text(json.dumps(body), encoding="utf-8")
            self.written[name] = str(file)
        return self.written[name]


def _request(messages: list[Message], *, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": 512}
    if stream:
        return {**body, "stream": True, "stream_options": {"include_usage": True}}
    return body
