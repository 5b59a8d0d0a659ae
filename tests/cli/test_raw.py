"""Events as they are: byte for byte into a pipe, and nothing that steers on a terminal."""

from __future__ import annotations

import io
import json
import sys

import pytest

from ullage.cli import lines

DATA = '{"text":"a\u202eb\x9b31mc\u200b, é, 中"}\n'.encode()


class Screen(io.TextIOWrapper):
    """A stream that says that it is a terminal, or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), "utf-8")
        self._terminal = terminal

    def isatty(self) -> bool:
        """Tell what was said."""
        return self._terminal

    @property
    def written(self) -> bytes:
        """What was written."""
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_of_json_read_the_same_and_steer_no_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    screen = Screen(terminal=terminal)
    monkeypatch.setattr(sys, "stdout", screen)
    lines.raw(DATA)
    assert json.loads(screen.written) == json.loads(DATA)
    assert (screen.written == DATA) is not terminal
    if terminal:
        text = screen.written.decode().removesuffix("\n")
        assert text.isprintable()
        assert "é, 中" in text
