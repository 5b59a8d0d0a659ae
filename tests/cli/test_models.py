"""`ullage models` as a user calls it: list, show, and a table fetched into the cache."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.casks import MODEL, Cask
from tests.support.faults import closed_port
from tests.support.loopback import serve
from ullage.cli.main import main
from ullage.windows.rows import pack
from ullage.windows.table import FILE, WindowTable, folder

HEAD = {"schema": 1, "snapshot": "2026-11-22", "lineages": {"l": "litellm 9"}, "rules": {}}
LOWER = "[openai]\ngpt-4\t8000\t\t\tl\n"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ULLAGE_CACHE_DIR", raising=False)
    assert folder().is_relative_to(tmp_path)
    return folder()


def table(rows: str = LOWER, snapshot: str = "2026-11-22") -> bytes:
    return pack((json.dumps({**HEAD, "snapshot": snapshot}) + "\n" + rows).encode())


@contextmanager
def served(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else each answer waits for an ACK: 40 ms

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/table.gz"
        finally:
            server.shutdown()
            thread.join()


def test_list_prints_a_line_for_each_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list"]) == 0
    out, err = capsys.readouterr()
    assert "openai\tgpt-5\t272,000\n" in out
    assert len(out.splitlines()) > 2_000
    assert "ids in the table of" in err


def test_list_of_one_provider_takes_any_of_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "--provider", "github_copilot", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["provider"] for row in rows} == {"copilot"}
    assert all(row["bound"] >= 1_024 for row in rows)


def test_list_of_an_unknown_provider_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "--provider", "nobody"]) == 1
    assert "no provider 'nobody'; it has ai21, alibaba" in capsys.readouterr().err


def test_a_server_is_asked_for_its_models(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(Cask("numbers", 4_096, 8_192)) as server:
        assert main(["models", "list", "--base-url", server.url]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"{MODEL}\t8,192\t")
        assert "1 models listed by" in err
        assert main(["models", "list", "--base-url", server.url, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["model"], row["input_tokens"]) == (MODEL, 8_192)
    with closed_port() as port:
        assert main(["models", "list", "--base-url", f"http://127.0.0.1:{port}/v1"]) == 1


def test_show_tells_limits_losses_reason_and_prices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", "claude-sonnet-4-6"]) == 0
    out = capsys.readouterr().out
    assert "anthropic/claude-sonnet-4-6: 200,000 tokens of input" in out
    assert "lost: total 1,000,000 by models.dev" in out
    assert "held by hand: above 200,000 depends on the key's entitlement" in out
    assert "dollars per million tokens: input 3, output 15, cache read 0.3" in out
    assert "family: Claude up to 5, read 2026-11-23" in out
    assert "thinking in kept messages: demanded in the open tool loop (https://" in out
    assert "images: at most 600 in a request, 100 in a window under a million tokens" in out
    assert "compaction: by the provider: compaction, compact_20260112 (https://" in out


def test_show_reaches_a_row_behind_deployments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", "gpt-4o", "--provider", "azure", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["provider"], row["bound"]) == ("azure", 128_000)
    assert row["family"]["thinking"] == "paired"
    assert row["family"]["limits"] == {"size": 512_000_000, "tools": 128, "images": 1_500}


def test_show_says_where_prices_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", "gemini-2.5-pro"]) == 0
    assert "dollars per million tokens over 200,000 tokens: input 2.5" in capsys.readouterr().out


def test_show_tells_that_nobody_lists_a_model_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", "gpt-4.1", "--provider", "github"]) == 0
    assert "listed by: nobody any more" in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], ["--provider", "groq"]])
def test_show_of_an_unknown_id_says_what_helps(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "show", "gpt-4-latest", *more]) == 1
    assert "no row for gpt-4-latest" in capsys.readouterr().err


def test_update_from_a_file_is_told_that_the_bundled_is_no_older(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.gz").write_bytes(table(snapshot="2026-01-01"))
    assert main(["models", "update", str(tmp_path / "t.gz")]) == 0
    out, err = capsys.readouterr()
    assert out == f"1 rows of 2026-01-01 in {cache / FILE}\n"
    assert "they wait" in err


@pytest.mark.parametrize("url", [False, True])
def test_update_refuses_raises_until_they_are_allowed(
    url: bool, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = sorted(WindowTable().ids("openai"))[:15]
    data = table("[openai]\n" + "".join(f"{i}\t9999999\n" for i in ids))
    with served(200, data) as address:
        (tmp_path / "t.gz").write_bytes(data)
        origin = address if url else str(tmp_path / "t.gz")
        assert main(["models", "update", origin]) == 1
        err = capsys.readouterr().err
        assert "raises 15 bounds, so nothing was changed" in err
        assert "-> 9,999,999" in err
        assert "and 5 more\n" in err
        assert not (cache / FILE).exists()
        assert main(["models", "update", origin, "--allow-raises"]) == 0
        assert "bounds are raised" in capsys.readouterr().out
        assert (cache / FILE).read_bytes() == data


def test_update_from_a_missing_file_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "update", "no-such-table.gz"]) == 1
    assert "no-such-table.gz cannot be read" in capsys.readouterr().err


def test_update_takes_a_table_over_https_only(capsys: pytest.CaptureFixture[str]) -> None:
    for origin in ("http://me:word@example.com/t.gz", "ftp://example.com/t.gz"):
        assert main(["models", "update", origin]) == 1
        err = capsys.readouterr().err
        assert "is not an https URL" in err
        assert "word" not in err


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, b"", "answered 404"),
        (200, b"<html>", "no table of models: not compressed"),
        (200, b"", "no table of models"),
        (200, table("[openai]\nx\t0\n"), "0 tokens of total are no window"),
    ],
)
def test_update_refuses_what_is_no_table(
    status: int, body: bytes, said: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(status, body) as origin:
        assert main(["models", "update", origin]) == 1
    assert said in capsys.readouterr().err
    assert not (cache / FILE).exists()


def test_update_from_a_server_that_is_not_there_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with served(200, b"") as origin:
        pass
    assert main(["models", "update", origin]) == 1
    assert "the table could not be fetched" in capsys.readouterr().err


def test_an_update_lands_where_every_resolver_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv("ULLAGE_CACHE_DIR", str(elsewhere))
    (tmp_path / "t.gz").write_bytes(table(snapshot="2026-01-01"))
    assert main(["models", "update", str(tmp_path / "t.gz")]) == 0
    assert (elsewhere / FILE).is_file()
    assert not (folder() / FILE).exists()
    assert str(elsewhere / FILE) in capsys.readouterr().out
