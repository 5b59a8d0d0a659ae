"""The terminal screen of all conversations, as htop shows processes.

The module draws and decides nothing; it knows no source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from rich.table import Table
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Sparkline, Static, TabbedContent, TabPane

from ullage.core.errors import UllageError
from ullage.core.tokens.gauge import short
from ullage.live.values import LiveSession
from ullage.top.cells import (
    COLUMNS,
    UNKNOWN,
    choose_columns,
    draw_age,
    draw_gauge,
    draw_text,
    find_share,
    find_tier,
    matches,
)
from ullage.top.station import Station

BEAT_S: Final = 1.0
"""Seconds between two looks."""

MOST: Final = 1_000
"""Most rows that are drawn; a filter finds the others."""

SORTS: Final = ("age", "window", "left", "tokens", "growth", "cost", "cache")

Data = Mapping[str, Any]


class Top(App[None]):
    """The screen over a station."""

    TITLE = "ullage"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; padding: 0 1; background: $panel; }
    #filter { display: none; height: 3; }
    #filter.on { display: block; }
    DataTable { height: 1fr; }
    #said { height: auto; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,f10,ctrl+c", "quit", "Quit"),
        Binding("enter", "open", "Open"),
        Binding("slash,f3,f4", "filter", "Filter"),
        Binding("s,f6", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("j", "down", "Down", show=False),
        Binding("k", "up", "Up", show=False),
        Binding("g,home", "first", "First", show=False),
        Binding("G,end", "last", "Last", show=False),
        Binding("escape", "clear", "Clear", show=False),
        Binding("h,f1,question_mark", "help", "Help"),
    ]

    def __init__(self, station: Station) -> None:
        super().__init__()
        self._station = station
        self._rows: Sequence[LiveSession] = ()
        self._drawn: list[LiveSession] = []
        self._sort, self._reverse = SORTS[0], False
        self._words: tuple[str, ...] = ()
        self._looking = False
        self._width = 0

    def compose(self) -> ComposeResult:
        """Create the widgets of the screen."""
        yield Static(id="head", markup=False)
        yield Input(placeholder="words that a row must hold; Enter goes back", id="filter")
        yield DataTable(id="rows", cursor_type="row", zebra_stripes=False)
        yield Static(id="said", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Start to look."""
        self.query_one(DataTable).focus()
        self._width = self.size.width
        self._make_columns()
        self.look()
        self.set_interval(BEAT_S, self.look)

    async def on_unmount(self) -> None:
        """Close the station."""
        await self._station.aclose()

    @work(group="look")
    async def look(self) -> None:
        """Take in the changes; skip this look while the last one still runs."""
        if self._looking:
            return
        self._looking = True
        try:
            rows = await self._station.list_rows()
        except UllageError as error:
            self._say(str(error))
            return
        finally:
            self._looking = False
        if rows != self._rows:
            self._rows = rows
            self._say("")
            self._draw_rows()

    def _say(self, text: str) -> None:
        self.query_one("#said", Static).update(draw_text(text, "bold") if text else "")

    # --- drawing --------------------------------------------------------------------------------

    def _make_columns(self) -> None:
        table: DataTable[Text] = self.query_one(DataTable)
        table.clear(columns=True)
        shown = choose_columns(self._width)
        taken = sum(column.width + 2 for column in shown[:-1])
        for column in shown:
            rest = max(12, self._width - taken - 4)
            width = rest if column is shown[-1] else column.width
            mark = (" \u25b2" if self._reverse else " \u25bc") if column.name == self._sort else ""
            table.add_column(f"{column.name}{mark}", width=width, key=column.name)

    def _draw_rows(self, held: str | None = None) -> None:
        table: DataTable[Text] = self.query_one(DataTable)
        order = next(column.order for column in COLUMNS if column.name == self._sort)
        found = [row for row in self._rows if matches(row, self._words)]
        found.sort(key=lambda row: (order(row), row.at), reverse=not self._reverse)
        drawn = found[:MOST]
        shown = choose_columns(self._width)
        same = bool(drawn) and [row.key for row in drawn] == [row.key for row in self._drawn]
        if same:
            self._update_cells(table, drawn)
        else:
            held = held or self._find_key(table)
            table.clear()
            for row in drawn:
                table.add_row(*(column.write(row) for column in shown), key=row.key)
            place = next((i for i, row in enumerate(drawn) if row.key == held), 0)
            table.move_cursor(row=place)
        self._drawn = drawn
        self._draw_head(len(found))

    def _update_cells(self, table: DataTable[Text], drawn: Sequence[LiveSession]) -> None:
        shown = choose_columns(self._width)
        for place, (row, was) in enumerate(zip(drawn, self._drawn, strict=True)):
            if row != was:
                for number, column in enumerate(shown):
                    table.update_cell_at(Coordinate(place, number), column.write(row))

    def _draw_head(self, found: int) -> None:
        active = sum(row.state in ("active", "running") for row in self._rows)
        paid = [row.dollars for row in self._rows if row.dollars is not None]
        full = sum(find_tier(row) in ("warning", "critical", "overflow") for row in self._rows)
        facts = [
            f"{found:,} of {len(self._rows):,} conversations",
            f"{active} active",
            f"{full} nearly full",
            *([f"${sum(paid):,.2f}"] if paid else []),
            *([f"filter: {' '.join(self._words)}"] if self._words else []),
        ]
        self.query_one("#head", Static).update(draw_text(" \u00b7 ".join(facts)))

    def _find_key(self, table: DataTable[Text]) -> str | None:
        if not self._drawn or not 0 <= table.cursor_row < len(self._drawn):
            return None
        return self._drawn[table.cursor_row].key

    def on_resize(self, event: Resize) -> None:
        """Draw the columns that fit; `size` has the old width until later."""
        self._width = event.size.width
        self._redraw()

    def _redraw(self) -> None:
        held = self._find_key(self.query_one(DataTable))
        self._make_columns()
        self._drawn = []
        self._draw_rows(held)

    # --- keys -----------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Open the conversation under the cursor."""
        table: DataTable[Text] = self.query_one(DataTable)
        key = self._find_key(table)
        if key is not None:
            self.push_screen(Detail(self._station, key))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the conversation that was chosen."""
        if event.data_table.id == "rows":
            self.action_open()

    def action_filter(self) -> None:
        """Open the filter."""
        box = self.query_one("#filter", Input)
        box.add_class("on")
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the rows that fit."""
        self._words = tuple(event.value.casefold().split())
        self._drawn = []
        self._draw_rows()

    def on_input_submitted(self) -> None:
        """Go back to the rows."""
        self.query_one("#filter", Input).remove_class("on")
        self.query_one(DataTable).focus()

    def action_clear(self) -> None:
        """Remove the filter."""
        box = self.query_one("#filter", Input)
        box.value = ""
        box.remove_class("on")
        self.query_one(DataTable).focus()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._redraw()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._reverse = not self._reverse
        self._redraw()

    def action_down(self) -> None:
        """Go one row down."""
        self.query_one(DataTable).action_cursor_down()

    def action_up(self) -> None:
        """Go one row up."""
        self.query_one(DataTable).action_cursor_up()

    def action_first(self) -> None:
        """Go to the first row."""
        self.query_one(DataTable).move_cursor(row=0)

    def action_last(self) -> None:
        """Go to the last row."""
        self.query_one(DataTable).move_cursor(row=max(0, len(self._drawn) - 1))

    def action_help(self) -> None:
        """Show the keys."""
        self._say(
            "Enter opens, / filters, s sorts by the next column, r turns the order, Esc takes the "
            "filter away, q quits"
        )


