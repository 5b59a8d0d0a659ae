"""The methods of a client that send a conversation, found by the client's classes.

This module reads the client forms of the dialects, and calls nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from ullage.core.dialects import registry
from ullage.core.dialects.client import ClientForm, ClientMethod, Path
from ullage.core.dialects.dialect import Dialect

RAW: Final = "with_raw_response"
STREAMED: Final = "with_streaming_response"


@dataclass(frozen=True, slots=True)
class GuardedMethod:
    """A method that sends a conversation: dialect, client form, kind of answer, field places."""

    dialect: Dialect
    form: ClientForm
    method: ClientMethod
    awaits: bool
    places: Mapping[str, tuple[Path, ...]]


@dataclass(frozen=True, slots=True)
class FoundForm:
    """A form that fits a client, the form's dialect, and whether the client is async."""

    dialect: Dialect
    form: ClientForm
    awaits: bool

    def list_methods(self) -> Mapping[tuple[Path, str], GuardedMethod]:
        """Return the methods, by the path of their endpoint and their name."""
        places = self.form.find_places(self.dialect.fields)
        return {
            (path, name): GuardedMethod(
                self.dialect,
                self.form,
                method,
                self.awaits if method.awaits is None else method.awaits,
                places,
            )
            for path in self.form.paths
            for name, method in self.form.methods.items()
        }


@functools.cache
def _load() -> Sequence[tuple[Dialect, ClientForm]]:
    return [(dialect, form) for dialect in registry.dialects() for form in dialect.clients()]


def find_forms(client: Any) -> Sequence[FoundForm]:
    """Return the forms that fit a client: those of the nearest known class in its MRO."""
    if isinstance(client, ModuleType):
        return [FoundForm(d, f, awaits=False) for d, f in _load() if client.__name__ in f.modules]
    for kind in type(client).__mro__:
        name, home = kind.__name__, kind.__module__
        found = [(d, f) for d, f in _load() if name in f.classes and f.is_home(home)]
        if found:
            return [FoundForm(d, f, f.classes[name]) for d, f in found]
    return ()


def list_titles() -> str:
    """Return the usual names of the supported clients."""
    return ", ".join(dict.fromkeys(form.title for _, form in _load()))


def strip_path(path: Path) -> Path:
    """Return the path of an endpoint without the names that only select the form of the answer."""
    return tuple(name for name in path if name not in (RAW, STREAMED))
