"""The routes of the proxy: the guarded paths with their dialects, and the forwarded ones.

A path without a row does not exist: nothing is passed through blindly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ullage.core.dialects import registry
from ullage.core.dialects.dialect import Dialect, Fields
from ullage.core.messages.transcript import DialectName


@dataclass(frozen=True, slots=True)
class GuardedPath:
    """A path that carries conversations: its dialect, and the names of the parts of its body.

    `model` and `streams` are the model and the kind of answer that the path names, None if the body
    names them.
    """

    dialect: DialectName
    fields: Fields
    model: str | None = None
    streams: bool | None = None

    @property
    def spoken(self) -> Dialect:
        """The dialect as an object."""
        return registry.find(self.dialect)

    def spell(self, given: Mapping[str, Any]) -> GuardedPath:
        """Return the path with the field names that a request uses."""
        spelled = self.fields.spell(given)
        return self if spelled is self.fields else replace(self, fields=spelled)


GUARDED: Final[Mapping[str, GuardedPath]] = {
    path: GuardedPath(known.name, fields)
    for known in registry.dialects()
    for path, fields in known.routes.guarded.items()
}
"""POST requests that carry a conversation."""

CHECKED: Final = frozenset(path for known in registry.dialects() for path in known.routes.checked)
"""POST requests with a body that is checked and forwarded as it came."""

PLAIN: Final = tuple(route for known in registry.dialects() for route in known.routes.plain)
"""Methods and paths that are forwarded without reading the body."""


ADDRESSED: Final = tuple(
    (known.name, address) for known in registry.dialects() for address in known.routes.addressed
)
"""POST requests whose path names the model."""


def find_form(path: str) -> GuardedPath | None:
    """Return the form of a path that carries conversations, or None."""
    found = GUARDED.get(path)
    if found is not None:
        return found
    for name, address in ADDRESSED:
        match = address.shape.fullmatch(path)
        if match is not None and address.fields is not None:
            return GuardedPath(name, address.fields, match["model"], address.streams)
    return None


def find_checked(path: str) -> tuple[bool, str | None]:
    """Tell whether the body of a path is checked and forwarded, and which model the path names."""
    for _, address in ADDRESSED:
        match = address.shape.fullmatch(path)
        if match is not None and address.fields is None:
            return True, match["model"]
    return path in CHECKED, None


def dialect(path: str) -> DialectName:
    """Return the dialect in which the clients of a path read errors."""
    form = GUARDED.get(path)
    if form is not None:
        return form.dialect
    for name, address in ADDRESSED:
        if address.shape.fullmatch(path) is not None:
            return name
    below = (known.name for known in registry.dialects() if path.startswith(known.routes.prefix))
    return next(below, registry.DEFAULT)


def plain(method: str, path: str) -> bool:
    """Tell whether a request is forwarded as it is. Paths with `..` or `//` never are."""
    if ".." in path or "//" in path:
        return False
    return any(method in methods and shape.fullmatch(path) for methods, shape in PLAIN)
