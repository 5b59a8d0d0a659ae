"""What the stream of a model's answer adds up to, in each dialect.

`sse` cuts bytes into events, `chat`, `responses` and `messages` put the events of one dialect
together, `reply` is what all of them make. It knows no HTTP, no clock and no chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ullage.core.dialects.anthropic.stream import Messages
from ullage.core.dialects.openai_chat.stream import Chat
from ullage.core.dialects.openai_responses.stream import Responses
from ullage.core.dialects.reply import Assembly, Delta, Reply, Stop
from ullage.core.dialects.sse import Event, Events, Garbled
from ullage.core.messages.transcript import Dialect

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