class Detail(Screen[None]):
    """One conversation: its window, the parts of it, its compactions, its events."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace,f10", "back", "Back"),
        Binding("enter", "review", "Review a compaction"),
    ]
    CSS = "Sparkline { height: 5; margin: 1 0; } VerticalScroll { padding: 0 1; }"

    def __init__(self, station: Station, key: str) -> None:
        super().__init__()
        self._station, self._key = station, key
        self._numbers: list[int] = []

    def compose(self) -> ComposeResult:
        """Create the widgets of the screen."""
        with TabbedContent():
            with TabPane("Window", id="window"), VerticalScroll():
                yield Static("reading \u2026", id="facts", markup=False)
                yield Sparkline([], id="sizes")
                yield Static(id="claims", markup=False)
            with TabPane("Made of", id="made"), VerticalScroll():
                yield Static(id="parts", markup=False)
            with TabPane("Compactions", id="compactions"):
                yield DataTable(id="list", cursor_type="row")
            with TabPane("Events", id="events"), VerticalScroll():
                yield Static(id="log", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Read the data."""
        table: DataTable[Text] = self.query_one("#list", DataTable)
        for name in ("number", "before", "after", "how", "came of it"):
            table.add_column(name)
        self.read()

    @work(exclusive=True)
    async def read(self) -> None:
        """Read and draw."""
        try:
            told = await self._station.read_detail(self._key)
        except UllageError as error:
            self.query_one("#facts", Static).update(draw_text(str(error), "bold"))
            return
        self.query_one("#facts", Static).update(draw_facts(told, self.size.width))
        sizes = [one["tokens"] for one in told["requests"] if one["tokens"] is not None]
        self.query_one("#sizes", Sparkline).data = sizes[-400:]
        self.query_one("#claims", Static).update(draw_claims(told))
        self.query_one("#parts", Static).update(draw_parts(told))
        self.query_one("#log", Static).update(draw_events(told))
        table: DataTable[Text] = self.query_one("#list", DataTable)
        self._numbers = [made["number"] for made in reversed(told["compactions"])]
        for made in reversed(told["compactions"]):
            table.add_row(*draw_compaction(made))

    def action_back(self) -> None:
        """Go back to the rows."""
        self.app.pop_screen()

    def action_review(self) -> None:
        """Open the compaction under the cursor."""
        table: DataTable[Text] = self.query_one("#list", DataTable)
        if 0 <= table.cursor_row < len(self._numbers):
            number = self._numbers[table.cursor_row]
            self.app.push_screen(Review(self._station, self._key, number))

    def on_data_table_row_selected(self) -> None:
        """Open the compaction that was chosen."""
        self.action_review()


