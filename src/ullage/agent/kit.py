"""The equipment of a turn: model, guard, tools, and the text around the history.

The module builds requests and sends none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ullage.core.compaction.turns import alternate
from ullage.core.dialects import registry
from ullage.core.dialects.thinking import lower_thinking
from ullage.core.guard.events import CompactionFault
from ullage.core.guard.request import Request
from ullage.core.session.caching import MARK, add_cache_hints, find_root
from ullage.core.session.log.fold import User
from ullage.core.session.permissions import Consent
from ullage.core.session.tools import Pending

if TYPE_CHECKING:
    from ullage.agent.keeping import SessionStore
    from ullage.agent.session import Session
    from ullage.core.compaction.checkpoint import Trigger
    from ullage.core.dialects.dialect import Dialect
    from ullage.core.session.instructions import Briefing
    from ullage.core.session.log.render import Renderer
    from ullage.core.session.permissions import Posture
    from ullage.core.tokens.budget import TurnBudget
    from ullage.core.tokens.cost import Price
    from ullage.core.tokens.gauge import Assessment
    from ullage.guard.port import Port
    from ullage.guard.view import View
    from ullage.providers import Provider
    from ullage.tools import Executor

Word = Consent | bool | None


def state_window(provider: Provider, window: int | None) -> tuple[Provider, int | None]:
    """Return a provider and a window in tokens, for dialects whose requests name a window.

    Such a server gives a request the window that it asks for, else its own default, and silently
    cuts longer ones. So the caller's window is requested, and a window in the provider's options is
    used; of two, the smaller one counts. The provider's own window takes precedence over the
    agent's.
    """
    window = window if provider.window is None else provider.window
    place = registry.find(provider.dialect)
    if place.options is None:
        return provider, window
    asked = place.options.window(provider.options, None)
    if asked is not None:
        return provider, asked if window is None else min(asked, window)
    written = place.options.write(provider.options, window, None)
    if written is None:
        return provider, window
    options = {**provider.options, str(place.fields.inside): written}
    return replace(provider, options=options), window


def describe_context(view: View, found: Assessment) -> dict[str, Any]:
    """Return how full the window was by a report, or why that is unknown.

    `faults`, if any, count requests for text that a compaction left out. `window` is the bound
    that the tiers work on; `whole` is the window itself if that is larger. Both in tokens.
    """
    window = view.prepared.window
    faults = sum(isinstance(event, CompactionFault) for event in view.prepared.events)
    asked = {"faults": faults} if faults else {}
    if not found.available:
        return {"reason": found.reason, "tokens": found.input_tokens, **asked}
    whole = {} if window.working is None else {"whole": window.input_tokens}
    return {
        **asked,
        **whole,
        "window": found.window_tokens,
        "source": window.source,
        "tier": found.tier,
        "ratio": round(found.ratio or 0.0, 4),
        "tokens": found.input_tokens,
        "basis": "reported" if found.state == "known" else view.prepared.count.basis,
    }


Asking = Callable[[Pending, str], Word | Awaitable[Word]]
"""Asks a person about a call, with the reason; the answer None means that nobody is there.

The call has a `preview` of its effect, and a `subject`. The answer is yes, no, or a `Consent` with
a reason for the model or with further rights for the rest of the session.
"""


@dataclass(frozen=True, slots=True)
class Words:
    """The text around a history, in the places that a provider has for it.

    The facts go next to the current request, so that the cached and checkpointed history stays the
    same.
    """

    provider: Provider
    said: Briefing

    def messages(self) -> list[dict[str, Any]]:
        """Return the operator's messages before the history: one, as many chat templates need.

        It holds the context after the prompt, on every server alike, so a checkpoint stays valid
        wherever the session continues.
        """
        if self._spoken.fields.system is not None:
            return []
        return [{"role": "system", "content": self._whole()}]

    def apart(self) -> Any:
        """Return the operator's text for the dialects that take it outside of the messages."""
        place = self._spoken.fields
        if place.system is None:
            return None
        if place.system_parts is not None:
            return {place.system_parts: [{"text": self._whole()}]}
        if not place.takes_blocks:
            return self._whole()
        parts = (self.said.system, self.said.developer)
        return [{"type": "text", "text": text, **MARK} for text in parts]

    def join_counted_text(self) -> str | None:
        """Return the text that is counted in addition to the messages, including the facts."""
        beside = (
            [] if self._spoken.fields.system is None else [self.said.system, self.said.developer]
        )
        return "\n\n".join([*beside, *([self.said.facts] if self.said.facts else [])]) or None

    @property
    def _spoken(self) -> Dialect:
        return registry.find(self.provider.dialect)

    def _whole(self) -> str:
        return f"{self.said.system}\n\n{self.said.developer}"


