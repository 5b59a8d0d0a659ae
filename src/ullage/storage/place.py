"""Where stores are kept that nobody names: in the user's folder of data. It opens none."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SESSIONS: Final = "sessions.db"
"""The file of the commands' sessions."""

PROXY: Final = "proxy.db"
"""The file of `ullage serve`."""


def default_url(file: str) -> str:
    """Return the URL of one of these files in the folder of this user."""
    import platformdirs

    return f"sqlite:{Path(platformdirs.user_data_dir('ullage', appauthor=False)) / file}"