class Review(Screen[None]):
    """A compaction as a change."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,backspace,f10", "back", "Back")]
    CSS = "VerticalScroll { padding: 0 1; }"

    def __init__(self, station: Station, key: str, number: int) -> None:
        super().__init__()
        self._station, self._key, self._number = station, key, number

    def compose(self) -> ComposeResult:
        """Create the widgets of the screen."""
        with VerticalScroll():
            yield Static("reading \u2026", id="units", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Read the change."""
        self.read()

    @work(exclusive=True)
    async def read(self) -> None:
        """Read and draw."""
        shown = self.query_one("#units", Static)
        try:
            told = await self._station.review(self._key, self._number)
        except UllageError as error:
            shown.update(draw_text(str(error), "bold"))
            return
        shown.update(draw_review(told))

    def action_back(self) -> None:
        """Go back to the conversation."""
        self.app.pop_screen()


# --- drawing one conversation ---------------------------------------------------------------------


def draw_facts(told: Data, width: int) -> Text:
    """Return the facts of a conversation, one on each line."""
    row = LiveSession(**told["session"])
    tier = find_tier(row)
    text = draw_text(row.title or row.id, "bold").append("\n")
    where = " \u00b7 ".join(
        filter(None, (row.source, row.model, row.upstream, row.project, row.id))
    )
    text.append_text(draw_text(where, "dim")).append("\n\n")
    text.append_text(draw_gauge(find_share(row), min(60, max(20, width - 4)), tier)).append("\n")
    window = UNKNOWN if row.window is None else f"{row.window:,}"
    used = UNKNOWN if row.used is None else f"{row.used:,}"
    facts = [f"{used} of {window} tokens ({row.basis or 'unknown'}), {tier}"]
    if row.left is not None:
        facts.append(f"{row.left:,} requests to {'compaction' if row.compaction_at else 'full'}")
    if row.growth is not None:
        facts.append(f"{row.growth:,} tokens a request")
    paid = "" if row.dollars is None else f", ${row.dollars:,.4f}"
    facts.append(f"{row.requests:,} requests{paid}")
    if row.cached is not None:
        facts.append(f"{row.cached:.0%} of the prompts read from the cache")
    facts.append(f"{row.compactions:,} compactions, {row.faults:,} asked again")
    facts.append(f"last: {draw_age(row.at)} ago, {row.last}" if row.at else row.last)
    for fact in (*facts, *told["notes"]):
        text.append_text(draw_text(fact)).append("\n")
    return text


