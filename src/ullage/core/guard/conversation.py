"""The state of a conversation that is kept from one call to the next.

It is found by the longest known prefix, as a checkpoint is. It holds the server's last report of
the size, and the tiers that were reported to the user. It knows no store and holds no message.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ullage.core.compaction.checkpoint import chain, pick_known
from ullage.core.errors import StoreError
from ullage.core.guard.effort import Effort
from ullage.core.guard.learned import NOTHING, Learned
from ullage.core.guard.warmth import Warm
from ullage.core.messages.size import Size
from ullage.core.tokens.counting import Anchor, Measure, part
from ullage.core.tokens.evidence import PASSING_S
from ullage.core.tokens.gauge import Shown
from ullage.core.values.frozen import list_fields, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.core.messages.transcript import Transcript
    from ullage.core.tokens.window import Window

VERSION: Final = 3
"""Schema version of a stored conversation; version 3 added `learned` and `Effort.stuck`."""


BASE: Final = 200
"""Counted tokens above which growth separates true reports from false ones: reports of the same
prompt may differ by that much.
"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The state of a conversation after a request.

    `prefix` is the chain hash of the whole history as the caller passed it. `anchor` is the last
    reported size, for the first `covered` messages as they were sent; `sent` is their chain hash.
    `effort` counts what the turn has tried to make room. `odd` holds the reported tokens and our
    count of the last report that was not believed. `base` holds those of an earlier report that was
    believed; the growth of later ones is checked against it. `cramped` is the window that was
    reported as too small for what must stay. `wide` is the window for which the whole history was
    sent although it was compacted for a smaller one. Both are 0 if there is none. `beside` is a
    hash of system text and tools, if reasoning is bound to them. `warm` describes the provider's
    cache.
    """

    scope: str
    prefix: str
    shown: Shown = Shown()
    anchor: Anchor | None = None
    covered: int = 0
    sent: str = ""
    effort: Effort = Effort()
    odd: tuple[int, int] | None = None
    cramped: int = 0
    beside: str = ""
    wide: int = 0
    base: tuple[int, int] | None = None
    learned: Learned = NOTHING
    suspect: tuple[int, float] | None = None
    warm: Warm | None = None

    def has_report_of(self, sent: Transcript) -> bool:
        """Tell whether the last report covers the first messages of the request to send.

        A new checkpoint changes the beginning, so that the report no longer applies.
        """
        if self.anchor is None or self.covered > len(sent):
            return False
        return chain(sent)[self.covered - 1] == self.sent

    def anchor_to_report(self, measured: Measure) -> Measure:
        """Return a measure based on the last report, if `has_report_of` is true for the transcript.

        The report applies only to the same tools and system text; otherwise the measure is returned
        unchanged. The edges of the count are the current ones, because lessons narrow them.
        """
        covered = part(measured, self.covered)
        if self.anchor is None or covered.best != self.anchor.raw.best:
            return measured
        return replace(measured, anchor=Anchor(self.anchor.tokens, covered))

    def with_report(self, tokens: int, measured: Measure, sent: Transcript) -> Conversation:
        """Return the state with the size that the server reported for this request.

        A request without messages cannot be found again, so it leaves the state unchanged.
        """
        if not len(sent):
            return self
        raw = measured.raw()
        near = self.base is not None and 0 <= raw.best - self.base[1] < BASE
        return replace(
            self,
            anchor=Anchor(tokens, raw),
            covered=len(sent),
            sent=chain(sent)[-1],
            odd=None,
            base=self.base if near else (tokens, raw.best),
        )

    def without_report(self, odd: tuple[int, int]) -> Conversation:
        """Return the state after a report that also invalidates the last one."""
        return replace(self, anchor=None, covered=0, sent="", odd=odd)

    def is_as_before(self, before: Conversation | None) -> bool:
        """Tell whether nothing changed except the prefix and the lessons about the model.

        The process keeps those, and saves them with the next change. An effort without attempts
        counts as no effort.
        """
        known = (self.scope, *_NEW) if before is None else _list_lasting(before)
        return _list_lasting(self) == known

    def narrow(self, window: Window, now: float) -> Window:
        """Return the window with the suspected bound, unless the suspicion is too old."""
        if self.suspect is None or now - self.suspect[1] >= PASSING_S:
            return window
        return window.suspect(self.suspect[0])

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "anchor": None if self.anchor is None else [self.anchor.tokens, *self.anchor.raw],
            "shown": {**list_fields(self.shown), "told": sorted(self.shown.told)},
            "effort": list_fields(self.effort),
            "learned": self.learned.to_dict(),
            "version": VERSION,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Conversation:
        """Read the output of `to_dict`; raises StoreError on a newer version or a corrupt record.

        Unknown fields from a later ullage are ignored.
        """
        version = data.get("version")
        if version == 1:  # had a flag in the place of the evidence
            data = {**data, "odd": None}
        elif version not in (2, VERSION):
            raise StoreError(
                f"a conversation of schema version {version!r} cannot be read: this ullage reads "
                f"version {VERSION}; upgrade ullage or start from an empty store"
            )
        try:
            fields = pick_known(cls, data)
            anchor = fields["anchor"]
            fields["anchor"] = anchor and Anchor(anchor[0], Size(*anchor[1:]))
            fields["odd"] = fields["odd"] and tuple(fields["odd"])
            fields["base"] = fields.get("base") and tuple(fields["base"])
            fields["suspect"] = fields.get("suspect") and tuple(fields["suspect"])
            fields["warm"] = fields.get("warm") and Warm(*fields["warm"][: len(Warm._fields)])
            shown = pick_known(Shown, fields["shown"])
            shown["told"] = frozenset(shown["told"])
            effort = pick_known(Effort, fields["effort"])
            fields |= {"shown": Shown(**shown), "effort": Effort(**effort)}
            learned = fields.get("learned")
            fields["learned"] = NOTHING if learned is None else Learned.from_dict(learned)
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise StoreError(f"a stored conversation is corrupt ({error}): remove it") from error


_PLAIN: Final = tuple(
    f.name for f in fields(Conversation) if f.name not in ("anchor", "shown", "effort", "learned")
)
"""Fields that are plain JSON values."""

_PASSING: Final = frozenset(("prefix", "effort", "shown", "learned"))
_lasting: Final = attrgetter(*[f.name for f in fields(Conversation) if f.name not in _PASSING])
_lasting_shown: Final = attrgetter(*[f.name for f in fields(Shown) if f.name != "told"])


def _list_lasting(found: Conversation) -> tuple[Any, ...]:
    """Return the parts of a state that are worth saving. Called twice per request: no copies."""
    effort, shown = found.effort, found.shown
    spent = effort if effort.recoveries or effort.fruitless else None
    return (*_lasting(found), spent, _lasting_shown(shown), shown.told - {"none"})


_NEW: Final = _list_lasting(Conversation("", ""))[1:]
"""The lasting parts of a new conversation, without its scope."""
