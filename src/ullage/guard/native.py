"""Asks a provider to compact a conversation, and returns the message that the provider makes.

If the provider cannot do it, that is no error: other strategies follow, and the log says so. A
server without this endpoint is not asked again. This module plans nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects import registry
from ullage.counters.remote import Prompt
from ullage.runtime import plain
from ullage.transport import HttpRequest, HttpResponse, Timeouts, Transport

if TYPE_CHECKING:
    from ullage.core.guard.request import NeedNative
    from ullage.runtime import Runtime
    from ullage.windows import Question

log = logging.getLogger("ullage.guard")

PATIENT: Final = Timeouts(read_s=300.0)
"""A long timeout: the provider reads the whole conversation and writes a summary of it."""

DONE: Final = 200

ABSENT: Final = frozenset({404, 405, 501})
"""Status codes of a server that does not have the endpoint."""


def compact(runtime: Runtime, question: Question, need: NeedNative) -> Any:
    """Return the message that replaces others, or None if the provider makes none."""
    ask = _ask(runtime, question, need)
    return None if ask is None else _read(runtime, question, need, Transport(PATIENT).ask(ask))


async def acompact(runtime: Runtime, question: Question, need: NeedNative) -> Any:
    """Do as `compact`, without blocking the event loop."""
    ask = _ask(runtime, question, need)
    if ask is None:
        return None
    return _read(runtime, question, need, await Transport(PATIENT).aask(ask))


def _ask(runtime: Runtime, question: Question, need: NeedNative) -> HttpRequest | None:
    """Return the request to send, or None if no server can be asked."""
    spoken, base, model = registry.find(need.dialect), question.base_url, question.model or ""
    native = spoken.native
    if native is None or base is None or question.key in runtime.unable:
        return None
    prompt = Prompt(spoken, model, plain(need.messages), plain(need.tools), need.system)
    place = spoken.endpoint
    headers = (*place.headers, *native.headers)
    url = place.address(base, model) + native.path
    body = {**prompt.body(), **native.fields}
    return HttpRequest(url, body, question.api_key, place.auth, headers)


def _read(runtime: Runtime, question: Question, need: NeedNative, answer: HttpResponse) -> Any:
    native, body = registry.find(need.dialect).native, answer.json()
    made = None
    if native is not None and answer.status == DONE and isinstance(body, Mapping):
        made = native.read(body)
    if answer.status in ABSENT:
        runtime.unable.add(question.key)
    if made is None:
        said = answer.fault or f"status {answer.status}"
        log.warning("%s compacted nothing itself (%s): others follow", question.model, said)
    return made
