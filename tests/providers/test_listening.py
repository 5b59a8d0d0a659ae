"""One answer, heard to its end: however it is cut, and when nothing more comes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.providers.serving import chunk, events
from ullage.core.dialects.registry import find, make_reader
from ullage.core.dialects.reply import Delta, Reply
from ullage.core.dialects.sse import Garbled
from ullage.providers import listening
from ullage.transport import Broken

STREAM = events(chunk("Zażó"), chunk("łć"), chunk("", "stop"), "[DONE]")
WHOLE = b'\xef\xbb\xbf {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}\n'


class Pieces:
    """Bytes in pieces; behind them the end, silence (None) or a break."""

    def __init__(self, pieces: list[bytes], behind: str = "end") -> None:
        self._pieces = list(pieces)
        self._behind = behind
        self.waited = False

    async def next(self) -> bytes | None:
        if self._pieces:
            return self._pieces.pop(0)
        if self._behind == "break":
            raise Broken("gone", "lost")
        if self._behind == "silence":
            self.waited = True
            await asyncio.Event().wait()
        return None


def heard(
    source: Pieces, dialect: str = "openai_chat", most: int = 1 << 20
) -> tuple[Reply, list[Delta], bool]:
    into = make_reader(dialect)
    deltas: list[Delta] = []

    async def listened() -> None:
        async with asyncio.timeout(60):
            hear = deltas.append
            await listening.listen(source, into, hear, find(dialect), most_bytes=most)

    asyncio.run(listened())
    return into.reply(), deltas, into.ended


@given(st.sampled_from([STREAM, WHOLE]), st.data())
def test_an_answer_is_the_same_however_it_is_cut(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert heard(Pieces(pieces)) == heard(Pieces([stream]))


@pytest.mark.parametrize("behind", ["break", "silence", "end"])
def test_nothing_that_comes_behind_the_end_matters(
    behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "LINGER_S", 0.01)
    made, _, ended = heard(Pieces([STREAM], behind))
    assert (made.text, ended) == ("Zażółć", True)


@pytest.mark.parametrize("behind", ["break", "silence", "end"])
def test_usage_that_never_comes_is_not_waited_for(
    behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "TRAILING_S", 0.01)
    monkeypatch.setattr(listening, "LINGER_S", 0.01)
    made, _, ended = heard(Pieces([events(chunk("Hi"), chunk("", "stop"))], behind))
    assert (made.text, ended, made.usage) == ("Hi", True, None)


def test_garbage_behind_the_end_does_no_harm() -> None:
    made, _, ended = heard(Pieces([events(chunk("Hi"), chunk("", "stop"), "garbage", chunk())]))
    assert (made.text, ended) == ("Hi", True)


def test_an_end_that_nothing_follows_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "LINGER_S", 0.01)
    stream = events({"type": "message_start", "message": {}}, {"type": "message_stop"}, "late")
    assert heard(Pieces([stream, b"more"], "silence"), "anthropic")[2]


def test_an_answer_without_end_is_given_up_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "WHOLE_BYTES", 500)
    with pytest.raises(Garbled, match="longer than 1,000 bytes"):
        heard(Pieces([events(chunk("Hi"))] * 100), most=1_000)
    with pytest.raises(Garbled, match="longer than 500 bytes"):
        heard(Pieces([b'{"a": "', *[b"x" * 100] * 100]))


def test_nothing_at_all_ends_nothing() -> None:
    for pieces in ([], [b""], [b"\n\n", b" "]):
        made, deltas, ended = heard(Pieces(list(pieces)))
        assert (made.text, deltas, ended) == ("", [], False)
