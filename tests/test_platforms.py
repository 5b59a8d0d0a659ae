"""Other systems: what Windows lacks is imported by nothing that has work to do there.

`make platforms` checks the types for macOS and Windows; neither was run.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

POSIX = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
OURS = {"ullage.tools.confine", "ullage.tools.matcher"}
"""Run by path as processes of their own, beside tools that need POSIX."""

CODE = f"""
import importlib, pkgutil, sys
sys.modules |= dict.fromkeys({POSIX})
import ullage
for found in pkgutil.walk_packages(ullage.__path__, "ullage."):
    if ".integrations." not in found.name and not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            if error.name in {POSIX}:
                print(found.name)
"""


@pytest.mark.slow
def test_without_the_modules_of_posix_everything_else_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) >= OURS
    # where Windows is only played, the SDK of MCP takes this system for what it is
    assert set(done.stdout.split()) <= OURS | {"ullage.mcp_tools.server"}
