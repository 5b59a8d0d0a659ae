"""Runs the scripted conversation on a real server, with and without a guard, and keeps the score.

The module knows the script and the public interface of ullage; it prints nothing (the caller
watches `Step`s).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ullage.api.search import search
from ullage.core.errors import ContextTooLargeError, ProviderError
from ullage.core.guard.events import Compacted, CompactionFailed, ContextPressure, Notice
from ullage.guard.guard import Guard
from ullage.sdk.errors import classify_exception
from ullage.storage.memory import MemoryStore
from ullage.transport import HttpRequest, Transport

if TYPE_CHECKING:
    from ullage.cli.scenario import Fact, ScenarioTurn
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.guard.events import Event

HTTP_OK = 200

HITS = 20
"""Passages that a search for a fact returns, since many parts of the log have the same words."""

REPEAT_PENALTY = 1.3
"""llama.cpp's own parameter: a model as small as the demo's would repeat one sentence for ever."""


class RefusedError(ProviderError):
    """Report that the server answered a chat request with an error."""

    def __init__(self, status: int, body: bytes, fault: str) -> None:
        self.status_code = status
        self.body = body.decode("utf-8", "replace")
        super().__init__(f"HTTP {status}: {self.body[:200]}" if status else fault)


@dataclass(frozen=True, slots=True)
class DuelClient:
    """A minimal client: one server, one model, no streaming."""

    base_url: str
    transport: Transport

    def create(self, **request: Any) -> dict[str, Any]:
        """Send a chat request; raises RefusedError if the server answers with an error."""
        body = {"temperature": 0, "repeat_penalty": REPEAT_PENALTY, **request}
        answer = self.transport.ask(HttpRequest(f"{self.base_url}/chat/completions", body))
        if answer.status != HTTP_OK:
            raise RefusedError(answer.status, answer.body, answer.fault)
        reply: dict[str, Any] = answer.json()
        return reply


@dataclass(frozen=True, slots=True)
class Step:
    """The events of one turn. `meter` is the gauge after it; `error` says why it failed.

    `tokens` is the size that was sent. `asks` is the fact that was asked for, None in most turns,
    and `answer` the model's text. `held` is the line of the request with the fact; without one,
    `found` is the line that a search in the left-out text returned. Either may be "".
    """

    number: int
    meter: str
    tokens: int = 0
    compactions: tuple[Checkpoint, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""
    asks: Fact | None = None
    answer: str = ""
    held: str = ""
    found: str = ""

    @property
    def holds(self) -> bool:
        """True if the answer contains the fact that was asked for."""
        return self.asks is not None and self.asks.value.lower() in self.answer.lower()


@dataclass(slots=True)
class Score:
    """The result of a conversation; times are in seconds."""

    guarded: bool
    turns: int = 0
    completed: int = 0
    overflows: int = 0
    failures: int = 0
    saved_tokens: int = 0
    compactions: int = 0
    sent_facts: list[Fact] = field(default_factory=list)
    found_facts: list[Fact] = field(default_factory=list)
    answered_facts: list[Fact] = field(default_factory=list)
    model_s: float = 0.0
    guard_s: float = 0.0
    history: list[Any] = field(default_factory=list)
    first_error: str = ""


Watch = Callable[[Step], None]
Send = Callable[[list[Any]], tuple[list[Any], dict[str, Any]]]
"""Sends a history; returns the messages that were really sent, and the reply."""


class Unguarded:
    """Sends the history as programs do that ignore the window."""

    def __init__(self, chat: DuelClient, output: int) -> None:
        self.score = Score(guarded=False)
        self._chat = chat
        self._output = output
        self.meter = ""
        self.tokens = 0

    def send(self, history: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Send the whole history."""
        started = time.perf_counter()
        try:
            reply = self._chat.create(messages=history, max_tokens=self._output)
        finally:
            self.score.model_s += time.perf_counter() - started
        self.tokens = reply["usage"]["prompt_tokens"]
        self.meter = f"ctx={self.tokens:,}"
        return history, reply

    def search(self, _words: str) -> Iterable[str]:
        """Return no passages: this client leaves nothing out."""
        return ()

    def news(self) -> tuple[tuple[Checkpoint, ...], tuple[str, ...]]:
        """Return nothing: this client never compacts."""
        return (), ()


