"""Turns the events of a session into text: complete text above, running parts below.

Complete text is put above and stays. Parts that may still change (the end of an answer, running
calls, the sign of life) are drawn again below it. The module knows no keys and no terminal.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from rich.text import Text

from ullage.agent import Live, Session
from ullage.agent.session import Told
from ullage.cli import changes, glyphs, lines
from ullage.cli.activity import WAITING, describe_summary
from ullage.cli.screen.drawing import Canvas, make_diff, make_text
from ullage.cli.screen.markdown import Blocks, make_markdown
from ullage.core.session.log.event import Event
from ullage.core.session.log.undoing import PathChange

SHOWN_DIFF: Final = 12
"""Rows of a change's diff that are shown below its call."""

SHOWN_FILES: Final = 3
"""Files of a call whose diffs are shown below it."""

LARGEST_LIVE: Final = 8_000
"""Characters of a running block that are drawn as Markdown at every step."""

TAIL: Final = 2_000
"""Characters of a longer block that are drawn as text, from its end."""

LARGEST_FOLD: Final = 100_000
"""Characters of an unfolded text that are shown."""

CHARACTERS: Final = 4
"""Assumed characters of a token without a count."""

THOUGHT_ROWS: Final = 3

ARGUMENTS: Final = ("command", "path", "pattern", "query", "words", "url", "name", "task", "text")
"""Arguments that describe a call in short; the first existing one is used."""

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ASCII_FRAMES: Final = "|/-\\"
SPIN_S: Final = 0.1

