"""The model of commands that inspect a session: only a named server is asked.

The module provides the objects for such a command, and sends nothing to a model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from ullage import config
from ullage.agent import Session
from ullage.cli import endpoint, origin
from ullage.core.errors import ConfigurationError
from ullage.core.session.log.event import upcast_data
from ullage.core.session.log.fold import Round
from ullage.providers import Provider
from ullage.runtime import Runtime, default
from ullage.windows import Question

NOBODY: Final = "http://nobody.invalid/v1"
"""A host name that never resolves (RFC 2606, section 2)."""


RECENT: Final = 1_000
"""Events at the end of a session among which its last answer is looked for."""


@dataclass(frozen=True, slots=True)
class Lent:
    """A model, the runtime with known windows, and the window in tokens if it is given."""

    provider: Provider
    runtime: Runtime
    window: int | None


@contextmanager
def lend_model(given: argparse.Namespace, session: Session) -> Iterator[Lent]:
    """Lend the model that the arguments name, else the session's; ask its server if possible.

    An embedded model, or one without its key, is used without its server. Raises ConfigurationError
    if no model is known.
    """
    settings = config.load().settings
    named = given.embedded is not None or bool(given.base_url)
    known = bool(session.fold.served)
    if named or origin.needs_nothing(session) or (settings.base_url and not known):
        given = origin.complete(given, session)
        with endpoint.lend_provider(given) as provider:
            yield Lent(provider, default(), None if given.embedded is not None else given.window)
        return
    served = session.fold.served
    model = given.model or served.get("model") or find_last_model(session)
    if model is None:
        raise ConfigurationError(
            f"no model has answered in session {session.name} yet: name one by --model"
        )
    runtime = Runtime(settings=replace(settings, offline=True))
    window = given.window or served.get("window") or find_last_window(session, model)
    window = window or runtime.windows.window(Question(model)).input_tokens
    dialect = given.dialect or served.get("dialect")
    stand_in = argparse.Namespace(
        **{**vars(given), "base_url": NOBODY, "model": model, "dialect": dialect}
    )
    with endpoint.lend_provider(stand_in) as provider:
        yield Lent(provider, runtime, window)


def find_last_model(session: Session) -> str | None:
    """Return the model that answered last, or None before the first answer."""
    rounds = (item for item in reversed(session.fold.items) if isinstance(item, Round))
    return next((item.model for item in rounds if item.model), None)


def find_last_window(session: Session, model: str) -> int | None:
    """Return the window in tokens of the last answer, None if unknown or of another model.

    Only the newest `RECENT` events are read.
    """
    for event in reversed(session.events(after=max(session.fold.head - RECENT, 0))):
        if event.type == "provider_usage":
            data = upcast_data(event) or {}
            gauge = data.get("context") if data.get("model") == model else None
            held = gauge if isinstance(gauge, Mapping) else {}
            found = held.get("whole", held.get("window"))
            return found if type(found) is int else None
    return None
