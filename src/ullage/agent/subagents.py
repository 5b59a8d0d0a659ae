"""Subagents: a tool that gives a task to a session of its own, and returns its last answer.

The child's name follows from the call, so a call that runs again after a crash finds the same
child. The module decides nothing in a turn; both sessions are ordinary ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ullage.agent.session import Live, Session
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.session.caching import find_root
from ullage.core.session.log.event import Draft, Event
from ullage.core.session.permissions import Access
from ullage.core.session.reach import make_reach_data
from ullage.core.session.tools import Intent, Spec, ToolOutcome
from ullage.core.session.turn.effects import Ended
from ullage.core.tokens.budget import TurnBudget, tighten_budget
from ullage.providers import Provider, StreamProvider, read_provider
from ullage.storage.threaded import desk_of
from ullage.tools.tool import Fault

if TYPE_CHECKING:
    from ullage.agent.agent import Agent
    from ullage.agent.kit import Asking, Kit
    from ullage.agent.options import Equipment, TurnOptions
    from ullage.agent.session import Hear, Told
    from ullage.core.session.permissions import Mode, Posture
    from ullage.core.session.tools import Pending
    from ullage.tools import Arguments, Executor

Result = TypeVar("Result")

NAME: Final = "subagent"

SHOWN: Final = 200
"""Characters of a task, or of a call's arguments, in a message about a subagent."""

ENDS: Final[Mapping[str, str]] = {
    "turn_completed": "completed",
    "turn_failed": "failed",
    "turn_interrupted": "interrupted",
}

