"""A conversation's own model as its summarizer: `summarizer="same"`.

It asks the same server, with the same key, in the dialect of the conversation. It holds no
conversation and decides nothing about summaries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.config.settings import SAME
from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError
from ullage.guard.summarizer import Summarizer

if TYPE_CHECKING:
    from ullage.core.messages.transcript import DialectName
    from ullage.runtime import Runtime
    from ullage.windows import Question


class SameModel:
    """A summarizer that asks the conversation's own model; `question` names the model and server.

    It sends only fields that the conversation sends too. It sends no temperature, because models
    that reason refuse one. Raises ConfigurationError if the address of the model is unknown.
    """

    def __init__(self, runtime: Runtime, question: Question) -> None:
        if not question.base_url:
            raise ConfigurationError(
                f'summarizer="{SAME}" asks the model of the conversation, and no base_url is '
                "given: give base_url=, or ullage.Summarizer(model, base_url=...)"
            )
        self._runtime, self._question = runtime, question
        self._spoken: dict[DialectName, Summarizer] = {}

    def speak(self, dialect: DialectName) -> Summarizer:
        """Return the summarizer for this dialect; raises ConfigurationError without a model."""
        made = self._spoken.get(dialect)
        if made is None:
            asked, spoken = self._question, registry.find(dialect)
            options: dict[str, Any] = {}
            if spoken.options is not None and asked.override is not None:
                held = spoken.options.write({}, asked.override, None)
                options = {str(spoken.fields.inside): held}
            made = self._spoken[dialect] = Summarizer(
                asked.model or "",
                base_url=asked.base_url or "",
                dialect=dialect,
                api_key=asked.api_key,
                window=asked.override,
                runtime=self._runtime,
                options=options,
            )
        return made

    @property
    def window(self) -> int | None:
        """The tokens of a request and its answer together, or None if unknown."""
        return self.speak(registry.DEFAULT).window

    async def awindow(self) -> int | None:
        """Do as `window`, without blocking the event loop."""
        return await self.speak(registry.DEFAULT).awindow()
