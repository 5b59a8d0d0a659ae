"""Each family's band follows from the published ratios by the rule that the page states."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.core.tokens.counting import UNKNOWN_VOCABULARY
from ullage.counters import vocabulary
from ullage.counters.bands import _BANDS, band
from ullage.counters.models import _FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "counters.md"


def ratios() -> dict[str, dict[str, str]]:
    """Return the table of ratios by family, then by class."""
    table = PAGE.read_text(encoding="utf-8").split("<!-- ratios: begin -->")[1]
    lines = [line for line in table.split("<!-- ratios: end -->")[0].splitlines() if "|" in line]
    head, _, *rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return {name: {row[0]: row[i] for row in rows} for i, name in enumerate(head) if i}


@pytest.mark.parametrize("family", _BANDS)
def test_a_band_holds_the_mix_of_agents_and_twenty_classes(family: str) -> None:
    measured = ratios()[family]
    low, high = map(float, measured.pop("agent mix, chunks p5 to p95").split(" to "))
    best = float(measured.pop("agent mix, total"))
    measured.pop("all, chunks p5 to p95")
    classes = sorted(map(float, measured.values()))
    assert len(classes) == 24
    wider = 1.05 if family.startswith("claude") else 1.0
    scale = band(family)
    assert scale.best == best
    assert scale.low == pytest.approx(min(low, classes[2]) / wider, abs=0.006)
    assert scale.high == pytest.approx(max(high, classes[-3]) * wider, abs=0.006)


def test_every_family_has_a_band() -> None:
    assert set(_FAMILIES) == set(_BANDS)


def test_what_is_no_family_has_the_widest_band() -> None:
    for model in (None, "", "some-model", "gpt-4o"):
        assert band(vocabulary(model).family) is UNKNOWN_VOCABULARY
    assert band("no such family") is UNKNOWN_VOCABULARY


def test_a_claude_model_has_its_generation_s_band() -> None:
    assert band(vocabulary("claude-sonnet-4-5-20250929").family).best == 1.17
    assert band(vocabulary("anthropic/claude-opus-4.7").family).best == 1.47
