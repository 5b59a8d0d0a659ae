"""Counting with tiktoken, OpenAI's own native package, for users without another; no downloads.

tiktoken downloads a vocabulary on first use, and keeps the file in a folder. This module only uses
an existing file that tiktoken would accept. It knows no models.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ullage.core.errors import ConfigurationError
from ullage.counters.families import Family

FILES: Final[Mapping[str, tuple[str, str]]] = {
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
"""The file of a vocabulary and its SHA-256 (tiktoken 0.14, `tiktoken.load`, `openai_public`)."""

FOLDERS: Final = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")


def load(key: str) -> Family:
    """Build the counter of o200k_base or cl100k_base; takes about 0.3 s.

    Raises ImportError without tiktoken, and ConfigurationError without the vocabulary's file.
    """
    import tiktoken

    require_file(key)
    encoding = tiktoken.get_encoding(key)
    return Family(key, lambda text: len(encoding.encode_ordinary(text)))


def require_file(key: str) -> None:
    """Raise ConfigurationError if tiktoken would download a vocabulary."""
    named = (os.environ[name] for name in FOLDERS if name in os.environ)
    folder = next(named, str(Path(tempfile.gettempdir(), "data-gym-cache")))
    name, digest = FILES[key]
    try:
        held = hashlib.sha256(Path(folder, name).read_bytes()).hexdigest() if folder else ""
    except OSError:
        held = ""
    if held != digest:
        run = f"import tiktoken; tiktoken.get_encoding('{key}')"
        raise ConfigurationError(
            f"tiktoken's vocabulary {key} is not in {folder or 'a folder'}, as the file {name}; "
            "none is fetched: set TIKTOKEN_CACHE_DIR to a folder of yours, and once, where there "
            f'is a network, run: python -c "{run}"'
        )
