"""Run the scripted conversation on a real server, with a guard and without, and keep the score.

It knows the script and the public face of ullage; it prints nothing (the caller watches `Step`s).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ullage.core.errors import ContextTooLargeError, ProviderError
from ullage.core.guard.events import Compacted, CompactionFailed, ContextPressure, Notice
from ullage.guard.guard import Guard
from ullage.sdk.errors import classify_exception
from ullage.transport import HttpRequest, Transport

if TYPE_CHECKING:
    from ullage.cli.scenario import Fact, ScenarioTurn
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.events import Event

HTTP_OK = 200

REPEAT_PENALTY = 1.3
"""llama.cpp's own parameter: a model as small as the demo's repeats one sentence for ever."""


class RefusedError(ProviderError):
    """The server answered a chat request with an error."""

    def __init__(self, status: int, body: bytes, fault: str) -> None:
        self.status_code = status
        self.body = body.decode("utf-8", "replace")
        super().__init__(f"HTTP {status}: {self.body[:200]}" if status else fault)


@dataclass(frozen=True, slots=True)
class DuelClient:
    """The smallest client there is: one server, one model, no streaming."""

    base_url: str
    transport: Transport

    def create(self, **request: Any) -> dict[str, Any]:
        """Send a chat request; raises RefusedError when the server does not answer it."""
        body = {"temperature": 0, "repeat_penalty": REPEAT_PENALTY, **request}
        answer = self.transport.ask(HttpRequest(f"{self.base_url}/chat/completions", body))
        if answer.status != HTTP_OK:
            raise RefusedError(answer.status, answer.body, answer.fault)
        reply: dict[str, Any] = answer.json()
        return reply


@dataclass(frozen=True, slots=True)
class Step:
    """What happened in one turn. `meter` is the gauge after it; `error` says why it failed.

    `asks` is the fact that was asked for, None in most turns, and `answer` what the model said.
    """

    number: int
    meter: str
    compactions: tuple[Checkpoint, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""
    asks: Fact | None = None
    answer: str = ""

    @property
    def holds(self) -> bool:
        """Whether the answer holds what was asked for."""
        return self.asks is not None and self.asks.value.lower() in self.answer.lower()


@dataclass(slots=True)
class Score:
    """How a conversation went; times are in seconds."""

    guarded: bool
    turns: int = 0
    completed: int = 0
    overflows: int = 0
    failures: int = 0
    saved_tokens: int = 0
    compactions: int = 0
    sent_facts: list[Fact] = field(default_factory=list)
    answered_facts: list[Fact] = field(default_factory=list)
    model_s: float = 0.0
    guard_s: float = 0.0
    history: list[Any] = field(default_factory=list)
    first_error: str = ""


Watch = Callable[[Step], None]
Send = Callable[[list[Any]], tuple[list[Any], dict[str, Any]]]
"""Send a history; returns what was really sent, and the reply."""


class Unguarded:
    """Send the history as programs do that trust the window."""

    def __init__(self, chat: DuelClient, output: int) -> None:
        self.score = Score(guarded=False)
        self._chat = chat
        self._output = output
        self.meter = ""

    def send(self, history: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Send everything."""
        started = time.perf_counter()
        try:
            reply = self._chat.create(messages=history, max_tokens=self._output)
        finally:
            self.score.model_s += time.perf_counter() - started
        self.meter = f"ctx={reply['usage']['prompt_tokens']:,}"
        return history, reply

    def news(self) -> tuple[tuple[Checkpoint, ...], tuple[str, ...]]:
        """Return None: this client never compacts."""
        return (), ()


class Guarded:
    """Send the same history with every request going through a guard."""

    def __init__(self, chat: DuelClient, output: int, options: Mapping[str, Any]) -> None:
        self.score = Score(guarded=True)
        self._chat = chat
        self._output = output
        self._made: list[Checkpoint] = []
        self._notes: list[str] = []
        self.meter = ""
        self.guard = Guard(base_url=chat.base_url, on_event=self._listen, **options)

    def _listen(self, event: Event) -> None:
        if isinstance(event, ContextPressure):
            self.meter = f"{event.assessment.meter()} {event.tier}"
        elif isinstance(event, CompactionFailed | Notice):
            self._notes.append(event.reason if isinstance(event, CompactionFailed) else event.text)
        elif isinstance(event, Compacted):
            self._made.append(event.checkpoint)
            self.score.compactions += 1
            saved = event.checkpoint.tokens_before - event.checkpoint.tokens_after
            self.score.saved_tokens += saved

    def send(self, history: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Send what the guard makes of the history."""
        sent: list[Any] = []

        def create(**request: Any) -> dict[str, Any]:
            nonlocal sent
            sent = request["messages"]
            before = time.perf_counter()
            try:
                return self._chat.create(**request)
            finally:
                self.score.model_s += time.perf_counter() - before

        started, in_model = time.perf_counter(), self.score.model_s
        try:
            reply: dict[str, Any] = self.guard.call(create, history, max_tokens=self._output)
        finally:
            took = time.perf_counter() - started
            self.score.guard_s += took - (self.score.model_s - in_model)
        return sent, reply

    def news(self) -> tuple[tuple[Checkpoint, ...], tuple[str, ...]]:
        """Return the checkpoints made and the notices given since the last call."""
        made, notes = tuple(self._made), tuple(self._notes)
        self._made.clear()
        self._notes.clear()
        return made, notes


def play(
    side: Unguarded | Guarded, system: str, turns: Sequence[ScenarioTurn], watch: Watch
) -> Score:
    """Hold the whole conversation, also past failures, and return the score."""
    score = side.score
    score.turns = len(turns)
    score.history.append({"role": "system", "content": system})
    for number, turn in enumerate(turns, 1):
        error, answer = _turn(score, turn, side.send)
        step = Step(number, side.meter, *side.news(), error, turn.asks, answer)
        if turn.asks is not None and step.holds:
            score.answered_facts.append(turn.asks)
        watch(step)
    return score


def _turn(score: Score, turn: ScenarioTurn, send: Send) -> tuple[str, str]:
    """Play one turn into the score; returns the error, "" when it was answered, and the answer."""
    score.history += turn.messages
    try:
        sent, reply = send(score.history)
    except (ProviderError, ContextTooLargeError) as error:
        kind = classify_exception(error).kind
        score.overflows += kind in ("input", "total")
        score.failures += 1
        score.first_error = score.first_error or str(error)
        return str(error), ""
    answer = reply["choices"][0]["message"]["content"] or ""
    score.completed += 1
    fact = turn.asks
    if fact is not None and fact.value in json.dumps(sent[:-1], ensure_ascii=False):
        score.sent_facts.append(fact)
    score.history.append({"role": "assistant", "content": answer})
    return "", answer
