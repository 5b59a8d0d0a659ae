"""What is remembered of a conversation from one call to the next.

It is found again by the longest known prefix, as a checkpoint is: the server's last word on the
size, and which tiers people were told of. It knows no store and holds no message.
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
"""Schema version of a stored conversation; 3 came with `learned` and `Effort.stuck`."""


BASE: Final = 200
"""Counted tokens from which on growth tells true reports from false ones: less is within what the
reports of one prompt differ by."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The state of a conversation after a request.

    `prefix` is the chain hash of the whole history as the caller passed it. `anchor` is the last
    reported size, of the first `covered` messages as they were sent; `sent` is their chain hash.
    `effort` is what the turn has spent on making room. `odd` are the reported tokens and our count
    of the last report that was not believed; `base` those of an earlier one that was, from which
    the growth of the next ones is told. `cramped` is the window of which people were told
    that it is too small for what must stay, `wide` that for which the history went out whole
    although it was compacted for a smaller one; 0 for none. `beside` is a hash of system text and
    tools, where reasoning is bound to them. `warm` is what the provider's cache holds.
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
        """Tell whether the last report is of the first messages of what is about to be sent.

        A new checkpoint changes the beginning, and so puts the report out of use.
        """
        if self.anchor is None or self.covered > len(sent):
            return False
        return chain(sent)[self.covered - 1] == self.sent

    def anchor_to_report(self, measured: Measure) -> Measure:
        """Return a measure that rests on the last report, where `has_report_of` its transcript.

        The report holds only for the same tools and system text; else the measure comes back as
        it is. The edges of the count are those of now: what is learned narrows them.
        """
        covered = part(measured, self.covered)
        if self.anchor is None or covered.best != self.anchor.raw.best:
            return measured
        return replace(measured, anchor=Anchor(self.anchor.tokens, covered))

    def with_report(self, tokens: int, measured: Measure, sent: Transcript) -> Conversation:
        """Return the state with what the server reported for this request.

        A request without messages has nothing to be known by again: the state stays.
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
        """Return the state after a report that takes the last one out of use, too."""
        return replace(self, anchor=None, covered=0, sent="", odd=odd)

    def is_as_before(self, before: Conversation | None) -> bool:
        """Tell whether nothing changed since but the prefix, and what is known of the model.

        That is the process's, and goes along with the next change. Effort that was not spent is
        none.
        """
        known = (self.scope, *_NEW) if before is None else _list_lasting(before)
        return _list_lasting(self) == known

    def narrow(self, window: Window, now: float) -> Window:
        """Return a window under the bound that is suspected, as long as that was not long ago."""
        if self.suspect is None or now - self.suspect[1] >= PASSING_S:
            return window
        return window.suspect(self.suspect[0])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can carry."""
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
        """Read what `to_dict` wrote; raises StoreError on a newer version or a corrupt record.

        Fields that a later ullage added are passed over.
        """
        version = data.get("version")
        if version == 1:  # had a flag where the ledger of evidence is now
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
"""Fields that JSON carries as they are."""

_PASSING: Final = frozenset(("prefix", "effort", "shown", "learned"))
_lasting: Final = attrgetter(*[f.name for f in fields(Conversation) if f.name not in _PASSING])
_lasting_shown: Final = attrgetter(*[f.name for f in fields(Shown) if f.name != "told"])


def _list_lasting(found: Conversation) -> tuple[Any, ...]:
    """Return what of a state is worth to be written. Asked twice for each request: no copies."""
    effort, shown = found.effort, found.shown
    spent = effort if effort.recoveries or effort.fruitless else None
    return (*_lasting(found), spent, _lasting_shown(shown), shown.told - {"none"})


_NEW: Final = _list_lasting(Conversation("", ""))[1:]
"""What is lasting of a conversation that begins, but for its scope."""
