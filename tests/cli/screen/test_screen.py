"""The chat's screen in a real terminal (tmux), over scripted models: what is seen and done."""

from __future__ import annotations

import re
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.acting import bodies, called, chunk, said, scripted, usage
from tests.cli.room import ULLAGE, Room
from tests.cli.screen.corpus import ESCAPES
from tests.cli.screens import PATIENCE_S, Pane, pane
from tests.cli.terminal import Terminal
from tests.support.faults import Answer, FaultServer, sse
from ullage.core.facts.quoting import drop_quoted
from ullage.embedded import Server

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

LEDGER = "def count(casks):\n    # how many there are\n    return sum(casks)\n"
EDIT = {"path": "ledger.py", "old": "    return sum(casks)", "new": "    return len(casks)"}
ANSWER = (
    "# The cellar\n\nThere are **three** casks in the long corridor, and nobody has counted them "
    "for a hundred years, which is why we begin:\n\n- red\n- white\n\n```python\n"
    "def count(casks):\n    return len(casks)\n```\n\nThat is all of it.\n"
)


def slow(text: str = ANSWER, pause_s: float = 0.05) -> Answer:
    """Answer word by word."""
    words = [chunk({"content": word}) for word in re.findall(r"\S+\s*|\s+", text)]
    return sse(*words, chunk({}, finish="stop"), usage(400), "[DONE]", pause_s=pause_s)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    made = Room(tmp_path)
    (made.work / "ledger.py").write_text(LEDGER)
    return made


@contextmanager
def chat(
    room: Room, *script: Answer, words: tuple[str, ...] = (), **more: Any
) -> Iterator[tuple[Pane, FaultServer]]:
    """Run a chat in a pane, until it waits for a line."""
    size = {name: more.pop(name) for name in ("columns", "rows") if name in more}
    home = {"XDG_DATA_HOME": str(room.folder / "data"), **more}
    with (
        scripted(*script) as server,
        pane(room, room.command(server, "chat", *words), **size, **home) as shown,
    ):
        shown.until("build>")
        yield shown, server


