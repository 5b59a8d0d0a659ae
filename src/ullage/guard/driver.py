"""The drivers of the guard's machine: one that blocks and one that awaits.

They provide what `core.guard` needs from outside: a window, a server's count, a summary, stored
data. They also store what a response taught. They decide nothing. Apart from summaries and native
compactions they send nothing to a model.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ullage.begun import Begun
from ullage.core.guard.events import Compacted, Event, Notice, SummaryFailed, SummaryProgress
from ullage.core.guard.request import (
    Need,
    NeedKeep,
    NeedLoad,
    NeedNative,
    NeedRecall,
    NeedSave,
    NeedServerCount,
    NeedSummaries,
    NeedSummariserWindow,
    NeedTrial,
    NeedUndo,
    NeedWindow,
)
from ullage.core.summary.question import Answer
from ullage.guard import native
from ullage.guard.same import SameModel
from ullage.guard.summarizer import Summarize, aanswers, answers, awindow_of, window_of
from ullage.runtime import Measurable, Runtime
from ullage.storage.threaded import SHARED, checkpoints_of, conversations_of, originals_of
from ullage.transport import redact
from ullage.windows import Question

if TYPE_CHECKING:
    import asyncio

    from ullage.core.guard.conversation import Conversation
    from ullage.core.guard.learning import Observation
    from ullage.storage import Store

log = logging.getLogger("ullage.guard")

Listener = Callable[[Event], object]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait a moment before the same request is sent again."""


@dataclass(frozen=True, slots=True)
class Say:
    """Report an event to the listener: in the caller's thread or loop, wherever the steps run."""

    event: Event


SHOWN: Final = 300
"""Most characters of a summarizer's error that are reported."""

STORED: Final = (NeedKeep, NeedLoad, NeedRecall, NeedSave, NeedUndo)
"""Needs that a store answers."""

MODEL: Final = (NeedSummaries, NeedSummariserWindow, NeedNative)
"""Needs that a model answers: a summarizer, or the conversation's own provider."""

MEMORY: Final = "memory:"
"""The URL of a store in memory, which answers at once."""

Steps = Generator[Need | Rest | Say, Any, Result]


def _draw() -> float:
    """Return a random number; `random.random` as a default would pickle the generator's state."""
    return random.random()  # noqa: S311 - spreads retries, guards nothing


async def _asleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Pause:
    """The wait before a plain retry: a random share of `longest_s`, so that retries spread out.

    Tests replace the callables, and so can callers with another event loop.
    """

    longest_s: float = 0.5
    chance: Callable[[], float] = _draw
    sleep: Callable[[float], object] = time.sleep
    asleep: Callable[[float], Awaitable[object]] = _asleep

    def seconds(self) -> float:
        """Return the length of the next wait."""
        return self.longest_s * self.chance()


