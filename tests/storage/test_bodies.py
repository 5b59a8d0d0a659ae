"""Records whose stored bytes were changed: a guard is told, and never given what nobody wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.elsewhere import run_elsewhere
from tests.storage.records import checkpoint, talk
from ullage.core.errors import StoreError
from ullage.storage import Store, bodies
from ullage.storage.postgres import PostgresStore
from ullage.storage.sqlite import SqliteStore

Flip = Callable[[int], None]
DATA = {"text": "never delete the cellar", "n": 100, "deep": [{"é": None}]}


@given(bit=st.integers(0, 10_000))
def test_a_bit_that_flipped_anywhere_in_a_record_is_found(bit: int):
    whole = bodies.seal(DATA)
    changed = bytearray(whole)
    changed[bit // 8 % len(whole)] ^= 1 << bit % 8
    assert bodies.read(dict, whole, "here", "start anew") == DATA
    with pytest.raises(StoreError, match=r"here holds a record that cannot be read.*start anew"):
        bodies.read(dict, bytes(changed), "here", "start anew")


def test_a_record_of_before_there_was_a_hash_is_read():
    assert bodies.read(dict, b'{"n":100}', "here", "start anew") == {"n": 100}


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Flip]]:
    """Lend a store, and what changes one bit in the middle of each of its records."""
    made: Store
    if request.param == "sqlite":
        path = tmp_path / "store.db"
        made = SqliteStore(path)

        def flip(bit: int) -> None:
            half = "length(body) / 2"
            code = f"unicode(CAST(substr(body, {half} + 1, 1) AS TEXT))"
            changed = f"char(({code} | {1 << bit}) - ({code} & {1 << bit}))"
            run_elsewhere(
                path,
                f"UPDATE records SET body = CAST(CAST(substr(body, 1, {half}) AS TEXT) "
                f"|| {changed} || CAST(substr(body, {half} + 2) AS TEXT) AS BLOB)",
            )

    else:
        url = request.getfixturevalue("postgres_database")()
        made = PostgresStore(url)

        def flip(bit: int) -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                rows = connection.execute("SELECT id, body FROM ullage.records").fetchall()
                for row, body in rows:
                    changed = bytearray(body)
                    changed[len(changed) // 2] ^= 1 << bit
                    connection.execute(
                        "UPDATE ullage.records SET body = %s WHERE id = %s", (bytes(changed), row)
                    )

    yield made, flip
    made.close()


@pytest.mark.parametrize("bit", [0, 6])
def test_a_guard_is_not_given_what_is_not_what_was_kept(store: tuple[Store, Flip], bit: int):
    made, flip = store
    kept, state = checkpoint("p", 1, 2), talk("p")
    made.checkpoints.save(kept)
    made.conversations.save(state)
    assert made.checkpoints.load(kept.scope, [kept.prefix]) == kept
    flip(bit)
    with pytest.raises(StoreError):
        made.checkpoints.load(kept.scope, [kept.prefix])
    with pytest.raises(StoreError):
        made.conversations.load(state.scope, [state.prefix])
    flip(bit)
    assert made.checkpoints.load(kept.scope, [kept.prefix]) == kept
    assert made.conversations.load(state.scope, [state.prefix]) == state