class Guarded:
    """Sends the same history through a guard."""

    def __init__(self, chat: DuelClient, output: int, options: Mapping[str, Any]) -> None:
        self.score = Score(guarded=True)
        self._chat = chat
        self._output = output
        self._made: list[Checkpoint] = []
        self._notes: list[str] = []
        self.meter = ""
        self.tokens = 0
        self._store = MemoryStore()
        given = {"store": self._store, **options}
        self.guard = Guard(base_url=chat.base_url, on_event=self._listen, **given)

    def _listen(self, event: Event) -> None:
        if isinstance(event, ContextPressure):
            self.meter = f"{event.assessment.meter()} {event.tier}"
            self.tokens = event.assessment.input_tokens or 0
        elif isinstance(event, CompactionFailed | Notice):
            self._notes.append(event.reason if isinstance(event, CompactionFailed) else event.text)
        elif isinstance(event, Compacted):
            self._made.append(event.checkpoint)
            self.score.compactions += 1
            saved = event.checkpoint.tokens_before - event.checkpoint.tokens_after
            self.score.saved_tokens += saved

    def send(self, history: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Send the history as the guard prepares it."""
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

    def search(self, words: str) -> Iterable[str]:
        """Return passages of the left-out text, the best first."""
        return (hit.text for hit in search(words, store=self._store, hits=HITS))

    def news(self) -> tuple[tuple[Checkpoint, ...], tuple[str, ...]]:
        """Return the checkpoints and notices since the last call."""
        made, notes = tuple(self._made), tuple(self._notes)
        self._made.clear()
        self._notes.clear()
        return made, notes


def play(
    side: Unguarded | Guarded, system: str, turns: Sequence[ScenarioTurn], watch: Watch
) -> Score:
    """Hold the whole conversation, even after failures, and return the score."""
    score = side.score
    score.turns = len(turns)
    score.history.append({"role": "system", "content": system})
    for number, turn in enumerate(turns, 1):
        error, answer, held = _turn(score, turn, side.send)
        fact, found = turn.asks, ""
        if fact is not None and not held:
            found = find_line(fact.value, side.search(fact.asked))
        told = side.meter, side.tokens, *side.news()
        step = Step(number, *told, error, fact, answer, held, found)
        if fact is not None:
            for holds, facts in (
                (held, score.sent_facts),
                (found, score.found_facts),
                (step.holds, score.answered_facts),
            ):
                facts.extend([fact] if holds else [])
        watch(step)
    return score


def find_line(value: str, texts: Iterable[str]) -> str:
    """Return the first line with a value, or ""."""
    rows = (row for text in texts for row in text.splitlines())
    return next((row.strip() for row in rows if value in row), "")


def _turn(score: Score, turn: ScenarioTurn, send: Send) -> tuple[str, str, str]:
    """Play one turn into the score; return the error, the answer, and the line with the fact.

    Each may be "".
    """
    score.history += turn.messages
    try:
        sent, reply = send(score.history)
    except (ProviderError, ContextTooLargeError) as error:
        kind = classify_exception(error).kind
        score.overflows += kind in ("input", "total")
        score.failures += 1
        score.first_error = score.first_error or str(error)
        return str(error), "", ""
    answer = reply["choices"][0]["message"]["content"] or ""
    score.completed += 1
    score.history.append({"role": "assistant", "content": answer})
    texts = (str(message.get("content") or "") for message in sent[:-1])
    return "", answer, find_line(turn.asks.value, texts) if turn.asks else ""
