"""The page of a context report: its numbers and sums, what it never loads, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from tests.cli import real, reports
from tests.support.browser import Browser, obtain
from ullage.cli.page import COLUMNS, page
from ullage.core.errors import ConfigurationError

NAMES = sorted(reports.samples())
SHOTS = Path(__file__).parents[2] / "build" / "context"
VOID = {"meta", "br", "line", "rect", "path", "img", "link"}
KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}


class Reader(HTMLParser):
    """Reads a page: its tags in order, its ids, and the text of the marked cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.marked: dict[str, int] = {}
        self._open: list[str] = []
        self._mark = ""
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.tags.append((tag, told))
        self._mark = told.get("data-term") or told.get("data-row") or ""
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._mark:
            self.marked[self._mark] = int(data.replace(",", ""))
            self._mark = ""


def faults(schema: Mapping[str, Any], value: Any, root: Mapping[str, Any]) -> Iterator[str]:
    """Yield what of `value` breaks the schema; knows only the words that our schema uses."""
    if "$ref" in schema:
        yield from faults(root["$defs"][schema["$ref"].rpartition("/")[2]], value, root)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{value!r} is no {kinds}"
        return
    yield from _plain_faults(schema, value)
    if "if" in schema and list(faults(schema["if"], value, root)):
        yield from faults(schema["else"], value, root)
    if isinstance(value, dict):
        yield from (f"lacks {name}" for name in schema.get("required", ()) if name not in value)
        named = schema.get("properties", {})
        for name, inner in value.items():
            yield from faults(named.get(name, schema.get("additionalProperties", {})), inner, root)
    if isinstance(value, list):
        for inner in value:
            yield from faults(schema.get("items", {}), inner, root)


def _plain_faults(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    if "minimum" in schema and value is not None and value < schema["minimum"]:
        yield f"{value} is below {schema['minimum']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{value!r} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{value!r} is not {schema['const']!r}"


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))  # type: ignore[arg-type] # a table of types


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        program = obtain()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with Browser(program) as running:
        yield running


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(files("ullage.cli").joinpath("context.schema.json").read_text("utf-8"))


# ── the schema ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_admits_every_sample(name: str, schema: Any) -> None:
    assert list(faults(schema, reports.samples()[name], schema)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tier", "hot"),
        ("schema", "ullage.context/2"),
        ("window", {"tokens": 0, "source": "", "said_by": "", "note": ""}),
        ("rows", [{"id": "other"}]),
        ("rows", [reports.row("user", -1)]),
        ("free", "much"),
        ("over", True),
    ],
)
def test_the_schema_refuses_what_is_none(key: str, value: Any, schema: Any) -> None:
    assert list(faults(schema, {**reports.worked(), key: value}, schema))


def test_the_schema_names_every_key_of_a_report(schema: Any) -> None:
    assert set(schema["required"]) == set(schema["properties"]) == set(reports.worked())


# ── the document ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_of_the_page_are_those_of_the_report(name: str) -> None:
    report = reports.samples()[name]
    marked = Reader(page(report)).marked
    assert marked["used"] == report["used"]["tokens"]
    assert sum(marked[row["id"]] for row in report["rows"]) == marked["used"]
    if report["window"] is None:
        assert "free" not in marked
        assert "window" not in marked
    else:
        terms = ("used", "free", "safety", "reserved")
        assert sum(marked[term] for term in terms) == marked["window"] == report["window"]["tokens"]


@given(reports.any_report())
def test_any_report_gives_a_whole_page_that_loads_nothing(report: dict[str, Any]) -> None:
    text = page(report)
    text.encode("utf-8")
    tags = Reader(text).tags
    assert [told.get("type") for tag, told in tags if tag == "script"] == ["application/json"]
    assert not {tag for tag, _ in tags} & {"img", "link", "iframe", "object", "embed", "a", "form"}
    for _, told in tags:
        assert not {"src", "href", "srcset", "action"} & set(told)
        assert not any(name.startswith("on") for name in told)
    assert "url(" not in text
    assert "@import" not in text


def test_hostile_text_stays_text() -> None:
    text = page(reports.hostile())
    assert "<img" not in text
    assert text.count("</script>") == 1
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;\\x1b]0;owned" in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_the_report_rides_along_word_for_word() -> None:
    report = reports.hostile()
    kept = re.search(r"<script type='application/json' id='report'>(.*)</script>", page(report))
    assert kept is not None
    assert json.loads(kept[1]) == report


def test_thousands_of_turns_stay_small() -> None:
    report = {**reports.long(), "turns": reports.turns(2_000, 200_000, (700, 1_400))}
    items = [reports.item(f"tool {number}", 10) for number in range(3_000)]
    report["rows"] = [{**report["rows"][0], "tokens": 40_000, "items": items}]
    text = page(report)
    assert len(text.encode()) < 1_000_000
    assert text.count("class='hit'") == COLUMNS
    assert text.count("class='compacted'") == 2
    assert "Up to 10 turns share a column" in text


def test_a_turn_without_rows_is_drawn_as_unattributed() -> None:
    turn = {**reports.turns(1, None)[0], "rows": {}, "tokens": 100}
    text = page({**reports.unknown(), "turns": [turn]})
    assert "<path class='row k-unattributed'" in text
    assert "class='window'" not in text


