"""Checkpoints and conversations in memory: what is found, what holds, what is forgotten."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tests.storage.records import checkpoint, sized, talk
from ullage.core.compaction.checkpoint import Checkpoint
from ullage.storage import MemoryCheckpoints, MemoryConversations


def test_the_first_known_prefix_is_found() -> None:
    store = MemoryCheckpoints()
    assert store.load("s", ["a"]) is None
    short, long = store.save(checkpoint("short", 1)), store.save(checkpoint("long", 1, 2))
    assert store.load("s", ["unknown", "long", "short"]) is long
    assert store.load("s", ["unknown", "short"]) is short
    assert store.load("s", ["unknown"]) is None
    assert store.load("s", []) is None


def test_scopes_never_meet() -> None:
    store = MemoryCheckpoints()
    mine = store.save(checkpoint("p", 1, scope="mine"))
    assert store.load("theirs", ["p"]) is None
    theirs = store.save(checkpoint("p", 2, scope="theirs"))
    assert store.load("mine", ["p"]) is mine
    assert store.load("theirs", ["p"]) is theirs


def test_the_first_of_one_generation_holds_and_the_loser_gets_it() -> None:
    store = MemoryCheckpoints()
    first = store.save(checkpoint("p", 1))
    assert store.save(checkpoint("p", 2)) is first
    assert store.load("s", ["p"]) is first


def test_a_higher_generation_takes_the_place_and_a_lower_one_does_not() -> None:
    store = MemoryCheckpoints()
    store.save(checkpoint("p", 1))
    second = store.save(checkpoint("p", 1, 2, generation=1))
    assert store.load("s", ["p"]) is second
    assert store.save(checkpoint("p", 3)) is second


def test_a_measured_size_is_kept() -> None:
    store = MemoryCheckpoints()
    stored = store.save(checkpoint("p", 1))
    store.save_measured(sized(stored, 47))
    assert store.all() == [replace(stored, tokens_after_measured=47)]


def test_a_late_report_does_not_bring_back_what_was_replaced() -> None:
    store = MemoryCheckpoints()
    old = store.save(checkpoint("p", 1))
    new = store.save(checkpoint("p", 1, 2, generation=1))
    store.save_measured(sized(old, 47))
    assert store.load("s", ["p"]) is new


def test_a_report_on_a_forgotten_checkpoint_does_not_bring_it_back() -> None:
    store = MemoryCheckpoints(most=1)
    old = store.save(checkpoint("old", 1))
    new = store.save(checkpoint("new", 1))
    store.save_measured(sized(old, 47))
    assert store.all() == [new]


def test_the_one_used_longest_ago_is_forgotten_first() -> None:
    store = MemoryCheckpoints(most=2)
    store.save(checkpoint("a", 1))
    store.save(checkpoint("b", 1))
    assert store.load("s", ["a"]) is not None
    store.save(checkpoint("c", 1))
    assert [c.prefix for c in store.all()] == ["a", "c"]


def test_threads_that_save_one_prefix_at_once_all_get_the_same() -> None:
    store = MemoryCheckpoints()
    barrier = threading.Barrier(8)

    def save(n: int) -> Checkpoint:
        barrier.wait()
        return store.save(checkpoint("p", n))

    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(save, range(8)))
    assert all(k is kept[0] for k in kept)
    assert store.all() == [kept[0]]


# ── conversations ───────────────────────────────────────────────────────────────────────────────


def test_the_longest_known_prefix_recalls_a_conversation() -> None:
    store = MemoryConversations()
    assert store.load("s", ["a"]) is None
    short, long = talk("short"), talk("long")
    for conversation in (short, long):
        store.save(conversation)
    assert store.load("s", ["unknown", "long", "short"]) is long
    assert store.load("s", ["unknown", "short"]) is short
    assert store.load("s", ["unknown"]) is None
    assert store.load("other", ["long"]) is None


def test_the_newest_state_of_a_conversation_holds() -> None:
    store = MemoryConversations()
    store.save(talk("p", covered=1))
    store.save(talk("p", covered=2))
    found = store.load("s", ["p"])
    assert found is not None
    assert found.covered == 2


def test_the_conversation_saved_longest_ago_is_forgotten_first() -> None:
    store = MemoryConversations(most=2)
    for prefix in ("a", "b", "a", "c"):
        store.save(talk(prefix))
    assert [store.load("s", [p]) is not None for p in ("a", "b", "c")] == [True, False, True]
