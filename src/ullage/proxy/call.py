"""A request of a conversation as the proxy has it, and as a guard takes it.

It knows no guard, and not what is done with a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.core.guard.request import Request
from ullage.proxy.body import Body
from ullage.runtime import system_text

if TYPE_CHECKING:
    from ullage.config.serving import ModelRule, Upstream
    from ullage.proxy.offering import LaterRound, Offer
    from ullage.proxy.routes import GuardedPath


@dataclass(frozen=True, slots=True)
class ProxyCall:
    """A request of a conversation, whom it is for, and by which rule it is treated.

    `credential` is what the upstream knows the client by, `client` the name of its token, `other`
    its second credential; `session` is the client's own name for the conversation, where it gives
    one. `streams` tells that the answer is asked for as a stream; `beside` are tokens that the
    server holds already. `round` is that of a request that goes on from calls of added tools.
    """

    form: GuardedPath
    body: Body
    upstream: Upstream
    rule: ModelRule
    model: str | None
    credential: str | None = field(default=None, repr=False)
    session: str | None = None
    streams: bool = False
    beside: int = 0
    client: str | None = None
    other: str | None = field(default=None, repr=False)
    round: LaterRound | None = None

    @property
    def apart(self) -> str | None:
        """What keeps conversations apart besides the credential: token, session, second credential.

        Clients with tokens may share the operator's key; they never share a summary.
        """
        if self.client is None and self.other is None:
            return self.session
        named = f"{self.client or ''}|{self.session or ''}"
        if self.other is not None:
            named = f"{named}|{self.other}"
        return hashlib.sha256(named.encode()).hexdigest()

    @property
    def kept(self) -> bool:
        """Whether the history is the server's own: it is forwarded unedited."""
        return any(self.body.fields.get(name) is not None for name in self.form.fields.stored)


def make_request(call: ProxyCall, offer: Offer | None = None) -> Request:
    """Return a call as a guard takes it, with the tools that are added to it.

    What was just read back for it is not left out again: it is pinned.
    """
    fields, form = call.body.fields, call.form
    asked = find_limit(call)
    apart = fields.get(form.fields.system) if form.fields.system is not None else None
    if form.fields.system_parts is not None and isinstance(apart, Mapping):
        apart = apart.get(form.fields.system_parts)
    tools = fields.get("tools")
    tools = tools if isinstance(tools, list) else None
    history = call.body.history
    return Request(
        history,
        tools if offer is None else [*(tools or ()), *offer.tools],
        system_text(apart) if isinstance(apart, str | list) else None,
        asked[1] if asked is not None else None,
        apart=apart if isinstance(apart, str | list) else None,
        server_edits=call.form.spoken.read_edits(fields),
        pins=frozenset(range(len(history) - call.body.grown, len(history))),
    )


def find_limit(call: ProxyCall) -> tuple[str, int] | None:
    """Return the field that limits the answer, and the limit; None where there is none."""
    fields = call.body.fields
    if call.form.fields.inside is not None:
        inner = fields.get(call.form.fields.inside)
        fields = dict(inner) if isinstance(inner, Mapping) else {}
    for name in call.form.fields.output:
        value = fields.get(name)
        if type(value) is int and value > 0:
            return name, value
    return None
