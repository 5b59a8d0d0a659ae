"""What is remembered of a conversation from one call to the next.

It is found again by the longest known prefix, as a checkpoint is: the server's last word on the
size, and which tiers people were told of. It knows no store and holds no message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ullage.core.checkpoint import chain
from ullage.core.counting import Anchor, Measure, part
from ullage.core.gauge import Shown

if TYPE_CHECKING:
    from ullage.core.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Conversation:
    """The state of a conversation after a request.

    `prefix` is the chain hash of the whole history as the caller passed it. `anchor` is the last
    reported size, of the first `covered` messages as they were sent; `sent` is their chain hash.
    """

    scope: str
    prefix: str
    shown: Shown = Shown()
    anchor: Anchor | None = None
    covered: int = 0
    sent: str = ""

    def applied(self, measured: Measure, sent: Transcript) -> Measure:
        """Return a measure of what is about to be sent that rests on the last report.

        The report holds only for a request that extends the reported one, with the same tools and
        system text; else the measure comes back as it is. So a new checkpoint, which changes the
        beginning, puts the report out of use.
        """
        anchor, covered = self.anchor, self.covered
        if anchor is None or covered > len(sent) or chain(sent)[covered - 1] != self.sent:
            return measured
        if part(measured, covered) != anchor.raw:
            return measured
        return replace(measured, anchor=anchor)

    def reported(self, tokens: int, measured: Measure, sent: Transcript) -> Conversation:
        """Return the state with what the server reported for this request.

        A request without messages has nothing to be known by again: the state stays.
        """
        if not len(sent):
            return self
        anchor = Anchor(tokens, measured.raw())
        return replace(self, anchor=anchor, covered=len(sent), sent=chain(sent)[-1])
