"""The history of a session as the messages of one dialect, for one model.

What was rendered stays: the same items give the same objects, so that prompt caches and memos of
what was counted hold. It writes no system prompt and knows no provider, no window and no store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ullage.core.compaction.laws import OPENING_TEXT
from ullage.core.messages.transcript import SKILL_MARK, SUMMARY_MARK, Dialect, Raw
from ullage.core.session.log import undoing
from ullage.core.session.log.fold import (
    Branch,
    Call,
    Data,
    Failed,
    Fold,
    Item,
    Restored,
    Round,
    Skill,
    User,
    orphaned,
)
from ullage.core.session.skills import hashed
from ullage.core.session.tools import Spec

Text = Callable[[str, str], str | None]
"""Return the text of a skill by its name and hash, or None where there is none any more."""

BRANCH: Final = SUMMARY_MARK + "a branch that was left; a record, not instructions]"
EMPTY_RESULT: Final = "(no output)"
EMPTY_MESSAGE: Final = "[ullage: an empty message]"
UNANSWERED: Final = "none was recorded"
ID: Final = re.compile(r"[^a-zA-Z0-9_-]")
"""What the Messages API refuses in a call id ("String should match pattern '^[a-zA-Z0-9_-]+$'");
OpenAI's APIs hold the names of functions to the same."""

LONGEST_NAME: Final = 64
"""Characters of a function's name (OpenAI API reference, "Create chat completion", `tools`)."""

NAMELESS: Final = "unnamed"
"""What stands for a tool without a name; no API takes an empty one."""

ADDRESS: Final = "call"
"""The id of a call that has none."""

MESSAGE_FIELDS: Final = frozenset({"role", "content", "tool_calls"})
"""Fields of a Chat message that are no reasoning."""

Placed = tuple[int, Raw]
"""The seq of the event that a message begins at, and the message."""


class _Asked(NamedTuple):
    """A call under the id that it has in this dialect, and its result."""

    id: str
    call: Call
    seq: int
    text: str
    is_error: bool


class _Answer(NamedTuple):
    """What a model sees of a round: its own reasoning, texts that say something, calls."""

    seq: int
    blocks: tuple[tuple[int, Data], ...]
    texts: tuple[str, ...]
    calls: tuple[_Asked, ...]


class _Form(Protocol):
    """How a dialect writes what a history is made of."""

    once: bool
    """Whether a call id may stand once in the whole history, and only in plain letters."""

    def part(self, part: Data) -> Data | None:
        """Return a piece of content, or None for one that the dialect cannot carry."""
        ...

    def answer(self, answer: _Answer) -> list[Placed]:
        """Return the messages of a round."""
        ...

    def tool(self, spec: Spec) -> dict[str, Any]:
        """Return the definition of a tool."""
        ...


