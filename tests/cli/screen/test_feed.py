"""What happens in a session, as rows: what stays above, what folds, what is under way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ullage.agent import Live, Session
from ullage.cli.screen.drawing import Canvas
from ullage.cli.screen.feed import (
    LARGEST_FOLD,
    LARGEST_LIVE,
    Entry,
    Feed,
    shorten_arguments,
    write_arguments,
)
from ullage.core.session.log.event import Draft, Event
from ullage.storage import open_log

PLAIN = Canvas(40, colour=False)


class Shown:
    """A feed with a clock that stands still, and what it put above."""

    def __init__(self) -> None:
        self.now = 0.0
        self.entries: list[Entry] = []
        self.feed = Feed(self.entries.append, clock=lambda: self.now)

    @property
    def above(self) -> str:
        return "".join(entry(PLAIN) for entry in self.entries)

    def live(self, rows: int = 20) -> str:
        return self.feed.draw_live(PLAIN, rows)

    def tell(self, kind: str, **data: Any) -> None:
        self.feed.hear(Live("s", kind, data))

    def record(self, kind: str, **data: Any) -> None:
        self.feed.hear(event(kind, data))


def event(kind: str, data: Mapping[str, Any]) -> Event:
    log = open_log("memory:")
    with Session.create(log, "s") as session:
        (made,) = session.record([Draft(kind, dict(data))])
    return made


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_whole_blocks_stay_above_and_the_rest_is_drawn_below(shown: Shown) -> None:
    shown.feed.begin("waiting")
    shown.tell("text_delta", text="# Title\n\nOne **bold")
    assert shown.live() == "# Title\n\nOne **bold"
    shown.tell("text_delta", text="** word\n\nand\nmo")
    assert shown.above == "# Title\n\nOne bold word\n\n"
    assert shown.live() == "and mo"
    shown.feed.end()
    assert shown.above.endswith("and mo\n\n")
    assert shown.live() == ""


def test_only_the_last_rows_of_what_is_under_way_are_drawn(shown: Shown) -> None:
    shown.tell("text_delta", text="\n".join(["```", *(f"row {n}" for n in range(50))]))
    assert shown.live(3).split("\n") == ["row 47", "row 48", "row 49"]
    shown.tell("text_delta", text="x" * (LARGEST_LIVE + 1))
    assert set(shown.live(3)) == {"x", "\n"}


def test_reasoning_is_dimmed_while_it_comes_and_folded_behind_it(shown: Shown) -> None:
    shown.tell("reasoning_delta", text="Let me think.\n" * 9)
    assert shown.live().split("\n") == ["Let me think."] * 3
    assert "\x1b[2;3m" in shown.feed.draw_live(Canvas(40), 9)
    shown.now = 2.5
    shown.tell("text_delta", text="So.")
    assert shown.above == "◌ #1 thought for 2.5 s, 125 characters\n"
    assert shown.feed.unfold(1) == ""
    assert shown.above.count("Let me think.") == 9


def test_a_call_is_one_line_with_its_time_and_how_it_went(shown: Shown) -> None:
    shown.record("tool_call", call_id="a", name="shell", arguments='{"command": "make   test"}')
    shown.tell("status", tool="shell", call_id="a", state="running")
    shown.now = 3.2
    assert shown.live() == "○ shell make test 3 s"
    assert "running shell 3 s" in shown.feed.draw_sign(80)
    shown.record("tool_result", call_id="a", text="ok\n" * 50)
    shown.record("tool_call", call_id="b", name="read", arguments='{"path": "x.py"}')
    shown.record("tool_result", call_id="b", text="no such file", is_error=True)
    assert shown.above == "● #1 shell make test 3.2 s ok\n● #2 read x.py 0.0 s failed\n"
    assert shown.live() == ""
    shown.feed.unfold()
    assert "path: x.py\n\nno such file\n" in shown.above


def test_what_is_wrong_with_a_number_is_said(shown: Shown) -> None:
    assert shown.feed.unfold() == "nothing is folded yet"
    shown.tell("reasoning_delta", text="x")
    shown.feed.end()
    assert shown.feed.unfold(7) == "there are 1 to 1 to unfold, no 7"


def test_a_call_that_was_broken_off_says_so(shown: Shown) -> None:
    shown.record("tool_call", call_id="a", name="shell", arguments="{}")
    shown.feed.end()
    assert "#1 shell  0.0 s broken off" in shown.above


def test_what_is_very_long_is_cut_when_it_is_unfolded(shown: Shown) -> None:
    shown.record("tool_call", call_id="a", name="read", arguments="no json")
    shown.record("tool_result", call_id="a", text="x" * (LARGEST_FOLD + 500))
    shown.feed.unfold(1)
    assert "more characters" in shown.above


def test_a_change_of_a_file_shows_its_diff_below_the_call(shown: Shown, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("".join(f"line {n}\n" for n in range(30)))
    with Session.create(open_log("memory:"), "s") as session:
        shown.feed.open(session)
        for name, path in (("a", "a.py"), ("b", "b.py")):
            arguments = f'{{"path": "./{path}"}}'
            shown.record("tool_call", call_id=name, name="write", arguments=arguments)
        change = {"path": "a.py", "before": None, "after": None}
        shown.record("file_changes", turn="t", workspace=str(tmp_path), files=[change])
        shown.record("tool_result", call_id="a", text="wrote")
        shown.record("tool_result", call_id="b", text="wrote")
    rows = shown.above.split("\n")
    assert rows[0] == "● #1 write ./a.py 0.0 s ok"
    assert rows[1:4] == ["    @@ -0,0 +1,30 @@", "    +line 0", "    +line 1"]
    assert "    ... 19 more lines: /diff" in rows
    assert rows[-2] == "● #2 write ./b.py 0.0 s ok"


def test_the_sign_of_life_has_seconds_and_a_speed_that_is_said_to_be_a_guess(shown: Shown) -> None:
    assert shown.feed.draw_sign(80) == ""
    shown.feed.begin("waiting")
    shown.now = 3
    assert shown.feed.draw_sign(80).endswith("waiting 3 s (esc interrupts)")
    shown.tell("text_delta", text="word" * 50)
    shown.now = 5
    assert "answering 2 s, ~25 tokens/s" in shown.feed.draw_sign(80)
    assert len(shown.feed.draw_sign(20)) == 20
    shown.feed.ascii = True
    assert shown.feed.draw_sign(80).isascii()


def test_what_else_is_told_stands_above(shown: Shown) -> None:
    shown.tell("plan", steps=[{"status": "done", "text": "look [red]"}])
    shown.tell("status", text="trying again")
    shown.record("permission_decision", decision="deny", reason="no", call_id="a", by="policy")
    shown.record("permission_decision", decision="allow", reason="yes", call_id="a", by="policy")
    shown.record("skill_activation", name="knit", hash="h")
    shown.tell("status", state="summarising", characters=400)
    assert shown.above == "  [done] look [red]\n  trying again\n  deny: no\n  skill knit\n"
    assert "400 characters written" in shown.feed.what


@pytest.mark.parametrize(
    ("arguments", "short"),
    [
        ('{"path": "a.py", "old": "x"}', "a.py"),
        ('{"steps": [1, 2], "x": true}', "steps=[1, 2], x=True"),
        ("not json", "not json"),
        ("[" * 100_000, "[" * 199 + "…"),
        ('{"command": "ls\\n\\u001b[31m"}', "ls \\x1b[31m"),
    ],
)
def test_arguments_in_short(arguments: str, short: str) -> None:
    assert shorten_arguments(arguments) == short


def test_arguments_in_full() -> None:
    assert write_arguments('{"a": 1, "b": "x"}') == "a: 1\nb: x"
    assert write_arguments("[1]") == "[1]"
