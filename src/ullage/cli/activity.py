"""Shows a turn line by line, and turns its end into an exit code.

The answer goes to stdout, all else to stderr. The module listens to a session and writes; it
decides nothing.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ullage.agent import Ended, Live, Session
from ullage.agent.session import Told
from ullage.cli import asking, glyphs
from ullage.cli.desk import say
from ullage.cli.flow import Flow
from ullage.cli.sign import EVERY_S, Sign
from ullage.core.dialects.usage import Usage
from ullage.core.session.log.event import Event
from ullage.core.session.permissions import Consent
from ullage.core.session.tools import Pending

CODES: Final[Mapping[str, int]] = {
    "permission_denied": 3,
    "iteration_cap": 6,
    "no_answer": 6,
    "stalled": 124,
    "interrupted": 130,
}
"""Exit codes of turns without an answer; for all others it is 1."""

CUT: Final = "the answer was cut off at its limit: --max-tokens"

WAITING: Final = "waiting"
"""The default text of the sign of life."""

SHOWN: Final = 100
"""Most characters of a call's arguments, or of a result, on a line."""

Result = TypeVar("Result")


def code(ended: Ended) -> int:
    """Return the exit code of a turn."""
    return 0 if ended.ok else CODES.get(ended.reason, 1)


@dataclass(slots=True)
class Activity:
    """Shows the events of a session.

    `streams` writes the answer as it comes, `has_answered` tells that it did; `gauges` shows the
    gauge on a line of its own, `meter` is the last one. `quiet` writes nothing to stderr.
    """

    quiet: bool = False
    streams: bool = False
    gauges: bool = True
    meter: str = ""
    has_answered: bool = False
    _flow: Flow = field(default_factory=Flow)
    _sign: Sign = field(default_factory=Sign)
    _calls: dict[str, str] = field(default_factory=dict)
    _asks: bool = False
    _summary: dict[str, Any] = field(default_factory=dict)

    def begin(self, what: str = WAITING) -> None:
        """Begin a turn, or other work that is waited for."""
        self.has_answered = False
        self._summary.clear()
        self._sign = Sign(what)

    def end(self) -> None:
        """End the line of an answer and the sign of life, so that the next text begins a line."""
        self._sign.clear()
        if self._flow.open:
            self._flow.end()

    def tick(self) -> None:
        """Show the seconds of waiting, unless a line is being written, or a person is asked."""
        if not (self.quiet or self._flow.open or self._asks):
            self._sign.tick()

    async def ask(self, call: Pending, reason: str) -> Consent | None:
        """Ask the person at the terminal, below the last output; return None without a terminal."""
        self.end()
        self._asks = True
        try:
            return await asking.ask(call, reason)
        finally:
            self._asks = False
            self._sign = Sign()

    def hear(self, event: Told) -> None:
        """Show one event, if people want to see it."""
        if isinstance(event, Live):
            self._hear_live(event)
        elif event.type == "tool_call":
            data = event.data
            self.has_answered = False
            self._calls[data["call_id"]] = data["name"]
            self._say(f"  > {_short(data['name'])} {_short(data['arguments'])}")
        elif event.type == "tool_result":
            data = event.data
            mark = "!" if data.get("is_error") else "<"
            name = _short(self._calls.get(data["call_id"], ""))
            self._say(f"  {mark} {name} {_short(data['text'])}")
            self._sign.begin(WAITING)
        elif event.type == "permission_decision":
            self._say(f"  {event.data['decision']}: {event.data.get('reason', '')}")
        elif event.type == "skill_activation":
            self._say(f"  skill {event.data['name']}")

    def _hear_live(self, event: Live) -> None:
        data = event.data
        if event.type == "text_delta":
            self._stream(data["text"])
        elif event.type == "reasoning_delta":
            self._sign.begin("thinking")
        elif event.type == "context_pressure":
            self._gauge(data)
        elif event.type == "plan":
            for step in data["steps"]:
                self._say(f"  [{step['status']}] {glyphs.clean(step['text'])}")
        elif event.type == "status" and "text" in data:
            self._say(f"  {glyphs.clean(data['text'])}")
        elif event.type == "status" and data.get("state") == "summarising":
            self._summary.update(data)
            self._sign.describe(describe_summary(self._summary))
        elif event.type == "status" and data.get("state") == "running":
            self._sign.begin(f"running {_short(str(data.get('tool', '')))}")

    def _stream(self, text: str) -> None:
        if not self.streams:
            self._sign.begin("answering")
            return
        self._sign.clear()
        self._flow.write(text)
        self.has_answered = True

    def _gauge(self, data: Mapping[str, Any]) -> None:
        tier = data.get("tier", "")
        meter = f"{data['meter']} {tier}" if tier not in ("", "none", "unavailable") else ""
        self.meter = meter or str(data["meter"])
        if self.gauges and data.get("phase") == "reported":
            self._say(f"  {self.meter}")

    def _say(self, text: str) -> None:
        self.end()
        if not self.quiet:
            say(text)


def describe_summary(told: Mapping[str, Any]) -> str:
    """Return the progress of a summary: finished parts of the history, written characters."""
    done, total = told.get("done", 0), told.get("total", 0)
    parts = f", {done:,} of {total:,} parts" if total > 1 else ""
    written = told.get("characters", 0)
    return f"summarising{parts}{f', {written:,} characters written' if written else ''}"


def _short(text: str) -> str:
    return glyphs.cut(glyphs.clean(" ".join(text[: SHOWN * 4].split())), SHOWN)


def run_work(work: Coroutine[Any, Any, Result], tick: Callable[[], object] | None = None) -> Result:
    """Run one piece of work; SIGTERM and SIGHUP interrupt it as Ctrl-C does.

    Raises KeyboardInterrupt in that case. A closed terminal sends SIGHUP; if `nohup` has it
    ignored, it stays ignored. `tick` is called every second meanwhile.
    """

    async def run() -> Result:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        if sys.platform != "win32":
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
                loop.add_signal_handler(signal.SIGHUP, task.cancel)
        ticking = None if tick is None else loop.create_task(_repeat(tick))
        try:
            return await task
        finally:
            if ticking is not None:
                ticking.cancel()

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:  # here, since asyncio prints errors that end a task
        raise KeyboardInterrupt from None


async def _repeat(act: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        act()


def read_interrupted_turn(events: Sequence[Event]) -> Ended:
    """Return the end of an interrupted turn, from the events since it began here.

    Without events the turn had not begun; `text` is the text so far.
    """
    usage, text, turn, rounds = Usage(0), "", "", 0
    for event in events:
        data = event.data
        if event.type == "provider_usage":
            text, rounds = "", rounds + 1
            usage += Usage(*(data.get(name, 0) for name in Usage.__slots__))
        elif event.type == "assistant_message" and data.get("partial") is True:
            text = data["text"]
        elif event.type in ("turn_started", "turn_interrupted"):
            turn = data["turn"]
    told = "the turn was interrupted"
    return Ended(turn, "interrupted", text, "interrupted", told, rounds, usage)


def document(session: Session, ended: Ended) -> str:
    """Return the end of a turn as one JSON document."""
    names = Usage.__slots__
    return json.dumps(
        {
            "session": session.name,
            "turn": ended.turn,
            "outcome": ended.outcome,
            "text": ended.text,
            "reason": ended.reason,
            "error": ended.error,
            "stop": ended.stop,
            "continued": ended.continued,
            "rounds": ended.rounds,
            "usage": {name: getattr(ended.usage, name) for name in names},
            "delegated": {name: getattr(ended.delegated, name) for name in names},
            "dollars": ended.dollars,
        },
        indent=2,
    )
