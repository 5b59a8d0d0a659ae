"""The summarizer of an agent's sessions: a given one, or the model of the session.

The session's own model is called as in its turns: with its key, headers and options, and streamed,
so that progress can be shown. The module decides nothing about summaries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from ullage.agent.calling import open_caller
from ullage.config.settings import SAME
from ullage.core.dialects import registry
from ullage.core.errors import ContextTooLargeError
from ullage.core.summary.question import Answer
from ullage.guard.defaults import check_summarizer, make_summarizer
from ullage.guard.summarizer import THOUGHT, has_thoughts, make_fields

if TYPE_CHECKING:
    from ullage.core.dialects.reply import Delta
    from ullage.core.summary.question import SummaryRequest
    from ullage.guard.summarizer import Summarize
    from ullage.providers import Provider
    from ullage.runtime import Runtime
    from ullage.windows import Question

TURNED: Final = frozenset({"thinking", "tools", "tool_choice", "response_format", "format"})
"""Options of turns that are useless for a summary, or that break its short answer: Anthropic
accepts no `max_tokens` below the budget of `thinking`."""


def choose_summarizer(
    runtime: Runtime, given: Summarize | str | None
) -> Summarize | Literal["same"] | None:
    """Return the summarizer: the given one, else that of the settings.

    Raises ConfigurationError for an object that cannot be called.
    """
    if given is None:
        return make_summarizer(runtime, runtime.settings.summarizer)
    return SAME if given == SAME else check_summarizer(given)


class OwnModel:
    """The model of a session as its summarizer.

    `tell` is called with the number of characters written so far, in all answers together.
    """

    parallel = 2
    """Requests at once: a local server has few slots, and the session waits for all of them."""

    def __init__(
        self,
        provider: Provider,
        runtime: Runtime,
        question: Question,
        tell: Callable[[int], object],
    ) -> None:
        options = {name: value for name, value in provider.options.items() if name not in TURNED}
        self._provider = replace(provider, options=options)
        self._runtime, self._question, self._tell = runtime, question, tell
        self._thinks = False
        self._written = 0

    async def awindow(self) -> int | None:
        """Return the tokens for a request and its answer together, or None if unknown."""
        found = await self._runtime.windows.awindow(self._question)
        return found.total_tokens or found.input_tokens

    def __call__(self, request: SummaryRequest) -> Answer:
        """Raise NotImplementedError: an agent awaits its model."""
        raise NotImplementedError("an agent's own model is awaited: use acall")

    async def acall(self, request: SummaryRequest) -> Answer:
        """Return the model's answer; raises CallFailed, or ContextTooLargeError before sending."""
        most, window = request.max_tokens, await self.awindow()
        most += THOUGHT if self._thinks else 0
        if window is not None:
            most = min(most, self._find_room(request, window))
        fields = self._make_fields(request, most)
        caller = open_caller(self._provider)
        try:
            reply = await caller.send(fields, self._hear)
        finally:
            await caller.aclose()
        self._thinks = self._thinks or has_thoughts(reply)
        return Answer(reply.text, reply.usage, reply.stop == "length")

    def _make_fields(self, request: SummaryRequest, most: int) -> Mapping[str, Any]:
        return make_fields(registry.find(self._provider.dialect), request, most)

    def _find_room(self, request: SummaryRequest, window: int) -> int:
        """Return the tokens that a request leaves for its answer."""
        counter = self._runtime.meter(self._question, self._provider.dialect).counter
        tokens = counter.count(request.system) + counter.count(request.prompt)
        if tokens >= window:
            raise ContextTooLargeError(
                f"a request for a summary takes {tokens:,} tokens, and the window of "
                f"{self._provider.model} has {window:,}: give a summarizer with a larger window",
                tokens=tokens,
                bound=window,
            )
        return window - tokens

    def _hear(self, delta: Delta) -> None:
        self._written += len(delta.text)
        self._tell(self._written)
