"""What was learned of models outlives the process where it was repeated, and can be forgotten."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

import ullage
from ullage.config.settings import Settings
from ullage.core.guard.conversation import Conversation
from ullage.core.guard.learned import Learned
from ullage.core.tokens.calibration import Calibration, ReportedSize
from ullage.core.tokens.claim import Claim
from ullage.lessons import FILE, KEPT_S, Lessons
from ullage.runtime import Runtime
from ullage.windows import Question

KEY = "http://127.0.0.1:1#k|m"
FIRST, SECOND = ReportedSize(1_500, 1_000, 10), ReportedSize(3_000, 2_000, 10)


def lessons(folder: Path | None, now: float = 1_000.0) -> Lessons:
    return Lessons(folder, lambda: now)


def test_one_report_is_not_kept_beyond_the_process_and_two_are(tmp_path: Path) -> None:
    known = lessons(tmp_path)
    known.learn(KEY, FIRST)
    assert lessons(tmp_path).find(KEY).calibration is None
    known.learn(KEY, SECOND)
    kept = lessons(tmp_path).find(KEY).calibration
    assert kept == known.find(KEY).calibration
    assert kept is not None
    assert kept.seen == 2


def test_what_is_old_is_not_read(tmp_path: Path) -> None:
    for reading in (FIRST, SECOND):
        (known := lessons(tmp_path)).find(KEY)
        known.learn(KEY, FIRST)
        known.learn(KEY, reading)
    assert lessons(tmp_path, 1_000 + KEPT_S + 1).find(KEY).calibration is None


def test_a_ratio_is_written_again_where_it_moved_or_rests_on_twice_as_many(tmp_path: Path) -> None:
    known = lessons(tmp_path)
    seen = []
    for n in range(1, 9):
        known.learn(KEY, ReportedSize(1_500 * n, 1_000 * n, 10))
        held = lessons(tmp_path).find(KEY).calibration
        seen.append(held.seen if held is not None else 0)
    assert seen == [0, 2, 2, 4, 4, 4, 4, 8]
    for _ in range(3):
        known.learn(KEY, ReportedSize(18_000, 9_000, 10))
    moved = lessons(tmp_path).find(KEY).calibration
    assert moved is not None
    assert 8 < moved.seen < 12


def test_two_processes_keep_what_each_learned(tmp_path: Path) -> None:
    one, other = lessons(tmp_path), lessons(tmp_path)
    assert one.find("a").calibration is other.find("b").calibration is None
    for reading in (FIRST, SECOND):
        one.learn("a", reading)
        other.learn("b", reading)
    both = lessons(tmp_path)
    assert both.find("a").calibration == both.find("b").calibration != None  # noqa: E711


def test_a_law_is_known_in_the_process_alone(tmp_path: Path) -> None:
    known = lessons(tmp_path)
    for reading in (FIRST, SECOND):
        known.learn(KEY, reading)
    known.note_law(KEY, "alternation")
    known.learn(KEY, ReportedSize(9_000, 4_000, 10))
    assert known.find(KEY).laws == {"alternation"}
    assert lessons(tmp_path).find(KEY).laws == frozenset()


def test_what_a_conversation_remembers_is_taken_in_unless_it_was_forgotten_since(
    tmp_path: Path,
) -> None:
    learned = Learned(Calibration(1.4, seen=5), frozenset({"alternation"}), at=500.0)
    known = lessons(tmp_path)
    assert known.take_in(KEY, learned)
    assert (known.find(KEY).calibration, known.find(KEY).laws) == (
        learned.calibration,
        learned.laws,
    )
    known.forget(KEY)
    assert known.find(KEY).calibration is None
    assert not known.take_in(KEY, learned)
    later = lessons(tmp_path)
    assert later.find(KEY).calibration is None
    assert not later.take_in(KEY, learned)
    assert later.take_in("another", learned)
    later.forget()
    assert not later.take_in("a third", learned)


@pytest.mark.parametrize("text", ["no json", "[]", '{"version": 9}', '{"version": 1}'])
def test_a_broken_file_is_replaced_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (tmp_path / FILE).write_text(text)
    known = lessons(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert known.find(KEY).calibration is None
    assert "unreadable and will be replaced" in caplog.text
    for reading in (FIRST, SECOND):
        known.learn(KEY, reading)
    assert lessons(tmp_path).find(KEY).calibration is not None


def test_without_a_folder_nothing_is_kept() -> None:
    known = lessons(None)
    for reading in (FIRST, SECOND):
        known.learn(KEY, reading)
    known.forget()
    assert known.find(KEY).calibration is None


# --- through a runtime ----------------------------------------------------------------------------

AT = Question("m", "http://127.0.0.1:1/v1")
ONE = Claim("total", 4_096, "refusal", grounds="structured", exchange="e")


def test_a_new_process_counts_as_the_last_one_did(tmp_path: Path) -> None:
    settings = Settings(cache_dir=str(tmp_path))
    runtime = Runtime(settings=settings)
    for reading in (FIRST, SECOND):
        runtime.learn(AT, reading)
    assert Runtime(settings=settings).meter(AT).scale == runtime.meter(AT).scale
    ullage.window("m", base_url=AT.base_url, refresh=True, runtime=Runtime(settings=settings))
    assert Runtime(settings=settings).meter(AT).basis == "estimate"


def test_events_come_with_a_conversation_as_of_their_own_time_and_once() -> None:
    runtime = Runtime(now=lambda: 1_000.0)
    answer = Claim("total", 900, "answer", exchange="a", at=990.0)
    learned = Learned(claims=(replace(ONE, at=990.0), answer), at=991.0)
    conversation = Conversation("s", "p", learned=learned)
    for _ in range(2):
        assert runtime.take_in(AT, conversation) is conversation
        found = runtime.windows.window(AT)
        assert [(c.source, c.at) for c in found.claims] == [("refusal", 990.0), ("answer", 990.0)]
    runtime.forget(AT)
    gone = runtime.take_in(AT, conversation)
    assert (gone.learned.claims, gone.suspect) == ((), None)
    assert runtime.windows.window(AT).claims == ()


def test_what_is_worth_keeping_is_told_to_others_and_a_law_at_once() -> None:
    known = lessons(None)
    told: list[tuple[str, Learned]] = []
    known.tell = lambda key, learned: told.append((key, learned))
    known.learn(KEY, FIRST)
    assert told == []
    known.learn(KEY, SECOND)
    known.note_law(KEY, "alternation")
    known.note_law(KEY, "alternation")
    assert [key for key, _ in told] == [KEY, KEY]
    assert told[0][1].calibration == known.find(KEY).calibration
    assert told[1][1].laws == {"alternation"}


def test_what_was_learned_after_somebody_asked_to_forget_stays(tmp_path: Path) -> None:
    known = lessons(tmp_path, 1_000.0)
    for reading in (FIRST, SECOND):
        known.learn(KEY, reading)
    known.forget(KEY, 900.0)
    assert known.find(KEY).calibration is not None
    assert lessons(tmp_path).find(KEY).calibration is not None
    known.forget(KEY, 1_000.0)
    assert known.find(KEY).calibration is None


def test_a_lesson_of_another_process_changes_how_a_model_is_counted() -> None:
    teller, hearer = Runtime(now=lambda: 1_000.0), Runtime(now=lambda: 1_000.0)
    before = hearer.meter(AT).scale
    for reading in (FIRST, SECOND):
        teller.learn(AT, reading)
    hearer.hear_lesson(AT.own_key, teller.lessons.find(AT.own_key))
    assert hearer.meter(AT).scale == teller.meter(AT).scale != before
    hearer.hear_forgotten(AT.key, AT.own_key, 1_001.0)
    assert hearer.meter(AT).scale == before
    hearer.hear_lesson(AT.own_key, teller.lessons.find(AT.own_key))
    assert hearer.meter(AT).scale == before, "it was learned before that"


def test_what_was_worked_out_before_is_taken_where_nothing_was_taught_meanwhile() -> None:
    one, other = Lessons(None, lambda: 1.0), Lessons(None, lambda: 1.0)
    for known in (one, other):
        known.learn(KEY, FIRST)
    held = one.find(KEY).calibration
    one.learn(KEY, SECOND)
    after = one.find(KEY).calibration
    other.learn(KEY, SECOND, (other.find(KEY).calibration, after))
    assert other.find(KEY).calibration is after
    other.learn(KEY, SECOND, (held, held))  # of what is not known any more
    assert other.find(KEY).calibration not in (held, after)
