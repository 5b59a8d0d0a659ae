"""The proxy's conversations as a source for the pages, with the actions of an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.api.recall import recall
from ullage.core.compaction.edits import find_references
from ullage.live.source import NotPossible
from ullage.proxy.steering import Steering, digest_conversation, digest_message, make_whom
from ullage.proxy.watching import SOURCE, ConversationWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.live.values import CompactionReview, LiveMessage, LiveSession, SessionDetail
    from ullage.proxy.app import App

PINNED: Final = 10_000
"""Most messages that operators may pin in all."""


class ProxySource:
    """Shows the conversations of one proxy; requests put the rows into its feed."""

    name = SOURCE
    is_behind = False

    def __init__(self, app: App) -> None:
        self._app = app
        self._acts: dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]] = {
            "undo": self._undo,
            "again": lambda name, told: self._watch.preview(name, str(told.get("policy", ""))),
            "forget": self._forget,
            "pin": self._pin,
            "recall": self._recall,
        }

    @property
    def _watch(self) -> ConversationWatch:
        return self._app.watch

    def list_rows(self) -> Sequence[LiveSession]:
        """Return nothing: requests put the rows in."""
        return ()

    def read_detail(self, name: str, *, reads: bool) -> SessionDetail:
        """Return all data about a conversation; raises UnknownConversation."""
        return self._watch.read_detail(name, reads=reads)

    def review(self, name: str, number: int, *, reads: bool) -> CompactionReview:
        """Return a compaction as a change; raises UnknownConversation, NotPossible."""
        return self._watch.review(name, number, reads=reads)

    def list_messages(self, name: str) -> Sequence[LiveMessage]:
        """Return the messages of the last request, as they were sent."""
        return self._watch.list_messages(name)

    def act(self, name: str, action: str, options: dict[str, Any]) -> dict[str, Any]:
        """Undo the last compaction, pin a message, read a text, or plan with another policy."""
        act = self._acts.get(action)
        if act is None:
            raise NotPossible(f"conversations of the proxy cannot {action:.40}")
        return act(name, options)

    def close(self) -> None:
        """Do nothing: the proxy closes its own resources."""

    def _undo(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        del options
        held = self._watch.find_last(name)
        request, port = held.read_came(), held.port
        done = None if port is None else port.undo(request, self._watch.find_dialect(name))
        if done is None:
            raise NotPossible(f"conversation {name} has no compaction that can be undone")
        named = self._name(name, request.messages)
        self._app.guarding.steer(named, lambda steering: steering.spare(named, yes=True))
        self._watch.note_undone(name, self._now())
        return {"undone": True, "before": done.tokens_after, "after": done.tokens_before}

    def _pin(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        messages = self._watch.find_messages(name, str(options.get("compaction", "")))
        told = str(options.get("message", ""))
        place = int(told) if told.isdecimal() and len(told) < 10 else -1
        if not 0 <= place < len(messages):
            raise NotPossible(
                f"there is no message {told!r:.20}: the request of "
                f"conversation {name} has messages 0 to {len(messages) - 1}"
            )
        named, pin = self._name(name, messages), digest_message(messages[place])

        def toggle(steering: Steering) -> Steering:
            made = steering.toggle(named, pin)
            if made.size > PINNED:
                raise NotPossible(f"{PINNED:,} messages are pinned already: let one go first")
            return made

        is_new = pin in self._app.guarding.steer(named, toggle).pins.get(named, ())
        what = "pinned" if is_new else "pinned no more"
        self._watch.note_act(name, f"message {place} is {what}", self._now())
        return {"message": place, "pinned": is_new}

    def _forget(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        del options
        question = self._watch.find_question(name)
        self._app.forget(question)
        self._watch.note_act(name, "the learned window is forgotten", self._now())
        return {"forgotten": question.model or "the model", "at": question.base_url or ""}

    def _name(self, name: str, messages: Sequence[Any]) -> bytes:
        """Return the digest of the beginning of a conversation, which identifies it."""
        question = self._watch.find_question(name)
        return digest_conversation(messages, make_whom(question.base_url, question.party))

    def _now(self) -> float:
        return self._app.runtime.now()

    def _recall(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        read = self._watch.find_last(name).read_transcript(self._app.runtime)
        reference = str(options.get("reference", ""))
        sent = "\n".join(message.text for message in read.messages)
        if reference not in find_references(sent):
            raise NotPossible(f"no placeholder of conversation {name} is called {reference:.30}")
        return {"reference": reference, "text": recall(reference, store=self._app.kept)}
