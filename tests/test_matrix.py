"""One conversation, one memory: every face on every kind of server, by honest growth and restarts.

A cell is a face, a kind of server and a window. 60 turns of text that other people wrote, as much
as half as large again as the window; three restarts that leave only what is on disk. In each cell
no turn fails, at most one request is cut or refused, no tier is told twice of one checkpoint, our
size of each request holds the server's own, and the task and a rule stay in what the model reads.
`make matrix` runs all cells and writes the table of docs/matrix.md; here are those that go wrong
first.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.casks import KINDS, Kind
from tests.support.faces import FACES
from tests.support.matrix import WINDOWS, Came, play


def check(came: Came) -> None:
    """Check what holds in every cell."""
    assert came.failed == []
    assert came.over <= 1
    assert (came.missing, came.wrong, came.twice) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("face", "kind"),
    [
        *(("agent", kind) for kind in KINDS),
        *(("library", "words"), ("library", "cuts"), ("wrap", "cuts")),
        *(("proxy", "cuts"), ("proxy", "numbers")),
    ],
)
def test_a_window_that_is_claimed_falsely_costs_one_request(
    face: str, kind: Kind, tmp_path: Path
) -> None:
    came = play(face, kind, "claimed", tmp_path)
    check(came)
    assert came.over == 1


@pytest.mark.slow
@settings(max_examples=5)
@example(kind="silent", place=7165, name=98)
@given(kind=st.sampled_from(KINDS), place=st.integers(0, 10**6), name=st.integers(1, 120))
def test_whatever_the_sizes_are_an_agent_keeps_the_rule(
    tmp_path_factory: pytest.TempPathFactory, kind: Kind, place: int, name: int
) -> None:
    folder = tmp_path_factory.mktemp("cell") / ("d" * name)
    folder.mkdir()
    came = play("agent", kind, "claimed", folder, place=place)
    check(came)
    assert came.over <= 1


@pytest.mark.parametrize("kind", ["silent", "cuts"])
def test_an_agent_with_its_tools_keeps_within_a_small_window(kind: Kind, tmp_path: Path) -> None:
    came = play("agent", kind, "4,096", tmp_path)
    check(came)
    assert came.over == 0


@pytest.mark.slow
def test_a_process_for_each_turn_goes_on_as_one_would(tmp_path: Path) -> None:
    check(play("cli", "cuts", "claimed", tmp_path, turns=10))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("face", FACES)
def test_every_cell(face: str, kind: Kind, window: str, tmp_path: Path) -> None:
    check(play(face, kind, window, tmp_path))
