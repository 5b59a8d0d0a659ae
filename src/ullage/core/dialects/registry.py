"""All dialects, found by name or by the shape of their messages.

A wrong guess causes a miscount, so only a shape that a single dialect has counts as a mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import names
from ullage.core.errors import ConfigurationError
from ullage.core.messages.fields import field_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.core.dialects.dialect import Dialect
    from ullage.core.dialects.reply import Assembly
    from ullage.core.messages.transcript import DialectName

DIALECTS: Final[Sequence[DialectName]] = names.DIALECTS
DEFAULT: Final[DialectName] = names.DEFAULT

LOOKED_AT: Final = 64
"""Messages searched from each end, and parts of each: marks are where tools were used, and in a
tool loop that is every other message.
"""


@cache
def find(name: DialectName) -> Dialect:
    """Return the dialect of a folder."""
    value: Dialect = import_module(f"ullage.core.dialects.{name}").DIALECT
    return value


def make_reader(name: DialectName, salt: str = "") -> Assembly:
    """Return an object that assembles one answer of this dialect.

    Calls without an id get one made from `salt`. Each answer of a conversation needs its own salt,
    or two answers may use the same id.
    """
    return find(name).make_reader(salt)


@cache
def dialects() -> tuple[Dialect, ...]:
    """Return all dialects."""
    return tuple(find(name) for name in DIALECTS)


def load_all() -> None:
    """Load every dialect fully; a server does this before the first request."""
    for known in dialects():
        known.make_codec(None, None)
        known.make_reader("")
        known.make_watch()
        known.make_form()


def aliases() -> Mapping[str, DialectName]:
    """Return the short names of dialects."""
    return {alias: dialect.name for dialect in dialects() for alias in dialect.aliases}


def parse_name(text: object) -> DialectName:
    """Return the dialect with this name; raises ConfigurationError that lists the known ones."""
    name = text.strip().lower().replace("-", "_") if isinstance(text, str) else ""
    if name in DIALECTS:
        return name
    short = aliases()
    if name in short:
        return short[name]
    raise ConfigurationError(
        f"dialect {text!r} is unknown: expected one of {', '.join(DIALECTS)} "
        f"(or short: {', '.join(short)})"
    )


def recognise(messages: Any, *, system: Any = None, tools: Any = None) -> DialectName:
    """Return the dialect that a request's shape shows; `DEFAULT` if it shows none.

    Marks in the messages override `system` and `tools`. Searches `LOOKED_AT` messages from each end
    and stops at the first mark. Never raises: the codec refuses invalid histories.
    """
    found = detect(messages)
    if found is not None:
        return found
    marks = _marks()
    if any(isinstance(block, Mapping) for block in _ends(system)):
        return marks.blocks
    return next((found for tool in _ends(tools) if (found := marks.tool(tool))), DEFAULT)


def detect(messages: Any) -> DialectName | None:
    """Return the dialect that messages alone show, or None if they show none."""
    marks = _marks()
    if isinstance(messages, str):
        return marks.text
    return next((found for message in _ends(messages) if (found := marks.message(message))), None)


def list_histories() -> tuple[str, ...]:
    """Return the fields that hold the history in requests of the dialects."""
    return tuple(dict.fromkeys(known.fields.messages for known in dialects()))


def find_history(fields: Mapping[str, Any]) -> tuple[str, DialectName | None] | None:
    """Return the field of a request that holds its history, and the dialect shown by its fields.

    Several dialects name it `messages`; then a separate system prompt decides, or else the messages
    must (None). Returns None if there is no history.
    """
    for key in list_histories():
        alike = [known for known in dialects() if known.fields.messages == key]
        held = fields.get(key)
        if isinstance(held, list) or (isinstance(held, str) and alike[0].fields.takes_text):
            beside = (known for known in alike if known.fields.system in fields)
            sure = alike[0] if len(alike) == 1 else next(beside, None)
            return key, sure.name if sure is not None else None
    return None


class _Marks:
    """The shapes of all dialects as tables, because every message of a request is looked up."""

    def __init__(self, found: Iterable[Dialect]) -> None:
        known = tuple(found)
        shapes = [(d.name, d.shape) for d in known]
        self.text = next(d.name for d in known if d.fields.takes_text)
        self.blocks = next(name for name, shape in shapes if shape.typed)
        self._messages = _functions((name, shape.is_message) for name, shape in shapes)
        self._parts = _functions((name, shape.is_part) for name, shape in shapes)
        self._tools = _functions((name, shape.is_tool) for name, shape in shapes)
        self._roles = {role: name for name, shape in shapes for role in shape.roles}
        self._keys = [(key, name) for name, shape in shapes for key in shape.keys]
        self._types = {kind: name for name, shape in shapes for kind in shape.parts}
        self._fields = {key: name for name, shape in shapes for key in shape.part_keys}
        self._items = next(name for name, shape in shapes if shape.items)

    def message(self, message: Any) -> DialectName | None:
        """Return the dialect of a message, or None if it shows none."""
        for name, is_message in self._messages:
            if is_message(message):
                return name
        role, kind = field_of(message, "role"), field_of(message, "type")
        found = self._roles.get(role) if isinstance(role, str) else None
        if found is not None:
            return found
        for key, name in self._keys:
            if field_of(message, key) is not None:
                return name
        if isinstance(kind, str) and role is None:
            return self._items
        pieces = _ends(field_of(message, "content"))
        found = next((found for piece in pieces if (found := self._part(piece))), None)
        if found is not None or kind != "message":
            return found
        # several dialects have this type; only one of them has parts of type `text` in it
        spoken = any(field_of(piece, "type") == "text" for piece in pieces)
        return self.blocks if spoken else self._items

    def _part(self, piece: Any) -> DialectName | None:
        kind = field_of(piece, "type")
        if not isinstance(kind, str):
            held = piece if isinstance(piece, Mapping) else {}
            return next((self._fields[key] for key in held if key in self._fields), None)
        for name, is_part in self._parts:
            if is_part(piece):
                return name
        return self._types.get(kind)

    def tool(self, tool: Any) -> DialectName | None:
        """Return the dialect of a tool's definition, or None if it shows none."""
        found = next((name for name, is_tool in self._tools if is_tool(tool)), None)
        if found is None and isinstance(field_of(tool, "type"), str):
            return self._items
        return found


def _functions(pairs: Iterable[tuple[DialectName, Any]]) -> Sequence[tuple[DialectName, Any]]:
    """Return the pairs with a function: a dialect may have none."""
    return [(name, tells) for name, tells in pairs if tells is not None]


@cache
def _marks() -> _Marks:
    return _Marks(dialects())


def _ends(values: Any) -> Sequence[Any]:
    """Return the first and last values of a list; empty for anything else."""
    if not isinstance(values, list | tuple):
        return ()
    if len(values) <= 2 * LOOKED_AT:
        return values
    return [*values[:LOOKED_AT], *values[-LOOKED_AT:]]
