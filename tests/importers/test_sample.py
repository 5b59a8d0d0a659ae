"""The bundled sample is what its generator writes, and what it reports fits what it holds."""

from __future__ import annotations

from pathlib import Path

from tests.importers.sample import FRAME, SAMPLE, UNSEEN, sample, weight
from ullage.importers import parse

ROOT = Path(__file__).parents[2]


def test_the_sample_in_the_package_is_written_by_the_generator_byte_for_byte():
    assert (ROOT / SAMPLE).read_bytes() == sample()


def test_the_sample_is_small_enough_to_ship():
    assert 60_000 < len(sample()) < 120_000


def results(message) -> int:
    """Return how many results of calls a message holds; each was a line of its own."""
    content = message["content"]
    return 0 if isinstance(content, str) else sum(b["type"] == "tool_result" for b in content)


def test_every_report_is_the_window_and_what_the_file_does_not_hold():
    session = parse(sample())
    for turn in session.turns:
        held = session.messages[turn.start : turn.stop]
        joined = sum(FRAME * max(results(message) - 1, 0) for message in held)
        assert turn.tokens == UNSEEN + sum(weight(m["content"]) for m in held) + joined
