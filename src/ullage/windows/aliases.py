"""The (provider, id) pairs under which the table may list a model's name, and no others.

The exact name comes first. These parts are removed: a snapshot date, the frame of a fine-tune, a
provider's own prefix, a Bedrock region and version, a Vertex path. Nothing else is ever removed, so
that no id gets the number of a similar model. It knows names and patterns, no numbers, and asks
nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple


class Name(NamedTuple):
    """A possible place of a row; `provider` None means the maker of the model."""

    provider: str | None
    model: str


VENDORS: Final[tuple[str, ...]] = (
    "openai", "anthropic", "google", "xai", "deepseek", "moonshot", "zai", "cohere", "minimax",
    "meta", "mistral", "alibaba",
)  # fmt: skip
"""Makers of models: a bare id is looked up here, in this order, and the first row holds.

Mistral and Alibaba come last, since they also serve models of the others.
"""

# Each provider with its other names: those of litellm, models.dev and genai-prices, and of the
# listings in this folder.
_NAMES: Final[Mapping[str, str]] = {
    "openai": "",
    "anthropic": "",
    "google": "gemini google-ai-studio",
    "xai": "x-ai",
    "deepseek": "",
    "moonshot": "moonshotai moonshot-ai kimi",
    "zai": "z-ai zhipuai zhipu bigmodel",
    "cohere": "cohere_chat",
    "minimax": "",
    "meta": "meta_llama llama-api",
    "mistral": "codestral",
    "alibaba": "dashscope qwencloud qwen_ai_platform",
    "ai21": "",
    "azure": "azure_ai azure-openai azure_openai azure_text azure-foundry",
    "baseten": "",
    "bedrock": "amazon-bedrock aws aws-bedrock bedrock_converse bedrock_mantle",
    "cerebras": "",
    "chatgpt": "codex",
    "cloudflare": "cloudflare-workers-ai workers-ai",
    "copilot": "github-copilot github_copilot githubcopilot",
    "databricks": "",
    "deepinfra": "",
    "fireworks": "fireworks_ai fireworks-ai",
    "github": "github-models github_models",
    "groq": "",
    "nvidia": "nvidia_nim nim",
    "openrouter": "",
    "perplexity": "",
    "sambanova": "",
    "together": "together_ai togetherai together-ai",
    "vertex": "vertex_ai vertexai google-vertex google_vertex google-vertex-anthropic",
}

PROVIDERS: Final[tuple[str, ...]] = tuple(sorted(_NAMES))
"""The table's names of providers."""

_CANONICAL: Final[Mapping[str, str]] = MappingProxyType(
    {other: name for name, others in _NAMES.items() for other in (name, *others.split())}
)


def canonical(provider: str) -> str | None:
    """Return the table's name of a provider, or None for an unknown one."""
    return _CANONICAL.get(provider.lower())


DEPLOYED: Final = frozenset({"azure"})
"""Providers where a name is an operator's deployment and does not tell the model."""

_DATE: Final = re.compile(
    r"(?:-20\d\d-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])|[-@]20\d\d(?:0\d|1[0-2])(?:[0-2]\d|3[01]))$"
)
"""Suffixes that name a snapshot of the same model; four digits (`-0613`) may name another model."""

_REGION: Final = re.compile(r"(?:us-gov|us|eu|apac|au|ca|jp|global)\.")
"""Bedrock's inference profiles put a region before the id of the same model."""

_REGION_PATH: Final = re.compile(r"[a-z]{2}(?:-gov)?-[a-z]+-\d/")
"""litellm names a Bedrock region as a folder."""

