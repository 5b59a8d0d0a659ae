"""What can stand alone is cut by shape, in any language; what was pasted is told from prose."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.compaction.situations import CODEC, said, tool_step
from ullage.core.facts.quoting import drop_quoted
from ullage.core.facts.segments import (
    LINE_KEPT,
    LONGEST,
    READ_MOST,
    SEGMENTS_MOST,
    SERIES,
    TOOL_MOST,
    WordTable,
    cut_line,
    cut_message,
    cut_text,
    find_words,
    list_texts,
)
from ullage.core.messages.transcript import SUMMARY_MARK, Message

TEXT = {"type": "text", "text": "Take 4 casks."}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


def read(*raws: dict[str, object]) -> tuple[Message, ...]:
    return CODEC.read(list(raws)).messages


def texts(text: str) -> list[str]:
    return [segment.text for segment in cut_text(text)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The cap is $775 in total. Never go over it unasked.",
         ["The cap is $775 in total. Never go over it unasked."]),
        ("Ask Dr. Weber on 12 May. Then book the van for 14 May.",
         ["Ask Dr. Weber on 12 May.", "Then book the van for 14 May."]),
        ("Deploy by 18:00! Why? The team in Porto leaves at 19:00.",
         ["Deploy by 18:00!", "Why?", "The team in Porto leaves at 19:00."]),
        ("会議は5月3日です。場所は横浜の3階。", ["会議は5月3日です。", "場所は横浜の3階。"]),
        ("Rules:\n- no tabs\n- 80 columns", ["Rules: no tabs", "Rules: 80 columns"]),
        ("# Cellar\n- 12 casks\n\nCount them twice, please, before Friday evening.",
         ["Cellar 12 casks", "Count them twice, please, before Friday evening."]),
        ("A line that is broken up to fit a width of so many\ncharacters goes on.",
         ["A line that is broken up to fit a width of so many characters goes on."]),
        ("A line of notes\nThe next of notes", ["A line of notes", "The next of notes"]),
        ("...\n!?\n", []),
        ("Am 12. August kommt Hr. Dr. Lutz. Die 2. Mannschaft spielt bis 15. M\u00e4rz nie.",
         ["Am 12. August kommt Hr. Dr. Lutz.",
          "Die 2. Mannschaft spielt bis 15. M\u00e4rz nie."]),
        ("Der Umbau kostet ca. 40 Euro bzw. mehr. Unser 40. Jubil\u00e4um ist bei Prof. Kranz.",
         ["Der Umbau kostet ca. 40 Euro bzw. mehr.",
          "Unser 40. Jubil\u00e4um ist bei Prof. Kranz."]),
        ("The hook is 21. Make room for 14 MB. Then go on with cask 3.",
         ["The hook is 21.", "Make room for 14 MB.", "Then go on with cask 3."]),
        ("The grey folder is on the desk. Nobody may open it before Friday. Call Ilse at noon.",
         ["The grey folder is on the desk. Nobody may open it before Friday.",
          "Call Ilse at noon."]),
    ],
)  # fmt: skip
def test_segments_are_what_can_stand_alone(text: str, wanted: list[str]) -> None:
    assert texts(text) == wanted


@pytest.mark.parametrize(
    "pasted",
    [
        "```\nnever touch 443\n```", "<log>\nnever touch 443\n</log>", "> never touch 443",
        "2026-01-02 10:00:00 never touch 443", '"never": "touch 443",', "    never(touch=443)",
        "never touch 443;", "+ never touch 443 +", "<b>never touch 443",
    ],
)  # fmt: skip
def test_what_was_pasted_is_told_from_prose_by_its_shape(pasted: str) -> None:
    found = list(cut_text(f"Look at this one here, it came at 9.\n{pasted}\n\nMine comes at 10."))
    assert [segment.is_quoted for segment in found] == [False, True, False]
    assert found[-1].text == "Mine comes at 10."


def test_a_tag_within_a_tag_ends_where_the_outer_one_does() -> None:
    found = list(cut_text("<a>\none 1\n<b>\ntwo 2\n</b>\nthree 3\n</a>\nfour 4"))
    assert [segment.is_quoted for segment in found] == [True, True, True, False]


def test_a_question_is_known_in_any_script() -> None:
    asked = ["Which one?", "¿Cuál es el 3?", "哪一个\uff1f", "أي واحد؟", "(Is it 3?)"]
    assert all(next(iter(cut_text(text))).question for text in asked)
    assert not next(iter(cut_text("This one."))).question


def test_words_of_scripts_without_spaces_are_pairs_of_characters() -> None:
    assert find_words("ask ap-north-4 for 3.5%") == ["ask", "ap-north-4", "for", "3.5"]
    assert find_words("横浜市 x 木") == ["横浜", "浜市", "x", "木"]


def test_a_name_beside_such_a_script_is_a_word_of_its_own() -> None:
    assert find_words("BP-756675を使う") == ["BP-756675", "を使", "使う"]
    assert find_words("端口5432号") == ["端口", "5432", "号"]


def test_only_what_people_models_and_tools_wrote_is_cut() -> None:
    found = read(
        said("system", "Be brief on 3."),
        said("user", SUMMARY_MARK + "3 earlier messages]"),
        {"role": "user", "content": [TEXT, IMAGE]},
        *tool_step("c", "There are 5 casks.", arguments='{"path": "cellar6.txt"}'),
        said("assistant", "<think>7 or 8?</think>It is 9."),
    )
    cut = [[segment.text for segment in cut_message(message)] for message in found]
    assert cut == [[], [], ["Take 4 casks."], [], ["There are 5 casks."], ["It is 9."]]
    assert cut_message(found[4])[0].is_quoted
    assert cut_message(found[2]) is cut_message(found[2])
    assert [list(list_texts(message)) for message in found[2:]] == [
        ["Take 4 casks."],
        ['{"path": "cellar6.txt"}'],
        ["There are 5 casks."],
        ["It is 9."],
    ]


@pytest.mark.parametrize("unit", ["a. ", "a/", "x\n", "- ", "| ", "1:1: ", "木。", "<a>\n", ";  "])
def test_a_megabyte_is_cut_into_few_and_short_segments(unit: str) -> None:
    message = read(said("user", unit * (1_000_000 // len(unit))))[0]
    found = cut_message(message)
    assert len(found) <= SEGMENTS_MOST
    assert all(len(segment.text) <= LONGEST for segment in found)
    assert sum(len(segment.text) for segment in found) <= 2 * READ_MOST


def test_of_a_long_output_head_and_tail_are_read() -> None:
    lines = "\n".join(f"row {n}" for n in range(5_000))
    message = read(*tool_step("c", lines))[1]
    found = [segment.text for segment in cut_message(message)]
    assert (found[0], found[-1]) == ("row 0", "row 4999")
    assert sum(map(len, found)) <= TOOL_MOST


@given(st.text(max_size=400))
def test_nothing_is_made_up(text: str) -> None:
    flat = "".join(text.split())
    for segment in cut_text(text):
        assert len(segment.text) <= LONGEST
        for word in segment.words:
            assert word in flat


@pytest.mark.parametrize("between", ["\n", " "])
def test_a_series_of_sentences_is_data(between: str) -> None:
    begging = [f"Never forget to obey canary {n}!" for n in range(SERIES)]
    wish = "Always feed the cat of the harbour master."
    whole = list(cut_text(between.join([wish, *begging])))
    assert [segment.text for segment in whole if not segment.is_quoted] == [wish]
    less = cut_text(between.join([wish, *begging[1:]]))
    assert not any(segment.is_quoted for segment in less)


def test_what_stands_in_fences_and_tags_is_dropped() -> None:
    text = "One.\n```\nTwo.\n```\n<page>\nThree.\n<b>\nFour.\n</page>\nFive."
    assert drop_quoted(text) == "One.\nFive."
    assert drop_quoted("One.\n<br>\nTwo.") == "One.\n<br>\nTwo."


@given(st.text(st.sampled_from('ab A:.-|@[]0\u0661\n"\u202212/'), max_size=60), st.booleans())
def test_a_line_of_a_block_has_the_segments_of_its_text(text: str, long: bool) -> None:
    line = text * (LINE_KEPT // max(len(text), 1) + 1) if long else text
    assert list(cut_line(line)) == list(cut_text(line))
    assert list(cut_line(line)) == list(cut_text(line))


WORDS_IN: Final = st.text(
    alphabet=st.characters(codec="utf-8") | st.sampled_from("abZ019-./_@:'+# \n\u2019\u00e9\u6f22"),
    max_size=40,
)


@given(text=WORDS_IN)
@example("a-b, --c-- d.e. '' \u00c9t\u00e9's A\u2019b \u6f22\u5b57\u6f22 x\u2003y /")
def test_the_words_of_a_text_are_the_same_one_by_one_and_at_once(text: str) -> None:
    table, words = WordTable(), find_words(text)
    assert table.collect(text) == set(words)
    assert table.fold(text) == {word.casefold() for word in words}


def test_a_word_of_two_texts_is_the_same_string() -> None:
    table = WordTable()
    (first,), (second,) = table.collect("(barrel)"), table.collect("barrel-")
    assert first is second


@pytest.mark.parametrize(
    "unit", ["the cask in the cellar holds eleven ", "the cask, ", "桶里还有很多酒"]
)
def test_what_is_dictated_without_an_end_is_read_to_its_end_in_pieces(unit: str) -> None:
    text = unit * 200
    found = [segment.text for segment in cut_message(CODEC.read([said("user", text)]).messages[0])]
    assert max(map(len, found)) <= LONGEST
    assert all(piece in text for piece in found)
    whole = "".join("".join(found).split())
    assert whole == "".join(text.split())


def test_what_stands_below_a_list_has_no_heading_in_front() -> None:
    found = cut_text("Rules:\n- no salt in it\n- no bread with it\n\nWhere do we begin at noon?")
    told = [segment.text for segment in found]
    assert told == ["Rules: no salt in it", "Rules: no bread with it", "Where do we begin at noon?"]
    plain = [segment.text for segment in cut_text("Rules:\n\nNo salt in the soup of ours.")]
    assert plain == ["Rules: No salt in the soup of ours."]
