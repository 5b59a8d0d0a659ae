"""The demands of model families on a history, in addition to their dialect: a table with sources.

A model is found by its name, as providers, gateways and clouds write it. A model without a row is
unknown; then a refusal teaches the law. This module knows no codec and no window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal

Law = Literal["whole_loops", "bound_thinking", "alternation"]
"""A demand of a model. `whole_loops`: a tool loop is kept whole or left out whole.
`bound_thinking`: reasoning is valid only after the very system text, tools and messages that it was
made after. `alternation`: user and assistant take turns, the user first.
"""

Thinking = Literal["demanded", "bound", "paired", "dropped", "unknown"]
"""The fate of reasoning in kept messages: it is `demanded` in the open tool loop, `bound` to the
text before it, `paired` with the item that it led to, or `dropped` by the chat template after the
next question.
"""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The provider's limits of a request apart from tokens; a limit that it does not state is None.

    `size` is in bytes of the body. `images` applies to a window of a million tokens or more,
    `fewer_images` to a smaller one.
    """

    size: int | None = None
    messages: int | None = None
    tools: int | None = None
    images: int | None = None
    fewer_images: int | None = None

    def find_most_images(self, window: int | None) -> int | None:
        """Return the number of images that a request may hold in a window of this size."""
        if self.fewer_images is not None and window is not None and window < MILLION:
            return self.fewer_images
        return self.images


MILLION: Final = 1_000_000
NO_LIMITS: Final = RequestLimits()


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """The laws of a family; `sources` say where each is stated, `date` when that was read.

    `alternates` says that the chat template of the weights wants user and assistant to take turns.
    `results_first` says that results must open the message after their calls. `signed` is the field
    that a provider checks in returned reasoning. `marks` is the number of cache marks in a request,
    `compaction` the ways in which the provider compacts itself.
    """

    name: str
    thinking: Thinking = "unknown"
    laws: frozenset[Law] = frozenset()
    alternates: bool = False
    results_first: bool = False
    signed: str = ""
    marks: int | None = None
    compaction: tuple[str, ...] = ()
    limits: RequestLimits = NO_LIMITS
    sources: Mapping[str, str] = field(default_factory=dict)
    date: str = ""


_CLAUDE: Final = "https://platform.claude.com/docs/en/"
_OPENAI: Final = "https://developers.openai.com/api/docs/guides/"

CLAUDE: Final = ModelFamily(
    "Claude",
    results_first=True,
    signed="signature",
    marks=4,
    compaction=("compaction", "compact_20260112"),
    limits=RequestLimits(size=32_000_000, messages=100_000, images=600, fewer_images=100),
    sources={
        "thinking": f"{_CLAUDE}build-with-claude/extended-thinking",
        "results_first": f"{_CLAUDE}agents-and-tools/tool-use/implement-tool-use",
        "marks": f"{_CLAUDE}build-with-claude/prompt-caching",
        "compaction": f"{_CLAUDE}build-with-claude/compaction",
        "size": f"{_CLAUDE}api/overview",
        "messages": f"{_CLAUDE}api/messages",
        "images": f"{_CLAUDE}build-with-claude/vision",
    },
    date="2026-11-23",
)
"""Facts about all Claude models; the handling of thinking in new ones is unknown."""

_SERVED: Final = "https://github.com/ggml-org/llama.cpp/issues/"


def _alternating(name: str, issue: int) -> ModelFamily:
    """Return a family of open weights whose template raises that roles must alternate."""
    source = {"alternates": f"{_SERVED}{issue}"}
    return ModelFamily(name, alternates=True, sources=source, date="2026-11-23")


def _row(pattern: str, family: ModelFamily) -> tuple[re.Pattern[str], ModelFamily]:
    return re.compile(pattern, re.IGNORECASE), family


ROWS: Final = (
    _row(
        r"claude-(?:fable-5[-.][12]|mythos-5[-.]2|(?:opus|sonnet|haiku)-5[-.]5)(?!\d)",
        replace(
            CLAUDE,
            name="Claude with preserved thinking",
            thinking="bound",
            laws=frozenset({"bound_thinking"}),
            sources={
                **CLAUDE.sources,
                "thinking": f"{_CLAUDE}build-with-claude/preserved-thinking",
            },
        ),
    ),
    _row(
        r"claude-(?:[1-4]\b|\w+-[1-4]\b|\w+-5(?!\d)(?![-.]\d{1,2}(?!\d))|instant)",
        replace(CLAUDE, name="Claude up to 5", thinking="demanded"),
    ),
    _row(r"(?:^|[/.])claude-", CLAUDE),
    _row(
        r"(?:^|/)(?:gpt-(?:4|5)|o[1-9](?![a-z0-9])|codex|chatgpt)",
        ModelFamily(
            "OpenAI",
            "paired",
            signed="encrypted_content",
            marks=4,
            compaction=("context_management", "/responses/compact"),
            limits=RequestLimits(size=512_000_000, tools=128, images=1_500),
            sources={
                "thinking": f"{_OPENAI}reasoning",
                "marks": f"{_OPENAI}prompt-caching",
                "compaction": f"{_OPENAI}compaction",
                "tools": f"{_OPENAI}function-calling",
                "images": f"{_OPENAI}images-vision",
                "size": f"{_OPENAI}images-vision",
            },
            date="2026-11-23",
        ),
    ),
    _row(
        r"(?:^|/)gemini-",
        ModelFamily(
            "Gemini",
            "unknown",
            results_first=True,
            signed="thoughtSignature",
            limits=RequestLimits(images=3_000),
            sources={
                "signed": "https://ai.google.dev/gemini-api/docs/thought-signatures",
                "images": "https://docs.cloud.google.com/vertex-ai/generative-ai/docs/multimodal/"
                "image-understanding",
            },
            date="2026-11-23",
        ),
    ),
    _row(r"(?:^|[/_:-])(?:code|med|shield)?gemma", _alternating("Gemma", 21879)),
    _row(
        r"(?:^|[/_:-])(?:mi[sx]|mini|magi|dev|code|pix)s?tral",
        _alternating("Mistral", 19851),
    ),
    _row(r"(?:^|[/_:-])llama-?2(?![\d.])", _alternating("Llama 2", 21879)),
    _row(
        r"(?:^|[/_:-])(?:qwen-?3|qwq|glm-4|glm-5|deepseek)",
        ModelFamily(
            "Qwen 3, GLM, DeepSeek",
            "dropped",
            sources={"thinking": "https://huggingface.co/Qwen/Qwen3-8B"},
            date="2026-11-23",
        ),
    ),
)
"""Names and families; the first matching row applies."""

UNKNOWN: Final = ModelFamily("unknown")


@lru_cache(maxsize=256)
def find_family(model: str | None) -> ModelFamily:
    """Return the family of a model, by its name; `UNKNOWN` if no row names it."""
    rows = ((pattern, family) for pattern, family in ROWS if pattern.search(model or ""))
    return next((family for _, family in rows), UNKNOWN)


TAUGHT: Final[Mapping[str, Law]] = {
    "thinking": "whole_loops",
    "binding": "bound_thinking",
    "alternation": "alternation",
}
"""The law that a refusal names, by its subject."""
