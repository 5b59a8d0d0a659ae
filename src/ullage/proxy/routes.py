"""The routes of the proxy: what is guarded, in which dialect, and what is forwarded.

What stands in no row is not there: nothing is passed through blindly.
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
    """A path that carries conversations: its dialect, and where a body has its parts.

    `model` and `streams` are what the path says of the model and of the answer, None where the body
    says it.
    """

    dialect: DialectName
    fields: Fields
    model: str | None = None
    streams: bool | None = None

    @property
    def spoken(self) -> Dialect:
        """The dialect itself."""
        return registry.find(self.dialect)

    def spell(self, given: Mapping[str, Any]) -> GuardedPath:
        """Return the path with its fields by the names that a request gives them."""
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
"""Methods and paths that are forwarded without a look at what they carry."""


ADDRESSED: Final = tuple(
    (known.name, address) for known in registry.dialects() for address in known.routes.addressed
)
"""POST requests whose path names the model."""


def find_form(path: str) -> GuardedPath | None:
    """Return how a path carries conversations, None where it carries none."""
    found = GUARDED.get(path)
    if found is not None:
        return found
    for name, address in ADDRESSED:
        match = address.shape.fullmatch(path)
        if match is not None and address.fields is not None:
            return GuardedPath(name, address.fields, match["model"], address.streams)
    return None


def find_checked(path: str) -> tuple[bool, str | None]:
    """Tell whether a path has a body that is checked and forwarded, and which model it names."""
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
    """Tell whether a request is forwarded as it is. A path with `..` in it never is."""
    if ".." in path or "//" in path:
        return False
    return any(method in methods and shape.fullmatch(path) for methods, shape in PLAIN)
