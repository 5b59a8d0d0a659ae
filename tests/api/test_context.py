"""What fills a window, from messages and from sessions: whose word wins, and what is assumed."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ullage
from tests.conversations import conversation, prose
from tests.importers.writing import assistant, lines, user
from tests.support.counting import WordCounter
from ullage import importers
from ullage.api.context import (
    calibrate_meter,
    compaction_point,
    of_session,
    strip_window_mark,
)
from ullage.core.compaction.policy import Policy
from ullage.core.dialects.framing import UNKNOWN_TEMPLATE
from ullage.core.dialects.openai_chat.codec import OpenAIChat
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError, MalformedHistoryError
from ullage.core.tokens.composition import SCHEMA, Span, Subject, compose
from ullage.core.tokens.counting import Meter, Scale, measure
from ullage.core.tokens.window import Window, resolve
from ullage.embedded import Server
from ullage.runtime import Runtime
from ullage.windows.question import WIDE

SESSIONS = Path(__file__).parents[1] / "recordings" / "sessions"
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How much is left in the cask?"},
]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


# --- messages -------------------------------------------------------------------------------------


def test_messages_are_counted_as_count_counts_them(runtime: Runtime) -> None:
    for seed in range(12):
        messages, tools = conversation(seed)
        for model in ("gpt-4o", "claude-sonnet-4-5", "nobodys-model"):
            beside: dict[str, Any] = {"model": model, "tools": tools, "runtime": runtime}
            used = ullage.context(messages, **beside).report.used
            assert used == ullage.count(messages, **beside)


def test_what_reports_taught_is_in_the_total_and_shown_apart(runtime: Runtime) -> None:
    rng = random.Random(7)
    guard = ullage.Guard("nobodys-model", window=500_000, runtime=runtime)
    messages = [{"role": "user", "content": prose(rng, 400, 500)}]
    for _ in range(6):
        view = guard.prepare(messages)
        raw = view.prepared.measured.raw().best
        view.observe({"usage": {"prompt_tokens": round(raw * 1.3) + 14_000, "total_tokens": 1}})
        messages.append({"role": "assistant", "content": prose(rng, 300, 400)})
        messages.append({"role": "user", "content": prose(rng, 300, 400)})
    told = ullage.context(messages, model="nobodys-model", runtime=runtime)
    assert told.report.used == ullage.count(messages, model="nobodys-model", runtime=runtime)
    rest = next(row for row in told.report.rows if row.id == "unattributed")
    assert rest.tokens == pytest.approx(14_000, rel=0.1)
    assert sum(row.tokens for row in told.report.rows) == told.report.used.tokens


def test_the_window_is_that_of_the_model_unless_the_caller_says_one(runtime: Runtime) -> None:
    found = ullage.context(HISTORY, model="gpt-5", runtime=runtime).to_dict()
    assert found["window"]["tokens"] == 272_000
    assert found["window"]["source"] == "table"
    assert "with the output" in found["window"]["note"]
    said = ullage.context(HISTORY, model="gpt-5", window=9_000, runtime=runtime).to_dict()
    assert said["window"] == {
        "tokens": 9_000,
        "source": "override",
        "said_by": "window set by --window or window=",
        "note": "",
        "assumed": False,
    }
    assert said["compaction_at"] == 7_200
    known = ullage.context(HISTORY, window=Window(50, 50, source="probe"), runtime=runtime)
    assert known.report.bound == 50
    none = ullage.context(HISTORY, runtime=runtime).to_dict()
    assert (none["window"], none["free"], none["over"]) == (None, None, 0)
    assert (none["tier"], none["reason"]) == ("unavailable", "context_window_unknown")
    assert none["compaction_at"] is None


def test_a_reported_total_wins(runtime: Runtime) -> None:
    reports: list[Any] = [
        Usage(600, 300),
        {"prompt_tokens": 900, "completion_tokens": 5, "total_tokens": 905},
        {"usage": {"input_tokens": 500, "cache_read_input_tokens": 400, "output_tokens": 1}},
    ]
    for report in reports:
        found = ullage.context(HISTORY, model="gpt-4o", usage=report, runtime=runtime).to_dict()
        assert (found["used"]["tokens"], found["used"]["basis"]) == (900, "provider")
        assert found["used"]["error"] is None
        assert found["margin"] == 0
        assert sum(row["tokens"] for row in found["rows"]) == 900


@pytest.mark.parametrize("usage", [7, "lots", {"tokens": "many"}])
def test_a_report_that_is_none_is_refused(usage: Any, runtime: Runtime) -> None:
    with pytest.raises(ConfigurationError, match="usage is no usage report that can be read"):
        ullage.context(HISTORY, usage=usage, runtime=runtime)


@pytest.mark.parametrize("tokens", [0, -5, True, 1.5])
def test_an_output_that_is_none_is_refused(tokens: Any, runtime: Runtime) -> None:
    with pytest.raises(ConfigurationError, match="max_tokens must be a positive number"):
        ullage.context(HISTORY, max_tokens=tokens, runtime=runtime)


def test_a_window_or_messages_that_are_none_are_refused(runtime: Runtime) -> None:
    with pytest.raises(ConfigurationError, match="a window must be a positive number"):
        ullage.context(HISTORY, window=0, runtime=runtime)
    with pytest.raises(MalformedHistoryError):
        ullage.context([7], runtime=runtime)
    with pytest.raises(TypeError, match="no option 'windows'"):
        ullage.context(HISTORY, windows=7)  # type: ignore[call-arg]


def test_output_and_largest_are_as_asked(runtime: Runtime) -> None:
    found = ullage.context(HISTORY, window=9_000, max_tokens=700, top=1, runtime=runtime)
    told = found.to_dict()
    assert (told["schema"], told["source"], told["spent"]) == (SCHEMA, None, None)
    assert told["reserved_output"] == 700
    assert [large["message"] for large in told["largest"]] == [1]
    assert told["free"] == 9_000 - 700 - told["used"]["tokens"] - told["margin"]


def test_every_dialect_is_read(runtime: Runtime) -> None:
    asked = "How much is left?"
    said = ullage.context(asked, model="gpt-5", dialect="responses", runtime=runtime).to_dict()
    assert [row["id"] for row in said["rows"]] == ["user", "framing"]
    blocks = [{"type": "text", "text": "Be brief."}]
    found = ullage.context(HISTORY[1:], system=blocks, dialect="anthropic", runtime=runtime)
    assert [row.id for row in found.report.rows] == ["system", "user", "framing"]


def test_a_server_that_counts_is_the_total(tiny_server: Server, runtime: Runtime) -> None:
    where: dict[str, Any] = {"base_url": tiny_server.base_url, "runtime": runtime}
    found = ullage.context(HISTORY, **where)
    assert found.report.basis == "server"
    assert found.report.used.tokens == ullage.count(HISTORY, **where).tokens
    assert found.report.bound == 2048


# --- sessions -------------------------------------------------------------------------------------


def session(*values: Any) -> importers.ImportedSession:
    return importers.parse(lines(*values), source="claude")


def test_the_callers_window_or_model_gives_a_claude_session_one(runtime: Runtime) -> None:
    read = importers.load(importers.SAMPLE)
    assert of_session(read, window=150_000, runtime=runtime).report.bound == 150_000
    named = of_session(read, model="claude-sonnet-4-5", runtime=runtime)
    assert (named.report.bound, named.window.source) == (200_000, "table")


def test_a_codex_session_brings_its_window(runtime: Runtime) -> None:
    read = importers.load(SESSIONS / "codex-plain.jsonl")
    found = of_session(read, runtime=runtime).to_dict()
    assert (found["window"]["tokens"], found["window"]["source"]) == (272_000, "probe")
    assert found["used"]["tokens"] == 1_310
    assert [turn["tokens"] for turn in found["turns"]] == [1_000, 1_300]
    assert of_session(read, window=9_000, runtime=runtime).window.source == "override"
    bare = importers.load(SESSIONS / "codex-bare.jsonl")
    assert of_session(bare, runtime=runtime).report.bound is None


def test_a_plain_request_has_the_window_of_its_model(runtime: Runtime) -> None:
    body = {"model": "gpt-5", "messages": HISTORY, "tools": [TOOL], "max_tokens": 500}
    read = importers.parse(json.dumps(body).encode())
    found = of_session(read, runtime=runtime).to_dict()
    assert found["window"]["tokens"] == 272_000
    assert {name: said for name, said in found["source"].items() if said is not None} == {
        "kind": "chat", "path": "",
    }  # fmt: skip
    assert of_session(read, window=8_000, runtime=runtime).report.reserved == 500
    assert of_session(read, window=8_000, reserved=0, runtime=runtime).report.reserved == 0
    nameless = importers.parse(json.dumps(HISTORY).encode())
    assert of_session(nameless, runtime=runtime).report.bound is None


def test_the_mark_of_a_wide_window_is_no_part_of_the_model(runtime: Runtime) -> None:
    assert strip_window_mark("claude-sonnet-4-5[1m]") == "claude-sonnet-4-5"
    assert (strip_window_mark("gpt-5"), strip_window_mark(None), strip_window_mark("")) == (
        "gpt-5",
        None,
        "",
    )
    values = [user("u1", None, "go"), assistant("a1", "u1", model="claude-sonnet-4-5[1m]")]
    read = session(*values)
    found = of_session(read, runtime=runtime)
    assert (found.report.bound, bool(found.assumed)) == (WIDE, True)
    assert found.dollars == pytest.approx((100 * 0.3 + 7 * 15) / 1e6)
    plain = of_session(replace(read, model="claude-sonnet-4-5"), runtime=runtime)
    assert found.report.rows == plain.report.rows


def test_the_callers_mark_of_a_wide_window_is_his_word(runtime: Runtime) -> None:
    read = importers.load(importers.SAMPLE)
    wide = of_session(read, model="claude-sonnet-4-5[1m]", runtime=runtime)
    assert (wide.report.bound, wide.window.source) == (WIDE, "override")
    both = of_session(read, model="claude-sonnet-4-5[1m]", window=300_000, runtime=runtime)
    assert both.report.bound == 300_000


def test_a_session_costs_what_its_calls_cost(runtime: Runtime) -> None:
    values = [
        user("u1", None, "go"),
        assistant("a1", "u1", tokens=1_000, output=100),
        user("u2", "a1", "on"),
        assistant("a2", "u2", tokens=2_000, output=100),
    ]
    found = of_session(session(*values), runtime=runtime)
    usages = [turn.usage for turn in session(*values).turns]
    wanted = [ullage.cost(u, "claude-sonnet-4-5", runtime=runtime).total for u in usages if u]
    assert found.dollars == pytest.approx(sum(each or 0.0 for each in wanted))
    assert found.to_dict()["spent"]["dollars"] == found.dollars


def test_a_call_without_a_price_or_a_report_leaves_the_session_unpriced(runtime: Runtime) -> None:
    priced = [user("u1", None, "go"), assistant("a1", "u1"), user("u2", "a1", "on")]
    for last in (assistant("a2", "u2", model="nobodys"), assistant("a2", "u2", tokens=None)):
        found = of_session(session(*priced, last), runtime=runtime)
        assert found.dollars is None
    assert (
        of_session(importers.parse(json.dumps(HISTORY).encode()), runtime=runtime).dollars is None
    )


def test_the_compaction_point_is_that_of_the_lowest_rung() -> None:
    window = Window(10_000, 10_000, source="override")
    assert compaction_point(window) == 8_000
    assert compaction_point(window, Policy.auto_summary()) == 9_500
    assert compaction_point(window, Policy.off()) is None
    assert compaction_point(resolve([])) is None


# --- what a session teaches -----------------------------------------------------------------------

RATIO, OVERHEAD = 1.3, 14_000
LOOSE = Meter(WordCounter(), UNKNOWN_TEMPLATE, Scale(0.75, 1.1, 1.6), "estimate")


def billed(seed: int, turns: int, *, compacted: bool = False) -> tuple[Subject, float]:
    """Return a session of a server with this ratio and overhead, and what its end really takes."""
    rng = random.Random(seed)
    raws: list[dict[str, Any]] = [{"role": "user", "content": prose(rng, 100, 400)}]
    spans = []
    for number in range(turns):
        content = sum(s.best for s in measure(OpenAIChat().read(raws), LOOSE).sizes)
        noise = 1 + rng.uniform(-0.03, 0.03)
        tokens = round(content * RATIO * noise) + OVERHEAD
        spans.append(Span(number + 1, 0, len(raws), tokens, "theirs"))
        raws.append({"role": "assistant", "content": prose(rng, 100, 400)})
        raws.append({"role": "user", "content": prose(rng, 100, 400)})
    start = len(raws) - 3 if compacted else 0
    transcript = OpenAIChat().read(raws)
    sizes = [s.best for s in measure(transcript, LOOSE).sizes]
    subject = Subject(transcript, start=start, spans=tuple(spans))
    return subject, sum(sizes[start:]) * RATIO


@pytest.mark.parametrize("seed", range(12))
def test_a_session_narrows_the_band_and_stays_in_it(seed: int) -> None:
    subject, content = billed(seed, 14)
    taught = calibrate_meter(LOOSE, subject)
    assert taught.basis == "calibrated"
    assert taught.scale.low < RATIO < taught.scale.high
    wide, narrow = LOOSE.scale, taught.scale
    assert (narrow.high - narrow.low) / narrow.best < (wide.high - wide.low) / wide.best / 2
    used = compose(subject, taught, resolve([])).used
    assert used.low <= content + OVERHEAD <= used.high


@pytest.mark.parametrize("seed", range(6))
def test_after_a_compaction_the_overhead_is_still_known(seed: int) -> None:
    subject, content = billed(seed, 14, compacted=True)
    report = compose(subject, calibrate_meter(LOOSE, subject), resolve([]))
    rest = next(row for row in report.rows if row.id == "unattributed")
    assert rest.tokens == pytest.approx(OVERHEAD, rel=0.1)
    assert report.used.tokens == pytest.approx(content + OVERHEAD, rel=0.1)


def test_what_teaches_nothing_leaves_the_meter_as_it_is() -> None:
    subject, _ = billed(1, 14)
    assert calibrate_meter(replace(LOOSE, basis="exact"), subject).scale is LOOSE.scale
    assert calibrate_meter(LOOSE, replace(subject, spans=())) is LOOSE
    assert calibrate_meter(LOOSE, replace(subject, spans=subject.spans[:1])) is LOOSE
    silent = tuple(replace(span, tokens=None) for span in subject.spans)
    assert calibrate_meter(LOOSE, replace(subject, spans=silent)) is LOOSE


def test_calls_of_another_model_teach_nothing() -> None:
    subject, _ = billed(1, 14)
    others = tuple(replace(s, model="other", tokens=3 * (s.tokens or 0)) for s in subject.spans)
    mixed = replace(subject, spans=(*others, *subject.spans))
    assert calibrate_meter(LOOSE, mixed).scale == calibrate_meter(LOOSE, subject).scale
