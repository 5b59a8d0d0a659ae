"""What a turn is run with: model, guard, tools, and the words around the history.

It puts requests together and sends none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ullage.core.guard.request import Request
from ullage.core.session.log.fold import User
from ullage.core.session.permissions import Consent
from ullage.core.session.tools import Pending

if TYPE_CHECKING:
    from ullage.agent.session import Session
    from ullage.core.compaction.checkpoint import Trigger
    from ullage.core.session.instructions import Briefing
    from ullage.core.session.log.render import Renderer
    from ullage.core.session.permissions import Posture
    from ullage.core.tokens.cost import Price
    from ullage.guard.guard import Guard, View
    from ullage.providers import Provider
    from ullage.tools import Executor

LONGEST_ANSWER: Final = 4096
"""Tokens of an answer where the API wants a limit and nobody gave one (Anthropic, `max_tokens`)."""

OUTPUT: Final[Mapping[str, tuple[str, ...]]] = {
    "openai_chat": ("max_tokens", "max_completion_tokens"),
    "openai_responses": ("max_output_tokens",),
    "anthropic": ("max_tokens",),
}
"""What the dialects call the limit of an answer; the first is what a guard hands out."""

Word = Consent | bool | None

Asking = Callable[[Pending, str], Word | Awaitable[Word]]
"""Ask a person about a call, with the reason why; None tells that nobody is there.

The call has a `preview` of what it would do, and a `subject`. The answer is yes, no, or a `Consent`
with a reason for the model or with what it allows for the rest of the session.
"""


@dataclass(frozen=True, slots=True)
class Words:
    """The words around a history, in the places that one provider has for them.

    The facts stand beside the current request, so that what is cached, and what checkpoints know,
    is the history as it stays.
    """

    provider: Provider
    said: Briefing

    def messages(self) -> list[dict[str, Any]]:
        """Return the operator's messages before the history: one, as many chat templates want it.

        The context stands behind the prompt in it, on every server alike: a checkpoint then holds
        wherever the session goes on.
        """
        if self.provider.dialect != "openai_chat":
            return []
        return [{"role": "system", "content": self._whole()}]

    def apart(self) -> Any:
        """Return the operator's text for the dialects that take it beside the messages."""
        if self.provider.dialect == "openai_chat":
            return None
        if self.provider.dialect == "openai_responses":
            return self._whole()
        kept = {"type": "text", "text": self.said.system, "cache_control": {"type": "ephemeral"}}
        return [kept, {"type": "text", "text": self.said.developer}]

    def counted(self) -> str | None:
        """Return the text that is counted beside the messages, the facts with it."""
        beside = (
            []
            if self.provider.dialect == "openai_chat"
            else [self.said.system, self.said.developer]
        )
        return "\n\n".join([*beside, *([self.said.facts] if self.said.facts else [])]) or None

    def _whole(self) -> str:
        return f"{self.said.system}\n\n{self.said.developer}"


@dataclass(slots=True)
class Kit:
    """What one turn is run with.

    `tools` are definitions in the dialect; `ask` reaches a person; `trigger` is why the next
    request is made, where pressure is not the reason.
    """

    session: Session
    provider: Provider
    guard: Guard
    executor: Executor
    renderer: Renderer
    posture: Posture
    words: Words
    tools: list[Mapping[str, Any]] = field(default_factory=list)
    prices: tuple[Price, ...] = ()
    ask: Asking | None = None
    trigger: Trigger | None = None
    history: list[Any] = field(default_factory=list)

    @property
    def max_tokens(self) -> int | None:
        """The limit of an answer that was asked for, or None."""
        dialect = self.provider.dialect
        given = (self.provider.options.get(name) for name in OUTPUT[dialect])
        found = next((tokens for tokens in given if type(tokens) is int), None)
        return LONGEST_ANSWER if found is None and dialect == "anthropic" else found

    def request(self) -> Request:
        """Return the request that the session's history makes now, without the facts' text."""
        self.history = self.renderer.render(self.session.fold)
        words = self.words
        return Request(
            [*words.messages(), *self.history],
            self.tools or None,
            words.counted(),
            self.max_tokens,
            frozenset(len(words.messages()) + pin for pin in self.renderer.pins),
            apart=words.apart(),
            trigger=self.trigger,
        )

    def fields(self, view: View) -> dict[str, Any]:
        """Return what is sent: the view's fields, with the facts beside the current request."""
        sent = dict(view.kwargs)
        if self.words.said.facts:
            name = "input" if self.provider.dialect == "openai_responses" else "messages"
            sent[name] = self._presented(list(sent[name]))
        return sent

    def _presented(self, messages: list[Any]) -> list[Any]:
        """Return messages with the facts in the message of the person who spoke last."""
        seqs, items = self.renderer.seqs, self.session.fold.items
        spoke = max((item.seq for item in items if isinstance(item, User)), default=None)
        mine = {id(m) for m, seq in zip(self.history, seqs, strict=True) if seq == spoke}
        for place in range(len(messages) - 1, -1, -1):
            if id(messages[place]) in mine:
                facts = self.words.said.facts
                messages[place] = _with(messages[place], facts, self.provider.dialect)
                return messages
        return messages  # the request was cut to fit: there is no room for facts


def _with(message: Mapping[str, Any], facts: str, dialect: str) -> dict[str, Any]:
    """Return a message of a person with the facts behind what was said."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": f"{content}\n\n{facts}"}
    kind = "input_text" if dialect == "openai_responses" else "text"
    return {**message, "content": [*(content or ()), {"type": kind, "text": facts}]}
