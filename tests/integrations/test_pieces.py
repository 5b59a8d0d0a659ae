"""Messages that are lists of pieces, guarded: a type of the tests stands for a framework's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from ullage.integrations.adapter import TOOLS, Adapter, make_async
from ullage.integrations.pieces import Piece, edit_pieces, make_form, read_pieces, write_pieces
from ullage.integrations.reports import report_converse
from ullage.integrations.streaming import begin_stream

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


@dataclass(frozen=True)
class Said:
    role: str
    pieces: tuple[Piece, ...]


class Sayings:
    def split(self, message: Said) -> tuple[str, tuple[Piece, ...]]:
        return message.role, message.pieces

    def read(self, piece: Piece) -> Piece:
        return piece

    def make(self, piece: Piece, source: Piece | None) -> Piece:
        return piece if source is None else replace(piece, name=source.name)

    def build(self, role: str, pieces: list[Piece], source: Said | None) -> Said:
        return Said(role if source is None else source.role, tuple(pieces))


FORM = make_form(Sayings())

CALL = Piece("call", '{"part": 1}', "c1", "read_log")
ASKED = Said("assistant", (Piece("thought", "well"), Piece("text", "I read."), CALL))
RESULTS = Said("tool", (Piece("result", "one", "c1"), Piece("result", "two", "c2")))


def test_pieces_come_back_as_they_were_written() -> None:
    for message in (ASKED, RESULTS, Said("user", (Piece("text", "a"), Piece("part", part=IMAGE)))):
        raws = FORM.write(message)
        assert [replace(p, name=p.name) for p in read_pieces(raws)] == list(message.pieces)
        assert FORM.read(raws, message).pieces == message.pieces


def test_one_text_is_a_plain_string_and_each_result_a_message_of_its_own() -> None:
    assert write_pieces("user", [Piece("text", "a")]) == [{"role": "user", "content": "a"}]
    assert [raw["role"] for raw in write_pieces("tool", RESULTS.pieces)] == ["tool", "tool"]
    assert write_pieces("assistant", [CALL])[0]["content"] is None


def test_a_message_with_no_pieces_is_not_written() -> None:
    assert FORM.write(Said("user", ())) == []


def test_an_edited_result_leaves_its_neighbours_the_same_objects() -> None:
    raws = list(FORM.write(RESULTS))
    raws[1] = {**raws[1], "content": "cleared"}
    made = FORM.read(raws, RESULTS).pieces
    assert made[0] is RESULTS.pieces[0]
    assert made[1].text == "cleared"


def test_a_result_that_was_dropped_takes_no_other_with_it() -> None:
    raws = FORM.write(RESULTS)[1:]
    held = list(RESULTS.pieces)
    assert edit_pieces(raws, held, held, Sayings().make) == held[1:]


def test_reasoning_that_was_dropped_is_left_out_and_the_rest_stays() -> None:
    raw = {k: v for k, v in FORM.write(ASKED)[0].items() if k != "reasoning_content"}
    assert FORM.read([raw], ASKED).pieces == ASKED.pieces[1:]


def test_a_message_of_ullage_is_made_anew() -> None:
    made = FORM.read([{"role": "user", "content": "left out: 3 messages"}], None)
    assert made == Said("user", (Piece("text", "left out: 3 messages"),))


def test_tools_are_counted_with_the_messages() -> None:
    adapter = Adapter(FORM, "gpt-4.1")
    message = Said("user", (Piece("text", "how is the wind?"),))
    tool = {"type": "function", "function": {"name": "f", "parameters": dict(TOOLS[0].parameters)}}
    assert adapter.count([message], tools=[tool]) > adapter.count([message])


def test_a_function_that_is_awaited_keeps_its_name_and_its_answer() -> None:
    def read(reference: str) -> str:
        return reference[::-1]

    made = make_async(read)
    assert made.__name__ == "read"

    async def call() -> str:
        return await made(reference="ab")

    assert asyncio.run(call()) == "ba"


def test_a_refusal_of_a_stream_is_raised_where_it_is_opened() -> None:
    async def answer(size: int) -> AsyncIterator[int]:
        if size > 10:
            raise ValueError("too long")
        yield size

    with pytest.raises(ValueError, match="too long"):
        asyncio.run(begin_stream(answer(11)))


def test_an_opened_stream_yields_all_its_events() -> None:
    async def count(events: int) -> AsyncIterator[int]:
        for event in range(events):
            yield event

    async def gather(events: int) -> list[int]:
        return [event async for event in await begin_stream(count(events))]

    assert [asyncio.run(gather(events)) for events in (0, 1, 3)] == [[], [0], [0, 1, 2]]


@pytest.mark.parametrize(
    ("usage", "prompt"),
    [
        ({"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}, 10),
        ({"inputTokens": 10, "outputTokens": 2, "totalTokens": 12, "cacheReadInputTokens": 4}, 6),
        ({"inputTokens": 6, "outputTokens": 2, "totalTokens": 12, "cacheReadInputTokens": 4}, 6),
    ],
)
def test_what_was_read_from_a_cache_is_counted_once(usage: dict[str, int], prompt: int) -> None:
    report = report_converse(usage)
    assert report is not None
    assert report["usage"]["inputTokens"] == prompt


def test_no_usage_is_no_report() -> None:
    assert report_converse({"inputTokens": 0, "outputTokens": 0}) is None
