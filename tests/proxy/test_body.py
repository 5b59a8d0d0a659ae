"""Bodies of requests: where their values stand, what an edit leaves as it was, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ullage.proxy.body import DEEPEST, Body, Bounds, RequestRefused, encode_json, read, shallow

SPACE = st.text(" \n\t\r", max_size=2)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.sampled_from(['"', "\\", '\\"', "[[{", "}]\\", "\u2028", "\\u0022"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
NAMES = st.text("abcdefgh_é", min_size=1, max_size=4)


def depth(raw: bytes) -> int:
    """Return the levels of nesting, read byte by byte as the grammar has it."""
    level = deepest = 0
    inside = escaped = False
    for code in raw:
        if inside:
            inside = escaped or code != 0x22
            escaped = not escaped and code == 0x5C
        elif code == 0x22:
            inside = True
        elif code in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif code in b"]}":
            level -= 1
    return deepest


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw a value as somebody may write it: with spaces or none, with escapes or none."""
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :")]))
    return json.dumps(
        draw(VALUES), ensure_ascii=draw(st.booleans()), separators=separators, allow_nan=False
    )


@st.composite
def objects(draw: st.DrawFn) -> list[str]:
    """Draw the bytes of an object in pieces: name, value, name, value, ... and what is between."""
    pieces = [draw(SPACE) + "{"]
    for at, name in enumerate(draw(st.lists(NAMES, unique=True, max_size=5))):
        opening = f"{',' if at else ''}{draw(SPACE)}{json.dumps(name, ensure_ascii=False)}"
        pieces += [f"{opening}{draw(SPACE)}:{draw(SPACE)}", draw(texts()), draw(SPACE)]
    return [*pieces, draw(SPACE) + "}" + draw(SPACE)]


def named(pieces: list[str]) -> list[str]:
    return list(json.loads("".join(pieces)))


# --- depth ----------------------------------------------------------------------------------------


@st.composite
def towers(draw: st.DrawFn) -> bytes:
    """Draw JSON near the limit of depth, with siblings and strings that look like levels."""
    value = draw(VALUES)
    for kind in draw(st.lists(st.sampled_from("[{+"), min_size=50, max_size=75)):
        value = {"k": value} if kind == "{" else [value] if kind == "[" else [value, draw(LEAVES)]
    return json.dumps(value).encode()


@given(towers())
@example(json.dumps(['"' * 70 + "[" * 70] * 3).encode())
def test_the_quick_scan_knows_what_is_too_deep(raw: bytes) -> None:
    assert shallow(raw) == (depth(raw) <= DEEPEST)


@given(towers(), towers(), st.sampled_from([b"}", b""]))
def test_a_body_is_refused_exactly_where_it_is_too_deep(
    one: bytes, other: bytes, end: bytes
) -> None:
    raw = b'{"messages":[1,' + one + b'],"tools":' + other + end
    if max(depth(one) + 2, depth(other) + 1) <= DEEPEST:
        assert read(raw, "messages").raw == raw
        return
    with pytest.raises(RequestRefused, match="deeper than 64 levels") as caught:
        read(raw, "messages")
    assert caught.value.code == "nested_too_deep"


@pytest.mark.parametrize(
    ("raw", "most"), [(b'{"messages":[]}', 2), (b'{"messages":[{}],"a":[[1]]}', 3)]
)
def test_an_operator_may_allow_few_levels(raw: bytes, most: int) -> None:
    assert read(raw, "messages", Bounds(depth=most)).raw == raw
    with pytest.raises(RequestRefused, match=f"deeper than {most - 1} levels: .*raise max_depth"):
        read(raw, "messages", Bounds(depth=most - 1))


@pytest.mark.parametrize("name", ["messages", "x", "\u00e9" * 9])
@pytest.mark.parametrize("most", [1, 2, 5, DEEPEST])
def test_what_a_second_value_of_the_same_name_hides_is_looked_at(name: str, most: int) -> None:
    deep = "[" * most + "]" * most
    raw = f'{{"{name}":{deep},"{name}":"x","n":1}}'.encode()
    with pytest.raises(RequestRefused, match=f"deeper than {most} levels"):
        read(raw, "messages", Bounds(depth=most))
    assert not read(raw, "messages", Bounds(depth=most + 1)).opaque


def test_the_limit_itself_is_taken_and_one_more_is_not() -> None:
    deepest = b'{"messages":' + b"[" * (DEEPEST - 1) + b"]" * (DEEPEST - 1) + b"}"
    assert not read(deepest, "messages").opaque
    with pytest.raises(RequestRefused, match="deeper than 64 levels") as caught:
        read(b'{"messages":' + b"[" * DEEPEST + b"]" * DEEPEST + b"}", "messages")
    assert (caught.value.status, caught.value.code) == (400, "nested_too_deep")


@pytest.mark.parametrize(
    "raw",
    [b"[" * 3_000_000, b'{"a":' * 600_000, b"[" * 70 + b"]" * 70, b'["a' + b'",["' * 500_000],
    ids=["open lists", "open objects", "whole", "strings between"],
)
def test_a_bomb_is_refused_before_any_parser_sees_it(raw: bytes) -> None:
    with pytest.raises(RequestRefused) as caught:
        read(raw, "messages")
    assert caught.value.code == "nested_too_deep"


def test_a_wide_body_is_not_a_deep_one() -> None:
    raw = json.dumps({"messages": [{"content": [{"a": [[]]}]}] * 5000}).encode()
    assert len(read(raw, "messages").history) == 5000


