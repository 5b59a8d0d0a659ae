"""Requests that go out as they came, without the guard, and the notices of that.

The client sees a header, the operator the log and the metrics. The module does not know guards or
the text of a conversation.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from ullage.proxy.call import ProxyCall
    from ullage.telemetry.metrics import ProxyMeters

log = logging.getLogger("ullage.proxy")

QUOTED: Final = re.compile(r"'([^'\s]*)'")
NAMES: Final = frozenset(
    (
        *("arguments", "content", "contents", "function", "function_call", "id", "input"),
        *("messages", "name", "output", "parts", "role", "text", "tool_calls"),
        *("tool_call_id", "type"),
        *("assistant", "developer", "model", "system", "tool", "user"),
    )
)
"""Names of fields and roles that APIs document: the log repeats no other word of a request."""

Reason = Literal["malformed_history", "unreadable_body", "guard_failed"]

MOST_TOLD: Final = 1_000
"""Warnings that are remembered, by upstream, model and reason."""

UNREADABLE: Final = (
    "the body cannot be read: it is no JSON object, or holds a number out of range, such as an "
    "integer of more than 4,300 digits"
)


@dataclass(frozen=True, slots=True)
class UnguardedReason:
    """The reason why a request went out unguarded: a code for programs, the fault for people."""

    reason: Reason
    fault: str

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The header that reports this in the answer."""
        return b"x-ullage-unguarded", self.reason.encode("ascii")


class UnguardedRequests:
    """Counts these requests, and warns once of each kind."""

    def __init__(self, meters: ProxyMeters) -> None:
        self._meters = meters
        self._told: OrderedDict[tuple[str, str | None, Reason], None] = OrderedDict()

    def note(self, call: ProxyCall, found: UnguardedReason) -> None:
        """Count a request; warn if its upstream, model and reason are new."""
        self._meters.leave_unguarded(call.model, found.reason)
        key = (call.upstream.name, call.model, found.reason)
        is_new = key not in self._told
        self._told[key] = None
        self._told.move_to_end(key)
        if len(self._told) > MOST_TOLD:
            self._told.popitem(last=False)
        if is_new and found.reason != "guard_failed":  # that is logged with its traceback
            log.warning(
                "a request for the model %s at %s goes out unguarded: %s; further ones of this "
                "upstream, model and reason are counted only",
                "unknown" if call.model is None else f"{call.model!r:.80}",
                call.upstream.name,
                QUOTED.sub(_hide_word, found.fault),
            )


def _hide_word(quoted: re.Match[str]) -> str:
    """Return a quoted word of a fault, or only its length if a client may have chosen it."""
    word = quoted[1]
    return quoted[0] if word in NAMES else f"a word of {len(word)} characters"


def find_unread(call: ProxyCall) -> UnguardedReason | None:
    """Return why a request without a history is unguarded, or None if nothing needs the guard."""
    if call.body.opaque:
        return UnguardedReason("unreadable_body", UNREADABLE)
    fields = call.form.fields
    if call.body.fields.get(fields.messages) is None or fields.single:
        return None
    return UnguardedReason("malformed_history", f"{fields.messages!r} is no list of messages")
