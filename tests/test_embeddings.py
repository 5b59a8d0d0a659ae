"""Passages found by what they mean: the vectors of a package, and every face of a search."""

from __future__ import annotations

import asyncio
import importlib.machinery
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ullage
from ullage import embeddings
from ullage.core.compaction.edits import reference
from ullage.core.errors import ConfigurationError
from ullage.core.search.index import MemoryIndex, SearchSource
from ullage.core.search.ranking import EVERYWHERE, SearchArea
from ullage.core.session.log.event import Draft
from ullage.embeddings import SimilarPassages, load_parts, read_tensor
from ullage.storage import open_store

pytestmark = pytest.mark.skipif(
    find_spec("wordllama") is None, reason="wordllama has no wheel for Python 3.14 and ARM"
)

CAR = "The old vehicle needs oil and tyres."
NURSE = "The nurse at the hospital was kind."
LUNCH = "We had soup and bread at noon."
ASKED = "What about my car?"


@pytest.fixture
def index() -> MemoryIndex:
    index = MemoryIndex()
    said = enumerate((CAR, NURSE, LUNCH))
    index.take("", [SearchSource(reference(text), text, n) for n, text in said], 3)
    return index


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that runs in an event loop."""

    @wraps(test)
    def run(*arguments: Any, **more: Any) -> None:
        asyncio.run(test(*arguments, **more))

    return run


def find(similar: SimilarPassages, index: MemoryIndex, query: str) -> list[str]:
    return [hit.text for hit in similar.find(index, query, 10, EVERYWHERE)]


def test_other_words_of_the_same_meaning_are_found(index: MemoryIndex):
    similar = SimilarPassages(load_parts())
    assert find(similar, index, ASKED)[0] == CAR
    assert find(similar, index, "Which doctor did I see?")[0] == NURSE
    assert find(similar, index, "Which meal did we eat?")[0] == LUNCH


def test_only_what_an_area_holds_is_found(index: MemoryIndex):
    similar = SimilarPassages(load_parts())
    named = SearchArea(references=frozenset({reference(LUNCH), reference(NURSE)}))
    assert CAR not in {hit.text for hit in similar.find(index, ASKED, 10, named)}
    assert similar.find(index, ASKED, 10, SearchArea(references=frozenset())) == []


def test_what_is_forgotten_is_not_found(index: MemoryIndex):
    similar = SimilarPassages(load_parts())
    assert CAR in find(similar, index, ASKED)
    index.forget(reference(CAR))
    assert CAR not in find(similar, index, ASKED)
    index.take("", [SearchSource("u:new", "A red car stands outside.", 4)], 4)
    assert find(similar, index, ASKED)[0] == "A red car stands outside."


def test_texts_without_parts_are_in_nobodys_way(index: MemoryIndex):
    similar = SimilarPassages(load_parts())
    assert similar.find(MemoryIndex(), ASKED, 10, EVERYWHERE) == []
    assert len(find(similar, index, "?")) <= 3


def test_no_more_vectors_are_kept_than_the_bound(
    index: MemoryIndex, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(embeddings, "NEWEST", 3)
    monkeypatch.setattr(embeddings, "KEPT", 4)
    similar = SimilarPassages(load_parts())
    assert find(similar, index, ASKED)[0] == CAR
    more = [SearchSource(f"u:{n}", f"cask {n} is full", n) for n in range(2)]
    index.take("", more, 5)
    assert CAR not in find(similar, index, ASKED)  # it is not among the newest three any more
    assert set(find(similar, index, "a full cask")) >= {"cask 0 is full", "cask 1 is full"}


def test_what_comes_later_is_weighed_with_the_rest():
    similar, index = SimilarPassages(load_parts()), MemoryIndex()
    for n in range(40):
        index.take("", [SearchSource(f"u:{n}", f"the barrel {n} is full of wine", n)], n)
        assert len(find(similar, index, "barrel of wine")) <= 10
    index.take("", [SearchSource("u:x", CAR, 41)], 41)
    assert find(similar, index, ASKED)[0] == CAR


# --- the files ------------------------------------------------------------------------------------


def test_nothing_is_asked_of_the_network_and_logging_stays_as_it_was():
    code = (
        "import logging, socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('the network was asked')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from ullage.embeddings import load_parts\n"
        "assert load_parts().vectors.shape == (32000, 256)\n"
        "assert logging.getLogger().handlers == []\n"
        "assert not {'wordllama', 'requests', 'pydantic'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def write_tensor(file: Path, kind: str = "F16") -> Path:
    numbers = np.arange(6, dtype=np.float16)
    entry = {"dtype": kind, "shape": [2, 3], "data_offsets": [0, 12]}
    head = json.dumps({embeddings.TENSOR: entry}).encode()
    file.write_bytes(struct.pack("<Q", len(head)) + head + numbers.tobytes())
    return file


def test_a_tensor_is_read_as_it_was_written(tmp_path: Path):
    read = read_tensor(write_tensor(tmp_path / "t"), embeddings.TENSOR)
    assert read.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="kind BF16, not F16"):
        read_tensor(write_tensor(tmp_path / "t", "BF16"), embeddings.TENSOR)


def test_a_package_without_its_files_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    load_parts.cache_clear()
    spec = importlib.machinery.ModuleSpec("wordllama", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(embeddings, "find_spec", lambda name: spec)
    with pytest.raises(
        ConfigurationError, match=r"wordllama does not have the files that 0\.4 has"
    ):
        load_parts()


def test_what_a_setting_needs_is_loaded_by_the_first_search():
    load_parts.cache_clear()
    store: Any = ullage.open_store("memory:", embeddings=True)
    store.originals.keep({reference(CAR): CAR})
    assert load_parts.cache_info().misses == 0
    assert [hit.text for hit in store.originals.search("automobile")] == [CAR]
    assert load_parts.cache_info().misses == 1


@pytest.mark.parametrize("package", ["tokenizers", "wordllama", "numpy"])
def test_a_missing_package_is_said_with_its_extra(package: str, monkeypatch: pytest.MonkeyPatch):
    load_parts.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError) as told:
        ullage.open_store("memory:", embeddings=True)
    assert f"setting embeddings needs {package}, which is not installed" in str(told.value)
    assert "pip install 'ullage[embeddings]'" in str(told.value)


# --- the faces ------------------------------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:{tmp_path / 'store.db'}"
    kept = ullage.open_store(url)
    kept.originals.keep({reference(text): text for text in (CAR, LUNCH)})
    kept.close()
    log = ullage.open_log(url)
    with ullage.Session.create(log, "s") as session:
        session.record([Draft("user_message", {"text": NURSE})])
    log.close()
    return url


def test_the_setting_reaches_what_a_url_names(url: str, monkeypatch: pytest.MonkeyPatch):
    before = {hit.text for hit in ullage.search("automobile doctor", store=url)}
    assert before == set()
    monkeypatch.setenv("ULLAGE_EMBEDDINGS", "true")
    after = {hit.text for hit in ullage.search("automobile doctor", store=url)}
    assert after >= {CAR, NURSE}
    assert NURSE in ullage.answer_search({"query": "doctor"}, url, session="s")


@pytest.mark.parametrize("kind", ["memory:", "sqlite:"])
def test_a_store_and_a_log_may_be_opened_with_it(kind: str, tmp_path: Path):
    url = kind + (str(tmp_path / "s.db") if kind == "sqlite:" else "")
    store: Any = ullage.open_store(url, embeddings=True)
    store.originals.keep({reference(text): text for text in (CAR, LUNCH)})
    assert ullage.search("cars", store=store)[0].text == CAR
    store.close()
    log = ullage.open_log(url, embeddings=True)
    with ullage.Session.create(log, "s") as session:
        session.record([Draft("user_message", {"text": text}) for text in (CAR, LUNCH)])
    assert ullage.search("cars", store=log)[0].text == CAR
    log.close()


def test_the_command_and_the_tool_of_hosts_take_the_setting(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from ullage.cli.main import main

    assert main(["search", "cars", "--store", url]) == 1
    monkeypatch.setenv("ULLAGE_EMBEDDINGS", "true")
    assert main(["search", "cars", "--store", url]) == 0
    assert CAR in capsys.readouterr().out


def test_vectors_belong_to_texts_also_in_a_log_that_may_not_be_written(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.access", lambda *_: False)  # as root everything may be written
    log: Any = ullage.open_log(url, create=False, embeddings=True)
    assert ullage.search("doctor", store=log)[0].text == NURSE
    assert ullage.search("doctor", store=log)[0].text == NURSE
    log.close()
    store: Any = ullage.open_store(url, create=False, embeddings=True)
    assert ullage.search("automobile", store=store)[0].text == CAR
    store.close()


def test_half_a_character_is_looked_for_like_any_text(index: MemoryIndex):
    index.take("", [SearchSource(reference("x"), "half \ud800 a car", 9)], 9)
    similar = SimilarPassages(load_parts())
    assert find(similar, index, "car \udc80")


def test_vectors_are_named_by_hashes_not_by_texts(index: MemoryIndex):
    similar = SimilarPassages(load_parts())
    find(similar, index, ASKED)
    assert similar._rows
    assert not [name for name in similar._rows if isinstance(name, str)]


@in_loop
async def test_a_search_in_memory_holds_no_loop_up():
    store: Any = open_store("memory:", embeddings=True)
    store.originals.keep({reference(CAR): CAR})
    with store.originals._lock:  # as a search has it while it makes vectors
        keeping = asyncio.create_task(store.originals.akeep({reference(LUNCH): LUNCH}))
        reading = asyncio.create_task(store.originals.aread(reference(CAR)))
        await asyncio.sleep(0.01)
        assert not keeping.done()
        assert not reading.done()
    assert await reading == CAR
    await keeping
    assert store.originals.read(reference(LUNCH)) == LUNCH
