"""One suite for every log: the same operations give the same answers, whatever it is made of."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.storage.databases import TimedLog
from ullage.core.errors import BusyWriter, CorruptLog, Fenced, StoreError
from ullage.core.session.log.event import Draft, read
from ullage.storage.log import (
    EventLog,
    Head,
    Owner,
    dead,
    faults_of,
    verify,
)
from ullage.storage.log_memory import MemoryLog
from ullage.storage.log_sqlite import SqliteLog

SOME = Owner("some", 1, "", "")
OTHER = Owner("other", 2, "", "")
PROC = pytest.mark.skipif(not Path("/proc/self/ns/pid").is_symlink(), reason="needs /proc")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventLog]:
    """Open an empty log of each make."""
    opened: EventLog
    if request.param == "memory":
        opened = MemoryLog()
    elif request.param == "sqlite":
        opened = SqliteLog(tmp_path / "log.db")
    else:
        opened = TimedLog(request.getfixturevalue("postgres_database")())
    yield opened
    opened.close()


def word(text: str = "x") -> Draft:
    """Return a user's message."""
    return Draft("user_message", {"text": text})


def begun(log: EventLog, session: str = "s") -> int:
    """Create a session and become its writer; return the epoch."""
    log.create(session, 1.0)
    return log.acquire(session, SOME, 1.0).epoch


# ── events ──────────────────────────────────────────────────────────────────────────────────────


def test_what_was_appended_is_read_back_equal_and_gapless(log: EventLog):
    epoch = begun(log)
    strange = Draft("dreamt", {"a": [1.5, None, "\ud800 \u2028\0"], "b": {"c": True}}, v=7)
    first = log.append("s", epoch, 0, [word("a"), strange], 2.0)
    second = log.append("s", epoch, 2, [word("b")], 3.5)
    assert log.read("s") == first + second
    assert [e.seq for e in log.read("s")] == [1, 2, 3]
    assert [e.data for e in log.read("s")] == [e.data for e in first + second]
    assert log.read("s", 1, 2) == first[1:]
    assert log.read("s", 3) == []
    assert log.head("s") == Head("s", 1.0, 3, second[0].id, epoch)
    assert verify(log, "s") == []


def test_sessions_do_not_mix(log: EventLog):
    one, two = begun(log, "b"), begun(log, "a")
    log.append("b", one, 0, [word("1")], 2.0)
    log.append("a", two, 0, [word("2"), word("3")], 2.0)
    assert [(head.session, head.seq) for head in log.sessions()] == [("b", 1), ("a", 2)]
    assert [e.data["text"] for e in log.read("b")] == ["1"]


def test_an_append_behind_another_head_is_fenced_and_uses_no_seq(log: EventLog):
    epoch = begun(log)
    log.append("s", epoch, 0, [word()], 2.0)
    for expected in (0, 2):
        with pytest.raises(Fenced, match=f"stands at event 1, not {expected}"):
            log.append("s", epoch, expected, [word()], 2.0)
    (event,) = log.append("s", epoch, 1, [word()], 2.0)
    assert event.seq == 2


def test_an_append_that_fails_leaves_nothing_of_itself(log: EventLog):
    epoch = begun(log)
    with pytest.raises(StoreError, match="cannot be recorded"):
        log.append("s", epoch, 0, [word(), Draft("dreamt", {"a": object()})], 2.0)
    assert (log.read("s"), log.head("s").seq) == ([], 0)
    assert log.append("s", epoch, 0, [], 2.0) == []


@pytest.mark.parametrize("name", ["", "a\n", "\ud800", "x" * 201])
def test_a_name_that_cannot_be_one_is_refused(log: EventLog, name: str):
    with pytest.raises(StoreError, match="cannot name a session"):
        log.create(name, 1.0)
    with pytest.raises(StoreError, match="there is no session"):
        log.head(name)


def test_a_session_that_is_not_there_is_told_by_name(log: EventLog):
    uses: list[Callable[[], object]] = [
        lambda: log.head("s"),
        lambda: log.read("s"),
        lambda: log.read_stamped("s"),
        lambda: log.leases("s"),
        lambda: log.acquire("s", SOME, 1.0),
        lambda: log.heartbeat("s", 1, 1.0),
        lambda: log.release("s", 1, 1.0),
        lambda: log.append("s", 1, 0, [word()], 1.0),
    ]
    for use in uses:
        with pytest.raises(StoreError, match="there is no session 's'"):
            use()


def test_a_name_is_given_once(log: EventLog):
    begun(log)
    with pytest.raises(StoreError, match="there is a session 's'"):
        log.create("s", 2.0)


# ── leases ──────────────────────────────────────────────────────────────────────────────────────


def test_there_is_one_writer_and_a_second_one_is_refused(log: EventLog):
    begun(log)
    with pytest.raises(BusyWriter, match="being written by some"):
        log.acquire("s", OTHER, 2.0)
    with pytest.raises(BusyWriter):
        log.acquire("s", SOME, 2.0)


def test_a_session_without_a_writer_takes_no_event(log: EventLog):
    log.create("s", 1.0)
    with pytest.raises(Fenced, match="nobody may"):
        log.append("s", 1, 0, [word()], 1.0)


