"""Apply an edit script to a history that grew: the result for its beginning is used again.

A checkpoint is applied to every request of a conversation, and its script names the same few
messages each time. This module knows no dialect, no tokens and no policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.edits import Edited, apply
from ullage.core.messages.readings import copy_value
from ullage.core.messages.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ullage.core.compaction.edits import Script
    from ullage.core.messages.transcript import Codec, Message, Raw

MOST: Final = 2
"""Cached scripts per history: the current one and its successor."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The result of a script for the first `reach` messages of a history; it edits none after them.

    It does not hold the caller's own messages: `pick` takes those that stay from the current
    history, with placeholders for the `written` ones. `copies` show whether the written messages
    were changed after they were handed out.
    """

    script: Script
    reach: int
    pick: Callable[[Sequence[Raw]], tuple[Raw, ...]]
    written: tuple[tuple[int, Raw], ...]
    copies: tuple[Any, ...]
    origin: tuple[int | None, ...]
    messages: tuple[Message, ...]
    parts: Mapping[int, tuple[int, ...]]

    def is_unchanged(self) -> bool:
        """Tell whether the written messages are unchanged."""
        return tuple([raw for _, raw in self.written]) == self.copies

    def go_on(self, history: Transcript, memo: dict[str, Any]) -> Edited:
        """Return the result of the script for a history with this beginning."""
        reach, was = self.reach, history.raws
        raws = list(self.pick(was))
        for place, raw in self.written:
            raws[place] = raw
        raws += was[reach:]
        messages = self.messages + history.messages[reach:]
        edited = Transcript(tuple(raws), messages, history.rules, memo)
        return Edited(edited, self.origin + history.list_places()[reach:], self.parts)


_Entry = tuple[Beginning, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Applied:
    """Scripts that were applied to a history, the newest first, each with the result's memo."""

    entries: tuple[_Entry, ...] = ()

    def keep_before(self, place: int) -> Applied:
        """Return the entries that edit no message from `place` on."""
        return Applied(tuple([each for each in self.entries if each[0].reach <= place]))


def apply_again(history: Transcript, script: Script, codec: Codec) -> Edited:
    """Do the same as `edits.apply`; for a known beginning, only new messages cost time.

    The memo of the earlier result is kept. The written messages are the same objects each time,
    until one of them was changed: then they are written anew.
    """
    known: tuple[_Entry, ...] = history.memo.get(_APPLIED, (0, Applied()))[1].entries
    found = next((each for each in known if _is_same(each[0].script, script)), None)
    if found is not None and found[0].is_unchanged():
        beginning, memo = found[0], dict(found[1])
        edited = beginning.go_on(history, memo)
    else:
        edited = apply(history, script, codec)
        made = _cut(history, script, edited)
        if made is None:
            return edited
        beginning, memo = made, edited.transcript.memo
    rest = tuple([each for each in known if each is not found])
    history.memo[_APPLIED] = (len(history), Applied(((beginning, memo), *rest)[:MOST]))
    return edited


_APPLIED: Final = "applied"


def _is_same(one: Script, other: Script) -> bool:
    return one is other or one == other


def _cut(history: Transcript, script: Script, edited: Edited) -> Beginning | None:
    """Return the reusable part of a script's result, None if there is no such part."""
    reach, made = script.reach(), edited.transcript
    size = len(made) - (len(history) - reach)
    if not (reach and size):
        return None
    origin = edited.origin[:size]
    written = [
        i for i, old in enumerate(origin) if old is None or made.raws[i] is not history.raws[old]
    ]
    try:
        copies = tuple([copy_value(made.raws[i]) for i in written])
    except (TypeError, RecursionError):
        return None
    return Beginning(
        script,
        reach,
        _make_pick([old or 0 for old in origin]),
        tuple([(i, made.raws[i]) for i in written]),
        copies,
        origin,
        made.messages[:size],
        edited.parts,
    )


def _make_pick(places: list[int]) -> Callable[[Sequence[Raw]], tuple[Raw, ...]]:
    if len(places) == 1:
        return lambda raws: (raws[places[0]],)
    return itemgetter(*places)
