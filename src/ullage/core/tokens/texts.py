"""The texts of a message that take tokens, in a fixed order, and what is known of each.

Once a message was measured, the counts of its texts are kept beside it under the counter's key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Message
    from ullage.core.tokens.counting import Counter

MEDIA: Final = frozenset({"image", "audio", "file", "sealed"})
"""Parts that are no text: their size goes by a formula."""


def list_texts(message: Message) -> list[str]:
    """Return the texts of a message in the order in which the counts beside it stand."""
    texts = [p.text for p in message.parts if p.kind not in MEDIA]
    for call in message.calls:
        texts += (call.name, call.arguments, call.id)
    if message.name:
        texts.append(message.name)
    texts += [p.answers or "" for p in message.parts if p.kind == "result"]
    return texts


def piece(message: Message, counter: Counter, part: int, call: int = -1) -> int:
    """Return the tokens of one part's text, or of one call's arguments; known if it was measured.

    Exactly one of `part` and `call` is the index of what is meant; the other is -1.
    """
    known = message.memo.get(counter.key)
    if known is None:
        text = message.parts[part].text if call < 0 else message.calls[call].arguments
        return counter.count(text)
    before = message.parts if call >= 0 else message.parts[:part]
    place = sum(p.kind not in MEDIA for p in before)
    return cast("int", known[place if call < 0 else place + 3 * call + 1])
