"""The failure of a model call: one exception with all known facts.

It decides nothing; `retries` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from ullage.core.errors import ErrorKind, ProviderError


class FailureFacts(TypedDict, total=False):
    """Facts that may be known about a failed call; see `CallFailed`."""

    kind: ErrorKind
    status: int | None
    body: Any
    headers: Mapping[str, str]
    lost: bool
    stalled: bool
    unreached: bool
    begun: bool
    called: bool
    partial: str


class CallFailed(ProviderError):  # noqa: N818 - named for the event
    """Report a call that returned no answer.

    `kind` is the meaning of the error for the window. `status`, `body` and `headers` are those of a
    refusal; a `body` with status 200 is an error inside a stream. Secrets are removed from them.
    `lost`: the connection broke, or the stream stopped before its end. `stalled`: the server
    stopped sending. `unreached`: nothing was sent. `partial` is the text that had arrived. `called`
    means that part of a tool call had arrived, `begun` that anything had. `attempts` counts the
    requests.
    """

    code = "call_failed"

    def __init__(self, message: str, **facts: Unpack[FailureFacts]) -> None:
        super().__init__(message)
        self.kind = facts.get("kind", ErrorKind("other"))
        self.status = facts.get("status")
        self.body = facts.get("body")
        self.headers: Mapping[str, str] = facts.get("headers", {})
        self.lost = facts.get("lost", False)
        self.stalled = facts.get("stalled", False)
        self.unreached = facts.get("unreached", False)
        self.begun = facts.get("begun", False)
        self.called = facts.get("called", False)
        self.partial = facts.get("partial", "")
        self.attempts = 1
