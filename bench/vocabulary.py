"""Gives tiktoken its vocabularies without a network: `python -m bench.vocabulary FOLDER`.

bpe-openai contains the files. tiktoken names a file by the SHA-1 of its download address, and
checks the SHA-256 of the content.
"""

from __future__ import annotations

import gzip
import sys
from importlib.util import find_spec
from pathlib import Path

from ullage.counters.original import FILES


def main(folder: Path) -> None:
    """Unpack the vocabularies into `folder`."""
    package = find_spec("bpe_openai")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("bpe-openai is not installed: requirements/bench-base.txt has it")
    folder.mkdir(parents=True, exist_ok=True)
    for key, (name, _) in FILES.items():
        packed = Path(package.submodule_search_locations[0]) / "data" / f"{key}.tiktoken.gz"
        unpacked = folder / f"{name}.new"
        unpacked.write_bytes(gzip.decompress(packed.read_bytes()))
        unpacked.rename(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
