"""A desktop notification, shown by a program of the system.

Texts are passed as arguments or through the environment, never in a line that a shell or another
interpreter reads, since a server chooses their content.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Final

TITLE: Final = "ullage"
LONGEST: Final = 300
WAIT_S: Final = 5.0

OSA: Final = (
    "on run argv",
    "display notification (item 1 of argv) with title (item 2 of argv)",
    "end run",
)
POWERSHELL: Final = (
    "Add-Type -AssemblyName System.Windows.Forms;"
    "$n = New-Object System.Windows.Forms.NotifyIcon;"
    "$n.Icon = [System.Drawing.SystemIcons]::Warning; $n.Visible = $true;"
    "$n.ShowBalloonTip(5000, 'ullage', $env:ULLAGE_NOTICE, 'Warning'); Start-Sleep 5"
)

Which = Callable[[str], str | None]


def find_command(text: str, which: Which = shutil.which) -> list[str] | None:
    """Return the arguments of the command that shows a text, or None without one."""
    shown = text[:LONGEST]
    program = which("notify-send")
    if program:
        return [program, "--app-name", TITLE, "--", TITLE, shown]
    program = which("osascript")
    if program:
        return [program, *(part for line in OSA for part in ("-e", line)), shown, TITLE]
    program = which("powershell.exe") or which("pwsh.exe")
    return [program, "-NoProfile", "-NonInteractive", "-Command", POWERSHELL] if program else None


def notify(text: str, which: Which = shutil.which) -> str:
    """Show a text on the desktop; return an error message, or "" if it was passed on."""
    command = find_command(text, which)
    if command is None:
        return "no program shows notifications here: notify-send, osascript, PowerShell"
    environment: Mapping[str, str] = {**os.environ, "ULLAGE_NOTICE": text[:LONGEST]}
    try:
        done = subprocess.run(  # noqa: S603 - a list of arguments, and a program found on the path
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=WAIT_S + 5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]} failed: {error}"
    return "" if done.returncode == 0 else f"{command[0]} exited with {done.returncode}"