@given(st.binary(max_size=40) | st.text('{}[]":,\\ \n01eaé\x00', max_size=60).map(str.encode))
@example("\ufeff{}".encode())
@example('{"messages": [1]}'.encode("utf-16"))
@example(b'{"n": 1e999}')
def test_any_bytes_are_read_or_refused_or_left_alone(raw: bytes) -> None:
    try:
        body = read(raw, "messages")
    except RequestRefused:
        return
    assert body.raw == raw
    assert body.splice({}) == raw


# --- splicing -------------------------------------------------------------------------------------


@given(objects(), st.data())
def test_an_edit_leaves_every_other_byte_as_it_was(pieces: list[str], data: st.DataObject) -> None:
    names = named(pieces)
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    edits = {name: data.draw(texts()) for name in chosen}
    expected = list(pieces)
    for name, text in edits.items():
        expected[names.index(name) * 3 + 2] = text
    made = read("".join(pieces).encode(), "messages").splice(
        {name: text.encode() for name, text in edits.items()}
    )
    assert made == "".join(expected).encode()


@given(objects(), texts())
def test_a_field_that_was_not_there_comes_last(pieces: list[str], text: str) -> None:
    raw = "".join(pieces)
    made = read(raw.encode(), "messages").splice({"new": text.encode()}).decode()
    end = raw.rindex("}")
    assert made.startswith(raw[:end])
    assert made.endswith(raw[end:])
    assert json.loads(made) == {**json.loads(raw), "new": json.loads(text)}
    assert list(json.loads(made))[-1] == "new"


@pytest.mark.parametrize(
    "raw",
    [
        rb'{"\u006dodel": 1, "messages": []}',
        b'{"model": 1, "messages": [1], "messages": []}',
        rb'{"user": "\ud800", "messages": []}',
        b'{"a": 1, "b": 2, "a": 3}',
    ],
    ids=["escaped name", "history twice", "half a pair", "name twice"],
)
def test_a_body_that_is_written_strangely_is_written_anew(raw: bytes) -> None:
    made = read(raw, "messages").splice({"messages": b"[7]"})
    assert json.loads(made) == {**json.loads(raw), "messages": [7]}


@given(st.lists(texts().filter(lambda text: text[0] in "[{"), max_size=6), st.data())
def test_messages_that_stay_are_the_bytes_they_came_as(
    written: list[str], data: st.DataObject
) -> None:
    raw = ('{"messages": [' + " , ".join(written) + "]}").encode()
    body = read(raw, "messages")
    kept = [at for at in range(len(written)) if data.draw(st.booleans())]
    new = {"role": "user", "content": "a note \u2028"}
    made = body.rewrite_history([new, *(body.history[at] for at in kept)])
    assert (
        made == b"[" + b",".join([encode_json(new), *(written[at].encode() for at in kept)]) + b"]"
    )


def test_a_history_with_half_a_pair_of_surrogates_can_be_rewritten() -> None:
    raw = rb'{"messages": [{"role": "user", "content": "\ud800"}, {"role": "user"}]}'
    body = read(raw, "messages")
    assert body.slices is None
    assert json.loads(body.rewrite_history(body.history[:1])) == json.loads(raw)["messages"][:1]


# --- what is read ---------------------------------------------------------------------------------


def test_values_can_be_had_as_they_came() -> None:
    body = read(b'{"model": "m", "temperature": 1.50, "messages": [ {} ]}', "messages")
    assert body.fields == {"model": "m", "temperature": 1.5}
    assert body.history == [{}]
    assert body.bytes_of("temperature") == b"1.50"
    assert body.bytes_of("tools") == b""


@pytest.mark.parametrize("half", ["", r'"user": "\ud800", '], ids=["quick", "slow"])
def test_a_history_that_is_no_list_is_a_field(half: str) -> None:
    body = read(f'{{{half}"input": "hello"}}'.encode(), "input")
    assert body.history == []
    assert body.fields["input"] == "hello"


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"null", b'"text"', b"{", b"{'a': 1}", b'{"a": "\xff"}', b'{"a": 1e999}'],
)
def test_what_nobody_can_read_is_opaque(raw: bytes) -> None:
    body = read(raw, "messages")
    assert body == Body(raw, opaque=True)
    assert body.splice({}) is raw


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(RequestRefused, match=f"{word}, which is no number") as caught:
        read(f'{{"temperature": {word}}}'.encode(), "messages")
    assert (caught.value.status, caught.value.code) == (400, "not_a_number")


@pytest.mark.parametrize("half", ["", r'"user": "\ud800", '], ids=["quick", "slow"])
def test_more_messages_than_are_taken_are_refused(half: str) -> None:
    raw = f'{{{half}"messages": [{{}}, {{}}, {{}}]}}'.encode()
    assert len(read(raw, "messages", Bounds(messages=3)).history) == 3
    with pytest.raises(
        RequestRefused, match="has 3 messages, and at most 2 are accepted"
    ) as caught:
        read(raw, "messages", Bounds(messages=2))
    assert caught.value.status == 413


@pytest.mark.parametrize(("choices", "taken"), [(8, True), (9, False), (8.5, False), ("9", True)])
def test_more_choices_than_are_taken_are_refused(choices: Any, taken: bool) -> None:
    raw = json.dumps({"n": choices}).encode()
    if taken:
        assert read(raw, "messages").fields["n"] == choices
    else:
        with pytest.raises(RequestRefused, match="at most 8 is accepted") as caught:
            read(raw, "messages")
        assert caught.value.code == "too_many_choices"
