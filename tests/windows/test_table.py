"""The bundled table: the facts it holds, the smaller bound in every conflict, and a fetched one."""

from __future__ import annotations

import json
import logging
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ullage.core.errors import ConfigurationError, StoreError
from ullage.core.tokens.claim import Claim
from ullage.core.tokens.window import Window, resolve
from ullage.windows.aliases import DEPLOYED, VENDORS, Name
from ullage.windows.rows import Book, pack, whole
from ullage.windows.table import FILE, Refresh, WindowTable

RECORDINGS = Path(__file__).parents[1] / "recordings"
NOWHERE = Path("no-such-folder")
HEAD = {
    "schema": 1,
    "snapshot": "2027-01-01",
    "lineages": {"l": "litellm 9"},
    "rules": {"a": "why"},
}
NOW = datetime(2027, 1, 1, tzinfo=UTC).timestamp()


@pytest.fixture(scope="module")
def table() -> WindowTable:
    return WindowTable(NOWHERE)


def window(table: WindowTable, model: str, provider: str | None = None) -> Window:
    return resolve(table.claims(model, provider), model=model)


def text(rows: str = "[openai]\ngpt-4\t8192\t\t4096\tl\n", **head: object) -> bytes:
    return (json.dumps({**HEAD, **head}) + "\n" + rows).encode()


# ── what it says ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("provider", "model", "tokens", "output"),
    [
        # The facts of decision 15.
        (None, "gpt-3.5-turbo", 4_096, None),
        (None, "gpt-4", 8_192, 4_096),
        (None, "gpt-4-32k", 32_768, None),
        (None, "gpt-4-turbo", 128_000, 4_096),
        (None, "claude-2", 100_000, 4_096),
        (None, "claude-3-sonnet", 200_000, 4_096),
        ("openrouter", "anthropic/claude-sonnet-4", 200_000, 16_000),
        ("openrouter", "openai/gpt-4o", 128_000, 16_384),
        ("openrouter", "openai/gpt-4.1", 128_000, 32_768),
        ("github", "gpt-4.1", 128_000, 16_384),
        ("github", "claude-sonnet-4", 200_000, 16_000),
        ("deepinfra", "meta-llama/Meta-Llama-3.1-70B-Instruct", 131_072, None),
        (None, "moonshot-v1-8k", 8_192, None),
        (None, "moonshot-v1-32k", 32_768, None),
        # The facts of the window page.
        (None, "gpt-5", 272_000, 128_000),
        (None, "gpt-5-codex", 272_000, 128_000),
        (None, "gpt-5.1-codex-max", 272_000, 128_000),
        (None, "gpt-5.3-codex", 272_000, 128_000),
        (None, "gpt-5.3-codex-spark", 128_000, 32_000),
        ("openrouter", "openai/gpt-5", 272_000, 128_000),
        (None, "claude-sonnet-4-5", 200_000, 64_000),
        (None, "claude-opus-4-6", 200_000, 128_000),
        ("bedrock", "anthropic.claude-opus-4-6-v1", 200_000, 128_000),
    ],
)
def test_a_fact_holds(table, provider, model, tokens, output) -> None:
    found = window(table, model, provider)
    assert (found.input_tokens, found.output_tokens) == (tokens, output)


def test_the_400k_family_has_272k_of_input_in_400k_of_total(table) -> None:
    found = window(table, "gpt-5")
    assert (found.input_tokens, found.total_tokens) == (272_000, 400_000)
    assert (found.kind, found.source) == ("input", "table")
    assert f"bundled table of {table.snapshot}" in found.explain()
    assert not found.proven


def test_no_row_of_the_400k_family_keeps_its_total_as_input(table) -> None:
    wide = [r for r in table.book.rows() if r.total == 400_000 and "gpt-5" in r.model]
    assert len(wide) > 20
    assert all((r.bound or 0) <= 272_000 for r in wide), wide


def test_no_gpt_5_starts_above_272k_and_an_answer_raises_it(table) -> None:
    long = [r for r in table.book.rows() if "gpt-5" in r.model and (r.total or 0) > 400_000]
    assert len(long) > 10
    assert all((r.bound or 0) <= 272_000 for r in long), long
    found = window(table, "gpt-5.5")
    assert (found.input_tokens, found.total_tokens) == (272_000, 1_050_000)
    answered = [Claim("input", 410_000, "answer", at=1.0, exchange=name) for name in "ab"]
    raised = resolve([*table.claims("gpt-5.5", None), *answered], model="gpt-5.5")
    assert raised.input_tokens == 410_000


def test_no_claude_starts_above_200k_and_the_larger_claims_stay_visible(table) -> None:
    claudes = [r for r in table.book.rows() if "claude" in r.model]
    assert len(claudes) > 150
    assert all((r.bound or 0) <= 200_000 for r in claudes)
    explained = window(table, "claude-opus-4-6").explain()
    assert "1,000,000 tokens, input, from the bundled table" in explained
    assert "entitlement" in explained


