"""Partitions of a PostgreSQL log: begun with data and ended, one gapless session, dropped whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from tests.support.waiting import eventually
from ullage.agent.moving import move_texts
from ullage.agent.retention import RetentionRules, apply_retention, plan_retention
from ullage.core.errors import BusyWriter, ConfigurationError, Fenced, StoreError
from ullage.core.session.log.event import Draft
from ullage.storage.log import Owner, verify
from ullage.storage.log_postgres import PostgresLog
from ullage.storage.objects import ObjectPlace
from ullage.storage.partitions import EVERY, Every, _find_end, _read_bounds
from ullage.storage.searching import search_log

DAY = 24 * 3600.0
SOME = Owner("some", 1, "", "")


@pytest.fixture
def url(postgres_database: Callable[[], str]) -> str:
    return postgres_database()


@pytest.fixture
def log(url: str) -> Iterator[PostgresLog]:
    with closing(PostgresLog(url)) as opened:
        yield opened


def run(url: str, sql: str) -> list[tuple]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def write(log: PostgresLog, name: str, *texts: str) -> int:
    """Write a session; return the epoch of its writer, who holds it still."""
    log.create(name, 1.0)
    epoch = log.acquire(name, SOME, 1.0).epoch
    add(log, name, epoch, *texts)
    return epoch


def add(log: PostgresLog, name: str, epoch: int, *texts: str) -> None:
    drafts = [Draft("user_message", {"text": text}) for text in texts]
    log.append(name, epoch, log.head(name).seq, drafts, 5.0)


def find_table(url: str, name: str) -> list[str]:
    sql = f"SELECT DISTINCT tableoid::regclass::text FROM ullage.events WHERE session_id = '{name}'"
    return [table.removeprefix("ullage.") for (table,) in run(url, sql)]


def attach(url: str, name: str, first: object, end: object) -> None:
    bounds = f"FROM ({first}) TO ({end})"
    run(url, f"ALTER TABLE ullage.events ATTACH PARTITION ullage.{name} FOR VALUES {bounds}")


def begin_now(log: PostgresLog, url: str) -> str:
    """Have the present time begin a partition of its own; return its name."""
    log.partitions.begin("day")
    later = log.partitions.list_all()[1]
    run(url, "UPDATE ullage.events_before SET born = 1 WHERE born > 1")
    run(url, "UPDATE ullage.sessions SET born = 1 WHERE born > 1")
    run(url, "ALTER TABLE ullage.events_before DROP CONSTRAINT events_cut")
    run(url, "ALTER TABLE ullage.events DETACH PARTITION ullage.events_before")
    attach(url, "events_before", "MINVALUE", 500)
    run(url, f"ALTER TABLE ullage.events DETACH PARTITION ullage.{later.name}")
    attach(url, later.name, 500, later.end)
    return later.name


@pytest.mark.parametrize("every", EVERY)
def test_a_log_with_data_goes_into_partitions_and_back(log: PostgresLog, url: str, every: Every):
    epochs = {name: write(log, name, "one", f"two of {name}") for name in ("a", "b")}
    before = {name: log.read_stamped(name) for name in epochs}
    with closing(PostgresLog(url)) as other:
        other.head("a")
        made = log.partitions.begin(every)
        assert made[0].name == "events_before"
        assert len(made) in (3, 4)  # in the last hour of a day the first one has the next, too
        assert all(one.end == two.first for one, two in pairwise(made))
        assert log.partitions.find_every() == every
        for writer in (log, other):
            assert {name: writer.read_stamped(name) for name in epochs} == before
        for writer in (log, other):  # who had the log open goes on
            add(writer, "a", epochs["a"], "more")
            assert verify(writer, "a") == []
        write(other, "new", "three")
        assert len(other.read("new")) == 1
    with pytest.raises(ConfigurationError, match=f"has partitions already, by {every}"):
        log.partitions.begin(every)
    whole = {head.session: log.read_stamped(head.session) for head in log.sessions()}
    log.partitions.end()
    assert log.partitions.find_every() is None
    assert log.partitions.list_all() == []
    assert {name: log.read_stamped(name) for name in whole} == whole
    add(log, "b", epochs["b"], "more")
    assert all(verify(log, name) == [] for name in whole)
    keys = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'ullage' AND tablename = 'events'"
    assert run(url, keys) == [
        ("CREATE UNIQUE INDEX events_pkey ON ullage.events USING btree (session_id, seq)",)
    ]
    log.partitions.begin(every)
    assert {name: len(log.read(name)) for name in whole} == {"a": 4, "b": 3, "new": 1}


def test_a_session_lies_in_one_partition_however_long_it_lives(log: PostgresLog, url: str):
    old = write(log, "old", "one")
    name = begin_now(log, url)
    epoch = write(log, "new", "one")
    add(log, "old", old, "two, too")
    add(log, "new", epoch, "two")
    assert find_table(url, "old") == ["events_before"]
    assert find_table(url, "new") == [name]
    plan = "\n".join(
        line
        for (line,) in run(
            url,
            "EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM ullage.events WHERE session_id = 'new' "
            "AND seq >= 0 AND born = (SELECT born FROM ullage.sessions WHERE session_id = 'new')",
        )
    )
    assert plan.count("never executed") >= 2, plan
    assert {hit.session for hit in search_log(log, "two")} == {"old", "new"}


def test_of_two_writers_one_wins_and_no_number_is_given_twice(log: PostgresLog, url: str):
    epoch = write(log, "s", "one")
    log.partitions.begin("month")
    refused: list[int] = []

    def append(number: int) -> None:
        with closing(PostgresLog(url)) as own:
            for _ in range(20):
                head = own.head("s").seq
                try:
                    own.append("s", epoch, head, [Draft("user_message", {"text": "x"})], 1.0)
                except Fenced:
                    refused.append(number)

    threads = [threading.Thread(target=append, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.seq for event in log.read("s")] == list(range(1, 62 - len(refused)))
    assert verify(log, "s") == []


def test_who_writes_meanwhile_goes_on(log: PostgresLog, url: str):
    write(log, "s", *map(str, range(200)))
    stop, counts = threading.Event(), [0, 0, 0]

    def append(number: int) -> None:
        with closing(PostgresLog(url)) as own:
            name = f"w{number}"
            epoch = write(own, name, "one")
            while not stop.is_set():
                add(own, name, epoch, "more")
                counts[number] += 1

    threads = [threading.Thread(target=append, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        log.partitions.begin("day")
        goal = max(counts) + 3
        eventually(lambda goal=goal: min(counts) >= goal)  # type: ignore[misc]
        log.partitions.end()
    stop.set()
    for thread in threads:
        thread.join()
    for number, count in enumerate(counts):
        assert log.head(f"w{number}").seq == count + 1
        assert verify(log, f"w{number}") == []


def test_a_program_that_knows_no_partitions_is_refused_and_loses_nothing(
    log: PostgresLog, url: str
):
    write(log, "s", "one")
    old = (
        "INSERT INTO ullage.events (session_id, seq, epoch, ts, type, v, id, data) "
        "VALUES ('s', 9, 1, 1, 'note', 1, 'x', '{}')"
    )
    run(url, old)  # before, what an older program writes is there
    run(url, "DELETE FROM ullage.events WHERE seq = 9")
    log.partitions.begin("month")
    with pytest.raises(psycopg.errors.CheckViolation):
        run(url, old)


def test_what_an_older_program_wrote_comes_along(log: PostgresLog, url: str):
    write(log, "s", "one", "two")
    run(url, "UPDATE ullage.events SET born = '-infinity' WHERE seq = 2")
    assert len(log.read("s")) == 2
    log.partitions.begin("month")
    with closing(PostgresLog(url)) as new:
        assert len(new.read("s")) == 2


def test_without_partitions_ahead_sessions_go_to_the_last_one(log: PostgresLog, url: str):
    log.partitions.begin("day", 1)
    (_, edge) = run(url, "SELECT every, edge FROM ullage.layout")[0]
    run(url, f"UPDATE ullage.layout SET edge = {edge - 30 * DAY}")
    write(log, "s", "one")
    assert log.read("s")[0].seq == 1
    run(url, f"UPDATE ullage.layout SET edge = {edge}")
    made = log.partitions.make_ahead(5)
    assert [f"{datetime.fromtimestamp(one.first, UTC):events_%Y%m%d}" for one in made] == [
        one.name for one in made
    ]
    assert len(made) in {3, 4, 5}
    assert log.partitions.make_ahead(5) == []


def test_a_partition_goes_with_its_sessions_at_once(log: PostgresLog, url: str, tmp_path: Path):
    for name in ("a", "b"):
        log.release(name, write(log, name, f"the gauge of {name}", "x" * 5_000), 1.0)
    place = ObjectPlace(f"file://{tmp_path}/texts", create=True)
    assert move_texts(log, place, 4e9, 4_000).texts == 2
    assert len(search_log(log, "gauge")) == 2
    name = begin_now(log, url)
    log.release("new", write(log, "new", "the gauge of new"), 1.0)
    assert log.drop({"a": 5.0}) == [], "b is to stay"
    assert log.drop({"a": 5.0, "b": 4.0}) == [], "b was written since"
    held = log.acquire("b", SOME, 1.0).epoch
    assert log.drop({"a": 5.0, "b": 5.0}) == [], "b is being written"
    log.release("b", held, 1.0)
    run(url, "UPDATE ullage.leases SET owner = replace(owner, '\"pid\": 1', '\"pid\": 999999')")
    assert sorted(log.drop({"a": 5.0, "b": 5.0, "new": 5.0})) == ["a", "b"]
    assert [head.session for head in log.sessions()] == ["new"]
    assert log.partitions.list_all()[0].name == name
    assert {hit.session for hit in search_log(log, "gauge")} == {"new"}
    assert list(place.list_objects(4e9)) == []
    assert run(url, "SELECT count(*) FROM ullage.leases") == [(1,)]
    assert write(log, "a", "anew") == 1


def test_retention_drops_what_it_can_and_deletes_the_rest(log: PostgresLog, url: str):
    log.release("a", write(log, "a", "one"), 1.0)
    begin_now(log, url)
    log.release("b", write(log, "b", "one"), 1.0)
    log.release("c", write(log, "c", "one"), 1.0)
    due = plan_retention(log, RetentionRules(days=30), time.time())
    told: list[str] = []
    done = apply_retention(log, due, time.time, told=told.append)
    assert set(done.sessions) == {"a", "b", "c"}
    assert told[0] == "a"
    assert done.events == 3
    assert "events_before" not in [one.name for one in log.partitions.list_all()]


def test_the_last_partition_stays(log: PostgresLog, url: str):
    log.release("a", write(log, "a", "one"), 1.0)
    begin_now(log, url)
    for one in log.partitions.list_all()[1:-1]:
        run(url, f"DROP TABLE ullage.{one.name}")
    last = log.partitions.list_all()[-1]
    run(url, f"ALTER TABLE ullage.events DETACH PARTITION ullage.{last.name}")
    attach(url, last.name, 500, 1000)
    run(url, "UPDATE ullage.layout SET edge = 999")
    log.release("b", write(log, "b", "one"), 1.0)
    assert log.partitions.drop({"a": 5.0, "b": 5.0}) == ["a"]
    assert len(log.read("b")) == 1


def test_a_log_without_partitions_says_so(log: PostgresLog):
    assert log.drop({"a": 1.0}) == []
    assert log.partitions.drop({"a": 1.0}) == []
    for work in (log.partitions.make_ahead, log.partitions.end):
        with pytest.raises(ConfigurationError, match="has no partitions"):
            work()
    with pytest.raises(ConfigurationError, match="day, week, month"):
        log.partitions.begin("year")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="one or more ahead"):
        log.partitions.begin("day", 0)


def test_whoever_holds_the_tables_is_waited_for_and_told(log: PostgresLog, url: str):
    write(log, "s", "one")
    hasty = PostgresLog(url, wait_s=0.2)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE ullage.sessions IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(BusyWriter, match="was locked by another"):
            hasty.partitions.begin("month")
    assert len(log.read("s")) == 1
    log.partitions.begin("month")
    with psycopg.connect(url) as other, closing(hasty):
        other.execute("SELECT * FROM ullage.events")
        with pytest.raises(BusyWriter, match="was not free for"):
            hasty.partitions.make_ahead(9)
    assert len(log.read("s")) == 1


@pytest.mark.parametrize(
    ("at", "ends"),
    [
        ("2026-02-27 23:59", ("2026-02-28", "2026-03-02", "2026-03-01")),
        ("2026-12-31 00:00", ("2027-01-01", "2027-01-04", "2027-01-01")),
        ("2026-11-23 12:00", ("2026-11-24", "2026-11-30", "2026-12-01")),
    ],
)
def test_periods_end_in_utc(at: str, ends: tuple[str, ...]):
    seconds = datetime.fromisoformat(f"{at}+00:00").timestamp()
    found = [datetime.fromtimestamp(_find_end(seconds, every), UTC) for every in EVERY]
    assert [f"{one:%Y-%m-%d}" for one in found] == list(ends)
    assert {f"{one:%H%M%S}" for one in found} == {"000000"}


def test_bounds_are_read_as_postgresql_writes_them():
    assert _read_bounds("FOR VALUES FROM (MINVALUE) TO ('5')") == (float("-inf"), 5.0)
    with pytest.raises(StoreError, match="somebody changed it"):
        _read_bounds("DEFAULT")