def wait(check: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < end
        time.sleep(0.05)


def settle(shown: Pane, text: str) -> str:
    """Return the screen as soon as it shows a text and nothing is under way."""
    wait(lambda: text in (seen := shown.tmux("capture-pane", "-p")) and "(esc int" not in seen)
    return shown.tmux("capture-pane", "-p")


def packed(text: str) -> str:
    return re.sub(r"\s", "", text)


# ── drawing ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_an_answer_a_call_and_the_gauge_fit_the_terminal(room: Room, columns: int) -> None:
    script = (slow(pause_s=0.0), called(("edit", EDIT)), said("Done *now*."))
    with chat(room, *script, columns=columns, rows=40) as (shown, _):
        shown.type("Tell me")
        shown.until("That is all of it.")
        shown.type("Mend it")
        screen = settle(shown, "Done now.")
    rows = [row.rstrip() for row in screen.rstrip().split("\n")]
    assert max(map(len, rows)) <= columns
    assert "# The cellar" in rows
    assert "There are three casks" in screen
    assert " • red" in rows
    assert "    return len(casks)" in rows
    assert "```" not in screen
    assert any(re.fullmatch(r"● #1 edit ledger\.py \d\.\d s ok", row) for row in rows)
    assert "    -    return sum(casks)" in rows
    assert "    +    return len(casks)" in rows
    assert rows[-2] == "build>"
    assert re.match(r" ctx=[\d.]+k?/8\.0k \| ", rows[-1])
    assert " | build" in rows[-1]
    assert columns < 80 or "window: override" in rows[-1]


@pytest.mark.slow
def test_a_terminal_that_is_resized_while_an_answer_comes_shows_it_once(room: Room) -> None:
    with chat(room, slow(pause_s=0.08), columns=100, rows=30) as (shown, _):
        shown.type("Tell me")
        shown.until("nobody has")
        for columns in (60, 44, 120, 72):
            shown.resize(columns, 26)
            time.sleep(0.4)
        screen = settle(shown, "That is all of it.")
    assert max(len(row) for row in screen.split("\n")) <= 72
    assert screen.count("# The cellar") == 1
    assert screen.count("session ") == 1
    assert screen.count("build> Tell me") == 1
    assert packed("There are three casks in the long corridor, and nobody has") in packed(screen)


def test_reasoning_folds_and_is_unfolded_by_a_key_or_by_number(room: Room) -> None:
    thought = [chunk({"reasoning_content": f"Step {n} of it. "}) for n in range(30)]
    answer = sse(*thought, chunk({"content": "So."}), usage(60), "[DONE]")
    with chat(room, answer, called(("read", {"path": "ledger.py"})), said("Read.")) as (shown, _):
        shown.type("Think")
        screen = settle(shown, "So.")
        assert "Step 1 of it" not in screen
        assert re.search(r"◌ #1 thought for \d\.\d s, \d+ characters", screen)
        shown.type("Look")
        settle(shown, "Read.")
        shown.press("C-o")
        shown.until("# how many there are")
        shown.press("C-o")
        shown.until("Step 1 of it. Step 2")
        shown.type("/unfold 7")
        shown.until("there are 1 to 2 to unfold, no 7")


def test_the_sign_of_life_counts_seconds_while_nothing_comes(room: Room) -> None:
    events = b"".join(sse(chunk({"content": "Here."}), usage(60), "[DONE]").blocks)
    late = Answer(200, (events,), "text/event-stream", pause_s=2.5)
    with chat(room, late) as (shown, _):
        shown.type("hi")
        assert "(esc interrupts)" in shown.until("waiting 2 s")
        screen = settle(shown, "Here.")
    assert "waiting" not in screen


def test_nothing_that_a_model_or_a_tool_writes_steers_the_terminal(room: Room) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in ESCAPES.values()]
    short = [text for text in texts if len(text) < 5_000]
    (room.work / "evil.txt").write_text("\n".join(short))
    script = (
        *(slow("\n\n".join(short), pause_s=0.0), called(("read", {"path": "evil.txt\x1b[2J"}))),
        *(called(("read", {"path": "evil.txt"}), prompt=51), said("Over. \x1b[?1049h")),
    )
    with scripted(*script) as server:
        command = room.command(server, "chat", "go")
        with Terminal(command, {**room.environment, "LC_ALL": "C.UTF-8"}) as terminal:
            terminal.until("deep")
            terminal.type("on")
            terminal.until("Over")
            terminal.type("/unfold")
            terminal.until("path: evil.txt")
            time.sleep(0.5)
            terminal.type("/quit")
            terminal.rest()
            raw = terminal.shown
    left = re.sub(r"\x1b\[[0-9;]*[mABCDGHJK]|\x1b\[\?(?:25|2004|7|1|12)[hl]|\r\n|\n|\r", "", raw)
    found = re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", left)
    assert found is None, repr(left[max(found.start() - 60, 0) : found.end() + 60])


@pytest.mark.parametrize("value", ["1", ""])
def test_no_color_is_heeded(room: Room, value: str) -> None:
    script = (called(("edit", EDIT)), said("Done `now`."))
    with scripted(*script) as server:
        home = {**room.environment, "LC_ALL": "C.UTF-8", "NO_COLOR": value}
        with Terminal(room.command(server, "chat", "go"), home) as terminal:
            terminal.until("Done")
            time.sleep(1.0)
            terminal.type("/quit")
            terminal.rest()
            raw = terminal.shown
    colours = re.findall(r"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|9[0-7]|[34]8;[0-9;]+)m", raw)
    assert bool(colours) is not bool(value)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the server is Linux only")
