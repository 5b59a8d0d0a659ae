"""What a session has come to hold, and the gate before a way out.

Private data, text of strangers and a way out are harmless two by two. With all three, a stranger's
text can have a model carry private data away (Simon Willison, "The lethal trifecta for AI agents",
2025). It knows no tools and no people.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

from ullage.core.facts.quoting import drop_quoted
from ullage.core.session.permissions import Decision

Reach = Literal["private", "untrusted", "outside"]
"""`private`: results may hold what is the person's own. `untrusted`: they may hold what strangers
wrote. `outside`: a call may send something out of this machine."""

BROUGHT: Final[Sequence[Reach]] = ("private", "untrusted")
"""What stays in a session once it is there."""

SOURCE_LENGTH: Final = 60
"""Characters of a call that name it as a source."""


class Holdings:
    """What came into a session, by its first source in words; `read` takes more in."""

    def __init__(self) -> None:
        self._found: dict[Reach, str] = {}
        self._unread: list[str] = []

    @property
    def sources(self) -> Mapping[Reach, str]:
        """The first source of private data and of text by strangers, where there is one."""
        while self._unread and "untrusted" not in self._found:
            if is_quoting(self._unread.pop(0)):
                self.add(["untrusted"], "a text that was pasted into a message")
        self._unread.clear()
        return self._found

    def add(self, reach: Collection[str], source: str) -> None:
        """Take in what something holds; unknown words are passed over."""
        for kind in BROUGHT:
            if kind in reach:
                self._found.setdefault(kind, source)

    def add_message(self, text: str, parts: Sequence[Mapping[str, Any]]) -> None:
        """Take in what a person said: typed words are theirs, what they attached or pasted is not.

        Texts are only read where it matters, since a gate is seldom reached.
        """
        if parts:
            self.add(["untrusted"], "what was attached to a message")
        elif "untrusted" not in self._found:
            self._unread.append(text)


def is_quoting(text: str) -> bool:
    """Tell whether a person's message holds lines that somebody else wrote."""
    return len(drop_quoted(text).split()) < len(text.split())


def name_call(name: str, arguments: str) -> str:
    """Return a call as a source, in a few words."""
    shown = " ".join(f"{name} {arguments}".split())
    return shown if len(shown) <= SOURCE_LENGTH else f"{shown[:SOURCE_LENGTH]}..."


def guard_exit(decision: Decision, reach: frozenset[Reach], held: Mapping[Reach, str]) -> Decision:
    """Return a decision, or the order to ask where a call would complete the three.

    `reach` is what the call itself touches, `held` what the session holds. What a call brings in
    counts for the calls behind it.
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
    """Return what a session that begins with another's words is told of what that one held."""
    return {"reach": sorted(held)} if held else {}


def list_reach(data: Mapping[str, Any]) -> Sequence[str]:
    """Return what an event's data say that it brought in; none where they say nothing."""
    found = data.get("reach")
    return found if isinstance(found, list | tuple) else ()