def test_a_released_lease_is_over_and_the_next_writer_has_a_higher_epoch(log: EventLog):
    epoch = begun(log)
    log.release("s", epoch, 2.0)
    log.release("s", epoch, 3.0)
    with pytest.raises(Fenced, match="was released"):
        log.append("s", epoch, 0, [word()], 2.0)
    with pytest.raises(Fenced):
        log.heartbeat("s", epoch, 2.0)
    lease = log.acquire("s", OTHER, 2.0)
    assert (lease.epoch, lease.taken) == (epoch + 1, "")
    assert [held.released for held in log.leases("s")] == [2.0, None]


def test_a_writer_that_gave_no_sign_is_followed_with_a_record_and_fenced(log: EventLog):
    epoch = begun(log)
    log.append("s", epoch, 0, [word()], 2.0)
    assert log.heartbeat("s", epoch, 20.0).seen == 20.0
    with pytest.raises(BusyWriter):
        log.acquire("s", OTHER, 50.0)
    lease = log.acquire("s", OTHER, 50.1)
    assert "some (pid 1), gave no sign for 30 s" in lease.taken
    assert log.leases("s")[-1] == lease
    for use in (
        lambda: log.append("s", epoch, 1, [word()], 51.0),
        lambda: log.heartbeat("s", epoch, 51.0),
    ):
        with pytest.raises(Fenced, match=f"other in epoch {lease.epoch} may"):
            use()
    log.release("s", epoch, 51.0)
    log.append("s", lease.epoch, 1, [word()], 51.0)
    assert [epoch for epoch, _ in log.read_stamped("s")] == [1, 2]
    assert verify(log, "s") == []


def test_a_writer_is_taken_over_from_where_that_is_asked_for(log: EventLog):
    epoch = begun(log)
    with pytest.raises(BusyWriter, match="--take-over"):
        log.acquire("s", OTHER, 2.0)
    lease = log.acquire("s", OTHER, 2.0, take_over=True)
    assert (lease.epoch, lease.taken) == (
        epoch + 1,
        "the writer before, some (pid 1), was not waited for",
    )
    with pytest.raises(Fenced, match="other in epoch 2 may"):
        log.append("s", epoch, 0, [word()], 2.0)
    log.append("s", lease.epoch, 0, [word()], 2.0)
    assert verify(log, "s") == []


def test_a_clock_that_went_back_holds_no_lease_open(log: EventLog):
    epoch = begun(log)
    log.heartbeat("s", epoch, 5_000.0)
    with pytest.raises(BusyWriter):
        log.acquire("s", OTHER, 4_971.0)
    assert "before the clock went back" in log.acquire("s", OTHER, 4_969.0).taken


def test_a_writer_goes_on_by_a_clock_that_went_back(log: EventLog):
    epoch = begun(log)
    log.heartbeat("s", epoch, 5_000.0)
    assert log.heartbeat("s", epoch, 1_000.0).seen == 1_000.0
    with pytest.raises(BusyWriter):
        log.acquire("s", OTHER, 1_029.0)


@PROC
def test_a_living_process_that_can_be_seen_keeps_its_lease_when_the_clock_goes_back(log: EventLog):
    log.create("s", 1.0)
    log.acquire("s", Owner.here(), 5_000.0)
    with pytest.raises(BusyWriter):
        log.acquire("s", OTHER, 1_000.0)


@PROC
def test_a_writer_from_before_a_restart_is_dead_where_only_this_machine_writes(log: EventLog):
    log.create("s", 1.0)
    here = Owner.here("gone")
    elsewhere = f"another-boot {here.place.split()[1]}"
    log.acquire("s", replace(here, place=elsewhere), 2.0)
    if isinstance(log, TimedLog):  # it may be another machine, and alive
        with pytest.raises(BusyWriter):
            log.acquire("s", OTHER, 2.0)
    else:
        assert "before this machine was started" in log.acquire("s", OTHER, 2.0).taken


def test_a_lease_out_of_time_that_nobody_took_still_writes(log: EventLog):
    epoch = begun(log)
    assert log.append("s", epoch, 0, [word()], 9e9)[0].seq == 1


@PROC
def test_a_dead_writer_is_followed_at_once_with_a_record(log: EventLog):
    code = "import json; from ullage.storage.log import Owner; print(Owner.here('gone').to_dict())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    owner = Owner(**eval(done.stdout))
    log.create("s", 1.0)
    log.acquire("s", owner, 1.0)
    lease = log.acquire("s", SOME, 1.0)
    assert lease.taken == f"the writer before, gone (pid {owner.pid}), is dead"


@PROC
def test_only_a_process_of_this_boot_that_ended_is_known_to_be_dead():
    here = Owner.here()
    assert not dead(here)
    assert dead(replace(here, started="1"))  # its number is another's by now
    assert not dead(replace(here, place="elsewhere", pid=2**22 + 1))
    assert dead(replace(here, pid=2**22 + 1))
    assert not dead(SOME)