def draw_claims(told: Data) -> Text:
    """Return the claims on the window."""
    window = told.get("window")
    if not window:
        return Text()
    text = draw_text(f"window: {window['said_by']}", "bold").append("\n")
    for claim in window["claims"]:
        sign = "*" if claim["wins"] else "-"
        text.append_text(draw_text(f"{sign} {claim['sentence']}")).append("\n")
    return text


def draw_parts(told: Data) -> Table | Text:
    """Return the parts of the window, the largest first."""
    report = told.get("report")
    if not report:
        return Text("not known here", style="dim")
    table = Table.grid(padding=(0, 2))
    used = max(1, report["used"]["tokens"])
    for part in sorted(report["rows"], key=lambda one: -one["tokens"]):
        share = f"{part['tokens'] / used:.0%}"
        table.add_row(draw_text(part["name"], "bold"), f"{part['tokens']:,}", share)
        for item in part["items"][:8]:
            table.add_row(draw_text(f"  {item['name']}", "dim"), f"{item['tokens']:,}", "")
    return table


def draw_compaction(made: Data) -> list[Text]:
    """Return a compaction as table cells."""
    since = made.get("since")
    came = ""
    if since:
        came = f"{since['repeated']} of {since['calls']} calls again, {since['faults']} faults"
    undone = ", undone" if made["undone"] else ""
    return [
        Text(str(made["number"])),
        Text(short(made["before"]), justify="right"),
        Text(short(made["after"]), justify="right"),
        draw_text(f"{made['strategy']}{undone}"),
        draw_text(came),
    ]


def draw_events(told: Data) -> Text:
    """Return the events, the newest first."""
    text = Text()
    for event in reversed(told["events"][-400:]):
        text.append(f"{draw_age(event['at']):>4}  ", style="dim")
        text.append_text(draw_text(f"{event['kind']}: {event['text']}")).append("\n")
    return text or Text("none", style="dim")


def draw_review(told: Data) -> Text:
    """Return a compaction, message by message."""
    made = told["compaction"]
    head = f"compaction {made['number']}: {made['before']:,} to {made['after']:,} tokens"
    text = draw_text(f"{head}, {made['strategy']}", "bold").append("\n")
    for law in told["laws"]:
        text.append_text(draw_text(f"{'holds' if law['holds'] else 'BROKEN'}: {law['law']}"))
        text.append("\n")
    for unit in told["units"]:
        if unit["fate"] == "kept":
            continue
        sizes = f"{unit['before']:,} to {unit['after']:,}"
        place = "" if unit["number"] < 0 else f"message {unit['number']} "
        text.append("\n")
        text.append_text(draw_text(f"{unit['fate']}: {place}{unit['label']} ({sizes})", "bold"))
        for fact in (unit["reason"], unit["lives_on"], " ".join(unit["references"])):
            if fact:
                text.append("\n  ").append_text(draw_text(fact))
        text.append("\n")
    return text
