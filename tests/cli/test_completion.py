"""Completion: the scripts are taken by their shells and offer what the parser takes."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from ullage.cli.main import COMMANDS, main


def completed(script: str, words: list[str]) -> list[str]:
    """Return what bash offers for the last of these words."""
    asked = " ".join(f"'{word}'" for word in words)
    program = f"{script}\nCOMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; _ullage\n"
    program += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_offers_commands_options_and_values(capsys: Any):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, ["ullage", ""]) == list(COMMANDS)
    assert completed(script, ["ullage", "ch"]) == ["chat"]
    assert "--permission" in completed(script, ["ullage", "run", "--per"])
    assert completed(script, ["ullage", "run", "--permission", "re"]) == ["read_only"]
    assert completed(script, ["ullage", "completion", "f"]) == ["fish"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_scripts_name_every_command(capsys: Any, shell: str):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=20)


def test_another_shell_is_refused(capsys: Any):
    with pytest.raises(SystemExit) as ended:
        main(["completion", "csh"])
    assert ended.value.code == 2
    assert "bash" in capsys.readouterr().err
