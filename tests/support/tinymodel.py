"""Makes a llama.cpp model of a third of a megabyte that starts in a tenth of a second.

A real GGUF with a real byte-level BPE vocabulary, so any text tokenizes, and a ChatML template
that also renders tools, tool calls and tool results. The weights are a bigram: whatever is asked,
it says one fixed sentence and stops. It knows nothing of servers, and means nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

SENTENCE = "The tiny test model says hello to you and stops here."

# Every system, user, assistant and tool message becomes one ChatML block; a missing content is
# empty, and calls and their results keep name, arguments and text, so that they cost tokens.
CHAT_TEMPLATE = """\
{%- if tools -%}
{{- '<|im_start|>system\\ntools:' -}}
{%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] -%}{{- message['content'] -}}{%- endif -%}
{%- if message['tool_calls'] -%}
{%- for call in message['tool_calls'] -%}
{{- '\\n<tool_call>\\n{"name": "' + call['function']['name'] + '", "arguments": ' -}}
{%- if call['function']['arguments'] is string -%}
{{- call['function']['arguments'] -}}
{%- else -%}
{{- call['function']['arguments'] | tojson -}}
{%- endif -%}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

_CORPUS = (
    "user assistant system tool the a of to and in is that for it you with on as are this be have "
    "or by not but at from they we an which one all would there their what out about who get make "
    "can like time just know take people into year your good some could them see other than then "
    "now look only come its over think also back after use two how our work first well way even "
    "new want because any these give day most us context window token model server message "
    "summary conversation number word text file code"
)
WORD = re.compile(r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+")
_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_PAD, _BOS, _EOS = 0, 1, 2
_MERGES = 600
_WIDTH, _HEADS, _HEAD_WIDTH, _FEED_FORWARD = 64, 4, 16, 32

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Hold the tokens in id order and the BPE merges in order of priority."""

    tokens: tuple[str, ...]
    merges: tuple[Pair, ...]

    def ids(self, text: str) -> list[int]:
        """Return the token ids of `text`, without special tokens."""
        number = {token: n for n, token in enumerate(self.tokens)}
        ids: list[int] = []
        for word in WORD.findall(text):
            pieces = _letters(word)
            for merge in self.merges:
                pieces = _joined(pieces, merge)
            ids += [number[piece] for piece in pieces]
        return ids


def make(path: Path, *, trained_window: int = 131072, sentence: str = SENTENCE) -> Path:
    """Write the model to `path` atomically and return it; the same arguments give the same bytes.

    `trained_window` is the context length in tokens that the header claims. Raises ValueError if
    `sentence` is empty or a token occurs in it twice: the bigram would then never stop.
    """
    vocabulary = train(sentence)
    walk = vocabulary.ids(sentence)
    if not walk or len(set(walk)) != len(walk):
        raise ValueError(
            f"the sentence {sentence!r} must have tokens and none of them twice, because each "
            f"token decides the next one; choose words that differ"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        part = Path(scratch) / "tiny.gguf"
        _write(part, vocabulary, walk, trained_window)
        part.replace(path)
    return path


def train(sentence: str) -> Vocabulary:
    """Return the byte-level BPE vocabulary learnt from `sentence` and a few common words."""
    text = f"{sentence} " * 20 + f"{_CORPUS} " * 5
    words: Counter[tuple[str, ...]] = Counter(tuple(_letters(w)) for w in WORD.findall(text))
    merges: list[Pair] = []
    for _ in range(_MERGES):
        pairs: Counter[Pair] = Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        if not pairs:
            break
        # The most frequent, and of equals the smallest, so that no hash order decides.
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        joined: Counter[tuple[str, ...]] = Counter()
        for word, count in words.items():
            joined[tuple(_joined(list(word), best))] += count
        words = joined
    tokens = dict.fromkeys((*_SPECIALS, *_byte_letters(), *(a + b for a, b in merges)))
    return Vocabulary(tuple(tokens), tuple(merges))


def _byte_letters() -> tuple[str, ...]:
    """Return the printable letter that stands for each byte: GPT-2's table."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = itertools.count(0x100)
    return tuple(chr(byte if byte in printable else next(spare)) for byte in range(256))


def _letters(word: str) -> list[str]:
    table = _byte_letters()
    return [table[byte] for byte in word.encode()]


def _joined(pieces: list[str], merge: Pair) -> list[str]:
    """Return `pieces` with each neighbouring pair equal to `merge` joined, from the left."""
    out: list[str] = []
    at = 0
    while at < len(pieces):
        if tuple(pieces[at : at + 2]) == merge:
            out.append(merge[0] + merge[1])
            at += 2
        else:
            out.append(pieces[at])
            at += 1
    return out


def _codes(count: int) -> NDArray[np.float32]:
    """Return a row of plus and minus ones for each token; from a hash, so no generator drifts."""
    digests = (hashlib.sha256(n.to_bytes(4, "big")).digest()[: _WIDTH // 8] for n in range(count))
    bits = np.unpackbits(np.frombuffer(b"".join(digests), np.uint8)).reshape(count, _WIDTH)
    return bits.astype(np.float32) * 2 - 1


def _bigram(
    codes: NDArray[np.float32], vocabulary: Vocabulary, walk: list[int]
) -> NDArray[np.float32]:
    """Return the output rows: the row of a token holds the codes of the tokens it follows.

    The sentence and the newline that ends a prompt pull hard, everything else only a little
    towards the first word: the sum of many such codes must not drown the walk.
    """
    follows = dict(zip(walk, [*walk[1:], _EOS], strict=True))
    newline = vocabulary.tokens.index(_letters("\n")[0])
    out = np.zeros_like(codes)
    for token, code in enumerate(codes):
        strong = token in follows or token == newline
        out[follows.get(token, walk[0])] += code * np.float32(0.6 if strong else 0.02)
    return out


def _write(path: Path, vocabulary: Vocabulary, walk: list[int], trained_window: int) -> None:
    size = len(vocabulary.tokens)
    file = gguf.GGUFWriter(str(path), "llama")
    try:
        _header(file, vocabulary, trained_window)
        codes = _codes(size)
        for name, tensor in _tensors(codes, _bigram(codes, vocabulary, walk)).items():
            file.add_tensor(name, tensor)
        file.write_header_to_file()
        file.write_kv_data_to_file()
        file.write_tensors_to_file()
    finally:
        file.close()


def _header(file: gguf.GGUFWriter, vocabulary: Vocabulary, trained_window: int) -> None:
    size = len(vocabulary.tokens)
    file.add_name("ullage-tiny")
    file.add_license("CC0-1.0")
    file.add_context_length(trained_window)
    file.add_embedding_length(_WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(_FEED_FORWARD)
    file.add_head_count(_HEADS)
    file.add_head_count_kv(1)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(_HEAD_WIDTH)
    file.add_rope_freq_base(10000.0)
    file.add_file_type(gguf.LlamaFileType.ALL_F32)
    file.add_vocab_size(size)
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    file.add_token_list(list(vocabulary.tokens))
    kinds = [gguf.TokenType.CONTROL] * len(_SPECIALS)
    file.add_token_types(kinds + [gguf.TokenType.NORMAL] * (size - len(_SPECIALS)))
    file.add_token_merges([f"{a} {b}" for a, b in vocabulary.merges])
    file.add_bos_token_id(_BOS)
    file.add_eos_token_id(_EOS)
    file.add_pad_token_id(_PAD)
    file.add_add_bos_token(False)
    file.add_chat_template(CHAT_TEMPLATE)


def _tensors(
    codes: NDArray[np.float32], bigram: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    """Return the weights: attention and feed-forward are zero, so only the bigram speaks."""

    def zeros(*shape: int) -> NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    ones = np.ones(_WIDTH, np.float32)
    queries = _HEADS * _HEAD_WIDTH
    return {
        "token_embd.weight": codes,
        "output_norm.weight": ones,
        "output.weight": bigram,
        "blk.0.attn_norm.weight": ones,
        "blk.0.ffn_norm.weight": ones,
        "blk.0.attn_q.weight": zeros(queries, _WIDTH),
        "blk.0.attn_k.weight": zeros(_HEAD_WIDTH, _WIDTH),
        "blk.0.attn_v.weight": zeros(_HEAD_WIDTH, _WIDTH),
        "blk.0.attn_output.weight": zeros(_WIDTH, queries),
        "blk.0.ffn_gate.weight": zeros(_FEED_FORWARD, _WIDTH),
        "blk.0.ffn_up.weight": zeros(_FEED_FORWARD, _WIDTH),
        "blk.0.ffn_down.weight": zeros(_WIDTH, _FEED_FORWARD),
    }
