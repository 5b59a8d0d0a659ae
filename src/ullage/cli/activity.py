"""What a turn does, shown line by line on stderr, and how its end becomes an exit code.

It listens to a session and writes; it decides nothing.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ullage.agent import Ended, Live, Session
from ullage.agent.session import Told
from ullage.cli import lines, picture
from ullage.cli.desk import say
from ullage.core.log.event import Event
from ullage.core.transcript import Call
from ullage.core.usage import Usage

CODES: Final[Mapping[str, int]] = {
    "permission_denied": 3,
    "iteration_cap": 6,
    "no_answer": 6,
    "stalled": 124,
    "interrupted": 130,
}
"""Exit codes of turns that ended without an answer; all others are 1."""

CUT: Final = "the answer was cut off at its limit: --max-tokens"

SHOWN: Final = 100
"""Characters of a call's arguments, or of a result, on a line."""

Result = TypeVar("Result")


def code(ended: Ended) -> int:
    """Return the exit code of a turn."""
    return 0 if ended.ok else CODES.get(ended.reason, 1)


@dataclass(slots=True)
class Activity:
    """Show what happens in a session; `meter` is the last gauge."""

    quiet: bool = False
    meter: str = ""
    _calls: dict[str, str] = field(default_factory=dict)

    def hear(self, event: Told) -> None:
        """Show one event, if it is one that people want to see."""
        if isinstance(event, Live):
            self._live(event)
        elif event.type == "tool_call":
            data = event.data
            self._calls[data["call_id"]] = data["name"]
            self._say(f"  > {_short(data['name'])} {_short(data['arguments'])}")
        elif event.type == "tool_result":
            data = event.data
            mark = "!" if data.get("is_error") else "<"
            name = _short(self._calls.get(data["call_id"], ""))
            self._say(f"  {mark} {name} {_short(data['text'])}")
        elif event.type == "permission_decision":
            self._say(f"  {event.data['decision']}: {event.data.get('reason', '')}")
        elif event.type == "skill_activation":
            self._say(f"  skill {event.data['name']}")

    def _live(self, event: Live) -> None:
        data = event.data
        if event.type == "context_pressure":
            tier = data.get("tier", "")
            meter = f"{data['meter']} {tier}" if tier not in ("", "none", "unavailable") else ""
            self.meter = meter or str(data["meter"])
            if data.get("phase") == "reported":
                self._say(f"  {self.meter}")
        elif event.type == "plan":
            for step in data["steps"]:
                self._say(f"  [{step['status']}] {picture.clean(step['text'])}")
        elif event.type == "status" and "text" in data:
            self._say(f"  {picture.clean(data['text'])}")

    def _say(self, text: str) -> None:
        if not self.quiet:
            say(text)


def _short(text: str) -> str:
    return picture.cut(picture.clean(" ".join(text[: SHOWN * 4].split())), SHOWN)


def asked(call: Call, reason: str) -> bool | None:
    """Ask the person at the terminal; None where there is none."""
    if not (lines.steered(sys.stdin) and lines.steered(sys.stderr)):
        return None
    say(f"  {call.name} {_short(call.arguments)}")
    print(f"  {reason}. Allow? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def driven(work: Coroutine[Any, Any, Result]) -> Result:
    """Run one piece of work; SIGTERM interrupts it as Ctrl-C does. Raises KeyboardInterrupt."""

    async def run() -> Result:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:  # here, as asyncio prints what leaves a task so at its end
        raise KeyboardInterrupt from None


def interrupted(events: Sequence[Event]) -> Ended:
    """Return how a turn ended that was interrupted, by the events since it began here.

    Without events it had not begun; `text` is what had come.
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
    usage = {name: getattr(ended.usage, name) for name in type(ended.usage).__slots__}
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
            "usage": usage,
        },
        indent=2,
    )
