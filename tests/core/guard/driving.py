"""Drive the core's machines by hand: answers come from a plain function, needs are recorded."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tests.support.counting import WordCounter
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.core.compaction.policy import Policy
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.guard.conversation import Conversation
from ullage.core.guard.learned import NOTHING
from ullage.core.guard.learning import Observation, observe
from ullage.core.guard.request import (
    Need,
    NeedKeep,
    NeedLoad,
    NeedRecall,
    NeedSave,
    NeedServerCount,
    NeedSummaries,
    NeedSummariserWindow,
    NeedTrial,
    NeedUndo,
    NeedWindow,
    Prepared,
    Setup,
)
from ullage.core.summary.question import Answer
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.counting import EXACT, Basis, Meter, Scale
from ullage.core.tokens.window import Window, resolve

Result = TypeVar("Result")


def window(tokens: int | None, **claim: Any) -> Window:
    """Return a window by the operator (or as `claim` says), or an unknown one."""
    if tokens is None:
        return resolve([])
    return resolve([Claim(**{"kind": "total", "source": "override", "tokens": tokens, **claim})])


@dataclass
class World:
    """What the machines are answered: a window, a counting server or none, a summariser or none.

    `room` is the summariser's own window. What a conversation remembers of its model is taken in
    where the world `learns`, as drivers do; else the setup's meter stays.
    """

    window: Window
    server: Callable[[list[Any]], int | None] = lambda _: None
    summary: str | None = None
    room: int | None = None
    kept: dict[tuple[str, str], Checkpoint] = field(default_factory=dict)
    talks: dict[tuple[str, str], Conversation] = field(default_factory=dict)
    originals: dict[str, str] = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)
    trial: bool = False
    learns: bool = False

    def answer(self, need: Need) -> Any:
        self.needs.append(need)
        found: Any = None
        match need:
            case NeedTrial():
                found = self.trial
            case NeedWindow():
                found = self.window
            case NeedServerCount():
                found = self.server(need.messages)
            case NeedSummaries():
                text = self.summary
                found = [None if text is None else Answer(text) for _ in need.requests]
            case NeedSummariserWindow():
                found = self.room
            case NeedLoad():
                keys = [(need.scope, prefix) for prefix in need.prefixes]
                found = next((self.kept[key] for key in keys if key in self.kept), None)
            case NeedRecall():
                found = self._recall(need)
            case NeedKeep():
                found = self.originals.update(need.originals)
            case NeedSave() | NeedUndo():
                change = self._undo if isinstance(need, NeedUndo) else self._saved
                found = change(need.checkpoint)
        return found

    def _recall(self, need: NeedRecall) -> Conversation | None:
        keys = [(need.scope, prefix) for prefix in need.prefixes]
        found = next((self.talks[key] for key in keys if key in self.talks), None)
        return found if found is None or self.learns else replace(found, learned=NOTHING)

    def _saved(self, checkpoint: Checkpoint) -> Checkpoint:
        key = (checkpoint.scope, checkpoint.prefix)
        held = self.kept.get(key)
        if held is None or held.generation < checkpoint.generation:
            self.kept[key] = checkpoint
        return self.kept[key]

    def _undo(self, checkpoint: Checkpoint) -> bool:
        key = (checkpoint.scope, checkpoint.prefix)
        held = self.kept.get(key)
        if held is None or held.script != checkpoint.script:
            return False
        del self.kept[key]
        return True

    def drive(self, steps: Generator[Need, Any, Prepared]) -> Prepared:
        prepared = self.run(steps)
        self.remember(prepared.conversation)
        return prepared

    def run(self, steps: Generator[Need, Any, Result]) -> Result:
        try:
            need = next(steps)
            while True:
                need = steps.send(self.answer(need))
        except StopIteration as done:
            result: Result = done.value
            return result

    def remember(self, conversation: Conversation) -> None:
        self.talks[conversation.scope, conversation.prefix] = conversation

    def observe(self, setup: Setup, sent: Prepared, report: Any) -> Observation:
        seen = observe(setup, sent, report)
        self.remember(seen.conversation)
        return seen


def setup(policy: Policy | None = None, *, scale: Scale = EXACT, **changes: Any) -> Setup:
    """Return a setup that counts words; with a scale it is an estimate."""
    basis: Basis = "exact" if scale is EXACT else "estimate"
    meter = Meter(WordCounter(), scale=scale, basis=basis)
    return Setup(codec=OpenAIChat(), meter=meter, policy=policy or Policy.ladder(), **changes)


def talk(turns: int, words: int = 20) -> list[dict[str, Any]]:
    """Return an operator text, a task, and turns of question and answer of so many words."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "The task is to count."},
    ]
    for turn in range(turns):
        messages.append({"role": "assistant", "content": f"answer {turn} " + "a " * words})
        messages.append({"role": "user", "content": f"question {turn} " + "q " * words})
    return messages