def test_all_the_providers_that_the_page_names_have_rows(table) -> None:
    hosts = "openrouter bedrock azure vertex groq together fireworks deepinfra copilot github"
    assert set(VENDORS) | set(hosts.split()) <= set(table.providers())
    assert table.provider("github_copilot") == table.provider("Copilot") == "copilot"
    assert table.provider("ollama") is None
    assert all(table.ids(p) for p in table.providers())
    assert table.ids("nobody") == []


def test_every_row_is_whole_and_resolves_to_its_bound(table) -> None:
    assert whole(table.book) == sum(len(table.ids(p)) for p in table.providers()) > 2_000
    ids = table.ids()
    assert ids == sorted(set(ids))
    for model in ids:
        claims = table.claims(model)
        row = table.row(model)
        assert row is not None
        assert {c.kind for c in claims} <= {"total", "input", "output"}, model
        assert min(c.tokens for c in claims if c.kind != "output") == row.bound, model
        assert resolve(claims).input_tokens == row.bound, model


def test_a_model_behind_a_deployment_is_found_by_the_operators_word_only(table) -> None:
    assert table.claims("gpt-4o", "azure") == ()
    assert table.claims("azure/gpt-4o") == ()
    found = table.claims("prod-chat", "azure", base_model="gpt-4o")
    assert resolve(found).input_tokens == 128_000
    assert resolve(table.claims("prod-chat", base_model="gpt-4o")).input_tokens == 128_000
    assert table.claims("prod-chat", "nobody", base_model="gpt-4o") == ()
    assert not any(i.startswith("azure/") for i in table.ids())
    assert {"azure"} == DEPLOYED


def test_who_makes_a_model_goes_before_who_also_serves_it(table) -> None:
    assert "kimi-k2.7-code" in table.ids("alibaba")
    row = table.row("kimi-k2.7-code")
    assert row is not None
    assert row.provider == "moonshot"


def test_prices_stand_beside_with_their_tiers(table) -> None:
    row = table.row("gemini-2.5-pro")
    assert row is not None
    assert [p.above for p in row.prices] == [0, 200_000]
    assert all(p.input and p.output and p.cache_read for p in row.prices)
    assert row.prices[1].input > row.prices[0].input


def test_a_claim_names_snapshot_lineages_and_reason(table) -> None:
    spark = table.claims("gpt-5.3-codex-spark")[0]
    assert spark.where == f"the bundled table of {table.snapshot}"
    assert "openai: models.dev" in spark.note
    assert "less the output" in spark.note
    assert spark.at > 0
    agreed, alone = table.claims("gpt-4-turbo")[0], table.claims("moonshot-v1-auto")[0]
    assert agreed.confidence > alone.confidence


# ── the smaller bound was kept ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "case",
    json.loads((RECORDINGS / "table/conflicts.json").read_text("utf-8")),
    ids=lambda case: f"{case['provider']}/{case['model']}",
)
def test_of_claims_in_conflict_the_smaller_bound_was_kept(table, case) -> None:
    said = [(kind, tokens) for kind, tokens, _ in case["claims"]]
    smallest = min(tokens for kind, tokens in said if kind != "output")
    row = table.book.row(Name(case["provider"], case["model"]))
    assert row.bound == smallest or (row.rule and row.bound < smallest)
    outputs = [tokens for kind, tokens in said if kind == "output"]
    assert row.output == min(outputs, default=None) or row.rule
    kept = {(kind, tokens) for kind, tokens in row.limits.items()}
    lost = {(loss.kind, loss.tokens) for loss in row.losses}
    larger = {(k, t) for k, t in said if k != "output" and t > max(row.bound, row.total or 0)}
    assert larger <= lost, "a larger claim is not shown"
    assert not kept & lost


def test_whatever_lost_was_larger(table) -> None:
    at_odds = [r for r in table.book.rows() if r.losses]
    assert len(at_odds) > 300
    for row in at_odds:
        assert all(loss.tokens > row.bound for loss in row.losses if loss.kind != "output"), row
        assert all(loss.tokens > row.output for loss in row.losses if loss.kind == "output"), row


def test_explain_shows_both_sides_with_their_source(table) -> None:
    explained = window(table, "qwen-max").explain()
    assert "30,720 tokens, input" in explained
    assert "131,072 tokens, total" in explained
    assert "models.dev" in explained


# ── a table that the user fetched ───────────────────────────────────────────────────────────────