_BEDROCK: Final = re.compile(
    rf"(?:{_REGION.pattern})?(?:ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral"
    r"|moonshot|moonshotai|nvidia|openai|qwen|writer|xai|zai)\.[a-z][a-z0-9.:-]*"
)
_BEDROCK_ARN: Final = re.compile(
    r"arn:aws(?:-[a-z-]+)?:bedrock:[a-z0-9-]*:\d*:(?:foundation-model|inference-profile)/(?P<id>[^/]+)"
)
_BEDROCK_VERSION: Final = re.compile(r"-v\d+:\d+$")
_VERTEX: Final = re.compile(
    r"(?:projects/[^/]+/locations/[^/]+/)?publishers/(?P<publisher>[^/]+)/models/(?P<id>[^/]+)"
)


def readings(model: str, provider: str | None = None) -> tuple[Name, ...]:
    """Return the possible places of a model, the exact id first; none for an unknown provider.

    If no provider is given, an id belongs to its maker, unless its form names Bedrock, Vertex or a
    provider. A deployment's name has no place: the operator must name its model.
    """
    if provider is not None:
        known = canonical(provider)
        return () if known is None or known in DEPLOYED else _at(known, model)
    found = [Name(None, id_) for id_ in _add_undated((model, *_find_tuned_base(model)))]
    framed = _split_frame(model)
    if framed is not None:
        found += _at(*framed)
    return tuple(found)


def behind(base_model: str, provider: str) -> tuple[Name, ...]:
    """Return the possible places of the model that an operator names for a deployment."""
    known = canonical(provider)
    return () if known is None else _at(known, base_model)


def _split_frame(model: str) -> tuple[str, str] | None:
    """Return the provider that the form of an id names, and the id there, or None for a bare id."""
    if _VERTEX.fullmatch(model):
        return "vertex", model
    if _BEDROCK_ARN.fullmatch(model) or _BEDROCK.fullmatch(model):
        return "bedrock", model
    head, slash, tail = model.partition("/")
    named = canonical(head) if slash and tail else None
    return None if named is None or named in DEPLOYED else (named, tail)


def _at(provider: str, model: str) -> tuple[Name, ...]:
    """Return the possible ids of a name at one provider."""
    ids = [model]
    head, slash, tail = model.partition("/")
    if slash and tail and canonical(head) == provider:
        ids.append(tail)
    ids += [id_ for known in list(ids) for id_ in _find_tuned_base(known)]
    frame = _FRAMES.get(provider)
    if frame is not None:
        ids += [id_ for known in list(ids) for id_ in frame(known)]
    return tuple(Name(provider, id_) for id_ in _add_undated(ids))


def _add_undated(ids: Sequence[str]) -> list[str]:
    """Return the ids, then those that end in a date without the date; each once."""
    return list(dict.fromkeys((*ids, *(_DATE.sub("", id_) for id_ in ids))))


def _find_tuned_base(model: str) -> Iterator[str]:
    """Yield the base of a fine-tuned model, `ft:BASE:organisation:name:id`."""
    frame, *rest = model.split(":")
    if frame == "ft" and rest and rest[0]:
        yield rest[0]


def _bedrock(model: str) -> Iterator[str]:
    arn = _BEDROCK_ARN.fullmatch(model)
    model = arn["id"] if arn else model
    path = _REGION_PATH.match(model)
    model = model[path.end() :] if path else model
    yield model
    region = _REGION.match(model)
    if region:
        model = model[region.end() :]
        yield model
    yield _BEDROCK_VERSION.sub("", model)


def _vertex(model: str) -> Iterator[str]:
    path = _VERTEX.fullmatch(model)
    if path:
        yield f"{path['publisher']}/{path['id']}"
        yield path["id"]


def _google(model: str) -> Iterator[str]:
    # The listing of the Gemini API names its models `models/ID`.
    if model.startswith("models/"):
        yield model.removeprefix("models/")


def _fireworks(model: str) -> Iterator[str]:
    # litellm and the dashboard omit the account from the names of Fireworks' own models.
    if "/" not in model:
        yield f"accounts/fireworks/models/{model}"


_FRAMES: Final[Mapping[str, Callable[[str], Iterator[str]]]] = {
    "bedrock": _bedrock,
    "vertex": _vertex,
    "google": _google,
    "fireworks": _fireworks,
}
