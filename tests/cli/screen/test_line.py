"""The line that is typed: history, completion, pastes, questions, and the row below it."""

from __future__ import annotations

import asyncio
import json
import stat
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from ullage.agent import Live, Session
from ullage.cli.attaching import PASTED
from ullage.cli.screen import history
from ullage.cli.screen.above import Above
from ullage.cli.screen.completion import ChatCompleter, FileList
from ullage.cli.screen.drawing import Canvas
from ullage.cli.screen.history import HistoryFile
from ullage.cli.screen.prompt import LineQuestion, erase_label, insert_paste
from ullage.cli.screen.toolbar import Toolbar
from ullage.core.errors import StoreError
from ullage.core.session.log.event import Draft
from ullage.storage import open_log
from ullage.tools import Workspace

# ── history ─────────────────────────────────────────────────────────────────────────────────────


def test_what_was_typed_comes_back_in_the_next_session_and_is_the_owners_alone(tmp_path: Path):
    path = tmp_path / "data" / "history"
    first = HistoryFile(path)
    for line in ("one", "two\nlines", "x" * (history.LONGEST + 1)):
        first.store_string(line)
    assert list(HistoryFile(path).load_history_strings()) == ["two\nlines", "one"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_history_that_others_could_read_is_closed_to_them(tmp_path: Path):
    path = tmp_path / "history"
    path.write_text('"old"\n{broken\n12\n')
    path.chmod(0o644)
    made = HistoryFile(path)
    made.store_string("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(made.load_history_strings()) == ["new", "old"]


def test_a_long_history_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(history, "MOST", 3)
    path = tmp_path / "history"
    made = HistoryFile(path)
    for n in range(8):
        made.store_string(str(n))
    assert [json.loads(row) for row in path.read_text().splitlines()] == list("34567")
    assert list(made.load_history_strings()) == list("765")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_history_that_cannot_be_kept_costs_nothing_else(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for path in (tmp_path / "file" / "history", tmp_path / "link"):
        made = HistoryFile(path)
        made.store_string("x")
        assert "cannot be written" in made.fault
    assert (tmp_path / "file").read_text() == ""
    assert list(HistoryFile(tmp_path).load_history_strings()) == []


# ── completion ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def completer(tmp_path: Path) -> ChatCompleter:
    for path in ("src/ledger.py", "src/cask.py", "docs/cask list.md", ".git/cask", "readme.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    commands = {"/sessions": "List them", "/save": "Write", "/search": "Find"}
    return ChatCompleter(
        commands, FileList(Workspace(tmp_path)), lambda: [("abc1", "x"), ("abd2", "y")]
    )


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/s", ["/sessions", "/save", "/search"]),
        ("/se", ["/sessions", "/search"]),
        ("say /s", []),
        ("/sessions ab", ["abc1", "abd2"]),
        ("/sessions abd", ["abd2"]),
        ("see @src/l", ["src/ledger.py"]),
        ("see @cask", ["src/cask.py", '"docs/cask list.md"']),
        ("@", ["readme.md"]),
        ("me@cask", []),
    ],
)
def test_completions(completer: ChatCompleter, typed: str, offered: list[str]):
    found = completer.get_completions(Document(typed), CompleteEvent())
    assert [each.text for each in found] == offered


def test_files_are_looked_for_again_when_the_list_is_old(tmp_path: Path):
    now = 0.0
    files = FileList(Workspace(tmp_path), lambda: now)
    assert files.find("a") == []
    (tmp_path / "a").write_text("")
    assert files.find("a") == []
    now = 60.0
    assert files.find("a") == ["a"]
    (tmp_path / "a").unlink()
    tmp_path.rmdir()
    now = 120.0
    assert files.find("a") == []


def test_sessions_that_cannot_be_read_are_not_offered(completer: ChatCompleter):
    def fail() -> Any:
        raise StoreError("gone")

    completer.sessions = fail
    assert list(completer.get_completions(Document("/sessions a"), CompleteEvent())) == []


# ── pastes and questions ────────────────────────────────────────────────────────────────────────


def test_many_lines_stand_as_one_label_and_are_kept_whole(tmp_path: Path):
    pastes: dict[str, str] = {}
    images: dict[str, Path] = {}
    buffer = Buffer()
    (tmp_path / "shot.png").write_bytes(b"x")
    for text in ("one line\n", "a\r\nb\rc\n", "d\ne\nf", "x" * 1_001, str(tmp_path / "shot.png")):
        insert_paste(buffer, text, pastes, images)
        buffer.insert_text(" ")
    assert buffer.text == (
        "one line [pasted 3 lines] [pasted 3 lines, 2] [pasted 1,001 characters] [image shot.png] "
    )
    assert list(pastes.values()) == ["a\nb\nc", "d\ne\nf", "x" * 1_001]
    assert PASTED.findall(buffer.text) == list(pastes)
    assert images == {"[image shot.png]": tmp_path / "shot.png"}


def test_a_label_is_erased_whole():
    buffer = Buffer()
    buffer.insert_text("see [pasted 3 lines]")
    assert erase_label(buffer, ["[pasted 3 lines]"])
    assert buffer.text == "see "
    assert not erase_label(buffer, ["[pasted 3 lines]"])


def test_what_was_typed_before_a_question_is_no_answer_and_comes_back():
    async def ask() -> None:
        buffer = Buffer()
        buffer.insert_text("half a mess")
        question = LineQuestion(buffer)
        question.answer("nobody asked")
        asked = asyncio.ensure_future(question.put("Allow? "))
        await asyncio.sleep(0)
        assert question.is_open
        assert (buffer.text, question.text) == ("", "Allow? ")
        question.answer("y")
        assert await asked == "y"
        assert (buffer.text, question.text, question.is_open) == ("half a mess", "", False)

    asyncio.run(ask())


# ── the row at the bottom ───────────────────────────────────────────────────────────────────────


def report(**context: Any) -> Draft:
    data = {"model": "m", "input": 9, "dollars": 0.25, "context": context}
    return Draft("provider_usage", data)


def test_the_row_has_what_was_recorded_and_then_what_is_told():
    bar = Toolbar()
    with Session.create(open_log("memory:"), "cellar") as session:
        told = {"window": 8_000, "tokens": 4_100, "tier": "warning", "source": "server"}
        session.record([report(**told), report(**told)])
        bar.open(session)
    whole = " ctx=4.1k/8.0k | warning | window: server | plan | m\\x1b | $0.5000 | cellar "
    assert bar.draw("plan", "m\x1b", 200) == whole
    assert bar.style == "class:toolbar.warning"
    bar.hear(Live("s", "context_pressure", {"meter": "ctx=5.0k/8.0k", "tier": "critical"}))
    assert bar.draw("plan", "m", 40) == " ctx=5.0k/8.0k | critical | plan | m "
    assert bar.style == "class:toolbar.full"


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_the_row_is_never_longer_than_the_terminal(columns: int):
    bar = Toolbar(gauge="ctx=100.0k/200.0k", tier="warning", source="server", session="s" * 30)
    row = bar.draw("build", "a-model-with-a-very-long-name" * 3, columns)
    assert len(row) <= columns
    assert "ctx=100.0k/200.0k" in row


# ── what stands above ───────────────────────────────────────────────────────────────────────────


class Paper:
    """An output that keeps what is written."""

    def __init__(self) -> None:
        self.text = ""

    def encoding(self) -> str:
        return "ascii"

    def write_raw(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def say_width(n: int, canvas: Canvas) -> str:
    return f"{n} at {canvas.columns}\n"


@pytest.fixture
def paper() -> Paper:
    return Paper()


def put_above(paper: Paper, columns: int = 20) -> Above:
    return Above(cast("Any", paper), lambda: Canvas(columns), 1)


def test_lines_are_written_when_they_are_whole(paper: Paper):
    above = put_above(paper)
    print("one", file=above, end="")
    assert paper.text == ""
    print(" line\ntwo", file=above, end="")
    assert paper.text == "one line\n"
    above.close_line()
    above.close_line()
    assert paper.text == "one line\ntwo\n"
    assert above.isatty()
    assert above.writable()
    assert above.fileno() == 1


def test_whoever_writes_there_steers_nothing(paper: Paper):
    above = put_above(paper)
    print("\x1b[31mred\x1b[0m \x1b[2J \x1b]0;x\x07 \x9b1m ä", file=above)
    assert paper.text == "\x1b[31mred\x1b[0m \\x1b[2J \\x1b]0;x\\x07 \\x9b1m \\xe4\n"


def test_at_another_width_what_was_seen_is_drawn_anew(paper: Paper):
    above, width = put_above(paper), [10]
    above = Above(cast("Any", paper), lambda: Canvas(width[0]), 1)
    for n in range(50):
        above.put(partial(say_width, n))
    width[0], paper.text = 20, ""
    above.draw_anew(5, 10)
    assert paper.text.endswith("\x1b[H45 at 20\n46 at 20\n47 at 20\n48 at 20\n49 at 20\n")
    assert "\x1b[5;1H\x1b[2K" in paper.text


def test_lines_of_others_are_moved_up_and_not_written_over(paper: Paper):
    above = put_above(paper)
    above.put(lambda _: "only one\n")
    paper.text = ""
    above.draw_anew(4, 20)
    assert paper.text == "\x1b[0m\x1b[4;1H\n\n\n\n\x1b[Honly one\n"


def test_other_threads_write_in_the_loop(paper: Paper):
    async def write() -> None:
        above = put_above(paper)
        above.attach(asyncio.get_running_loop())
        lifted: list[str] = []
        above.lift = lambda: lifted.append("lift")
        above.lower = lambda: lifted.append("lower")
        await asyncio.to_thread(above.write, "a\nb\n")
        await asyncio.sleep(0)
        assert paper.text == "a\nb\n"
        assert lifted == ["lift", "lower"]

    asyncio.run(write())
