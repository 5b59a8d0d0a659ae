"""What hatchling asks while it builds the wheel: whether there are man pages to put in.

`make dist` lays them in `man/`, and the sdist brings them. A plain checkout has none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualHook(BuildHookInterface):
    """Puts man/ into the wheel as share/man/man1."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Name the folder, where there is one."""
        if Path(self.root, "man").is_dir():
            build_data["shared_data"]["man"] = "share/man/man1"
