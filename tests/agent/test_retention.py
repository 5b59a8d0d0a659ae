"""What is due by rules of age, tenant and size goes whole, with what belongs to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.test_purging import changed
from ullage.agent import Draft, Session
from ullage.agent.retention import (
    DAY_S,
    RetentionRules,
    SessionFamily,
    apply_retention,
    plan_retention,
)
from ullage.core.errors import ConfigurationError, CorruptLog
from ullage.core.session.log.event import Event
from ullage.storage import open_log
from ullage.storage.blobs import Blobs
from ullage.storage.log import EventLog, Owner, verify
from ullage.storage.log_memory import MemoryLog

NOW = 100 * DAY_S


def make(log: EventLog, name: str, days: float, *drafts: Draft, tenant: str | None = None) -> None:
    """Make a session whose last event is so many days old."""
    at = NOW - days * DAY_S
    with Session.create(log, name, tenant=tenant, now=lambda: at) as session:
        session.record([Draft("user_message", {"text": f"what {name} said"}), *drafts])


def child(log: EventLog, name: str, parent: str, days: float) -> None:
    """Make a subagent's session."""
    log.create(name, NOW - days * DAY_S)
    epoch = log.acquire(name, Owner.here(), 1.0).epoch
    link = {"parent": parent, "root": parent, "depth": 1}
    log.append(name, epoch, 0, [Draft("session_created", link)], NOW - days * DAY_S)
    log.release(name, epoch, 1.0)


def names(families: Sequence[SessionFamily]) -> list[tuple[str, ...]]:
    return [family.members for family in families]


def take_out(log: EventLog, rules: RetentionRules, batch: int = 5_000) -> tuple[str, ...]:
    due = plan_retention(log, rules, NOW)
    return apply_retention(log, due, lambda: NOW, batch=batch).sessions


def test_age_counts_from_the_last_event():
    log = MemoryLog()
    make(log, "old", 31)
    make(log, "new", 29)
    (due,) = plan_retention(log, RetentionRules(30), NOW)
    assert due.members == ("old",)
    assert due.why == "no event for 31.0 days, kept for 30"
    assert [head.session for head in log.sessions()] == ["old", "new"], "a plan changes nothing"
    assert take_out(log, RetentionRules(30)) == ("old",)
    assert [head.session for head in log.sessions()] == ["new"]


def test_a_tenant_has_days_of_its_own():
    log = MemoryLog()
    for tenant in ("short", "ever", "other", None):
        make(log, f"of {tenant}", 20, tenant=tenant)
    rules = RetentionRules(30, {"short": 10, "ever": math.inf})
    (due,) = plan_retention(log, rules, NOW)
    assert due.members == ("of short",)
    assert due.why.endswith("(tenant short)")
    assert names(plan_retention(log, RetentionRules(tenant_days={"short": 10}), NOW)) == [
        ("of short",)
    ]
    assert len(plan_retention(log, RetentionRules(10, {"ever": math.inf}), NOW)) == 3


