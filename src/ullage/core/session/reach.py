"""The data that a session holds, and the check before a call that sends data out.

Private data, strangers' text and a way out are harmless in pairs. With all three, a stranger's text
can make a model send private data away (Simon Willison, "The lethal trifecta for AI agents", 2025).
This module knows no tools and no people.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

from ullage.core.facts.quoting import drop_quoted
from ullage.core.session.permissions import Decision

Reach = Literal["private", "untrusted", "outside"]
"""`private`: results may contain the person's own data. `untrusted`: they may contain strangers'
text. `outside`: a call may send something out of this machine.
"""

BROUGHT: Final[Sequence[Reach]] = ("private", "untrusted")
"""Kinds of data that stay in a session once they are there."""

SOURCE_LENGTH: Final = 60
"""Characters of a call that name it as a source."""


class Holdings:
    """The kinds of data that came into a session, each with its first source in words."""

    def __init__(self) -> None:
        self._found: dict[Reach, str] = {}
        self._unread: list[str] = []

    @property
    def sources(self) -> Mapping[Reach, str]:
        """The first source of private data and of strangers' text, if any."""
        while self._unread and "untrusted" not in self._found:
            if is_quoting(self._unread.pop(0)):
                self.add(["untrusted"], "a text that was pasted into a message")
        self._unread.clear()
        return self._found

    def add(self, reach: Collection[str], source: str) -> None:
        """Add the kinds of data from a source; unknown kinds are ignored."""
        for kind in BROUGHT:
            if kind in reach:
                self._found.setdefault(kind, source)

    def add_message(self, text: str, parts: Sequence[Mapping[str, Any]]) -> None:
        """Add a person's message: typed words are theirs, attached or pasted text is not.

        Texts are read only when needed, because most sessions never reach the check.
        """
        if parts:
            self.add(["untrusted"], "what was attached to a message")
        elif "untrusted" not in self._found:
            self._unread.append(text)


def is_quoting(text: str) -> bool:
    """Tell whether a person's message contains lines that somebody else wrote."""
    return len(drop_quoted(text).split()) < len(text.split())


def name_call(name: str, arguments: str) -> str:
    """Return a call as a source, in a few words."""
    shown = " ".join(f"{name} {arguments}".split())
    return shown if len(shown) <= SOURCE_LENGTH else f"{shown[:SOURCE_LENGTH]}..."


def guard_exit(decision: Decision, reach: frozenset[Reach], held: Mapping[Reach, str]) -> Decision:
    """Return a decision; changed to ask if the call would complete the three.

    `reach` is what the call itself touches, `held` what the session holds. Data that a call brings
    in counts for later calls.
    """
    if decision.verdict != "allow" or "outside" not in reach:
        return decision
    private = held.get("private") or ("this call itself" if "private" in reach else "")
    untrusted = held.get("untrusted", "")
    if not private or not untrusted:
        return decision
    return Decision(
        "ask",
        f"it can send data out of this machine, and the session holds private data ({private}) "
        f"and text of others ({untrusted}), which may steer the model to give that data away",
        "outside",
    )


def make_reach_data(held: Mapping[Reach, str]) -> dict[str, Any]:
    """Return the event data that tell a new session what the session before it held."""
    return {"reach": sorted(held)} if held else {}


def list_reach(data: Mapping[str, Any]) -> Sequence[str]:
    """Return the kinds of data that an event brought in; empty if its data name none."""
    found = data.get("reach")
    return found if isinstance(found, list | tuple) else ()
