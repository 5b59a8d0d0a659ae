"""Notifications: what is called, and that a text is an argument of it and never a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.cli import notices

EVIL = "'; touch pwned #\" $(touch pwned)"


@pytest.mark.parametrize("program", ["notify-send", "osascript", "powershell.exe"])
def test_the_program_of_the_system_is_called_with_a_list(program: str) -> None:
    command = notices.find_command(EVIL, lambda name: f"/bin/{name}" if name == program else None)
    assert command is not None
    assert command[0] == f"/bin/{program}"
    assert [part for part in command if EVIL in part] in ([EVIL], [])
    assert program != "powershell.exe" or EVIL not in " ".join(command)


def test_without_a_program_that_is_said() -> None:
    assert "no program shows notifications" in notices.notify("x", lambda name: None)


def test_a_text_reaches_the_program_as_it_is(tmp_path: Path) -> None:
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\n')
    program.chmod(0o700)
    assert notices.notify(EVIL, lambda name: str(program) if name == "notify-send" else None) == ""
    assert (tmp_path / "said").read_text().splitlines()[-1] == EVIL
    assert not (tmp_path / "pwned").exists()


def test_a_program_that_fails_is_named(tmp_path: Path) -> None:
    program = tmp_path / "notify-send"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o700)
    assert "exited with 3" in notices.notify("x", lambda name: str(program))
    assert "failed" in notices.notify("x", lambda name: str(tmp_path / "none"))
