"""The routes of the proxy: what is guarded, in which dialect, and what is forwarded.

What stands in no row is not there: nothing is passed through blindly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ullage.core.dialects import registry
from ullage.core.dialects.dialect import Dialect, Fields
from ullage.core.messages.transcript import DialectName


@dataclass(frozen=True, slots=True)
class Form:
    """A path that carries conversations: its dialect, and where a body has its parts."""

    dialect: DialectName
    fields: Fields

    @property
    def spoken(self) -> Dialect:
        """The dialect itself."""
        return registry.find(self.dialect)


GUARDED: Final[Mapping[str, Form]] = {
    path: Form(known.name, fields)
    for known in registry.dialects()
    for path, fields in known.routes.guarded.items()
}
"""POST requests that carry a conversation."""

CHECKED: Final = frozenset(path for known in registry.dialects() for path in known.routes.checked)
"""POST requests with a body that is checked and forwarded as it came."""

PLAIN: Final = tuple(route for known in registry.dialects() for route in known.routes.plain)
"""Methods and paths that are forwarded without a look at what they carry."""


def dialect(path: str) -> DialectName:
    """Return the dialect in which the clients of a path read errors."""
    form = GUARDED.get(path)
    if form is not None:
        return form.dialect
    below = (known.name for known in registry.dialects() if path.startswith(known.routes.prefix))
    return next(below, registry.DEFAULT)


def plain(method: str, path: str) -> bool:
    """Tell whether a request is forwarded as it is. A path with `..` in it never is."""
    if ".." in path or "//" in path:
        return False
    return any(method in methods and shape.fullmatch(path) for methods, shape in PLAIN)
