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


MADE: Final = "made the folder {folder} for the store"
"""What is said of a folder that opening a store made."""


def find_new_folder(url: str) -> Path | None:
    """Return the folder that opening a store makes; None for one that is there, or ullage's own."""
    from ullage.storage.opening import find_file

    if not url.startswith("sqlite:"):
        return None
    folder = find_file(url).absolute().parent
    return None if folder.exists() or folder == find_file(default_url(PROXY)).parent else folder
