"""How a call of a model ends without an answer: one exception that carries what is known of it.

It decides nothing; `retries` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from ullage.core.errors import ErrorKind, ProviderError


class FailureFacts(TypedDict, total=False):
    """What may be known of a call that failed; see `CallFailed`."""

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


class CallFailed(ProviderError):  # noqa: N818 - named for what happened
    """Report a call that brought no answer.

    `kind` is what the error means for the window. `status`, `body` and `headers` are those of a
    refusal, a `body` with status 200 is an error inside of a stream; secrets are blotted out in
    them. `lost`: the connection broke, or the stream stopped before its end. `stalled`: the server
    fell silent. `unreached`: nothing was sent. `partial` is the text that had arrived, `called`
    tells that some of a tool call had, `begun` that anything had. `attempts` counts the requests.
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