Entry = Callable[[Canvas], str]
"""An entry above: draws itself at a given width."""


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A text shown as one line that can be unfolded: a call with its result, or reasoning."""

    title: str
    body: str
    diff: str = ""

    def draw(self, canvas: Canvas) -> str:
        """Return the whole text."""
        shown = [make_text(self.title, "bold")]
        body = self.body[:LARGEST_FOLD]
        if body:
            shown.append(make_text(body, "dim"))
        if len(self.body) > LARGEST_FOLD:
            left = len(self.body) - LARGEST_FOLD
            shown.append(make_text(f"... {left:,} more characters: ullage show SESSION --full"))
        if self.diff:
            shown.append(make_diff(self.diff))
        return canvas.draw(*shown)


@dataclass(slots=True)
class RunningCall:
    """A call without a result yet."""

    name: str
    arguments: str
    since: float
    changed: list[PathChange] = field(default_factory=list)
    workspace: str = ""


@dataclass(slots=True)
class Feed:
    """Takes events; `put` receives finished text. `clock` gives seconds."""

    put: Callable[[Entry], None]
    clock: Callable[[], float] = time.monotonic
    ascii: bool = False
    folded: list[FoldedText] = field(default_factory=list)
    what: str = ""
    _session: Session | None = None
    _since: float = 0.0
    _began: float | None = None
    _characters: int = 0
    _blocks: Blocks = field(default_factory=Blocks)
    _thought: str = ""
    _thinking_since: float = 0.0
    _calls: dict[str, RunningCall] = field(default_factory=dict)
    _summary: dict[str, Any] = field(default_factory=dict)

    def open(self, session: Session) -> None:
        """Show this session from here on."""
        self._session = session
        self._calls.clear()

    def begin(self, what: str) -> None:
        """Begin a turn, or other work that is waited for."""
        self._summary.clear()
        self._wait(what)

    def end(self) -> None:
        """Put the running parts above as they are; then nothing is waited for."""
        self._close_answer()
        self._close_thought()
        for call in list(self._calls):
            self._close_call(call, "", failed=True, how="broken off")
        self.what = ""

    # --- events ---------------------------------------------------------------------------------

    def hear(self, event: Told) -> None:
        """Take one event, if people want to see it."""
        way = self._live if isinstance(event, Live) else self._record
        way(event.type, event.data)

    def _live(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "text_delta":
            self._close_thought()
            self._count("answering", data["text"])
            for block in self._blocks.add(data["text"]):
                self._put_block(block)
        elif kind == "reasoning_delta":
            self._count("thinking", data["text"])
            if not self._thought:
                self._thinking_since = self.clock()
            self._thought += data["text"]
        elif kind == "plan":
            for step in data["steps"]:
                self.say(f"  [{step['status']}] {step['text']}")
        elif kind == "status":
            self._status(data)

    def _status(self, data: Mapping[str, Any]) -> None:
        state = data.get("state")
        if "text" in data:
            self.say(f"  {data['text']}", "dim")
        elif state == "summarising":
            self._summary.update(data)
            self.what = describe_summary(self._summary)
        elif state == "running" and data.get("call_id") in self._calls:
            self._calls[data["call_id"]].since = self.clock()
            self._wait(f"running {data.get('tool', '')}")

    def _record(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind in ("assistant_message", "tool_call"):
            self._close_answer()
            self._close_thought()
        if kind == "tool_call":
            made = RunningCall(data["name"], data["arguments"], self.clock())
            self._calls[data["call_id"]] = made
        elif kind == "tool_result":
            failed = data.get("is_error") is True
            self._close_call(data["call_id"], data["text"], failed=failed)
            self._wait(WAITING)
        elif kind == "file_changes":
            self._note_changes(data)
        elif kind == "permission_decision" and data["decision"] != "allow":
            self.say(f"  {data['decision']}: {data.get('reason', '')}", "yellow")
        elif kind == "skill_activation":
            self.say(f"  skill {data['name']}", "dim")

    def _note_changes(self, data: Mapping[str, Any]) -> None:
        """Keep changes with the call that made them: that of their path, or the only one."""
        made = [
            PathChange(str(file["path"]), file.get("before"), file.get("after"))
            for file in data["files"]
        ]
        paths = {change.path for change in made}
        running = list(self._calls.values())
        named = [call for call in running if _find_path(call.arguments) in paths]
        for call in named[:1] or (running if len(running) == 1 else []):
            call.workspace = str(data["workspace"])
            call.changed += made

    # --- finished text --------------------------------------------------------------------------

    def say(self, text: str, style: str = "") -> None:
        """Put a line of text above."""
        made = make_text(text, style)
        self.put(lambda canvas: canvas.draw(made))

    def _put_block(self, block: str) -> None:
        self.put(lambda canvas: draw_block(block, canvas) + "\n")

    def _close_answer(self) -> None:
        if block := self._blocks.end():
            self._put_block(block)

    def _close_thought(self) -> None:
        thought, self._thought = self._thought.strip(), ""
        if not thought:
            return
        seconds = self.clock() - self._thinking_since
        title = f"thought for {seconds:.1f} s, {len(thought):,} characters"
        self._fold(FoldedText(title, thought), ("~", "dim"), "")

    def _close_call(self, name: str, text: str, *, failed: bool, how: str = "") -> None:
        call = self._calls.pop(name, None)
        if call is None:
            return
        seconds = self.clock() - call.since
        how = how or ("failed" if failed else "ok")
        title = f"{call.name} {shorten_arguments(call.arguments)}"
        diff, found = "", []
        if call.changed and not failed and self._session is not None:
            found = list(changes.draw_changes(self._session, call.workspace, call.changed))
            diff = "\n".join(text for _, text in found)
        body = f"{write_arguments(call.arguments)}\n\n{text}"
        mark = ("x", "red") if failed else ("*", "green")
        self._fold(FoldedText(title, body, diff), mark, f"{seconds:.1f} s {how}")
        for _, shown in found[:SHOWN_FILES]:
            self.put(partial(draw_short_diff, shown))

    def _fold(self, folded: FoldedText, mark: tuple[str, str], end: str) -> None:
        """Put one line above for a folded text, with the number that unfolds it."""
        self.folded.append(folded)
        number = len(self.folded)
        signs = {"*": "●", "x": "●", "~": "◌"}
        sign = mark[0] if self.ascii else signs[mark[0]]

        def draw(canvas: Canvas) -> str:
            tail = f" {end}" if end else ""
            head = f"{sign} #{number} "
            room = canvas.columns - len(head) - len(tail)
            made = Text(head, style=mark[1], overflow="fold")
            made.append(glyphs.cut(glyphs.clean(folded.title), max(room, 8)), style="dim")
            made.append(tail, style=mark[1] if mark[0] == "x" else "dim")
            return canvas.draw(made)

        self.put(draw)

    def unfold(self, number: int | None = None) -> str:
        """Put a folded text above in full; the last one if no number is given.

        Returns an error message for a wrong number, else "".
        """
        if not self.folded:
            return "nothing is folded yet"
        wanted = len(self.folded) if number is None else number
        if not 1 <= wanted <= len(self.folded):
            return f"there are 1 to {len(self.folded)} to unfold, no {wanted}"
        self.put(self.folded[wanted - 1].draw)
        return ""

    # --- running work ---------------------------------------------------------------------------

    def _wait(self, what: str) -> None:
        if what != self.what:
            self.what, self._since = what, self.clock()
            self._began, self._characters = None, 0

    def _count(self, what: str, text: str) -> None:
        self._wait(what)
        if self._began is None:
            self._began = self.clock()
        self._characters += len(text)

    def draw_live(self, canvas: Canvas, rows: int) -> str:
        """Return the running parts, limited to their last `rows` rows."""
        shown = "".join(self._draw_parts(canvas)).split("\n")[:-1]
        return "\n".join(shown[-rows:] if rows > 0 else [])

    def _draw_parts(self, canvas: Canvas) -> Iterator[str]:
        if self._thought:
            found = canvas.draw(make_text(self._thought[-TAIL:].strip(), "dim italic"))
            yield "".join(f"{row}\n" for row in found.split("\n")[:-1][-THOUGHT_ROWS:])
        rest = self._blocks.rest
        if rest.strip():
            if len(rest) <= LARGEST_LIVE:
                yield draw_block(rest, canvas)
            else:
                yield canvas.draw(make_text(rest[-TAIL:]))
        sign = "o" if self.ascii else "○"
        for call in self._calls.values():
            seconds = f" {self.clock() - call.since:.0f} s"
            said = f"{sign} {call.name} {shorten_arguments(call.arguments)}"
            room = max(canvas.columns - len(seconds), 8)
            yield canvas.draw(make_text(glyphs.cut(glyphs.clean(said), room) + seconds, "yellow"))

    def draw_sign(self, columns: int) -> str:
        """Return the sign of life: the work, its duration, and the speed of the text."""
        if not self.what:
            return ""
        frames = ASCII_FRAMES if self.ascii else FRAMES
        now = self.clock()
        frame = frames[int(now / SPIN_S) % len(frames)]
        said = f"{frame} {self.what} {now - self._since:.0f} s"
        if self._began is not None and now - self._began >= 1:
            speed = self._characters / CHARACTERS / (now - self._began)
            said += f", ~{speed:.0f} tokens/s"
        return glyphs.cut(glyphs.clean(f"{said} (esc interrupts)"), columns)


# ── drawing ─────────────────────────────────────────────────────────────────────────────────────


def draw_block(block: str, canvas: Canvas) -> str:
    """Return a block of Markdown without empty rows around it."""
    rows = canvas.draw(make_markdown(block, canvas.columns)).split("\n")
    while rows and not rows[0]:
        rows.pop(0)
    while rows and not rows[-1]:
        rows.pop()
    return "".join(f"{row}\n" for row in rows)


def draw_short_diff(text: str, canvas: Canvas) -> str:
    """Return the first lines of a diff, without its head, for below its call."""
    held = [line for line in text.split("\n") if not line.startswith(("--- ", "+++ "))]
    more = len(held) - SHOWN_DIFF
    shown = [lines.brief(line, canvas.columns - 4) if len(line) > canvas.columns - 4 else line
             for line in held[:SHOWN_DIFF]]  # fmt: skip
    rows = canvas.draw(make_diff("\n".join(shown))).split("\n")[:-1]
    if more > 0:
        rows.append(f"... {more:,} more lines: /diff")
    return "".join(f"    {row}\n" for row in rows)


def shorten_arguments(arguments: str) -> str:
    """Return a call's arguments in short: the main one, else all of them on one line."""
    found = _read_object(arguments)
    if found is None:
        return lines.brief(arguments, 200)
    main = next((found[name] for name in ARGUMENTS if isinstance(found.get(name), str)), None)
    if main is None:
        main = ", ".join(f"{name}={value}" for name, value in found.items())
    return lines.brief(str(main), 200)


def _find_path(arguments: str) -> str:
    return str((_read_object(arguments) or {}).get("path", "")).removeprefix("./")


def write_arguments(arguments: str) -> str:
    """Return the arguments of a call, one on each line if they are an object."""
    found = _read_object(arguments)
    if found is None:
        return arguments
    return "\n".join(f"{name}: {value}" for name, value in found.items())


def _read_object(arguments: str) -> dict[str, Any] | None:
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_context(event: Event) -> Mapping[str, Any]:
    """Return how full the window was, by a recorded report."""
    found = event.data.get("context") if event.type == "provider_usage" else None
    return found if isinstance(found, Mapping) else {}
