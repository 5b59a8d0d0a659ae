"""Numbers in words, tiles of a map, and files that are not what was shipped."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.errors import ConfigurationError
from ullage.core.values.visible import HIDDEN, clean_lines
from ullage.pages import forms, static
from ullage.pages.boxes import Box, lay_out
from ullage.pages.static import Assets


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (forms.count(12_400), "12,400"),
        (forms.count(None), "\u2014"),
        (forms.percent(0.5), "50\u202f%"),
        (forms.percent(1, 0), "\u2014"),
        (forms.percent(None), "\u2014"),
        (forms.dollars(None), "\u2014"),
        (forms.dollars(0.0123), "$0.0123"),
        (forms.dollars(1_234.5), "$1,234.50"),
        (forms.ago(0), "\u2014"),
        (forms.ago(100, 102), "now"),
        (forms.ago(100, 130), "30\u202fs ago"),
        (forms.ago(100, 100 + 7_200), "2\u202fh ago"),
        (forms.moment(0), "\u2014"),
        (forms.moment(1e300), "\u2014"),
        (forms.moment(1_795_648_310.5), "2026-11-25 23:11:50"),
        (forms.judge(90, 100, "unavailable"), "critical"),
        (forms.judge(None, 100, ""), "unavailable"),
        (forms.judge(1, 100, "warning"), "warning"),
        (forms.finish(None), ""),
        (forms.finish(3), 3),
        (forms.finish("a\u202eb\x1b"), "a\\u202eb\\x1b"),
    ],
)
def test_numbers_and_texts_are_written_for_people(shown: object, wanted: object):
    assert shown == wanted


@given(st.text(st.characters(), max_size=60))
def test_nothing_hides_in_a_cleaned_text(text: str):
    shown = clean_lines(text)
    assert not {unicodedata.category(c) for c in shown if c not in "\t\n"} & HIDDEN
    assert shown.count("\n") == text.count("\n")


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["system", "tool_results"]),
            "name": st.just("row"),
            "tokens": st.integers(-5, 10_000),
            "items": st.lists(
                st.fixed_dictionaries(
                    {
                        "name": st.just("item"),
                        "tokens": st.integers(0, 3_000),
                        "entries": st.lists(
                            st.fixed_dictionaries(
                                {
                                    "name": st.just("call"),
                                    "tokens": st.integers(0, 900),
                                    "message": st.integers(0, 9),
                                }
                            ),
                            max_size=3,
                        ),
                    }
                ),
                max_size=3,
            ),
        }
    ),
    max_size=8,
)


@given(ROWS, st.booleans())
def test_a_map_is_as_large_as_what_it_shows(rows: list[Mapping[str, Any]], deep: bool):
    tiles = lay_out(rows, deep=deep)
    whole = sum(row["tokens"] for row in rows if row["tokens"] > 0)
    assert sum(tile.tokens for tile in tiles) == whole
    area = sum(tile.box.width * tile.box.height for tile in tiles)
    assert not tiles or area == pytest.approx(10_000)
    for tile in tiles:
        share = tile.box.width * tile.box.height / 10_000
        assert share == pytest.approx(tile.tokens / whole, abs=1e-9)


def test_one_weight_takes_the_whole_box():
    assert Box(0, 0, 10, 10).split([5]) == [Box(0, 0, 10, 10)]
    assert Box(0, 0, 10, 10).split([]) == []


def test_every_file_of_others_is_pinned_with_its_licence():
    folder = files("ullage.pages").joinpath("static")
    pinned = json.loads(folder.joinpath("vendored.json").read_text("utf-8"))
    ours = {"ullage.css", "ullage.js", "mark.svg", "vendored.json"}
    assert {entry.name for entry in folder.iterdir()} - ours == set(pinned)
    assert all(one["licence"] in ("MIT", "0BSD") for one in pinned.values())
    assert all({"package", "version", "sha256"} <= one.keys() for one in pinned.values())
    notices = files("ullage.pages").joinpath("licences")
    assert {f"{name.partition('.')[0]}.txt" for name in pinned} <= {
        entry.name for entry in notices.iterdir()
    }


def test_a_file_that_was_changed_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = Path(str(files("ullage.pages")))
    shutil.copytree(source / "static", tmp_path / "static")
    with (tmp_path / "static" / "htmx.min.js").open("a") as file:
        file.write(";evil()")
    monkeypatch.setattr(static, "files", lambda _: tmp_path)
    with pytest.raises(ConfigurationError, match=r"htmx\.min\.js .* not the file that was shipped"):
        Assets()


def test_a_file_is_found_by_its_name_with_its_hash_alone():
    assets = Assets()
    named = assets.get("ullage.js")
    assert assets.find(named.name) is named
    assert assets.find("ullage.js") is None
    assert assets.find("../app.py") is None
