"""Default places of stores: in the user's data folder. It opens no store."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SESSIONS: Final = "sessions.db"
"""The file of the sessions of the commands."""

PROXY: Final = "proxy.db"
"""The file of `ullage serve`."""


def default_url(file: str) -> str:
    """Return the URL of one of these files in the user's data folder."""
    import platformdirs

    return f"sqlite:{Path(platformdirs.user_data_dir('ullage', appauthor=False)) / file}"


MADE: Final = "made the folder {folder} for the store"
"""The message about a folder that opening a store made."""


def find_new_folder(url: str) -> Path | None:
    """Return the folder that opening a store makes, or None if it exists or is ullage's own."""
    from ullage.storage.opening import find_file

    if not url.startswith("sqlite:"):
        return None
    folder = find_file(url).absolute().parent
    return None if folder.exists() or folder == find_file(default_url(PROXY)).parent else folder
