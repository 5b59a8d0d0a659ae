"""Turns for chat templates that require user and assistant to alternate.

The templates of Gemma, Mistral and others refuse two messages of one role in a row, although the
dialect allows them. Messages after a compaction are joined only when they are sent: a plan, a
checkpoint and a count ignore it. This module reads neutral messages and knows no dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from ullage.core.compaction.mending import OPENING_TEXT
from ullage.core.messages.transcript import summarises

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.core.messages.transcript import Codec, Message, Raw, Transcript

END_TEXT: Final = "\n\n[ullage: end of the summary]\n\n"
"""The text between a summary and the words after it in the same message."""

GAP: Final = "\n\n"

ANSWER_TEXT: Final = "[ullage: no answer was recorded]"
"""The assistant's text between the results of its calls and the next words of a person."""


class TurnCodec(Protocol):
    """A codec that can join two messages of one role."""

    def join(self, first: Raw, second: Raw, gap: str) -> Raw:
        """Return one message with the content of both, with `gap` between texts."""
        ...


Break = Literal["opening", "answer", "same"]
"""The message that is missing before this one, or "same" for a continued turn."""


def takes_turns(transcript: Transcript) -> bool:
    """Tell whether user and assistant take turns, the user first."""
    return not any(_find_breaks(transcript))


def alternate(transcript: Transcript, codec: Codec) -> list[Raw]:
    """Return messages in which user and assistant take turns, if the codec can join messages.

    Messages that are not joined stay the same objects. Operator text stays in place.
    """
    if not hasattr(codec, "join"):
        return list(transcript.raws)
    joining = cast("TurnCodec", codec)
    made: list[Raw] = []
    said: Message | None = None
    for raw, message, broken in zip(
        transcript.raws, transcript.messages, _find_breaks(transcript), strict=True
    ):
        if broken == "same":
            gap = END_TEXT if said is not None and summarises(said) else GAP
            made[-1] = joining.join(made[-1], raw, gap)
        else:
            made += [codec.author(*MISSING[broken])] if broken is not None else []
            made.append(raw)
        said = message
    return made


MISSING: Final[Mapping[Break, tuple[str, str]]] = {
    "opening": ("user", OPENING_TEXT),
    "answer": ("assistant", ANSWER_TEXT),
}


def _find_breaks(transcript: Transcript) -> Iterator[Break | None]:
    """Yield for each message how it breaks the turns, None if it does not."""
    last: Message | None = None
    beside = False
    for message in transcript.messages:
        if message.is_system:
            beside = True
            yield None
            continue
        if last is None:
            yield "opening" if message.role != "user" else None
        elif last.results and message.role == "user":
            yield "answer"
        else:
            yield "same" if not beside and _is_same_turn(last, message) else None
        last, beside = message, False


def _is_same_turn(last: Message, message: Message) -> bool:
    """Tell whether two messages are one turn: same role, the first without calls or results."""
    if last.calls or last.results or message.results:
        return False
    return last.role == message.role
