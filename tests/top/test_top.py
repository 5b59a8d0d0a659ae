"""The htop of context: keys, widths, a proxy far away, and nothing that steers the terminal."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from textual.widgets import DataTable

from tests.agent.acting import agent, said, scripted
from tests.pages.watching import answer, grow, say
from tests.proxy.sockets import Behind, serving
from ullage.agent import Session
from ullage.cli.main import main
from ullage.core.errors import ConfigurationError, UllageError
from ullage.importers import SAMPLE
from ullage.live.desk import LiveDesk
from ullage.live.logs import LogSource
from ullage.live.programs import ProgramSource
from ullage.live.source import LiveSource
from ullage.live.values import LiveSession, SessionDetail
from ullage.runtime import default
from ullage.storage.log_sqlite import SqliteLog
from ullage.top.app import Detail, Review, Top
from ullage.top.cells import COLUMNS, choose_columns, draw_gauge, draw_text, matches
from ullage.top.station import Here, Station, There

SCREENS: Final = Path(__file__).parents[2] / "docs" / "screens"
TOKEN: Final = "a-token-of-the-operator-0123"
EVIL: Final = (
    "\x1b]8;;http://evil.test\x07link\x1b]8;;\x07",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x9b31mred",
    "[red]markup[/red] [@click=app.quit]quit[/]",
    "\u202eturned\u2066",
    "[link=http://evil.test]x[/link]",
    "\x1b[2J\x1b[H",
    "line\r\nbreak\x00\x08",
)


def draw(app: Top) -> str:
    """Return what stands on the screen."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


class Told:
    """A station that shows what it is given."""

    def __init__(self, rows: Sequence[LiveSession], error: UllageError | None = None) -> None:
        self.rows, self.error = rows, error
        self.closed = False

    async def list_rows(self) -> Sequence[LiveSession]:
        if self.error is not None:
            raise self.error
        return self.rows

    async def read_detail(self, key: str) -> dict[str, Any]:
        row = next(row for row in self.rows if row.key == key)
        return SessionDetail(row).to_dict()

    async def review(self, key: str, number: int) -> dict[str, Any]:
        raise ConfigurationError("there is none")

    async def aclose(self) -> None:
        self.closed = True


def row(name: str, **facts: Any) -> LiveSession:
    return LiveSession(source="proxy", id=name, **{"title": f"title of {name}", **facts})


def test_rows_are_drawn_for_the_width_that_the_terminal_got_meanwhile():
    async def steps(app: Top, pilot: Any) -> None:
        table = app.query_one(DataTable)
        wide = len(table.columns)
        await pilot.press("j")
        await pilot.resize_terminal(40, 24)
        await pilot.pause(0.1)
        assert len(table.columns) < wide
        await pilot.press("enter")
        await pilot.pause(0.2)
        assert isinstance(app.screen, Detail)
        await pilot.resize_terminal(140, 24)
        await pilot.pause(0.1)
        await pilot.press("q")
        await pilot.pause(0.1)
        assert len(table.columns) > wide

        assert table.cursor_row == 1

    rows = [row(name, used=10, window=100, at=at) for name, at in (("a", 1.0), ("b", 2.0))]
    drive(Told(rows), steps)


def drive(
    station: Station, steps: Callable[[Top, Any], Coroutine[Any, Any, None]], width: int = 100
) -> None:
    async def run() -> None:
        app = Top(station)
        async with app.run_test(size=(width, 24)) as pilot:
            for _ in range(100):
                await pilot.pause(0.05)
                if " of 0 conv" not in draw(app) or isinstance(station, Told):
                    break
            await pilot.pause(0.1)
            await steps(app, pilot)

    asyncio.run(run())