def test_beyond_a_size_the_oldest_go_until_the_rest_fits():
    log = MemoryLog()
    for days, name in enumerate(("d", "c", "b", "a"), 1):
        make(log, name, days)
    whole = sum(one.size for one in log.survey(sized=True))
    assert plan_retention(log, RetentionRules(most_bytes=whole), NOW) == []
    due = plan_retention(log, RetentionRules(most_bytes=whole - 1), NOW)
    assert names(due) == [("a",)]
    assert due[0].why == f"beyond {whole - 1:,} bytes"
    assert names(plan_retention(log, RetentionRules(days=3.5, most_bytes=whole // 2), NOW)) == [
        ("a",),
        ("b",),
    ]
    assert len(plan_retention(log, RetentionRules(most_bytes=0), NOW)) == 4


def test_a_family_goes_when_its_last_event_is_old_enough():
    log = MemoryLog()
    make(log, "s", 50)
    child(log, "of s", "s", 50)
    make(log, "later", 20, Draft("branch_summary", {"text": "summary", "parent": "s"}))
    rules = RetentionRules(30)
    log2 = MemoryLog()
    make(log2, "s", 50)
    child(log2, "of s", "s", 40)
    assert take_out(log2, rules) == ("s", "of s")
    # `branch_summary` is looked for among the first two events, where `continuing` puts it
    log.create("onward", NOW - 20 * DAY_S)
    epoch = log.acquire("onward", Owner.here(), 1.0).epoch
    drafts = [
        Draft("session_created", {}),
        Draft("branch_summary", {"text": "x", "parent": "of s"}),
    ]
    log.append("onward", epoch, 0, drafts, NOW - 20 * DAY_S)
    log.release("onward", epoch, 1.0)
    assert plan_retention(log, rules, NOW) == [], "what it goes on from is read from it"
    assert ("s", "of s", "onward") in names(plan_retention(log, RetentionRules(19), NOW))


def test_a_fork_has_its_own_text_and_stays():
    log = MemoryLog()
    make(log, "s", 50)
    with Session(log, "s", now=lambda: NOW) as session:
        session.fork(None, "fork").close()
    assert take_out(log, RetentionRules(30)) == ("s",)
    assert verify(log, "fork") == []


def test_a_session_that_is_written_stays_with_its_family():
    log = MemoryLog()
    make(log, "s", 50)
    child(log, "of s", "s", 50)
    make(log, "t", 50)
    log.acquire("of s", Owner.here("an agent"), NOW)
    due = plan_retention(log, RetentionRules(30), NOW)
    done = apply_retention(log, due, lambda: NOW)
    assert done.sessions == ("t",)
    assert done.busy[0][0] == "s"
    assert "an agent" in done.busy[0][1]
    assert log.leases("s")[-1].released is not None
    assert len(log.read("s")) == 2


def test_what_was_written_since_it_was_chosen_stays():
    log = MemoryLog()
    make(log, "s", 50)
    make(log, "gone", 50)
    due = plan_retention(log, RetentionRules(30), NOW)
    with Session(log, "s", now=lambda: NOW) as session:
        session.record([Draft("user_message", {"text": "more"})])
    epoch = log.acquire("gone", Owner.here(), NOW).epoch
    log.remove("gone", epoch)
    done = apply_retention(log, due, lambda: NOW)
    assert done.sessions == ()
    assert "was written since" in dict(done.busy)["s"]
    assert "no session" in dict(done.busy)["gone"]
    assert log.leases("s")[-1].released is not None


def test_what_files_held_goes_unless_another_session_has_it(tmp_path: Path):
    log = open_log(f"sqlite:{tmp_path / 's.db'}")
    blobs = Blobs(tmp_path / "undo")
    make(log, "old", 50, changed(blobs, b"own", b"shared"))
    make(log, "new", 1, changed(blobs, b"shared"))
    due = plan_retention(log, RetentionRules(30), NOW)
    done = apply_retention(log, due, lambda: NOW)
    assert (done.files, done.events) == (1, 3)
    assert sum(1 for path in (tmp_path / "undo").glob("??/*") if path.is_file()) == 1
    log.close()


class Stopping(MemoryLog):
    """A log that breaks down at one of its removals."""

    left = 3

    def remove(self, session: str, epoch: int, most: int = 5_000) -> bool:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().remove(session, epoch, most)


@pytest.mark.parametrize("left", range(1, 6))
def test_whatever_ends_it_each_session_is_whole_and_the_next_run_goes_on(left: int):
    log = Stopping()
    log.left = left
    many = [Draft("user_message", {"text": str(n)}) for n in range(8)]
    make(log, "s", 50, *many)
    child(log, "of s", "s", 50)
    rules = RetentionRules(30)
    with pytest.raises(KeyboardInterrupt):
        take_out(log, rules, batch=3)
    for head in log.sessions():
        assert verify(log, head.session) == []
        assert log.leases(head.session)[-1].released is not None
    take_out(log, rules, batch=3)
    assert log.sessions() == []


class Damaged(MemoryLog):
    """A log whose sessions cannot be read."""

    def read(self, session: str, after: int = 0, upto: int | None = None) -> list[Event]:
        raise CorruptLog(session)


def test_a_damaged_session_goes_as_any_other():
    log = Damaged()
    log.create("s", 1.0)
    epoch = log.acquire("s", Owner.here(), 1.0).epoch
    log.append("s", epoch, 0, [Draft("session_created", {"tenant": "t"})], 1.0)
    log.release("s", epoch, 1.0)
    assert take_out(log, RetentionRules(tenant_days={"t": 30})) == ("s",)


def test_rings_of_sessions_end():
    log = MemoryLog()
    for name, parent in (("a", "b"), ("b", "c"), ("c", "b"), ("d", "nobody")):
        child(log, name, parent, 50)
    assert sorted(names(plan_retention(log, RetentionRules(30), NOW))) == [("a", "b", "c"), ("d",)]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({}, "give a limit"),
        ({"days": 0}, "over 0"),
        ({"days": math.nan}, "over 0"),
        ({"tenant_days": {"t": -1}}, "over 0"),
        ({"most_bytes": -1}, "0 bytes or more"),
    ],
)
def test_rules_that_cannot_be_are_refused(rules: dict, told: str):
    with pytest.raises(ConfigurationError, match=told):
        RetentionRules(**rules)


class Plain:
    """A log of another make."""

    url = "other:"


def test_a_log_that_cannot_is_told():
    with pytest.raises(ConfigurationError, match="needs `survey` and `remove`"):
        plan_retention(Plain(), RetentionRules(1), NOW)  # type: ignore[arg-type]