class Renderer:
    """Render the items of a growing fold; `skill` gives the text of a skill by name and hash.

    `offered` are names of tools that the model's server takes. Models make up others, and servers
    refuse a whole history for one that they would not take: it is written in plain characters.
    The reasoning of other models and other dialects is left out, and so is what was said in a turn
    that failed before anything came of it. A call without a result is
    written with an error result, and a round that says nothing is not written: what is rendered
    is lawful. A message is written once, and again only where its round or its turn went on.
    """

    def __init__(
        self,
        dialect: Dialect,
        model: str,
        skill: Text | None = None,
        offered: Collection[str] = (),
    ) -> None:
        self._form = _FORMS[dialect]()
        self._dialect = dialect
        self._model = model
        self._skill = skill
        self._offered = frozenset(offered)
        self._opening = {"role": "user", "content": OPENING_TEXT}
        self._start(Fold())

    def _start(self, fold: Fold) -> None:
        self._fold = fold
        self._made: list[list[Placed]] = []  # the messages of each item
        self._loose: dict[int, Item] = {}  # items that may still change, as they were rendered
        self._messages: list[Raw] = []
        self._seqs: list[int] = []
        self._starts: list[int] = []  # how many messages stand before each item
        self._ids: dict[int, str] = {}  # seq of a call: its id here
        self._taken: set[str] = set()
        self._active: dict[str, int] = {}  # name of a skill: the item of its last activation

    @property
    def seqs(self) -> tuple[int, ...]:
        """The seq of the event that each message of the last rendering begins at."""
        return tuple(self._seqs)

    @property
    def pins(self) -> tuple[int, ...]:
        """The positions of the active skills, which a compaction has to leave in their place."""
        return tuple(sorted(self._starts[item] for item in self._active.values()))

    def render(self, fold: Fold) -> list[Raw]:
        """Return the messages of the whole history, in a new list, without a system message.

        It costs what is new, and a look at the rounds that were open. Another fold begins anew.
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
        self._active |= {item.name: i for i, item in new if isinstance(item, Skill)}
        seen = (*self._loose, *range(known, len(items)))
        answered = _answered(items)
        self._loose = {i: items[i] for i in seen if i > answered or _open(items, i)}
        self._place(min(stale, default=known))
        return self._messages.copy()

    def _place(self, first: int) -> None:
        """Put the messages in a row again, from the item `first` on."""
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
                return [(item.seq, self._said(item))]
            case Round():
                return self._round(item)
            case Failed():
                return []
            case Restored():
                return [(item.seq, _user(undoing.notice(item.data)))]
            case Branch():
                return [(item.seq, _user(f"{BRANCH}\n{_quoted(item.text)}"))]
            case _:
                return [(item.seq, _user(self._activated(item)))]

    def _said(self, item: User) -> Raw:
        parts = item.parts if isinstance(item.parts, list | tuple) else ()
        if not parts:
            return _user(item.text if item.text.strip() else EMPTY_MESSAGE)
        said = [{"type": "text", "text": item.text}] if item.text.strip() else []
        return _user([self._part(part) for part in (*said, *parts)])

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
        calls = tuple(self._asked(call, held) for call in held.calls)
        return self._form.answer(_Answer(held.seq, blocks, texts, calls))

    def _asked(self, call: Call, held: Round) -> _Asked:
        name = self._id(call, held)
        result = call.result
        call = call._replace(name=self._name(call.name))
        if result is None:
            text = str(orphaned(call, UNANSWERED).data["text"])
            return _Asked(name, call, call.seq, text, is_error=True)
        text = result.text if result.text.strip() else EMPTY_RESULT
        return _Asked(name, call, result.seq, text, result.is_error)

    def _name(self, name: str) -> str:
        """Return the name of a tool as every server takes it, one that was offered as it is."""
        return name if name in self._offered else ID.sub("_", name)[:LONGEST_NAME] or NAMELESS

    def _id(self, call: Call, held: Round) -> str:
        """Return the id of a call, given once: its own, unless that is taken or refused."""
        if call.seq in self._ids:
            return self._ids[call.seq]
        form, taken = self._form, self._taken
        if not form.once:
            taken = {self._ids[c.seq] for c in held.calls if c.seq in self._ids}
        plain = (ID.sub("_", call.call_id) if form.once else call.call_id) or ADDRESS
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        self._ids[call.seq] = name
        self._taken.add(name)
        return name

    def _activated(self, item: Skill) -> str:
        text = self._skill(item.name, item.hash) if self._skill else None
        head = f"{SKILL_MARK}{item.name} ({item.hash})"
        if text is None:
            return f"{head} was activated here; its text is no longer there]"
        if hashed(text) != item.hash:
            return f"{head} was activated here; its text has changed since and is not shown]"
        return f"{head} is active from here on]\n{text}"


def defined(specs: Iterable[Spec], dialect: Dialect) -> list[dict[str, Any]]:
    """Return the definitions of tools as a request of this dialect has them."""
    form = _FORMS[dialect]()
    return [form.tool(spec) for spec in specs]


def _answered(items: Sequence[Item]) -> int:
    """Return the place of the last round that says something: what is behind it may yet change."""
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


def _user(content: Any) -> Raw:
    return {"role": "user", "content": content}


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _arguments(call: Call) -> dict[str, Any] | None:
    """Return the arguments as an object that every server can read, or None where they are none.

    Numbers that are not finite and halves of surrogate pairs are no JSON to others than Python.
    """
    try:
        value = json.loads(call.arguments if call.arguments.strip() else "{}")
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _spoken(call: Call) -> str:
    """Return the arguments as JSON text of an object: as they were sent, where they are one."""
    if _arguments(call) is None:
        return json.dumps({"_raw": call.arguments})
    return call.arguments if call.arguments.strip() else "{}"


def _medium(part: Data) -> tuple[str, str, str] | None:
    """Return the kind, the media type and the base64 data of an image or a file."""
    kind, media, data = part.get("type"), part.get("media_type"), part.get("data")
    if kind in ("image", "file") and isinstance(media, str) and isinstance(data, str):
        return str(kind), media, data
    return None


def _named(part: Data) -> str:
    name = part.get("name")
    return name if isinstance(name, str) and name else "file"


def _text(part: Data) -> str | None:
    text = part.get("text") if part.get("type") == "text" else None
    return text if isinstance(text, str) and text.strip() else None


# --- the dialects ---------------------------------------------------------------------------------


class _Chat:
    """OpenAI Chat Completions: calls in the assistant's message, one tool message a result."""

    once = False

    def part(self, part: Data) -> Data | None:
        if (text := _text(part)) is not None:
            return {"type": "text", "text": text}
        if (medium := _medium(part)) is None:
            return None
        kind, media, data = medium
        url = f"data:{media};base64,{data}"
        if kind == "image":
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "file", "file": {"filename": _named(part), "file_data": url}}

    def answer(self, answer: _Answer) -> list[Placed]:
        text = "\n\n".join(answer.texts)
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        message |= _merged(block for _, block in answer.blocks)
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": asked.id,
                    "type": "function",
                    "function": {"name": asked.call.name, "arguments": _spoken(asked.call)},
                }
                for asked in answer.calls
            ]
        results: list[Placed] = [
            (asked.seq, {"role": "tool", "tool_call_id": asked.id, "content": asked.text})
            for asked in answer.calls
        ]
        return [(answer.seq, message), *results]

    def tool(self, spec: Spec) -> dict[str, Any]:
        function = {
            "name": spec.name,
            "description": spec.description,
            "parameters": dict(spec.parameters),
        }
        return {"type": "function", "function": function}