def test_a_real_server_is_talked_to(room: Room, tiny_server: Server) -> None:
    where = ["--store", room.store, "--workspace", str(room.work), "--no-tools"]
    served = ["--base-url", tiny_server.base_url, "--max-tokens", "24"]
    with pane(room, [ULLAGE, "chat", "hi", *where, *served]) as shown:
        screen = settle(shown, "hello")
        assert re.search(r" ctx=\d+/2\.0k \| .*build", screen)
        shown.type("/window")
        shown.until("2,048 tokens")
        shown.press("C-d")
        shown.until("ended with 0")


# ── typing ──────────────────────────────────────────────────────────────────────────────────────


def test_what_is_typed_ahead_is_shown_and_sent_when_its_turn_comes(room: Room) -> None:
    with chat(room, slow(), said("Second."), said("Third.")) as (shown, server):
        shown.type("first")
        shown.until("The cellar")
        shown.type("the second")
        shown.type("the third")
        screen = shown.until("queued: the third")
        assert "queued: the second" in screen
        screen = shown.until("Third.")
        wait(lambda: len(bodies(server)) == 3)
        said_last = [body["messages"][-1]["content"] for body in bodies(server)]
    assert said_last == ["first", "the second", "the third"]
    assert "queued" not in screen


@pytest.mark.parametrize("key", ["Escape", "C-c"])
def test_an_answer_that_is_interrupted_is_kept_and_what_was_queued_comes_back(
    room: Room, key: str
) -> None:
    with chat(room, slow(pause_s=0.2), said("Go on.")) as (shown, server):
        shown.type("first")
        shown.until("There are")
        shown.type("second")
        shown.until("queued: second")
        shown.press(key)
        screen = shown.until("interrupted; the part that had come is kept")
        assert "There are three" in screen or "There are" in screen
        shown.until("build> second")
        assert len(bodies(server)) == 1
        shown.press("Enter")
        shown.until("Go on.")
        shown.press("C-d")
        shown.until("ended with 0")
    assert len(room.events("turn_interrupted")) == 1
    partial = [e for e in room.events("assistant_message") if e.get("partial")]
    assert partial[0]["text"].startswith("# The cellar\n\nThere are")


def test_many_pasted_lines_stand_as_a_label_and_are_sent_whole(room: Room) -> None:
    pasted = "\n".join(["always use tabs", *(f"line {n}" for n in range(119))])
    with chat(room, said("I see.")) as (shown, server):
        shown.tmux("send-keys", "-l", "I prefer spaces: ")
        shown.paste(pasted)
        screen = shown.until("[pasted 120 lines]")
        assert "line 5" not in screen
        shown.press("Enter")
        shown.until("I see.")
        sent = bodies(server)[0]["messages"][-1]["content"]
    assert pasted in sent
    assert "always use tabs" not in drop_quoted(sent)
    assert "I prefer spaces" in drop_quoted(sent)


def test_commands_files_and_sessions_are_completed(room: Room) -> None:
    with chat(room, said("I see.")) as (shown, server):
        shown.tmux("send-keys", "-l", "/se")
        assert "/search" in shown.until("/sessions")
        shown.press("C-c")
        shown.tmux("send-keys", "-l", "what is @led")
        shown.until(" ledger.py")
        shown.press("Tab")
        shown.until("what is @ledger.py")
        shown.press("Enter", "Enter")
        shown.until("I see.")
        assert LEDGER.strip() in bodies(server)[0]["messages"][-1]["content"]
        shown.tmux("send-keys", "-l", "/sessions ")
        shown.until("begun 20")


def test_a_question_is_answered_above_the_line_and_not_by_what_was_typed_ahead(
    room: Room,
) -> None:
    script = (called(("edit", EDIT)), said("Done."))
    with chat(room, *script, words=("--permission", "ask"), rows=40) as (shown, _):
        shown.type("mend it")
        shown.until("Allow? [y/a/N]")
        shown.type("y")
        shown.until("Done.")
        shown.press("C-d")
        shown.until("ended with 0")
    (decision,) = room.events("permission_decision")
    assert decision["decision"] == "allow"
    assert "len(casks)" in (room.work / "ledger.py").read_text()


