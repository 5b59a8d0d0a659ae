"""What is derived of a history that grew is what is derived of it from scratch.

Conversations grow, go back, fork, are edited in place by their caller and stand side by side; one
codec reads them all, so that what it remembers of one would show in another.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from tests.laws import gemini, ollama
from tests.support import transcripts
from tests.support.counting import WordCounter
from ullage.core.compaction import laws
from ullage.core.compaction.applied import MOST, apply_again
from ullage.core.compaction.checkpoint import chain
from ullage.core.compaction.edits import Clear, Drop, Edit, Edited, Insert, Script, apply
from ullage.core.dialects import registry
from ullage.core.messages.thoughts import holds_thoughts
from ullage.core.messages.transcript import Codec, Transcript
from ullage.core.tokens.counting import Meter, measure, part

METER = Meter(WordCounter())
HISTORIES = {
    "openai_chat": transcripts.histories(max_turns=6),
    "anthropic": transcripts.anthropic_histories(),
    "openai_responses": transcripts.responses_histories(),
    "ollama_chat": ollama.histories(),
    "gemini": gemini.histories(),
}


def new_codec(dialect: str) -> Codec:
    return registry.find(dialect).make_codec(None, None)


def derive(transcript: Transcript) -> list[Any]:
    """Return all that is kept from one request to the next, of one transcript."""
    size = measure(transcript, METER)
    return [
        chain(transcript),
        size.raw(),
        size.sizes,
        [part(size, n) for n in range(len(transcript))],
        laws.is_lawful(transcript),
        laws.survey(transcript),
        transcript.task(),
        transcript.request(),
        transcript.has_answer(),
        transcript.list_places(),
        transcript.count_replaced(),
        transcript.measure_media(),
        holds_thoughts(transcript),
    ]


def describe(edited: Edited) -> list[Any]:
    made = edited.transcript
    return [made.raws, made.messages, edited.origin, dict(edited.parts), derive(made)]


def draw_script(data: st.DataObject, transcript: Transcript) -> Script:
    """Draw a script that fits the beginning of a transcript."""
    edits: list[Edit] = []
    reach = data.draw(st.integers(0, len(transcript)))
    for index, message in enumerate(transcript.messages[:reach]):
        chosen = data.draw(st.integers(0, 5))
        cleared = [i for i, p in enumerate(message.parts) if p.kind == "result"]
        edits += [Drop(index)] if chosen == 0 else []
        edits += [Clear(index, cleared[0], -1, "gone")] if chosen == 1 and cleared else []
        edits += [Clear(index, -1, 0, "{}")] if chosen == 2 and message.calls else []
        edits += [Insert(index, "user", f"new {index}")] if chosen == 3 else []
    return Script.of(edits)


def change(data: st.DataObject, raw: Any) -> None:
    """Change a text somewhere in a message, in place."""
    held = raw
    while isinstance(held, dict | list):
        keys = sorted(held) if isinstance(held, dict) else range(len(held))
        inner = [k for k in keys if isinstance(held[k], dict | list) and held[k]]
        texts = [k for k in keys if k in ("content", "text") and isinstance(held[k], str)]
        if texts:
            held[texts[0]] += " changed"
            return
        if not inner:
            return
        held = held[data.draw(st.sampled_from(inner))]


KINDS = ("grow", "grow", "back", "edit", "mark", "fork", "copy")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 3)), min_size=4, max_size=10)


@pytest.mark.parametrize("dialect", HISTORIES)
@given(st.data(), STEPS)
def test_what_is_known_of_a_history_is_what_is_found_from_scratch(
    dialect: str, data: st.DataObject, steps: list[tuple[str, int]]
) -> None:
    codec = new_codec(dialect)
    whole, other = (data.draw(HISTORIES[dialect]) for _ in range(2))
    script, end = draw_script(data, new_codec(dialect).read(whole)), 1
    for step, far in steps:
        if step == "fork":
            whole, other = [*copy.deepcopy(whole[:end]), *other[end:]], whole
        elif step == "copy":
            whole = copy.deepcopy(whole)
        elif step == "edit":
            change(data, data.draw(st.sampled_from(whole[:end])))
        elif step == "mark":
            raw = data.draw(st.sampled_from(whole[:end]))
            raw["cache_control"] = None if raw.pop("cache_control", None) else {"type": "ephemeral"}
        end = max(1, min(len(whole), end + (-far if step == "back" else far)))
        fresh = new_codec(dialect)
        again, scratch = codec.read(whole[:end]), fresh.read(copy.deepcopy(whole[:end]))
        assert derive(again) == derive(scratch)
        if _fits(script, scratch):
            made = apply_again(again, script, codec)
            assert describe(made) == describe(apply(scratch, script, fresh))
            kept = [(new, old) for new, old in enumerate(made.origin) if old is not None]
            touched = {c.message for c in script.clears}
            assert all(
                made.transcript.raws[new] is whole[old] for new, old in kept if old not in touched
            )


def _fits(script: Script, transcript: Transcript) -> bool:
    """Tell whether all that a script names is there."""
    if script.reach() > len(transcript):
        return False
    for clear in script.clears:
        message = transcript.messages[clear.message]
        if clear.call >= len(message.calls) or clear.part >= len(message.parts):
            return False
        if clear.part >= 0 and message.parts[clear.part].kind != "result":
            return False
    return True


def said(text: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


CLEARED = Script.of([Clear(1, 0, -1, "short"), Insert(1, "user", "a block")])


def test_what_is_handed_out_and_changed_there_is_written_anew() -> None:
    codec, history = new_codec("openai_chat"), [said("a"), said("long"), said("c")]
    first = apply_again(codec.read(history), CLEARED, codec).transcript
    again = apply_again(codec.read([*history, said("d")]), CLEARED, codec).transcript
    assert all(one is other for one, other in zip(first.raws, again.raws, strict=False))
    again.raws[1]["cache_control"] = {"type": "ephemeral"}
    then = apply_again(codec.read([*history, said("d")]), CLEARED, codec).transcript
    assert list(then.raws) == [said("a"), said("a block"), said("short"), said("c"), said("d")]


def test_a_message_that_was_changed_in_place_is_written_from_what_it_is_now() -> None:
    codec, history = new_codec("openai_chat"), [said("a"), said("long"), said("c")]
    apply_again(codec.read(history), CLEARED, codec)
    history[1]["name"] = "ada"
    made = apply_again(codec.read(history), CLEARED, codec).transcript
    assert made.raws[2] == {**said("short"), "name": "ada"}


@pytest.mark.parametrize("marked", [1, 2])
def test_a_mark_that_moves_is_where_it_is_now(marked: int) -> None:
    codec, history = new_codec("openai_chat"), [said("a"), said("long"), said("c")]
    mark = {"cache_control": {"type": "ephemeral"}}
    history[marked] = {**history[marked], **mark}
    first = apply_again(codec.read(history), CLEARED, codec)
    derive(first.transcript)
    history = [said("a"), said("long"), said("c"), {**said("d"), **mark}]
    made = apply_again(codec.read(history), CLEARED, codec)
    assert describe(made) == describe(apply(codec.read(history), CLEARED, codec))
    assert [m for m in made.transcript.raws if "cache_control" in m] == history[3:]
    assert (made.transcript.raws[2] is first.transcript.raws[2]) is (marked == 2)
    back = apply_again(codec.read(history[:3]), CLEARED, codec).transcript
    assert not [m for m in back.raws if "cache_control" in m]


def test_what_cannot_be_compared_is_written_each_time() -> None:
    codec, history = new_codec("openai_chat"), [said("a"), {**said("long"), "x": {1, 2}}]
    first = apply_again(codec.read(history), CLEARED, codec).transcript
    again = apply_again(codec.read(history), CLEARED, codec).transcript
    assert first.raws == again.raws
    assert first.raws[2] is not again.raws[2]


@pytest.mark.parametrize(
    "edits",
    [
        [Drop(0), Drop(1)],
        [Drop(0)],
        [Drop(0), Drop(1), Insert(2, "user", "a block")],
        [Insert(0, "user", "opening")],
    ],
)
def test_scripts_that_leave_little_or_nothing_of_the_beginning(edits: list[Edit]) -> None:
    codec, script = new_codec("openai_chat"), Script.of(edits)
    history: list[Any] = [said("a"), said("b")]
    for _ in range(3):
        history = [*history, said(f"{len(history)}")]
        made = apply_again(codec.read(history), script, codec)
        assert describe(made) == describe(apply(codec.read(history), script, codec))


def test_an_empty_script_gives_the_history_itself() -> None:
    codec = new_codec("openai_chat")
    read = codec.read([said("a")])
    assert apply_again(read, Script(), codec).transcript is read


def test_of_many_scripts_the_newest_are_kept() -> None:
    codec, history = new_codec("openai_chat"), [said("a"), said("b"), said("c")]
    scripts = [Script.of([Insert(1, "user", f"block {n}")]) for n in range(MOST + 3)]
    read = codec.read(history)
    made = [apply_again(read, script, codec).transcript.raws[1] for script in scripts]
    _, kept = read.memo["applied"]
    assert len(kept.entries) == MOST
    newest = Script.from_list(json.loads(json.dumps(scripts[-1].to_list())))  # as a store reads it
    assert apply_again(read, newest, codec).transcript.raws[1] is made[-1]
    assert apply_again(read, scripts[0], codec).transcript.raws[1] is not made[0]


def test_an_answer_of_an_sdk_is_replayed_as_it_is() -> None:
    codec, answer = new_codec("openai_chat"), ChatCompletionMessage(role="assistant", content="b")
    history: list[Any] = [said("a"), said("long"), answer]
    for _ in range(2):
        made = apply_again(codec.read(history), CLEARED, codec).transcript
        assert made.raws[3] is answer
