"""A request as a guard returns it: what to send, and how to report the response.

This module prepares nothing and knows no guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ullage.core.guard.request import Prepared, Request
from ullage.core.tokens.gauge import Assessment
from ullage.core.values.pickling import Unpicklable
from ullage.core.values.shown import line

if TYPE_CHECKING:
    from ullage.core.compaction.checkpoint import Checkpoint
    from ullage.core.compaction.plan import Outcome
    from ullage.core.tokens.window import Window


class Learner(Protocol):
    """The receiver of the answer to a view: its guard."""

    def learn_from(self, view: View, response: Any) -> Assessment:
        """Return the assessment by the reported usage."""
        ...

    async def alearn_from(self, view: View, response: Any) -> Assessment:
        """Do as `learn_from`, without blocking the event loop."""
        ...


@dataclass(frozen=True, slots=True)
class View(Unpicklable):
    """A request that may be sent, as the guard returns it.

    `kwargs` holds the whole request for the client's `create(...)`. Each field is present only if
    it was given: messages, tools, max_tokens; for Anthropic also system; for Responses input,
    instructions, tools, max_output_tokens; for Ollama options instead of max_tokens. Messages that
    no edit touched are the caller's own objects.
    """

    instead = (
        "it is bound to its guard. Pickle view.kwargs or view.messages to send them, "
        "view.assessment or view.compaction to look at them"
    )

    kwargs: Mapping[str, Any]
    prepared: Prepared
    learner: Learner
    request: Request
    recoveries: tuple[Checkpoint, ...] = ()
    """Checkpoints that recoveries stored for this request; undone if it is refused too."""

    def __repr__(self) -> str:
        return line("View", f"{len(self.messages):,} messages", self.assessment.notice())

    def __copy__(self) -> View:
        return self

    @property
    def messages(self) -> list[Any]:
        """The messages to send."""
        return self.prepared.messages

    @property
    def origin(self) -> tuple[int | None, ...]:
        """The original position of each of `messages`, or None for a new message.

        Some servers want roles to take turns, so messages are joined. Then those that are the
        caller's own objects have a position, and the others None.
        """
        made = self.prepared
        if len(made.origin) == len(made.messages):
            return made.origin
        places = {id(raw): place for place, raw in enumerate(self.request.messages)}
        return tuple(places.get(id(raw)) for raw in made.messages)

    @property
    def assessment(self) -> Assessment:
        """How full the window is with this request."""
        return self.prepared.assessment

    @property
    def window(self) -> Window:
        """The window that the request was checked against."""
        return self.prepared.window

    @property
    def compaction(self) -> Outcome | None:
        """The compaction made for this request, or None."""
        return self.prepared.outcome

    def observe(self, response: Any) -> Assessment:
        """Learn from the response, its usage, or the exception raised in its place.

        Returns the assessment by the reported usage. An overflow error teaches the limit that it
        names.
        """
        return self.learner.learn_from(self, response)

    async def aobserve(self, response: Any) -> Assessment:
        """Do as `observe`, without blocking the event loop while the store is written."""
        return await self.learner.alearn_from(self, response)
