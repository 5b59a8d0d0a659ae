"""Which model has which vocabulary.

A table of ids whose vocabulary is published, and nothing inferred from the look of a name. It
does not load vocabularies, and knows nothing of windows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple


class Vocabulary(NamedTuple):
    """A vocabulary by name, and whether it is the model's own or a stand-in for it."""

    name: str
    exact: bool


STAND_IN: Final = Vocabulary("o200k_base", exact=False)

# Source: the tables of tiktoken 0.14 (`tiktoken/model.py`), which map ids and prefixes; the ids
# are those OpenAI lists for the prefixes. An id that joins a family later is unknown here until
# it has a row.
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
"""How OpenAI dates a snapshot of a model; the model keeps its vocabulary."""


def vocabulary(model: str | None) -> Vocabulary:
    """Return the vocabulary of a model id, or o200k_base as a stand-in with `exact=False`.

    Understood around a listed id: a date (`gpt-4o-2024-08-06`), a fine-tuned model's base
    (`ft:gpt-4o-mini:org::id`) and the vendor in front (`openai/gpt-4o`). A longer name that only
    begins like a listed one is unknown.
    """
    if not model:
        return STAND_IN
    bare = model.removeprefix("openai/")
    if bare.startswith("ft:"):
        bare = bare.split(":")[1]
    name = _NAMES.get(bare) or _NAMES.get(_DATE.sub("", bare))
    return Vocabulary(name, exact=True) if name else STAND_IN
