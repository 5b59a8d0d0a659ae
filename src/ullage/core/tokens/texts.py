"""The texts of a message that take tokens, in a fixed order, and their known counts.

Once a message was measured, its memo keeps the counts of its texts under the counter's key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Message
    from ullage.core.tokens.counting import Counter

MEDIA: Final = frozenset({"image", "audio", "file", "sealed"})
"""Parts that are not text: a formula gives their size."""


def list_texts(message: Message) -> list[str]:
    """Return the texts of a message in the order of their kept counts."""
    texts = [p.text for p in message.parts if p.kind not in MEDIA]
    for call in message.calls:
        texts += (call.name, call.arguments, call.id)
    if message.name:
        texts.append(message.name)
    texts += [p.answers or "" for p in message.parts if p.kind == "result"]
    return texts


def piece(message: Message, counter: Counter, part: int, call: int = -1) -> int:
    """Return the tokens of one part's text or one call's arguments; cached once measured.

    One of `part` and `call` is the index of the text; the other is -1.
    """
    known = message.memo.get(counter.key)
    if known is None:
        text = message.parts[part].text if call < 0 else message.calls[call].arguments
        return counter.count(text)
    before = message.parts if call >= 0 else message.parts[:part]
    place = sum(p.kind not in MEDIA for p in before)
    return cast("int", known[place if call < 0 else place + 3 * call + 1])