def test_a_window_that_changes_is_a_step() -> None:
    drawn = re.search(r"class='window' d='(M[^']+)'", page(reports.long()))
    assert drawn is not None
    assert len(set(re.findall(r"[ML][\d.]+ ([\d.]+)", drawn[1]))) == 2


# ── in a real browser ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
def test_the_browser_has_no_complaint_and_asks_for_nothing(
    name: str, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / f"{name}.html"
    file.write_text(page(reports.samples()[name]), encoding="utf-8")
    visit = browser.open(file)
    assert visit.console == ()
    assert visit.requests == ()
    assert visit.evaluate("document.querySelectorAll('img').length") == 0
    visit.screenshot(SHOTS / f"{name}.png")


@pytest.mark.parametrize("name", ["worked", "over", "overcounted", "long"])
def test_the_sums_can_be_added_up_from_what_is_seen(
    name: str, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / f"{name}.html"
    file.write_text(page(reports.samples()[name]), encoding="utf-8")
    seen = browser.open(file).text
    shown = re.search(
        r"([\d,]+)\s+used\s+\+\s+(-?[\d,]+)\s+free\s+\+\s+([\d,]+)\s+safety margin\s+\+\s+"
        r"([\d,]+)\s+reserved output\s+=\s+([\d,]+)\s+window",
        seen,
    )
    assert shown is not None, seen
    *terms, window = (int(number.replace(",", "")) for number in shown.groups())
    assert sum(terms) == window


@pytest.mark.parametrize(("width", "dark"), [(1200, True), (768, False), (360, False), (320, True)])
def test_the_page_fits_its_screen(width: int, dark: bool, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "long.html"
    file.write_text(page({**reports.long(), **_parts()}), encoding="utf-8")
    visit = browser.open(file, width=width, height=800, dark=dark)
    visit.screenshot(SHOTS / f"long-{width}{'-dark' if dark else ''}.png")
    assert visit.evaluate("document.documentElement.scrollWidth") == width


def _parts() -> dict[str, Any]:
    worked = reports.worked()
    return {name: worked[name] for name in ("largest", "spent", "since", "warnings")}


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_from_their_ground(dark: bool, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "worked.html"
    file.write_text(page(reports.worked()), encoding="utf-8")
    visit = browser.open(file, dark=dark)
    pairs = visit.evaluate(
        "[...document.querySelectorAll('.key, .seg, .tile span, .soft, h1, td, summary')].map(e => "
        "{let g = e; while (getComputedStyle(g).backgroundColor === 'rgba(0, 0, 0, 0)' "
        "&& g.parentElement) g = g.parentElement; "
        "return [getComputedStyle(e).color, getComputedStyle(g).backgroundColor]})"
    )
    assert len(pairs) > 50
    for front, ground in pairs:
        # WCAG 2.2, 1.4.3: text wants 4.5:1.
        assert _contrast(front, ground) >= 4.5, (front, ground)


def _contrast(first: str, second: str) -> float:
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(r, g, b)`, as WCAG 2.2 defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_items_are_hidden_until_they_are_asked_for(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "worked.html"
    file.write_text(page(reports.worked()), encoding="utf-8")
    visit = browser.open(file)
    assert "3 duplicates, 11,870 reclaimable" not in visit.text
    visit.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert "3 duplicates, 11,870 reclaimable" in visit.text


# ── real reports ────────────────────────────────────────────────────────────────────────────────

REAL = sorted(real.reports())


@pytest.mark.parametrize("name", REAL)
def test_a_real_report_keeps_the_schema(name: str, schema: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(real.reports()[name], schema)


@pytest.mark.parametrize("name", REAL)
def test_the_page_of_a_real_report_has_its_numbers(name: str) -> None:
    report = real.reports()[name]
    marked = Reader(page(report)).marked
    assert sum(marked[row["id"]] for row in report["rows"]) == report["used"]["tokens"]
    if report["window"] is not None:
        terms = ("used", "free", "safety", "reserved")
        assert sum(marked[term] for term in terms) == report["window"]["tokens"]


def test_the_sample_is_shown_by_a_browser_with_its_sums(browser: Browser, tmp_path: Path) -> None:
    report = real.reports()["sample-in-a-window"]
    file = tmp_path / "sample.html"
    file.write_text(page(report), encoding="utf-8")
    visit = browser.open(file)
    assert visit.console == ()
    assert visit.requests == ()
    cells = visit.evaluate(
        "[...document.querySelectorAll('[data-term], [data-row]')].map(e => "
        "[e.dataset.term || e.dataset.row, e.innerText])"
    )
    shown = {name: int(text.replace(",", "")) for name, text in cells}
    assert sum(shown[row["id"]] for row in report["rows"]) == shown["used"]
    assert sum(shown[name] for name in ("used", "free", "safety", "reserved")) == 200_000
    assert shown["window"] == 200_000
    assert f"{report['used']['tokens']:,}" in visit.text


def test_a_browser_shows_what_is_assumed_what_is_estimated_and_what_a_row_is_about(
    browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "sample.html"
    file.write_text(page({**reports.worked(), "window": reports.over()["window"]}), "utf-8")
    visit = browser.open(file)
    visit.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert "of 200,000, assumed" in visit.text
    assert "the file names no window; --window N corrects it" in visit.text
    assert "24,960 est (563 reported)" in visit.text
    assert "$1.84 est" in visit.text
    assert "read_file src/ledger.py, turn 14" in visit.text
    assert "40 est" in visit.text