@dataclass(frozen=True, slots=True)
class Driver:
    """Answer the needs of one guard: `question` names the model, `listener` gets the events."""

    runtime: Runtime
    question: Question
    summarizer: Summarize | SameModel | None = None
    listener: Listener | None = None
    pause: Pause = Pause()
    own_store: Store | None = None

    @property
    def store(self) -> Store:
        """The store of this guard's checkpoints and conversations."""
        return self.own_store or self.runtime.store

    @property
    def heard(self) -> bool:
        """True if anything receives the events."""
        return self.listener is not None or self.runtime.metrics is not None

    def run(self, steps: Steps[Result]) -> Result:
        """Run steps to their end, blocking, and return their result."""
        try:
            need = next(steps)
            while True:
                need = steps.send(self._answer(need))
        except StopIteration as done:
            result: Result = done.value
            return result

    async def arun(self, steps: Steps[Result], *, beside: bool = False) -> Result:
        """Do as `run`, without blocking the event loop.

        If `beside` is set, the steps run in threads, because they take long.
        """
        if self.runtime.is_store_due:
            await self.aopen()
        answer: Any = None
        ahead: _Ahead | None = None
        try:
            while True:
                step = await self._aadvance(steps, answer) if beside else _advance(steps, answer)
                if isinstance(step, _Done):
                    result: Result = step.result
                    return result
                if ahead is not None and step == ahead.need:
                    answer, ahead = await ahead.task, None
                    continue
                begun = Begun(self._aanswer(step))
                if not begun.is_done and ahead is None and isinstance(step, NeedRecall):
                    ahead = self._look_ahead(step.next)
                answer = begun.result if begun.is_done else await begun
        finally:
            if ahead is not None:
                ahead.task.cancel()

    def _look_ahead(self, need: NeedLoad | None) -> _Ahead | None:
        """Start the next load early, so that a store answers both questions in one round trip.

        A store in memory does not need this.
        """
        import asyncio

        if need is None or self.store.url == MEMORY:
            return None
        task = asyncio.ensure_future(self._aperform_in_store(need))
        task.add_done_callback(_take_error)
        return _Ahead(need, task)

    async def _aadvance(self, steps: Steps[Any], answer: Any) -> Need | Rest | Say | _Done:
        """Advance the steps in a thread, as far as a store in memory can answer them."""
        from ullage.guard.planning import THREADS

        return await THREADS.run(self._advance_far, steps, answer)

    def _advance_far(self, steps: Steps[Any], answer: Any) -> Need | Rest | Say | _Done:
        step = _advance(steps, answer)
        while self.store.url == MEMORY and isinstance(step, STORED):
            step = _advance(steps, self._perform_in_store(step))
        return step

    async def aopen(self) -> None:
        """Open the configured store before it is used; this may wait for another program."""
        if self.own_store is None and self.runtime.is_store_due:
            await SHARED.writes.run(lambda: self.runtime.kept)

    def _answer(self, need: Need | Rest | Say) -> Any:
        if isinstance(need, NeedWindow):
            self.record(need)
            return self.runtime.windows.window(self.question)
        if isinstance(need, NeedServerCount):
            body = Measurable(need.messages, need.tools, need.system)
            return self.runtime.server_count(self.question, need.dialect, body)
        if isinstance(need, MODEL):
            return self._ask_model(need)
        if isinstance(need, Rest):
            return self.pause.sleep(self.pause.seconds())
        return self._perform_in_store(need)

    async def _aanswer(self, need: Need | Rest | Say) -> Any:
        if isinstance(need, NeedWindow):
            self.record(need)
            return await self.runtime.windows.awindow(self.question)
        if isinstance(need, NeedServerCount):
            body = Measurable(need.messages, need.tools, need.system)
            return await self.runtime.aserver_count(self.question, need.dialect, body)
        if isinstance(need, MODEL):
            return await self._aask_model(need)
        if isinstance(need, Rest):
            return await self.pause.asleep(self.pause.seconds())
        return await self._aperform_in_store(need)

    def _ask_model(self, need: NeedSummaries | NeedSummariserWindow | NeedNative) -> Any:
        if isinstance(need, NeedNative):
            return native.compact(self.runtime, self.question, need)
        if isinstance(need, NeedSummariserWindow):
            return window_of(self.summarizer)
        found = answers(self._find_summarizer(need), need.requests, self._report_progress)
        return self._report_failures(found)

    async def _aask_model(self, need: NeedSummaries | NeedSummariserWindow | NeedNative) -> Any:
        if isinstance(need, NeedNative):
            return await native.acompact(self.runtime, self.question, need)
        if isinstance(need, NeedSummariserWindow):
            return await awindow_of(self.summarizer)
        asked = self._find_summarizer(need)
        return self._report_failures(await aanswers(asked, need.requests, self._report_progress))

    def _find_summarizer(self, need: NeedSummaries) -> Summarize:
        """Return the summarizer; the conversation's own model is asked in its dialect."""
        asked = self.summarizer
        assert asked is not None  # noqa: S101 - the setup says that there is one
        return asked.speak(need.dialect) if isinstance(asked, SameModel) else asked

    def _report_progress(self, done: int, total: int | None) -> None:
        self.tell(SummaryProgress(done, total or done))

    def record(self, need: NeedWindow) -> None:
        """Learn from a refusal: the window, and how the server counts."""
        if need.evidence is not None:
            self.runtime.windows.record(self.question, need.evidence)
        if need.reading is not None:
            self.runtime.learn(self.question, need.reading)

    def _note(self, need: NeedTrial | Say) -> Any:
        if isinstance(need, Say):
            return self.tell(need.event)
        return self.runtime.windows.start_trial(self.question)

    def _perform_in_store(self, need: Need | Rest | Say) -> Any:
        if isinstance(need, Say | NeedTrial):
            return self._note(need)
        if isinstance(need, NeedLoad):
            return self.store.checkpoints.load(need.scope, need.prefixes)
        if isinstance(need, NeedRecall):
            return self._take_in(self.store.conversations.load(need.scope, need.prefixes))
        if isinstance(need, NeedKeep):
            return self.store.originals.keep(need.originals)
        if isinstance(need, NeedUndo):
            return self.store.checkpoints.undo(need.checkpoint)
        assert isinstance(need, NeedSave)  # noqa: S101 - the needs are a closed union
        return self.store.checkpoints.save(need.checkpoint)

    async def _aperform_in_store(self, need: Need | Rest | Say) -> Any:
        if isinstance(need, Say | NeedTrial):
            return self._note(need)
        if isinstance(need, NeedLoad):
            return await checkpoints_of(self.store).aload(need.scope, need.prefixes)
        if isinstance(need, NeedRecall):
            found = await conversations_of(self.store).aload(need.scope, need.prefixes)
            return self._take_in(found)
        if isinstance(need, NeedKeep):
            return await originals_of(self.store).akeep(need.originals)
        if isinstance(need, NeedUndo):
            return await checkpoints_of(self.store).aundo(need.checkpoint)
        assert isinstance(need, NeedSave)  # noqa: S101 - the needs are a closed union
        return await checkpoints_of(self.store).asave(need.checkpoint)

    def _take_in(self, found: Conversation | None) -> Conversation | None:
        return None if found is None else self.runtime.take_in(self.question, found)

    def remember(self, conversation: Conversation) -> None:
        """Save the state of a conversation between calls."""
        self.store.conversations.save(conversation)

    async def aremember(self, conversation: Conversation) -> None:
        """Do as `remember`, without blocking the event loop."""
        await conversations_of(self.store).asave(conversation)

    def _report_failures(self, found: Sequence[Answer | Exception]) -> list[Answer | None]:
        """Report each distinct failure once; its consequences are reported with the outcome."""
        faults = [answer for answer in found if isinstance(answer, Exception)]
        private = (*getattr(self.summarizer, "secrets", ()), *filter(None, [self.question.api_key]))
        for text in dict.fromkeys(f"{type(fault).__name__}: {fault}" for fault in faults):
            self.tell(SummaryFailed(f"the summarizer failed: {redact(text, private)[:SHOWN]}"))
        return [answer if isinstance(answer, Answer) else None for answer in found]

    def learn(self, seen: Observation) -> None:
        """Store what a response taught."""
        self._learn_limits(seen)
        if seen.checkpoint is not None:
            self.store.checkpoints.save_measured(seen.checkpoint)
        self.remember(seen.conversation)
        for event in seen.events:
            self.tell(event)

    async def alearn(self, seen: Observation) -> None:
        """Do as `learn`, without blocking the event loop."""
        self._learn_limits(seen)
        if seen.checkpoint is not None:
            await checkpoints_of(self.store).asave_measured(seen.checkpoint)
        await self.aremember(seen.conversation)
        for event in seen.events:
            self.tell(event)

    def _learn_limits(self, seen: Observation) -> None:
        """Learn what a response says about its model and the window."""
        if seen.reading is not None:
            self.runtime.learn(self.question, seen.reading, seen.taught)
        for claim in seen.evidence:
            self.runtime.windows.record(self.question, claim)

    def tell(self, event: Event) -> None:
        """Call the listener; without one, log the important events.

        Exceptions of the listener are logged: they must not cost an answer that is already paid.
        """
        if self.runtime.metrics is not None:
            self.runtime.metrics.record_event(event, self.question.model)
        if self.listener is None:
            _log_event(event)
            return
        try:
            self.listener(event)
        except Exception:
            log.exception("on_event failed on %s", type(event).__name__)


def _log_event(event: Event) -> None:
    """Log the important events if there is no listener."""
    if isinstance(event, Notice):
        log.warning("%s", event.text)
    elif isinstance(event, Compacted):
        made = event.checkpoint
        sizes = f"{made.tokens_before:,} -> {made.tokens_after:,} tokens"
        log.info("compacted %s (%s, %s)", sizes, made.strategy, made.trigger)


@dataclass(frozen=True, slots=True)
class _Done:
    """The end of steps with their result, because no future can carry StopIteration."""

    result: Any


def _advance(steps: Steps[Any], answer: Any) -> Need | Rest | Say | _Done:
    """Advance steps to their next need or to their end."""
    try:
        return steps.send(answer)
    except StopIteration as done:
        return _Done(done.value)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A load that was started before it is needed."""

    need: NeedLoad
    task: asyncio.Task[Any]


def _take_error(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of an unused task; otherwise asyncio logs a warning."""
    if not task.cancelled():
        task.exception()


class Background:
    """Background work, one task per conversation at a time. For one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the work of a conversation, unless it is already running."""
        import asyncio

        if name in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(work())
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def settle(self) -> None:
        """Wait until all started work is done."""
        import asyncio

        await asyncio.gather(*self._tasks.values())
