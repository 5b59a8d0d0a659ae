"""Sessions of programs, in what they report and what they leave out: outputs, windows, names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.importers.writing import (
    assistant,
    boundary,
    count,
    item,
    lines,
    result,
    rollout,
    summary,
    text,
    user,
)
from ullage import importers
from ullage.api.context import of_session
from ullage.config.settings import Settings
from ullage.runtime import Runtime
from ullage.windows.question import WIDE

RUNTIME = Runtime()
WORDS = "The ledger adds up what every cask gave, and it rounds once at the very end of a day. "
MODEL = "claude-sonnet-4-5"
LEDGER = "/srv/app/src/ledger.py"


def block(name: str, call: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def report(*values: Any, source: str = "claude", **options: Any) -> dict[str, Any]:
    read = importers.parse(lines(*values), source=source)
    return of_session(read, runtime=RUNTIME, **options).to_dict()


def row(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in found["rows"] if row["id"] == name)


# --- what came back -------------------------------------------------------------------------------


def answered(tokens: int = 20_000, **fields: Any) -> list[dict[str, Any]]:
    """Return a call in three lines of one message: text twice told, a call and its result."""
    said = text(WORDS * 40)
    return [
        user("u1", None, "go"),
        assistant("a1", "u1", said, tokens=tokens, output=4, response="m1", **fields),
        assistant("a2", "a1", said, tokens=tokens, output=4, response="m1", **fields),
        assistant("a3", "a2", block("Read", "c1", file_path="x.py"), tokens=tokens, output=4,
                  response="m1", **fields),
        result("r1", "a3", "c1"),
    ]  # fmt: skip


def test_an_output_of_a_first_event_gives_way_to_what_the_screen_counts() -> None:
    found = report(*answered())
    spent = found["spent"]
    counted = ullage.count_text(WORDS * 40, model="gpt-4o")
    assert isinstance(counted, int)
    assert counted < spent["output"] < 1.6 * counted + 60
    assert (spent["basis"], spent["reported_output"]) == ("estimate", 4)
    assert (found["turns"][0]["output"], found["turns"][0]["output_basis"]) == (
        spent["output"],
        "estimate",
    )
    reported = ullage.cost(ullage.Usage(0, 20_000, 0, 4), MODEL, runtime=RUNTIME).total
    paid = ullage.cost(ullage.Usage(0, 20_000, 0, spent["output"]), MODEL, runtime=RUNTIME).total
    assert reported is not None
    assert spent["dollars"] == pytest.approx(paid)
    assert spent["dollars"] > reported


def test_the_lines_of_one_message_count_it_once() -> None:
    found = report(*answered())
    assert len(found["turns"]) == 1
    assert report(*answered())["spent"]["cache_read"] == 20_000
    once = [value for value in answered() if value["uuid"] != "a2"]
    once[2]["parentUuid"] = "a1"
    assert report(*once)["spent"] == found["spent"]
    more = assistant("a4", "r1", tokens=21_000)
    assert row(report(*once, more), "assistant") == row(report(*answered(), more), "assistant")


def test_a_report_with_the_end_of_the_answer_is_believed_as_far_as_it_can_be_true() -> None:
    values = [user("u1", None, "go"), assistant("a1", "u1", text("yes, at once"), output=5)]
    values[1]["message"]["stop_reason"] = "end_turn"
    assert report(*values)["spent"]["basis"] == "provider"
    values[1]["message"]["content"] = [text(WORDS * 40)]
    assert report(*values)["spent"]["basis"] == "estimate"


def test_what_an_abandoned_branch_answered_was_paid_all_the_same() -> None:
    values = [
        user("u1", None, "go"),
        assistant("a1", "u1", text(WORDS * 40), output=2),
        assistant("b1", "u1", text(WORDS * 40), output=2),
    ]
    assert report(*values)["spent"]["output"] == 2 * report(*values[:2])["spent"]["output"]


def test_codex_reports_at_the_end_and_is_believed() -> None:
    values = [
        rollout("session_meta", {"id": "s", "cwd": "/srv/app"}),
        rollout("turn_context", {"model": "gpt-5"}),
        item("user", "go"),
        item("assistant", "yes"),
        count(1_000, 1_000),
    ]
    found = report(*values, source="codex")
    assert found["spent"]["basis"] == "provider"
    assert found["turns"][0]["output_basis"] == "provider"
    values[3] = item("assistant", WORDS * 40)
    assert report(*values, source="codex")["spent"]["basis"] == "estimate"


# --- the window that is assumed -------------------------------------------------------------------


def grown(tokens: int, model: str = MODEL) -> list[dict[str, Any]]:
    return [user("u1", None, "go"), assistant("a1", "u1", tokens=tokens, model=model)]


def test_a_window_of_the_models_own_provider_is_assumed_and_said_to_be() -> None:
    window = report(*grown(90_000))["window"]
    assert (window["tokens"], window["assumed"]) == (200_000, True)
    assert window["said_by"].startswith("assumed: ")
    assert "table" in window["said_by"]
    assert "--window N" in window["note"]
    assert f"{MODEL}[1m]" in window["note"]
    assert not report(*grown(90_000), window=100_000)["window"]["assumed"]


def test_a_reported_prompt_refutes_the_window_that_was_assumed() -> None:
    found = report(*grown(412_000))
    assert found["window"]["tokens"] == WIDE
    assert any("200,000" in said and "412,000" in said for said in found["warnings"])
    beyond = report(*grown(1_200_000))
    assert beyond["window"] is None
    assert any("1,200,000" in said for said in beyond["warnings"])


def test_a_prompt_of_another_model_refutes_nothing() -> None:
    values = grown(412_000, "claude-opus-4-1-20250805")
    values += [user("u2", "a1", "on"), assistant("a2", "u2", tokens=50_000)]
    assert report(*values)["window"]["tokens"] == 200_000


def test_the_mark_of_a_wide_window_in_the_file_is_taken_and_still_assumed() -> None:
    window = report(*grown(90_000, f"{MODEL}[1m]"))["window"]
    assert (window["tokens"], window["assumed"]) == (WIDE, True)


@pytest.mark.parametrize("model", ["qwen3-8b", "gpt-4o", "glm-4.6", "nobodys"])
def test_a_model_of_another_provider_has_no_window_and_no_price_of_its_own(model: str) -> None:
    found = report(*grown(90_000, model))
    assert (found["window"], found["spent"]["dollars"]) == (None, None)
    assert any("--window N" in said for said in found["warnings"])


def test_a_session_without_a_model_says_so() -> None:
    found = report(user("u1", None, "go"))
    assert found["window"] is None
    assert any("names its model" in said for said in found["warnings"])


def test_the_operators_own_number_is_no_assumption() -> None:
    mine = Runtime(settings=Settings(context_windows={MODEL: 150_000}))
    read = importers.parse(lines(*grown(90_000)), source="claude")
    window = of_session(read, runtime=mine).to_dict()["window"]
    assert (window["tokens"], window["assumed"]) == (150_000, False)


@pytest.mark.parametrize(
    ("provider", "tokens"), [(None, 272_000), ("openai", 272_000), ("my-box", None)]
)
def test_codex_without_a_window_has_that_of_the_provider_it_names(
    provider: str | None, tokens: int | None
) -> None:
    meta = {"id": "s", **({"model_provider": provider} if provider else {})}
    values = [
        rollout("session_meta", meta), rollout("turn_context", {"model": "gpt-5"}),
        item("user", "go"), item("assistant", "yes"), count(1_000, 1_000),
    ]  # fmt: skip
    window = report(*values, source="codex")["window"]
    assert (window["tokens"] if window else None) == tokens
    assert window is None or window["assumed"]
    values[-1] = count(400_001, 400_001)
    assert report(*values, source="codex")["window"] is None


# --- the prefix and the names ---------------------------------------------------------------------


def test_the_constant_prefix_is_what_the_first_report_has_beyond_its_messages() -> None:
    values = [
        user("u1", None, "go"),
        assistant("a1", "u1", text(WORDS * 40), tokens=14_020),
        user("u2", "a1", WORDS * 100),
        assistant("a2", "u2", tokens=17_500),
    ]
    found = report(*values)
    assert row(found, "prefix")["tokens"] == pytest.approx(14_000, abs=30)
    assert row(found, "prefix")["basis"] == "inferred"
    for turn in found["turns"]:
        assert turn["rows"]["prefix"] == row(found, "prefix")["tokens"]
    assert sum(each["tokens"] for each in found["rows"]) == 17_500


def test_the_prefix_outlives_a_compaction() -> None:
    values = [
        user("u1", None, "go"),
        assistant("a1", "u1", tokens=14_000),
        boundary("b", "a1"),
        summary("s", "b", WORDS * 10),
        assistant("a2", "s", tokens=14_300),
    ]
    assert row(report(*values), "prefix")["tokens"] == pytest.approx(14_000, abs=30)


def test_rows_are_named_by_what_they_are_about_largest_first_within_their_tool() -> None:
    values = [
        user("u1", None, "Please look at the totals of the ledger", cwd="/srv/app"),
        assistant("a1", "u1", block("Read", "c1", file_path=LEDGER), tokens=9_000),
        result("r1", "a1", "c1", WORDS * 20),
        assistant("a2", "r1", block("Read", "c2", file_path="/etc/hosts"), tokens=9_500),
        result("r2", "a2", "c2", WORDS * 30),
        assistant("a3", "r2", block("Bash", "c3", command="pytest -q"), tokens=9_900),
        result("r3", "a3", "c3", "2 passed"),
        assistant("a4", "r3", tokens=10_000),
    ]  # fmt: skip
    found = report(*values)
    reads, bash = row(found, "tool_results")["items"]
    assert [entry["name"] for entry in reads["entries"]] == [
        "Read /etc/hosts, turn 2", "Read src/ledger.py, turn 1",
    ]  # fmt: skip
    assert [entry["name"] for entry in bash["entries"]] == ["Bash pytest -q, turn 3"]
    assert found["largest"][0]["name"] == "tool results: Read /etc/hosts, turn 2"
    asked = [large["name"] for large in found["largest"] if large["name"].startswith("user")]
    assert asked == ['user messages: "Please look at the totals of the ledger", turn 1']


def test_a_report_says_where_the_session_comes_from() -> None:
    values = grown(90_000)
    values[0] |= {"cwd": "/srv/app", "timestamp": "2026-03-12T09:20:14.408Z"}
    source = report(*values)["source"]
    assert (source["project"], source["title"]) == ("/srv/app", "go")
    assert source["at"] == "2026-03-12T09:20:14.408Z"
    named = [
        *values,
        {"type": "summary", "summary": "The totals of the ledger", "leafUuid": "a1"},
    ]
    assert report(*named)["source"]["title"] == "The totals of the ledger"
    titled = [*named, {"type": "ai-title", "aiTitle": "Ledger totals", "sessionId": "s1"}]
    assert report(*titled)["source"]["title"] == "Ledger totals"


# --- what always holds ----------------------------------------------------------------------------

TEXTS = st.sampled_from(["", "go", WORDS, WORDS * 30, "ok\n" * 200])
TOKENS = st.none() | st.integers(0, 300_000)


@st.composite
def claude_sessions(draw: st.DrawFn) -> list[dict[str, Any]]:
    made, parent = [user("u", None, draw(TEXTS))], "u"
    for n in range(draw(st.integers(0, 5))):
        tokens, answer, call = draw(TOKENS), f"a{n}", f"c{n}"
        model = draw(st.sampled_from([MODEL, "nobodys", "<synthetic>"]))
        pieces = [text(draw(TEXTS)), block("Read", call, file_path=draw(TEXTS))]
        for k, piece in enumerate(pieces):
            name = f"{answer}.{k}"
            made.append(assistant(name, parent, piece, tokens=tokens, response=answer, model=model,
                                  output=draw(st.integers(0, 900))))  # fmt: skip
            parent = name
        made.append(result(f"r{n}", parent, call, draw(TEXTS)))
        parent = f"r{n}"
        if draw(st.integers(0, 4)) == 0:
            made += [boundary(f"b{n}", parent), summary(f"s{n}", f"b{n}", draw(TEXTS))]
            parent = f"s{n}"
    return made


@st.composite
def codex_sessions(draw: st.DrawFn) -> list[dict[str, Any]]:
    made, total = [rollout("turn_context", {"model": "gpt-5"}), item("user", "go")], 0
    for n in range(draw(st.integers(1, 5))):
        call = {"type": "function_call", "name": "shell", "call_id": f"c{n}",
                "arguments": draw(TEXTS)}  # fmt: skip
        out = {"type": "function_call_output", "call_id": f"c{n}", "output": draw(TEXTS)}
        made += [rollout("response_item", call), rollout("response_item", out)]
        total += 1_000
        made.append(count(draw(st.integers(1, 300_000)), total))
    return made


@st.composite
def requests(draw: st.DrawFn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for n in range(draw(st.integers(1, 5))):
        call = {"id": f"c{n}", "type": "function",
                "function": {"name": "read", "arguments": draw(TEXTS)}}  # fmt: skip
        made += [
            {"role": "user", "content": draw(TEXTS)},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": draw(TEXTS)},
        ]
    return made


@given(st.one_of(
    claude_sessions().map(lambda values: ("claude", values)),
    codex_sessions().map(lambda values: ("codex", values)),
    requests().map(lambda values: ("chat", values)),
))  # fmt: skip
def test_rows_add_up_and_nothing_exceeds_its_row(session: tuple[str, list[dict[str, Any]]]) -> None:
    source, values = session
    found = report(*values, source=source)
    assert sum(each["tokens"] for each in found["rows"]) == found["used"]["tokens"]
    for each in found["rows"]:
        assert each["tokens"] >= 0 or each["id"] == "unattributed"
        if each["items"]:
            assert sum(part["tokens"] for part in each["items"]) == each["tokens"]
        for part in each["items"]:
            assert part["reclaimable"] <= part["tokens"]
            sizes = [entry["tokens"] for entry in part["entries"]]
            assert sizes == sorted(sizes, reverse=True)
            assert sum(sizes) <= part["tokens"]
    for turn in found["turns"]:
        assert sum(turn["rows"].values()) == turn["tokens"]
    window, spent = found["window"], found["spent"]
    if window is not None:
        parts = (found["used"]["tokens"], found["free"], found["margin"], found["reserved_output"])
        assert sum(parts) == window["tokens"]
        assert not window["assumed"] or max(
            (t["tokens"] for t in found["turns"] if t["model"] == found["model"]
             and t["basis"] == "provider"), default=0
        ) <= window["tokens"]  # fmt: skip
    if spent is not None and spent["reported_output"] is not None:
        assert spent["output"] + spent["reasoning"] >= spent["reported_output"]
