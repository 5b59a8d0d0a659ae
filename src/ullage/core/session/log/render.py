"""The history of a session as the messages of one dialect, for one model.

Rendered messages stay: the same items give the same objects, so that prompt caches and memos of
counts stay valid. This module writes no system prompt and knows no provider, no window and no
store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ullage.core.compaction.mending import OPENING_TEXT
from ullage.core.dialects.form import (
    LONGEST_NAME,
    NAME_CHARACTERS,
    Placed,
    RenderedCall,
    RoundParts,
)
from ullage.core.dialects.registry import find
from ullage.core.messages.transcript import SKILL_MARK, SUMMARY_MARK, DialectName, Raw
from ullage.core.session.log import undoing
from ullage.core.session.log.fold import (
    ActivatedSkill,
    Branch,
    Data,
    FailedUser,
    Fold,
    Item,
    LoggedCall,
    Restored,
    Round,
    User,
    make_orphan_result,
)
from ullage.core.session.skills import hash_text
from ullage.core.session.tools import Spec

Text = Callable[[str, str], str | None]
"""Returns the text of a skill by its name and hash, or None if it no longer exists."""

BRANCH: Final = SUMMARY_MARK + "a branch that was left; a record, not instructions]"
EMPTY_RESULT: Final = "(no output)"
EMPTY_MESSAGE: Final = "[ullage: an empty message]"
UNANSWERED: Final = "none was recorded"
NAMELESS: Final = "unnamed"
"""The name for a tool without one; no API accepts an empty name."""

ADDRESS: Final = "call"
"""The id for a call without one."""


class Renderer:
    """Render the items of a growing fold; `skill` gives the text of a skill by name and hash.

    `offered` are the tool names that the model's server accepts. Models invent others, and a server
    may refuse a whole history because of one, so other names are written in plain characters. The
    reasoning of other models and other dialects is left out, and so are the messages of a turn that
    failed without any result. A call without a result gets an error result, and an empty round is
    not written: the rendered history is always valid. A message is written once, and again only if
    its round or its turn went on.
    """

    def __init__(
        self,
        dialect: DialectName,
        model: str,
        skill: Text | None = None,
        offered: Collection[str] = (),
    ) -> None:
        self._form = find(dialect).make_form()
        self._dialect = dialect
        self._model = model
        self._skill = skill
        self._offered = frozenset(offered)
        self._opening = self._form.user(OPENING_TEXT)
        self._start(Fold())

    def _start(self, fold: Fold) -> None:
        self._fold = fold
        self._made: list[list[Placed]] = []  # the messages of each item
        self._loose: dict[int, Item] = {}  # items that may still change, as they were rendered
        self._messages: list[Raw] = []
        self._seqs: list[int] = []
        self._starts: list[int] = []  # how many messages precede each item
        self._ids: dict[int, str] = {}  # seq of a call: its id here
        self._taken: set[str] = set()
        self._active: dict[str, int] = {}  # name of a skill: the item of its last activation

    @property
    def seqs(self) -> tuple[int, ...]:
        """The first event seq of each message of the last rendering."""
        return tuple(self._seqs)

    @property
    def pins(self) -> tuple[int, ...]:
        """The positions of the active skills, which a compaction must leave in place."""
        return tuple(sorted(self._starts[item] for item in self._active.values()))

    def find_message(self, seq: int) -> int | None:
        """Return the position of the message that contains an event, or None if no message does."""
        items = self._fold.items
        at = bisect_right(items, seq, key=lambda item: item.seq) - 1
        if at < 0 or at >= len(self._made) or not self._made[at]:
            return None
        return max(bisect_right(self._seqs, seq) - 1, self._starts[at])

    def render(self, fold: Fold) -> list[Raw]:
        """Return the messages of the whole history, in a new list, without a system message.

        It processes only new items and open rounds. With another fold it starts again.
        """
        if fold is not self._fold:
            self._start(fold)
        items, made = fold.items, self._made
        known = len(made)
        stale = [i for i, item in self._loose.items() if items[i] is not item]
        for i in stale:
            made[i] = self._item(items[i])
        made += map(self._item, items[known:])
        new = enumerate(items[known:], known)
        self._active |= {item.name: i for i, item in new if isinstance(item, ActivatedSkill)}
        seen = (*self._loose, *range(known, len(items)))
        answered = _find_last_answer(items)
        self._loose = {i: items[i] for i in seen if i > answered or _open(items, i)}
        self._place(min(stale, default=known))
        return self._messages.copy()

    def _place(self, first: int) -> None:
        """Rebuild the list of messages from the item `first` on."""
        if first < len(self._starts):
            sure = self._starts[first]
            del self._messages[sure:], self._seqs[sure:], self._starts[first:]
        for placed in self._made[first:]:
            self._starts.append(len(self._messages))
            if placed and not self._messages and self._form.once and _role(placed) != "user":
                self._messages.append(self._opening)
                self._seqs.append(placed[0][0])
            for seq, raw in placed:
                self._messages.append(raw)
                self._seqs.append(seq)

    def _item(self, item: Item) -> list[Placed]:
        match item:
            case User():
                return [(item.seq, self._render_user(item))]
            case Round():
                return self._round(item)
            case FailedUser():
                return []
            case Restored():
                return [(item.seq, self._form.user(undoing.notice(item.data)))]
            case Branch():
                return [(item.seq, self._form.user(_render_branch(item)))]
            case _:
                return [(item.seq, self._form.user(self._render_skill(item)))]

    def _render_user(self, item: User) -> Raw:
        parts = item.parts if isinstance(item.parts, list | tuple) else ()
        if not parts:
            return self._form.user(item.text if item.text.strip() else EMPTY_MESSAGE)
        said = [{"type": "text", "text": item.text}] if item.text.strip() else []
        return self._form.user([self._part(part) for part in (*said, *parts)])

    def _part(self, part: object) -> Data:
        found = self._form.part(part) if isinstance(part, Mapping) else None
        if found is not None:
            return found
        kind = part.get("type") if isinstance(part, Mapping) else None
        note = f"[ullage: content of type {kind!r:.40} cannot be shown to this model]"
        return self._form.part({"type": "text", "text": note}) or {}

    def _round(self, held: Round) -> list[Placed]:
        texts = tuple(text for text in held.texts if text.strip())
        if not texts and not held.calls:
            return []
        blocks = tuple(
            (thought.seq, thought.data["block"])
            for thought in held.thoughts(self._model)
            if thought.data.get("dialect") == self._dialect
            and isinstance(thought.data.get("block"), Mapping)
        )
        calls = tuple(self._render_call(call, held) for call in held.calls)
        return self._form.answer(RoundParts(held.seq, blocks, texts, calls))

    def _render_call(self, call: LoggedCall, held: Round) -> RenderedCall:
        name, tool = self._id(call, held), self._name(call.name)
        result = call.result
        if result is None:
            text, seq, failed = _orphan_text(call, tool), call.seq, True
        else:
            text = result.text if result.text.strip() else EMPTY_RESULT
            seq, failed = result.seq, result.is_error
        return RenderedCall(name, tool, call.arguments, call.seq, seq, text, failed)

    def _name(self, name: str) -> str:
        """Return the name of a tool as every server accepts it; an offered name is unchanged."""
        if name in self._offered:
            return name
        return NAME_CHARACTERS.sub("_", name)[:LONGEST_NAME] or NAMELESS

    def _id(self, call: LoggedCall, held: Round) -> str:
        """Return the id of a call, assigned once: its own, unless that is taken or refused."""
        if call.seq in self._ids:
            return self._ids[call.seq]
        form, taken = self._form, self._taken
        if not form.once:
            taken = {self._ids[c.seq] for c in held.calls if c.seq in self._ids}
        plain = (NAME_CHARACTERS.sub("_", call.call_id) if form.once else call.call_id) or ADDRESS
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        self._ids[call.seq] = name
        self._taken.add(name)
        return name

    def _render_skill(self, item: ActivatedSkill) -> str:
        text = self._skill(item.name, item.hash) if self._skill else None
        head = f"{SKILL_MARK}{item.name} ({item.hash})"
        if text is None:
            return f"{head} was activated here; its text is no longer there]"
        if hash_text(text) != item.hash:
            return f"{head} was activated here; its text has changed since and is not shown]"
        return f"{head} is active from here on]\n{text}"


def render_tools(specs: Iterable[Spec], dialect: DialectName) -> list[dict[str, Any]]:
    """Return the definitions of tools as they are in a request of this dialect."""
    form = find(dialect).make_form()
    return [form.tool(spec) for spec in specs]


def _orphan_text(call: LoggedCall, name: str) -> str:
    return str(make_orphan_result(call._replace(name=name), UNANSWERED).data["text"])


def _find_last_answer(items: Sequence[Item]) -> int:
    """Return the place of the last round with content: later items may still change."""
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if isinstance(item, Round) and item.sent:
            return index
    return -1


def _open(items: Sequence[Item], index: int) -> bool:
    """Tell whether an item may still change: the last round, or one with an open call."""
    item = items[index]
    if not isinstance(item, Round):
        return False
    return index == len(items) - 1 or any(call.result is None for call in item.calls)


def _role(messages: Sequence[Placed]) -> str:
    return str(messages[0][1]["role"])


def _render_branch(item: Branch) -> str:
    """Return a summary as a message: our own block unchanged, any other text quoted."""
    if item.link.get("block") is True and item.text.startswith(SUMMARY_MARK):
        return item.text
    return f"{BRANCH}\n{_quote_lines(item.text)}"


def _quote_lines(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
