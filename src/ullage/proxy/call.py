"""A request of a conversation, as the proxy keeps it and as a guard takes it.

The module does not know guards, or what happens to a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ullage.core.compaction.policy import Policy
from ullage.core.guard.request import Request
from ullage.proxy.body import Body, RequestRefused
from ullage.proxy.steering import digest_message
from ullage.runtime import system_text
from ullage.windows.question import make_party

if TYPE_CHECKING:
    from ullage.config.serving import ModelRule, Serve, Upstream
    from ullage.proxy.far import FarRequest
    from ullage.proxy.head import RequestHead
    from ullage.proxy.offering import LaterRound, Offer
    from ullage.proxy.routes import GuardedPath

LONGEST_MODEL: Final = 1_024
"""Most characters of a model's name: lessons are kept under it."""


@dataclass(frozen=True, slots=True)
class ProxyCall:
    """A request of a conversation, with its upstream and its model's rule.

    `credential` identifies the client to the upstream, `client` is the name of its token, `other`
    its second credential. `session` is the client's own name for the conversation, if it gives one.
    `streams` tells that the client wants a stream. `beside` is the number of tokens that the server
    holds already. `round` is set on a request that continues after calls of added tools. `far` is
    the worker that holds its text. `pinned` are digests of its messages that an operator pinned.
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
    far: FarRequest | None = None
    pinned: frozenset[bytes] = frozenset()

    @property
    def apart(self) -> str | None:
        """Key of a conversation besides the credential: token, session, second credential.

        Clients with tokens may share the operator's key; they never share a summary.
        """
        if self.client is None and self.other is None:
            return self.session
        named = f"{self.client or ''}|{self.session or ''}"
        if self.other is not None:
            named = f"{named}|{self.other}"
        return hashlib.sha256(named.encode()).hexdigest()

    @property
    def party(self) -> str:
        """The source of lessons: a hash that separates clients of one credential."""
        if self.client is None and self.other is None:
            return ""
        return make_party(self.client, self.other)

    @property
    def kept(self) -> bool:
        """True if the server keeps the history itself: then it is forwarded unedited."""
        return any(self.body.fields.get(name) is not None for name in self.form.fields.stored)


def find_upstream(
    serve: Serve, body: Body, named: str | None = None
) -> tuple[Upstream, str | None]:
    """Return the upstream of a body, and the model: `named` if given, else the body's.

    Raises RequestRefused if no upstream serves the model, or its name is too long.
    """
    model = named if named is not None else body.fields.get("model")
    model = model if isinstance(model, str) else None
    return check_model(serve, model), model


def check_model(serve: Serve, model: str | None) -> Upstream:
    """Return the upstream of a model; for None, one that serves all. Raises as `find_upstream`."""
    if model is not None and len(model) > LONGEST_MODEL:
        text = f"the name of a model is over {LONGEST_MODEL:,} characters"
        raise RequestRefused(400, "model_name", text)
    found = serve.upstream(model)
    if found is None:
        text = f"no upstream serves the model {model!r:.80}"
        if model is None:
            text = "the request names no model, and no upstream serves all models: send 'model'"
        raise RequestRefused(404, "no_such_model", text)
    return found


def make_call(serve: Serve, head: RequestHead, form: GuardedPath, body: Body) -> ProxyCall:
    """Return a request as a call with its upstream and rule. Raises RequestRefused."""
    upstream, model = find_upstream(serve, body, form.model)
    head = head.knowing(upstream)
    rule, beside = serve.rule(model, head.client), fill_history(form, body)
    if form.fields.single and form.spoken.options is not None:
        rule = replace(rule, policy=Policy.off())
    return ProxyCall(
        form,
        body,
        upstream,
        rule,
        model,
        head.credential,
        head.session,
        _streams(form, body),
        beside,
        head.client,
        head.other,
    )


def fill_history(form: GuardedPath, body: Body) -> int:
    """Read a history that the body has elsewhere; return the tokens that its server holds."""
    said, options = body.fields.get(form.fields.messages), form.spoken.options
    if form.fields.takes_text and isinstance(said, str):
        body.history = [{"role": "user", "content": said}]  # the API does the same with a text
    if not form.fields.single or options is None:
        return 0
    messages, beside = options.read_single(body.fields)
    body.history = list(messages)
    return beside


def _streams(form: GuardedPath, body: Body) -> bool:
    if form.streams is not None:
        return form.streams
    asked = body.fields.get("stream")
    return asked is not False if form.fields.streams_unasked else asked is True


def make_request(call: ProxyCall, offer: Offer | None = None) -> Request:
    """Return a call as a guard takes it, including the tools that are added to it.

    Texts that were just read back are pinned, so that they are not left out again.
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
        beside=fields,
        pins=frozenset(range(len(history) - call.body.grown, len(history))) | _find_pins(call),
    )


def _find_pins(call: ProxyCall) -> frozenset[int]:
    if not call.pinned:
        return frozenset()
    found = enumerate(map(digest_message, call.body.history))
    return frozenset(place for place, digest in found if digest in call.pinned)


def find_limit(call: ProxyCall) -> tuple[str, int] | None:
    """Return the field that limits the answer and the limit, or None if there is no limit."""
    fields = call.body.fields
    if call.form.fields.inside is not None:
        inner = fields.get(call.form.fields.inside)
        fields = dict(inner) if isinstance(inner, Mapping) else {}
    for name in call.form.fields.output:
        value = fields.get(name)
        if type(value) is int and value > 0:
            return name, value
    return None
