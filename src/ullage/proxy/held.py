"""The last request of a conversation, held as bytes and parsed again when somebody looks at it.

The objects that a guard makes of a request are larger than its body. So only the body is kept of
the hundreds of conversations that nobody looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ullage.core.values.frozen import replace
from ullage.proxy import body as bodies
from ullage.proxy.body import Body
from ullage.proxy.call import ProxyCall, fill_history, make_request
from ullage.runtime import Measurable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.core.guard.request import Request
    from ullage.core.messages.transcript import Transcript
    from ullage.core.tokens.window import Window
    from ullage.guard.port import Port
    from ullage.guard.view import View
    from ullage.proxy.guarding import Plan
    from ullage.runtime import Runtime


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """A request as bytes: as it came, and as it was sent.

    `call` is the request without its text, `port` the port of its guard, if it was guarded here.
    """

    call: ProxyCall
    came: bytes
    sent: bytes
    window: Window
    max_tokens: int | None
    port: Port | None

    def read_came(self) -> Request:
        """Return the request as it came."""
        return self._read(self.came)

    def read_sent(self) -> Request:
        """Return the request as it was sent."""
        return self._read(self.sent)

    def read_transcript(self, runtime: Runtime) -> Transcript:
        """Return the sent messages as a transcript."""
        messages = list(self.read_sent().messages)
        return runtime.read(Measurable(messages, dialect=self.call.form.dialect))

    def _read(self, raw: bytes) -> Request:
        form = self.call.form
        body = bodies.read(raw, form.fields.messages, _UNBOUND)
        fill_history(form, body)
        return make_request(replace(self.call, body=body))


_UNBOUND: Final = bodies.Bounds(1 << 40, 1 << 40, 1 << 20)
"""Unlimited bounds: the request was within the bounds when it came."""


def count_bytes(held: Iterable[HeldRequest]) -> int:
    """Return the bytes of the text of requests; text that several share counts once."""
    texts = {id(text): len(text) for each in held for text in (each.came, each.sent)}
    return sum(texts.values())


def hold_request(call: ProxyCall, plan: Plan, view: View) -> HeldRequest:
    """Return a planned request in its held form."""
    return HeldRequest(
        replace(call, body=Body(b"")),
        call.body.raw,
        plan.body,
        view.window,
        view.prepared.max_tokens,
        plan.port,
    )
