"""Turns for chat templates that want user and assistant to alternate.

The templates of Gemma, Mistral and others refuse two messages of one role in a row, although the
dialect allows them. What a compaction leaves is put together when it is sent: a plan, a checkpoint
and a count know nothing of it. It reads neutral messages and knows no dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from ullage.core.compaction.mending import OPENING_TEXT
from ullage.core.messages.transcript import summarises

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.core.messages.transcript import Codec, Message, Raw, Transcript

END_TEXT: Final = "\n\n[ullage: end of the summary]\n\n"
"""Stands between a summary and what is said behind it in the same message."""

GAP: Final = "\n\n"

ANSWER_TEXT: Final = "[ullage: no answer was recorded]"
"""What an assistant says between results of its calls and the next words of a person."""


class TurnCodec(Protocol):
    """A codec that can put two messages of one role together."""

    def join(self, first: Raw, second: Raw, gap: str) -> Raw:
        """Return one message with the content of both, `gap` between texts."""
        ...


Break = Literal["opening", "answer", "same"]
"""What is missing before a message, or that it is of the same turn as the one before it."""


def takes_turns(transcript: Transcript) -> bool:
    """Tell whether user and assistant take turns, the user first."""
    return not any(_find_breaks(transcript))


def alternate(transcript: Transcript, codec: Codec) -> list[Raw]:
    """Return messages in which user and assistant take turns, as far as the codec joins any.

    Messages that stay alone are the same objects. Operator text is left where it is.
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
    """Yield of each message how it breaks the turns, None where it does not."""
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
    """Tell whether two messages are one turn: of one role, the first without calls or results."""
    if last.calls or last.results or message.results:
        return False
    return last.role == message.role