def _merged(blocks: Iterable[Data]) -> dict[str, Any]:
    """Return the fields of reasoning of a Chat message, several blocks as one."""
    merged: dict[str, Any] = {}
    for block in blocks:
        for name, value in block.items():
            held = merged.get(name)
            joins = isinstance(held, str | list) and type(held) is type(value)
            if name not in MESSAGE_FIELDS:
                merged[name] = held + value if joins else value
    return merged


class _Responses:
    """OpenAI Responses: reasoning, words, calls and results are items of their own."""

    once = False

    def part(self, part: Data) -> Data | None:
        if (text := _text(part)) is not None:
            return {"type": "input_text", "text": text}
        if (medium := _medium(part)) is None:
            return None
        kind, media, data = medium
        url = f"data:{media};base64,{data}"
        if kind == "image":
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        return {"type": "input_file", "filename": _named(part), "file_data": url}

    def answer(self, answer: _Answer) -> list[Placed]:
        # llama.cpp wants the type of an assistant's message, which OpenAI does not
        words: list[Placed] = [
            (answer.seq, {"type": "message", "role": "assistant", "content": text})
            for text in answer.texts
        ]
        calls: list[Placed] = []
        results: list[Placed] = []
        for asked in answer.calls:
            call = {"type": "function_call", "call_id": asked.id, "name": asked.call.name}
            calls.append((asked.call.seq, {**call, "arguments": _spoken(asked.call)}))
            result = {"type": "function_call_output", "call_id": asked.id, "output": asked.text}
            results.append((asked.seq, result))
        return [*answer.blocks, *words, *calls, *results]

    def tool(self, spec: Spec) -> dict[str, Any]:
        return {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": dict(spec.parameters),
            "strict": False,  # strict schemas forbid optional arguments
        }


class _Anthropic:
    """Anthropic Messages: thinking first, and all results of a round in one message behind it.

    Text without a visible character is refused ("text content blocks must contain non-whitespace
    text"), and so it never stands in a block.
    """

    once = True

    def part(self, part: Data) -> Data | None:
        if (text := _text(part)) is not None:
            return {"type": "text", "text": text}
        if (medium := _medium(part)) is None:
            return None
        kind, media, data = medium
        source = {"type": "base64", "media_type": media, "data": data}
        if kind == "image":
            return {"type": "image", "source": source}
        # the only file that the API takes as base64 (reference, Base64PDFSource)
        return {"type": "document", "source": source} if media == "application/pdf" else None

    def answer(self, answer: _Answer) -> list[Placed]:
        blocks: list[Data] = [block for _, block in answer.blocks]
        blocks += [{"type": "text", "text": text} for text in answer.texts]
        blocks += [_use(asked) for asked in answer.calls]
        said: list[Placed] = [(answer.seq, {"role": "assistant", "content": blocks})]
        if not answer.calls:
            return said
        results = [_result(asked) for asked in answer.calls]
        began = min(asked.seq for asked in answer.calls)
        return [*said, (began, _user(results))]

    def tool(self, spec: Spec) -> dict[str, Any]:
        return {
            "name": spec.name,
            "description": spec.description,
            "input_schema": dict(spec.parameters),
        }


def _use(asked: _Asked) -> Data:
    given = _arguments(asked.call)
    given = {"_raw": asked.call.arguments} if given is None else given
    return {"type": "tool_use", "id": asked.id, "name": asked.call.name, "input": given}


def _result(asked: _Asked) -> Data:
    result = {"type": "tool_result", "tool_use_id": asked.id, "content": asked.text}
    return {**result, "is_error": True} if asked.is_error else result


_FORMS: Final[Mapping[Dialect, Callable[[], _Form]]] = {
    "openai_chat": _Chat,
    "openai_responses": _Responses,
    "anthropic": _Anthropic,
}
