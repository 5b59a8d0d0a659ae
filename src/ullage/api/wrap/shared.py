"""The methods and guards that all parts of a wrapped client, and its copies, share.

This module knows where a method is and which guard a call uses. It sends nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ullage.api.wrap.methods import FoundForm, GuardedMethod, strip_path
from ullage.core.dialects.client import Path
from ullage.core.guard.events import Notice
from ullage.core.messages.fields import as_mapping
from ullage.guard.guard import Guard

MOST_GUARDS: Final = 32
"""Most guards kept by one wrapped client: one per model, server, credential, window and dialect."""


class SharedGuards:
    """The guards of one client and of its copies."""

    def __init__(
        self, forms: Sequence[FoundForm], model: str | None, options: Mapping[str, Any]
    ) -> None:
        self.methods: dict[tuple[Path, str], GuardedMethod] = {}
        self.rebuilt: dict[Path, tuple[str, Path]] = {}
        self.copies: set[str] = set()
        for found in forms:
            self.methods |= found.list_methods()
            self.rebuilt |= found.form.rebuilt
            self.copies |= found.form.copies
        self.guards: OrderedDict[tuple[Any, ...], Guard] = OrderedDict()
        self._paths = {path for path, _ in self.methods} | self.rebuilt.keys()
        self._model = model
        self._options = options
        self._lock = threading.Lock()
        self._noticed: set[str] = set()

    def guard(self, client: Any, how: GuardedMethod, given: Mapping[str, Any]) -> Guard:
        """Return the guard for the model and server of a call; the last ones used are kept."""
        server = how.form.locate(client, given)
        named = self._model or server.model
        where: dict[str, Any] = {"base_url": server.base_url, "api_key": server.api_key}
        asked = _find_window(how, given)
        where |= {} if asked is None else {"window": asked}
        where |= self._options
        own = where.get("window")
        key = (named, where["base_url"], where["api_key"], how.dialect.name, own)
        with self._lock:
            made = self.guards.pop(key, None)
            if made is None:
                made = Guard(named, dialect=how.dialect.name, **where)
            self.guards[key] = made
            if len(self.guards) > MOST_GUARDS:
                self.guards.popitem(last=False)
        return made

    def find(self, path: Path, name: str) -> GuardedMethod | None:
        """Return the guarded method of the endpoint at this path, or None."""
        return self.methods.get((strip_path(path), name))

    def leads(self, path: Path) -> bool:
        """Tell whether an endpoint is at this path or below it."""
        bare = strip_path(path)
        return any(known[: len(bare)] == bare for known in self._paths)

    def notice(self, guard: Guard, why: str) -> None:
        """Report once why a history is out of reach."""
        with self._lock:
            known = why in self._noticed
            self._noticed.add(why)
        if not known:
            guard.port.tell(
                Notice(f"{why}: it is forwarded as it is, neither measured nor compacted")
            )


def _find_window(how: GuardedMethod, given: Mapping[str, Any]) -> int | None:
    """Return the window that a request asks its server for, if the dialect has a field for it."""
    options, inside = how.dialect.options, how.dialect.fields.inside
    if options is None or inside is None:
        return None
    return options.window({inside: as_mapping(given.get(inside)) or {}}, None)
