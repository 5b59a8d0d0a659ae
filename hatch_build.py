"""What hatchling asks while it builds: man pages for the wheel, and the description of an index.

`make dist` lays the pages in `man/`, and the sdist brings them. A plain checkout has none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

BLOCK: Final = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)[^)]*\)")
"""A link or a picture of this repository, without scheme."""


class ManualHook(BuildHookInterface):
    """Puts man/ into the wheel as share/man/man1."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Name the folder, where there is one."""
        if Path(self.root, "man").is_dir():
            build_data["shared_data"]["man"] = "share/man/man1"


class DescriptionHook(MetadataHookInterface):
    """Describes the project by README.md, without links that lead nowhere on an index's page."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description."""
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": drop_links(text)}


def drop_links(text: str) -> str:
    """Return Markdown with relative links as their words and without relative pictures."""
    parts = BLOCK.split(text)
    plain = [LINK.sub(lambda found: "" if found[1] else found[2], part) for part in parts[::2]]
    parts[::2] = plain
    return "".join(parts)