@PROC
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_of_which_only_the_number_is_left_is_dead():
    child = os.fork() if sys.platform == "linux" else 0
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert dead(replace(Owner.here(), pid=child, started="1"))
    finally:
        os.waitpid(child, 0)


# ── bringing in, verifying ──────────────────────────────────────────────────────────────────────


def test_a_session_brought_in_is_the_same_and_can_be_continued(log: EventLog):
    source = MemoryLog()
    events = source.append("s", begun(source), 0, [word("a"), Draft("dreamt", {}, v=9)], 2.0)
    assert log.restore(events, 5.0) == Head("s", 5.0, 2, events[-1].id)
    assert log.read("s") == events
    epoch = log.acquire("s", OTHER, 6.0).epoch
    log.append("s", epoch, 2, [word("b")], 6.0)
    assert verify(log, "s") == []
    with pytest.raises(StoreError, match="there is a session"):
        log.restore(events, 5.0)


def test_what_is_no_whole_session_is_not_brought_in(log: EventLog):
    source = MemoryLog()
    events = source.append("s", begun(source), 0, [word("a"), word("b")], 2.0)
    with pytest.raises(CorruptLog, match="no events"):
        log.restore([], 1.0)
    with pytest.raises(CorruptLog, match="event 2 of session s follows event 0"):
        log.restore(events[1:], 1.0)
    with pytest.raises(CorruptLog, match="was changed after it was written"):
        log.restore([events[0], read(events[1].line().replace('"b"', '"c"'))], 1.0)
    assert log.sessions() == []


def test_each_breach_of_the_promise_is_told():
    source = MemoryLog()
    epoch = begun(source)
    events = source.append("s", epoch, 0, [word("a"), word("b"), word("c")], 2.0)
    head = source.head("s")
    stamped = [(1, event) for event in events]
    assert list(faults_of(stamped, head)) == []
    (tail,) = faults_of(stamped[:2], head)
    assert tail == "session s ends at event 2, and event 3 was written"
    assert any("follows event 1" in fault for fault in faults_of([stamped[0], stamped[2]], head))
    assert list(faults_of([(2, events[0]), *stamped[1:]])) == [
        "event 2 of session s was written in epoch 1, after one of epoch 2",
        "event 3 of session s was written in epoch 1, after one of epoch 2",
    ]
    other = replace(events[1], session_id="t")
    assert any("not of session s" in fault for fault in faults_of([stamped[0], (1, other)]))


def test_a_log_in_memory_forgets_when_it_is_closed():
    log = MemoryLog()
    begun(log)
    log.close()
    assert (log.sessions(), log.url) == ([], "memory:")


# ── any order of operations ─────────────────────────────────────────────────────────────────────


class Logs(RuleBasedStateMachine):
    """The same operations on every make of log, on a session of its own."""

    numbers = itertools.count()

    def __init__(self, also: EventLog | None = None) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "log.db"
        self.own: list[EventLog] = [MemoryLog(), SqliteLog(path)]
        self.logs = [*self.own, *([] if also is None else [also])]
        self.session = f"s{next(self.numbers)}"
        self.now = 1.0
        for log in self.logs:
            log.create(self.session, self.now)

    def teardown(self) -> None:
        for log in self.own:
            log.close()
        self.folder.cleanup()

    def alike(self, use: Callable[[EventLog], object]) -> None:
        answers: list[object] = []
        for log in self.logs:
            try:
                answers.append(use(log))
            except StoreError as error:
                answers.append((type(error), str(error)))
        assert all(answer == answers[0] for answer in answers)

    @rule(epoch=st.integers(0, 3), back=st.integers(0, 1), count=st.integers(0, 2))
    def append(self, epoch: int, back: int, count: int) -> None:
        drafts = [word(str(n)) for n in range(count)]
        head = self.logs[0].head(self.session).seq - back
        self.alike(lambda log: log.append(self.session, epoch, head, drafts, self.now))

    @rule(owner=st.sampled_from([SOME, OTHER]), later=st.sampled_from([0.0, 40.0]))
    def acquire(self, owner: Owner, later: float) -> None:
        self.now += later
        self.alike(lambda log: log.acquire(self.session, owner, self.now))

    @rule(epoch=st.integers(0, 3))
    def heartbeat(self, epoch: int) -> None:
        self.now += 1
        self.alike(lambda log: log.heartbeat(self.session, epoch, self.now))

    @rule(epoch=st.integers(0, 3))
    def release(self, epoch: int) -> None:
        self.alike(lambda log: log.release(self.session, epoch, self.now))

    @invariant()
    def they_hold_the_same_and_keep_the_promise(self) -> None:
        self.alike(
            lambda log: (
                log.read_stamped(self.session),
                log.head(self.session),
                log.leases(self.session),
            )
        )
        assert all(verify(log, self.session) == [] for log in self.logs)


TestLogs = Logs.TestCase


@pytest.mark.slow
def test_postgresql_gives_the_same_answers_to_any_order_of_operations(
    postgres_database: Callable[[], str],
):
    log = TimedLog(postgres_database())

    class WithPostgres(Logs):
        def __init__(self) -> None:
            super().__init__(log)

    try:
        run_state_machine_as_test(WithPostgres)
    finally:
        log.close()