_TASK: Final[Mapping[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "description": "All that it needs: what to do, where, what is known, what to answer.",
}

_MODE: Final[Mapping[str, Any]] = {
    "type": "string",
    "enum": ["plan", "build"],
    "description": "plan: it only reads, and may run with others; build: it may make changes.",
}


@dataclass(frozen=True, slots=True)
class Subagents:
    """The limits and equipment of the subagents that a model may begin.

    `depth` is the number of levels: with 1, subagents begin no others. `most` limits them in a
    turn, `max_iterations` the model calls of each, `budget` the use of each; the rest of the turn's
    own budget applies as well. `provider` and `window` replace the parent's, `executor` makes other
    tools for them. `hear` gets their events, as in `Session.hear`. Their rights never exceed those
    of the turn that begins them. Raises ConfigurationError for numbers below 1.
    """

    depth: int = 1
    most: int = 8
    max_iterations: int | None = 25
    budget: TurnBudget | None = None
    provider: Provider | StreamProvider | None = None
    window: int | None = None
    executor: Callable[[Session], Executor] | None = None
    hear: Hear | None = None

    def __post_init__(self) -> None:
        for name in ("depth", "most", "max_iterations"):
            value = getattr(self, name)
            if type(value) is not int and not (value is None and name == "max_iterations"):
                raise ConfigurationError(f"{name} of subagents is {value!r:.60}, not a number")
            if value is not None and value < 1:
                raise ConfigurationError(
                    f"{name} of subagents is {value}: give 1 or more, or leave subagents out"
                )
        if self.provider is not None:
            read_provider(self.provider)

    @classmethod
    def read(cls, given: object) -> Subagents | None:
        """Return the settings that an agent was given: True for the default, or the depth."""
        if given is None or given is False:
            return None
        if given is True:
            return cls()
        if isinstance(given, int):
            return cls(given)
        if isinstance(given, cls):
            return given
        raise ConfigurationError(
            f"subagents is {given!r:.80}: give True, a depth, or ullage.agent.Subagents(...)"
        )


def make_tool(
    agent: Agent, settings: Subagents | None, session: Session, posture: Posture
) -> SubagentTool | None:
    """Return the tool of a session, or None if it may begin no subagent."""
    if settings is None or _find_depth(session) >= settings.depth:
        return None
    return SubagentTool(agent, settings, posture)


def _find_depth(session: Session) -> int:
    """Return the number of sessions above a session, from its own log."""
    depth = session.known.created.get("depth", 0)
    return depth if type(depth) is int else 0


class SubagentTool:
    """The tool `subagent`, for one turn; `kit` is the equipment of that turn."""

    def __init__(self, agent: Agent, settings: Subagents, posture: Posture) -> None:
        self._agent, self._settings, self._posture = agent, settings, posture
        self._begun: set[str] = set()
        self.kit: Kit | None = None
        fields = {"task": _TASK} if posture.reads_only else {"task": _TASK, "mode": _MODE}
        self.spec = Spec(
            name=NAME,
            description="Give a task to a subagent, which works in the same workspace and knows "
            "nothing of this conversation. Returns its last answer.",
            parameters={
                "type": "object",
                "properties": fields,
                "required": ["task"],
                "additionalProperties": False,
            },
            reads_only=posture.reads_only,
            idempotent=True,
            again="once",
        )

    def access(self, arguments: Arguments) -> Access:
        """Return that a call itself changes nothing: each call of the subagent is checked."""
        return Access(safe=self._mode(arguments) == "plan")

    def intent(self, arguments: Arguments) -> Intent:
        """Return that reading subagents may run in parallel, and that all may run again."""
        return Intent(self.access(arguments).safe, idempotent=True)

    async def run(self, arguments: Arguments, *, key: str, dry_run: bool) -> ToolOutcome:
        """Run a subagent on the task, or continue it after a crash."""
        task, mode = str(arguments["task"]), self._mode(arguments)
        if dry_run:
            return ToolOutcome(f"a subagent would begin in {mode} mode: {task}")
        kit = self._kit
        name = make_name(kit.session.name, key)
        self._check_most(name, key)
        child = await _open(kit.session, name, _find_depth(kit.session) + 1)
        try:
            await self._link(name, key, task)
            ended = await self._work(child, task, mode)
        finally:
            await child.aclose()
        await self._link_end(name, key, ended)
        return replace(_describe(child.name, ended), reach=frozenset(child.known.holdings))

    @property
    def _kit(self) -> Kit:
        assert self.kit is not None  # noqa: S101 - the agent gives it, before a turn begins
        return self.kit

    def _mode(self, arguments: Arguments) -> Mode:
        asked: Mode = arguments.get("mode", "build")
        return "plan" if self._posture.mode == "plan" or self._posture.reads_only else asked

    def _check_most(self, name: str, key: str) -> None:
        """Refuse a subagent beyond the limit; a continued one does not count."""
        turn = f"{key.rsplit('-', 2)[0]}-"
        known = self._kit.session.known.links
        begun = {link["child"] for link in known if str(link.get("key")).startswith(turn)}
        self._begun |= begun
        if name not in self._begun and len(self._begun) >= self._settings.most:
            raise Fault(
                f"{len(self._begun)} subagents were begun in this turn, the most is "
                f"{self._settings.most}: do the rest without"
            )
        self._begun.add(name)

    # --- the child ------------------------------------------------------------------------------

    async def _work(self, child: Session, task: str, mode: Mode) -> Ended:
        """Return the end of the child's turn, which is new, continued, or over before a crash."""
        kit, settings = self._kit, self._settings
        fold = await child.afold()
        if fold.turns and fold.turn is None:
            return read_end(child.events())
        child.grants.extend(kit.session.grants)
        ends = [child.hear(self._tell(child.name))]
        if settings.hear is not None:
            ends.append(child.hear(settings.hear))
        options: TurnOptions = {
            "mode": mode,
            "permission": self._posture.permission,
            "max_iterations": settings.max_iterations,
            "budget": tighten_budget(settings.budget, kit.left),
            "ask": _name_asker(child.name, kit.ask),
        }
        agent = self._make_agent()
        try:
            if fold.turn is None:
                return await run_apart(agent.arun(child, task, **options))
            ended = await run_apart(agent.aresume(child, **options))
            return ended or read_end(child.events())
        finally:
            for end in ends:
                end()

    def _make_agent(self) -> Agent:
        """Return the agent of the child: the parent's, with the changes of the settings."""
        kit, settings = self._kit, self._settings
        changes: Equipment = {"policy": replace(self._agent.policy, new_session=False)}
        if settings.provider is not None or settings.window is not None:
            changes["window"] = settings.window
        if settings.executor is not None:
            changes["executor"] = settings.executor
        return self._agent.derive(settings.provider or kit.provider, changes)

    def _tell(self, name: str) -> Callable[[Told], None]:
        """Return a listener that reports a child's actions to the parent's listeners."""

        def hear(event: Told) -> None:
            text = ""
            if isinstance(event, Event):
                if event.type == "tool_call":
                    text = f"{event.data['name']} {event.data['arguments']}"[:SHOWN]
            elif event.type == "status":
                text = str(event.data.get("text", ""))
            if text:
                self._publish(f"subagent {name}: {text}")

        return hear

    def _publish(self, text: str) -> None:
        session = self._kit.session
        session.publish(Live(session.name, "status", {"text": text}))

    # --- links ----------------------------------------------------------------------------------

    async def _link(self, name: str, key: str, task: str) -> None:
        """Record the child in the parent's log, unless it is there already."""
        session = self._kit.session
        if not any(link.get("child") == name for link in session.known.links):
            link = {"child": name, "key": key, "task": task[:SHOWN]}
            await session.arecord([Draft("subagent_event", link)])
        self._publish(f"subagent {name} works on: {' '.join(task[:SHOWN].split())}")

    async def _link_end(self, name: str, key: str, ended: Ended) -> None:
        """Record the child's end and its usage in the parent's log."""
        session = self._kit.session
        told = (link for link in session.known.links if "outcome" in link)
        if any(link.get("child") == name for link in told):
            return
        used = {field: getattr(ended.usage + ended.delegated, field) for field in Usage.__slots__}
        link = {"child": name, "key": key, "outcome": ended.outcome, "rounds": ended.rounds}
        more = {"reason": ended.reason, "dollars": ended.dollars}
        link |= {field: value for field, value in more.items() if value not in ("", None)}
        await session.arecord([Draft("subagent_event", {**link, "usage": used})])


def make_name(parent: str, key: str) -> str:
    """Return the name of the child that a call begins: the same after a crash."""
    return blake2b(f"{parent}\0{key}".encode(), digest_size=6).hexdigest()


async def _open(parent: Session, name: str, depth: int) -> Session:
    """Return the child, begun now or before a crash; its log names the parent."""
    log = parent.log

    def open_session() -> Session:
        with suppress(StoreError):  # it exists already; the next line raises other errors
            log.create(name, time.time())
        return Session(log, name)

    child = await desk_of(log).writes.run(open_session)
    if not (await child.afold()).head:
        root = find_root(parent.known, parent.name)
        link = {"parent": parent.name, "root": root, "depth": depth}
        link |= make_reach_data(parent.known.holdings)
        await child.arecord([Draft("session_created", link)])
    return child


async def run_apart(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a child's turn; a cancellation first ends it, then continues."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            if cancelled is None:
                task.cancel()
            cancelled = error
    if cancelled is not None:
        task.cancelled() or task.exception()
        raise cancelled
    if task.cancelled():
        raise Fault("the subagent's session was taken over by another")
    return task.result()


def _name_asker(name: str, ask: Asking | None) -> Asking | None:
    """Return a function that asks a person, naming the subagent."""
    if ask is None:
        return None

    def asking(call: Pending, reason: str) -> Any:
        return ask(call, f"subagent {name}: {reason}")

    return asking


def _describe(name: str, ended: Ended) -> ToolOutcome:
    """Return the end in the form for the parent's model."""
    used = ended.usage + ended.delegated
    marks = {"subagent": name}
    if ended.ok:
        return ToolOutcome(ended.text, marks=marks, usage=used, dollars=ended.dollars)
    said = f"; it said last: {ended.text}" if ended.text else ""
    text = f"error: the subagent gave no answer: {ended.error} ({ended.reason}){said}"
    return ToolOutcome(text, is_error=True, marks=marks, usage=used, dollars=ended.dollars)


def read_end(events: list[Event]) -> Ended:
    """Return the end of a session's last turn, from its events."""
    usage, rounds, text = Usage(0), 0, ""
    turn = outcome = reason = error = ""
    for event in events:
        data = event.data
        if event.type == "turn_started":
            usage, rounds, text, turn = Usage(0), 0, "", data["turn"]
        elif event.type == "provider_usage":
            usage += Usage(*(data.get(name, 0) for name in Usage.__slots__))
            rounds += 1
        elif event.type == "assistant_message":
            text = data["text"]
        elif event.type in ENDS:
            outcome, reason = ENDS[event.type], str(data.get("reason", ""))
            error = str(data.get("error", ""))
    if outcome == "interrupted":
        reason, error = "interrupted", "its turn was interrupted"
    kind: Any = outcome
    return Ended(turn, kind, text, reason, error, rounds, usage)