def test_the_editor_writes_the_line(room: Room) -> None:
    editor = room.folder / "editor"
    editor.write_text("#!/bin/sh\nprintf 'from the\\neditor' > \"$1\"\n")
    editor.chmod(0o700)
    more: dict[str, Any] = {"EDITOR": str(editor), "VISUAL": str(editor)}
    with chat(room, said("one"), said("two"), **more) as (shown, server):
        shown.press("C-x", "C-e")
        shown.until("from the")
        shown.press("Enter")
        shown.until("one")
        shown.type("/edit")
        shown.until("   ... editor")
        shown.press("Enter")
        shown.until("two")
        assert bodies(server)[1]["messages"][-1]["content"] == "from the\neditor"


@pytest.mark.slow
def test_what_was_typed_comes_back_in_the_next_chat(room: Room) -> None:
    with chat(room, said("one")) as (shown, _):
        shown.type("remember the cellar")
        shown.until("one")
        shown.press("C-d")
        shown.until("ended with 0")
    kept = room.folder / "data" / "ullage" / "chat-history.jsonl"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with chat(room, said("two"), words=("--session", "-")) as (shown, _):
        screen = shown.tmux("capture-pane", "-p")
        assert "build> remember the cellar\none" in screen
        shown.press("C-l", "Up")
        wait(lambda: shown.tmux("capture-pane", "-p").count("build> remember the cellar") == 2)
        shown.press("C-c", "C-r")
        shown.until("search back:")
        shown.tmux("send-keys", "-l", "cell")
        shown.until("search back: cell")
        shown.press("Enter", "Enter")
        shown.until("two")


def test_a_line_that_ends_in_a_backslash_goes_on(room: Room) -> None:
    with chat(room, said("one")) as (shown, server):
        shown.type("one \\")
        shown.type("two")
        shown.until("build> one")
        wait(lambda: bodies(server))
        assert bodies(server)[0]["messages"][-1]["content"] == "one \ntwo"


# ── ending, and lines in the place of a screen ──────────────────────────────────────────────────


def test_two_interrupts_of_an_empty_line_end_it(room: Room) -> None:
    with chat(room, said("one")) as (shown, _):
        shown.tmux("send-keys", "-l", "half a line")
        shown.until("half a line")
        shown.press("C-c")
        wait(lambda: "half a line" not in shown.tmux("capture-pane", "-p"))
        shown.press("C-c")
        shown.until("another Ctrl-C as well")
        shown.press("C-c")
        shown.until("ended with 130")


@pytest.mark.slow
def test_a_signal_ends_it_with_a_record_and_a_terminal_as_it_was(room: Room) -> None:
    with scripted(slow(pause_s=0.3)) as server:
        home = {**room.environment, "LC_ALL": "C.UTF-8"}
        with Terminal(room.command(server, "chat", "go"), home) as terminal:
            terminal.until("The cellar")
            terminal.process.send_signal(signal.SIGTERM)
            terminal.rest()
            assert terminal.process.returncode == 130
            assert terminal.shown.rstrip().endswith("interrupted")
            assert terminal.shown.rindex("\x1b[?2004l") > terminal.shown.rindex("\x1b[?2004h")
    assert len(room.events("turn_interrupted")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--plain", "TERM=dumb", "a pipe"])
def test_lines_stand_in_for_the_screen(room: Room, how: str) -> None:
    plain = ("--plain",) if how == "--plain" else ()
    term = "dumb" if how == "TERM=dumb" else "xterm"
    with scripted(said("Hello *there*.")) as server:
        line = " ".join([*room.command(server, "chat", "hi", *plain)])
        line = f"TERM={term} {line}" + (" </dev/null" if how == "a pipe" else "")
        with Terminal(["/bin/sh", "-c", line], room.environment) as terminal:
            if how == "a pipe":
                assert "Hello *there*." in terminal.rest()
            else:
                assert "Hello *there*." in terminal.until(r"there\*\.\s[^$]*build> $")
                terminal.press(b"\x04")
                terminal.rest()
    assert "\x1b[?2004h\x1b" not in terminal.shown