def test_a_newer_fetched_table_holds(tmp_path: Path) -> None:
    Refresh(pack(text()), "x", NOW, tmp_path).install()
    fetched = WindowTable(tmp_path)
    assert fetched.ids() == ["gpt-4"]
    assert fetched.snapshot == "2027-01-01"
    assert fetched.claims("gpt-4")[0].where == "the fetched table of 2027-01-01"
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def test_an_older_fetched_table_waits(tmp_path: Path) -> None:
    Refresh(text(snapshot="2020-01-01"), "x", NOW, tmp_path).install()
    assert WindowTable(tmp_path).snapshot == WindowTable(NOWHERE).snapshot


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a table",
        b"\x1f\x8b\x08nonsense",
        pack(text())[:-4],
        pack(text())[:20] + b"\0" + pack(text())[21:],
        pack(b"{}\n"),
        pack(b"[]\n"),
        pack(b"\xff\n"),
        pack(text(schema=2)),
        pack(text(snapshot="2027-13-45")),
        pack(text(snapshot=7)),
        pack(text(lineages=None)),
        pack(text(rules={"a": 1})),
        pack(text("[nobody]\nx\t8192\n")),
        pack(text("[openai]\nx\t8192\n[openai]\ny\t8192\n")),
        pack(text("[openai\n")),
        pack(text("[openai]\ngpt-4\tmany\n")),
        pack(text("[openai]\ngpt-4\t8192\t\t\tz\n")),
        pack(text("[openai]\ngpt-4\t8192\t\t\tl\tx9\n")),
    ],
)
def test_a_corrupt_fetched_table_is_ignored_with_one_warning(
    data: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(data)
    table = WindowTable(tmp_path)
    with caplog.at_level(logging.WARNING, "ullage.windows"):
        assert window(table, "gpt-4").input_tokens == 8_192
        assert window(table, "gpt-5").input_tokens == 272_000
    assert len(caplog.records) == 1
    assert "the bundled table holds" in caplog.text


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", "no rows"),
        ("[openai]\n", "no rows"),
        ("[openai]\na b\t8192\n", "no lawful id"),
        ("[openai]\nx\n", "no bound"),
        ("[openai]\nx\t\t\t4096\n", "no bound"),
        ("[openai]\nx\t1000\n", "1,000 tokens of total are no window"),
        ("[openai]\nx\t-8192\n", "are no window"),
        ("[openai]\nx\t99999999\n", "are no window"),
        ("[openai]\nx\t8192.5\n", "invalid literal"),
        ("[openai]\nx\t8192\t\t\tl\ti4096l\n", "a smaller claim"),
        ("[openai]\nx\t8192\t\t\tl\t\tb\n", "'b'"),
        ("[openai]\nx\t8192\t\t\tl\t\t\t1,nan\n", "no lawful price"),
        ("[openai]\nx\t8192\t\t\tl\t\t\t1,2,3,4,5\n", "row openai/x"),
        ("[openai]\ny\t8192\nx\t8192\n", "not in order"),
        ("[openai]\nx\t8192\nx\t8192\n", "not in order"),
    ],
)
def test_a_broken_row_is_refused_by_name(rows: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match="from here is no table of models: ") as refused:
        Refresh(text(rows), "from here", NOW, NOWHERE)
    assert said in str(refused.value)


def test_a_table_from_the_future_or_too_large_is_refused(monkeypatch) -> None:
    with pytest.raises(ConfigurationError, match="lies in the future"):
        Refresh(text(), "x", NOW - 3 * 86_400, NOWHERE)
    with pytest.raises(ConfigurationError, match="too many for a table"):
        Refresh(b"\x1f" * 3_000_000, "x", NOW, NOWHERE)
    bomb = zlib.compressobj(9, wbits=31)
    data = bomb.compress(b"{" + b" " * 20_000_000) + bomb.flush()
    with pytest.raises(ConfigurationError, match="of text"):
        Refresh(data, "x", NOW, NOWHERE)
    monkeypatch.setattr("ullage.windows.rows.MOST_ROWS", 1)
    with pytest.raises(ConfigurationError, match="too many rows"):
        Refresh(text("[openai]\nx\t8192\ny\t8192\n"), "x", NOW, NOWHERE)


def test_a_refresh_names_every_bound_that_it_raises(table) -> None:
    rows = "[openai]\ngpt-4\t9000\ngpt-4-turbo\t127000\n"
    change = Refresh(text(rows), "x", NOW, NOWHERE).change(table)
    assert change.raises == (("openai/gpt-4", 8_192, 9_000),)
    assert change.rows == 2


def test_a_dated_row_that_goes_may_raise_through_its_undated_one(table) -> None:
    dated = table.row("gpt-4o-2024-05-13")
    assert dated is not None
    change = Refresh(text("[openai]\ngpt-4o\t300000\n"), "x", NOW, NOWHERE).change(table)
    assert ("openai/gpt-4o-2024-05-13", dated.bound, 300_000) in change.raises


def test_the_table_that_holds_raises_nothing_of_its_own(table) -> None:
    lines = [json.dumps({**HEAD, "lineages": dict(table.book.lineages)})]
    lines[0] = json.dumps({**json.loads(lines[0]), "rules": dict(table.book.rules)})
    for provider in table.providers():
        lines += [f"[{provider}]", *table.book.lines(provider)]
    same = Refresh("\n".join([*lines, ""]).encode(), "x", NOW, NOWHERE)
    assert same.change(table).raises == ()


def test_an_unwritable_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        Refresh(text(), "x", NOW, tmp_path / "file").install()


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / FILE / "in the way").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be written"):
        Refresh(text(), "x", NOW, tmp_path).install()
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def test_a_book_has_no_rows_of_a_provider_that_it_lacks() -> None:
    book = Book.read(pack(text()))
    assert book.ids("xai") == []
    assert book.row(Name("xai", "grok")) is None
    assert book.row(Name("openai", "bad id\tx")) is None
    assert replace(book, sections={}).providers() == []