def test_rows_are_sorted_filtered_and_opened_by_keys():
    rows = [
        row("a", used=10, window=100, at=1.0),
        row("b", used=95, window=100, at=2.0, dollars=1.5),
        row("c", at=3.0, state="active"),
    ]

    async def steps(app: Top, pilot: Any) -> None:
        assert "3 of 3 conversations \u00b7 1 active \u00b7 1 nearly full \u00b7 $1.50" in draw(app)
        assert [one.id for one in app._drawn] == ["c", "b", "a"]
        await pilot.press("s")
        assert [one.id for one in app._drawn] == ["b", "a", "c"]
        await pilot.press("r")
        assert [one.id for one in app._drawn] == ["c", "a", "b"]
        await pilot.press("slash", *"title", "space", *"critical", "enter")
        assert [one.id for one in app._drawn] == ["b"]
        assert "filter: title critical" in draw(app)
        await pilot.press("slash", "z")
        assert "0 of 3 conversations" in draw(app)
        assert app.query_one(DataTable).row_count == 0
        await pilot.press("escape")
        assert len(app._drawn) == 3
        await pilot.press("G", "k", "j", "g", "enter")
        await pilot.pause(0.2)
        assert isinstance(app.screen, Detail)
        assert "title of c" in draw(app)
        await pilot.press("q")
        assert type(app.screen).__name__ == "Screen"
        await pilot.press("h")
        assert "Enter opens" in draw(app)

    drive(Told(rows), steps)


def test_what_changes_moves_without_the_cursor():
    station = Told([row("a", at=1.0), row("b", at=2.0)])

    async def steps(app: Top, pilot: Any) -> None:
        await pilot.press("down")
        station.rows = [row("a", at=1.0, used=50, window=100), row("b", at=2.0), row("c", at=9.0)]
        for _ in range(60):
            await pilot.pause(0.1)
            if len(app._drawn) == 3:
                break
        table: Any = app.query_one("#rows")
        assert app._drawn[table.cursor_row].id == "a"
        assert "50%" in draw(app)
        station.rows = [row("a", at=1.0, used=60, window=100), *station.rows[1:]]
        for _ in range(60):
            await pilot.pause(0.1)
            if "60%" in draw(app):
                break
        assert "60%" in draw(app)

    drive(station, steps)
    assert station.closed


def test_what_cannot_be_read_is_said():
    async def steps(app: Top, pilot: Any) -> None:
        await pilot.pause(0.1)
        assert "the proxy is away" in draw(app)

    drive(Told([], ConfigurationError("the proxy is away")), steps)


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_of_others_steers_the_terminal(width: int):
    rows = [
        row(f"{n}", title=text, project=text, model=text, last=text, at=float(n))
        for n, text in enumerate(EVIL)
    ]

    async def steps(app: Top, pilot: Any) -> None:
        shown = draw(app)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
        assert all(len(line) <= width for line in shown.split("\n"))
        for place in range(len(EVIL)):
            await pilot.press("g", *["down"] * place, "enter")
            await pilot.pause(0.2)
            opened = draw(app)
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", opened)
            assert isinstance(app.screen, Detail)
            await pilot.press("escape")
        assert any("[red]markup" in draw_text(text).plain for text in EVIL)

    drive(Told(rows), steps, width)


def test_wider_terminals_have_more_columns():
    counts = [len(choose_columns(width)) for width in (40, 80, 120, 200)]
    assert counts == sorted(counts)
    assert counts[-1] == len(COLUMNS)
    assert draw_gauge(None, 18, "none").plain.strip() == "\u2014"
    assert draw_gauge(2.0, 18, "overflow").plain.endswith("200%X")
    assert matches(row("a", project="/home/shop"), ("shop", "title"))
    assert not matches(row("a"), ("nothing",))