@dataclass(slots=True)
class Kit:
    """The equipment of one turn.

    `tools` are definitions in the dialect; `ask` reaches a person; `trigger` is the reason of the
    next request, if it is not pressure; `left` is the rest of the turn's budget for each running
    call; `gated` asks a person before data may leave (`core.session.reach`).
    """

    session: Session
    provider: Provider
    port: Port
    store: SessionStore
    executor: Executor
    renderer: Renderer
    posture: Posture
    words: Words
    tools: list[Mapping[str, Any]] = field(default_factory=list)
    prices: tuple[Price, ...] = ()
    ask: Asking | None = None
    trigger: Trigger | None = None
    left: TurnBudget | None = None
    gated: bool = True
    history: list[Any] = field(default_factory=list)

    @property
    def max_tokens(self) -> int | None:
        """The requested limit of an answer, or None."""
        spoken, options = registry.find(self.provider.dialect), self.provider.options
        place = spoken.fields
        held = options if place.inside is None else options.get(place.inside)
        given = (held.get(name) for name in (place.limit, *place.output)) if held else ()
        found = next((tokens for tokens in given if type(tokens) is int), None)
        return spoken.endpoint.longest_answer if found is None else found

    def request(self) -> Request:
        """Return the request for the session's current history, without the facts' text."""
        self.history = self.renderer.render(self.session.known)
        words = self.words
        return Request(
            [*words.messages(), *self.history],
            self.tools or None,
            words.join_counted_text(),
            self.max_tokens,
            frozenset(len(words.messages()) + pin for pin in self._find_pins()),
            apart=words.apart(),
            trigger=self.trigger,
            server_edits=registry.find(self.provider.dialect).read_edits(self.provider.options),
        )

    def _find_pins(self) -> set[int]:
        """Return the positions that no compaction touches: active skills and a person's pins."""
        found = map(self.renderer.find_message, self.session.known.pins)
        return {*self.renderer.pins, *(place for place in found if place is not None)}

    def fields(self, view: View) -> dict[str, Any]:
        """Return the fields to send: the view's, facts next to the current request, cache hints."""
        root = find_root(self.session.known, self.session.name)
        place = self.provider
        sent = self._join_facts(view)
        asked, given = self.max_tokens, view.prepared.max_tokens
        if asked is not None and given is not None:
            for name, value in lower_thinking(place.options, asked, given).items():
                sent[name] = {**value, **sent.get(name, {})}
        return add_cache_hints(sent, place.options, root, place.dialect, place.base_url)

    def _join_facts(self, view: View) -> dict[str, Any]:
        sent, prepared = dict(view.kwargs), view.prepared
        if self.words.said.facts:
            name = registry.find(self.provider.dialect).fields.messages
            if not prepared.alternates:
                sent[name] = self._add_facts(list(sent[name]))
                return sent
            codec = self.port.driver.runtime.codec_for(self.provider.dialect)
            whole = codec.read(self._add_facts(list(prepared.sent.raws)))
            sent[name] = alternate(whole, codec)
        return sent

    def _add_facts(self, messages: list[Any]) -> list[Any]:
        """Return messages with the facts added to the last message of a person."""
        seqs, items = self.renderer.seqs, self.session.known.items
        spoke = max((item.seq for item in items if isinstance(item, User)), default=None)
        mine = {id(m) for m, seq in zip(self.history, seqs, strict=True) if seq == spoke}
        for place in range(len(messages) - 1, -1, -1):
            if id(messages[place]) in mine:
                form = registry.find(self.provider.dialect).make_form()
                messages[place] = form.add_text(messages[place], self.words.said.facts)
                return messages
        return messages  # the request was cut to fit: there is no room for facts
