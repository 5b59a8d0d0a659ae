"""What the stream of a model's answer adds up to, in each dialect.

`sse` cuts bytes into events, `chat`, `responses` and `messages` put the events of one dialect
together, `reply` is what all of them make. It knows no HTTP, no clock and no chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ullage.core.replies.chat import Chat
from ullage.core.replies.messages import Messages
from ullage.core.replies.reply import Assembly, Delta, Reply, Stop
from ullage.core.replies.responses import Responses
from ullage.core.replies.sse import Event, Events, Garbled
from ullage.core.transcript import Dialect

__all__ = ["Assembly", "Delta", "Event", "Events", "Garbled", "Reply", "Stop", "assembly"]


def assembly(dialect: Dialect, salt: str = "") -> Assembly:
    """Return what puts together one answer of this dialect.

    Calls that came without an id get one made from `salt`: give each answer of a conversation
    its own, or two answers may name a call alike.
    """
    return _ASSEMBLIES[dialect](salt)


_ASSEMBLIES: Final[Mapping[Dialect, Callable[[str], Assembly]]] = {
    "openai_chat": Chat,
    "openai_responses": Responses,
    "anthropic": Messages,
}