def test_sessions_of_this_machine_are_shown_down_to_a_compaction(tmp_path: Path):
    folder = tmp_path / ".claude" / "projects" / "x"
    folder.mkdir(parents=True)
    shutil.copy(SAMPLE, folder / "0b1e7a52-0000-4000-8000-000000000000.jsonl")
    log = SqliteLog(tmp_path / "log.db")
    with scripted(*[said("done", 500)] * 2) as server:
        runner = agent(server)
        with Session.create(log, "cellar") as session:
            for n in range(30):
                runner_text = f"question {n} " + "word " * 150
                from ullage.core.session.log.event import Draft

                session.record([Draft("user_message", {"text": runner_text})])
                session.record([Draft("assistant_message", {"text": f"a {n}", "model": "model"})])
            asyncio.run(runner.acompact(session, target_tokens=2_000))
            assert runner.run(session, "Go on.").ok

    async def steps(app: Top, pilot: Any) -> None:
        for _ in range(100):
            await pilot.pause(0.1)
            if len(app._drawn) == 2 and "12%" in draw(app):
                break
        await pilot.press("slash", *"question", "enter", "enter")
        await pilot.pause(1)
        assert isinstance(app.screen, Detail)
        assert "1 compactions" in draw(app)
        app.screen.query_one("TabbedContent").active = "compactions"  # type: ignore[attr-defined]
        await pilot.pause(0.2)
        app.screen.query_one("#list").focus()
        await pilot.press("enter")
        await pilot.pause(1)
        assert isinstance(app.screen, Review)
        assert "holds:" in draw(app)
        assert "left out" in draw(app)

    sources: list[LiveSource] = [
        ProgramSource("claude", {"HOME": str(tmp_path)}),
        LogSource(log),
    ]
    drive(Here(LiveDesk(sources)), steps, 120)


@pytest.mark.slow
def test_a_proxy_is_watched_from_afar_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with Behind(answer) as behind:
        more: Any = {"tokens": {"me": TOKEN}, "rules": [{"window": 8_000}]}
        with serving(tmp_path, [behind.url], **more) as served:
            url = f"http://127.0.0.1:{served.port}"
            lines = f"x-ullage-token: {TOKEN}"
            say(served.port, [{"role": "user", "content": "seen from afar"}], lines)
            monkeypatch.setenv("MINE", TOKEN)
            words = ["top", "--once", "--json", "--proxy", url]
            assert main([*words, "--token-env", "MINE"]) == 0
            (told,) = json.loads(capsys.readouterr().out)["conversations"]
            assert told["title"] == "seen from afar"
            assert main(words) == 1
            assert "missing token" in capsys.readouterr().err

            async def steps(app: Top, pilot: Any) -> None:
                await pilot.press("enter")
                await pilot.pause(0.5)
                assert "seen from afar" in draw(app)

            drive(There(url, default().transport, TOKEN), steps)


def test_a_compaction_is_reviewed_from_afar(tmp_path: Path):
    with Behind(answer) as behind:
        more: Any = {"rules": [{"window": 8_000}]}
        with serving(tmp_path, [behind.url], **more) as served:
            grow(served.port, 10)
            station = There(f"http://127.0.0.1:{served.port}", default().transport)

            async def run() -> None:
                (found,) = await station.list_rows()
                while not (detail := await station.read_detail(found.key))["compactions"]:
                    continue  # a page is told once the answer is out
                number = detail["compactions"][-1]["number"]
                review = await station.review(found.key, number)
                assert review["compaction"]["number"] == number
                for wrong in ("proxy/none", "nobody"):
                    with pytest.raises(UllageError, match="no conversation"):
                        await station.read_detail(wrong)

            asyncio.run(run())


def test_looking_once_reads_all_that_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / ".claude" / "projects" / "shop"
    folder.mkdir(parents=True)
    for number in range(5):
        shutil.copy(SAMPLE, folder / f"{number}.jsonl")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    assert main(["top", "--once", "--json", "--from", "claude"]) == 0
    told = json.loads(capsys.readouterr().out)["conversations"]
    assert [type(row["used"]) for row in told] == [int] * 5
    assert main(["top", "--once", "--from", "claude"]) == 0
    assert "?" not in capsys.readouterr().out


def test_ullage_alone_prints_its_help_in_a_pipe(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    assert "usage: ullage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--json"], "give --once as well"),
        (["--once", "--token-env", "X"], "want no token"),
        (["--once", "--proxy", "http://127.0.0.1:1", "--token-env", "NOT_SET"], "no variable"),
        (["--once", "--proxy", "http://127.0.0.1:1"], "no answer"),
        (["--once", "--from", "nobody"], "can be watched"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], why: str, capsys: pytest.CaptureFixture[str]):
    assert main(["top", *words]) == 1
    assert why in capsys.readouterr().err
