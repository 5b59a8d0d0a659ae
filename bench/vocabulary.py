"""Give tiktoken its o200k_base without a network: `python -m bench.vocabulary FOLDER`.

bpe-openai carries the file; tiktoken looks it up by the SHA-1 of the address that it would fetch
it from, and checks the SHA-256 of what it finds.
"""

from __future__ import annotations

import gzip
import sys
from importlib.util import find_spec
from pathlib import Path

NAME = "fb374d419588a4632f3f557e76b4b70aebbca790"


def main(folder: Path) -> None:
    """Unpack the vocabulary into `folder`."""
    package = find_spec("bpe_openai")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("bpe-openai is not installed: requirements/bench-base.txt has it")
    packed = Path(package.submodule_search_locations[0]) / "data" / "o200k_base.tiktoken.gz"
    folder.mkdir(parents=True, exist_ok=True)
    unpacked = folder / f"{NAME}.new"
    unpacked.write_bytes(gzip.decompress(packed.read_bytes()))
    unpacked.rename(folder / NAME)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
