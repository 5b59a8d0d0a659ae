"""Finds passages with a meaning similar to a question, by static embeddings (extra `embeddings`).

The vectors of 32,000 word parts come with the package `wordllama`. The vector of a text is the mean
of its parts, and rare parts weigh more. Nothing is downloaded, and no model runs. Only two files of
the package are read, because importing it sets up logging for the whole process. This module knows
no store.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Hashable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import explain_missing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from ullage.core.search.ranking import Hit, Passages, SearchArea

    Vectors: TypeAlias = NDArray[np.float32]
    Parts: TypeAlias = NDArray[np.uint16]

EXTRA: Final = "embeddings"
PACKAGE: Final = "wordllama"
NEEDED: Final = ("numpy", "tokenizers", PACKAGE)
WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
TENSOR: Final = "embedding.weight"

NEWEST: Final = 10_000
"""Most passages of an area that are compared with a question: about a second if they are new."""

KEPT: Final = 2 * NEWEST
"""Most passages whose vectors are kept, 1.3 kB each; above this, all are dropped and made anew."""

FEW: Final = 100
"""Number of passages below which their mean says little about the common part of all texts."""

GROWN: Final = 2
"""Growth of the number of passages after which all are weighed anew."""


class WordParts:
    """The parts of texts, and a vector of each: (32,000, 256) 32-bit numbers, 33 MB."""

    def __init__(self, vectors: Vectors, tokenizer: Tokenizer) -> None:
        self.vectors = vectors
        self._tokenizer = tokenizer

    def cut(self, texts: Sequence[str]) -> list[Parts]:
        """Return the numbers of the parts of each text, in order."""
        import numpy as np

        whole = [text.encode("utf-8", "replace").decode() for text in texts]
        cut = self._tokenizer.encode_batch_fast(whole, add_special_tokens=False)
        return [np.array(text.ids, np.uint16) for text in cut]


@lru_cache(maxsize=1)
def load_parts() -> WordParts:
    """Return the word parts with their vectors from the package `wordllama`, read once.

    Raises ConfigurationError if the extra is not installed or lacks its files.
    """
    folder = find_package()
    from tokenizers import Tokenizer

    try:
        vectors = read_tensor(folder / WEIGHTS, TENSOR)
        return WordParts(vectors, Tokenizer.from_file(str(folder / TOKENIZER)))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigurationError(
            f"setting embeddings: {PACKAGE} does not have the files that 0.4 has: {error}"
        ) from error


def find_package() -> Path:
    """Return the folder of the package, without importing it.

    Raises ConfigurationError if the extra is not installed.
    """
    places = {name: getattr(find_spec(name), "origin", None) for name in NEEDED}
    if lacking := [name for name, place in places.items() if place is None]:
        raise explain_missing("setting embeddings", lacking[0], EXTRA)
    return Path(str(places[PACKAGE])).parent


def read_tensor(file: Path, name: str) -> Vectors:
    """Return a tensor of 16-bit numbers from a safetensors file, as 32-bit numbers.

    The file holds the length of a JSON header in 8 bytes, the header, and the numbers (safetensors'
    README, "Format"). Raises ValueError or KeyError for another file.
    """
    import numpy as np

    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    found = json.loads(data[8:start])[name]
    if found["dtype"] != "F16":
        raise ValueError(f"{file.name} has numbers of kind {found['dtype']}, not F16")
    begin, end = found["data_offsets"]
    numbers = np.frombuffer(data[start + begin : start + end], np.float16)
    return numbers.reshape(found["shape"]).astype(np.float32)


class SimilarPassages:
    """The newest passages of an index by their vectors, which are made on demand.

    Nothing is written to a store. Passages that an index no longer holds are not found. Vectors
    belong to texts, so one object can serve several indexes.
    """

    def __init__(self, parts: WordParts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        import numpy as np

        size, width = self._parts.vectors.shape
        self._rows: dict[Hashable, int] = {}
        self._cut: list[Parts] = []
        self._holding = np.zeros(size, np.int64)
        self._vectors = np.zeros((0, width), np.float32)
        self._middle = np.zeros(width, np.float32)
        self._lengths = np.zeros(0, np.float32)
        self._weighed = 0

    def find(self, passages: Passages, query: str, most: int, area: SearchArea) -> list[Hit]:
        """Return up to `most` passages of an area that are most similar to a question, best first.

        A passage that is less similar than the mean passage is left out.
        """
        with self._lock:
            ranked = self._rank(passages, query, most, area)
        found = passages.read_passages(ranked, area)
        return [found[name] for name in ranked if name in found]

    def _rank(
        self, passages: Passages, query: str, most: int, area: SearchArea
    ) -> Sequence[Hashable]:
        import numpy as np

        names = passages.list_passages(area, NEWEST)
        self._take(passages, names, area)
        names = [name for name in names if name in self._rows]
        if not names:
            return []
        (asked,) = self._embed(self._parts.cut([query])) - self._middle
        likeness = (self._vectors @ asked - self._middle @ asked) / self._lengths
        likeness = likeness[[self._rows[name] for name in names]]
        best = np.argsort(-likeness, kind="stable")[:most]
        return [names[place] for place in best if likeness[place] > 0]

    def _take(self, passages: Passages, names: Sequence[Hashable], area: SearchArea) -> None:
        """Make the vectors of new passages."""
        import numpy as np

        new = [name for name in names if name not in self._rows]
        if len(self._rows) + len(new) > KEPT:
            self._forget()
            new = list(names)
        if not new:
            return
        read = passages.read_passages(new, area)
        cut = self._parts.cut([hit.text for hit in read.values()])
        self._rows.update((name, len(self._cut) + place) for place, name in enumerate(read))
        self._cut += cut
        for parts in cut:
            self._holding[np.unique(parts)] += 1
        if len(self._cut) >= GROWN * self._weighed:
            self._weighed = len(self._cut)
            self._vectors = self._embed(self._cut)
        else:
            self._vectors = np.concatenate((self._vectors, self._embed(cut)))
        # The common part of all texts says nothing, so cosines use the difference from the mean.
        middle = self._middle = self._vectors.sum(axis=0) / (len(self._vectors) + FEW)
        squares = 1 - 2 * (self._vectors @ middle) + middle @ middle
        self._lengths = np.sqrt(np.maximum(squares, 1e-6))

    def _embed(self, cut: Sequence[Parts]) -> Vectors:
        """Return a vector of length one for each text; zeros for a text without parts."""
        import numpy as np

        held, total = self._holding, len(self._cut)
        weights = np.log1p((total - held + 0.5) / (held + 0.5)).astype(np.float32)
        made = np.zeros((len(cut), self._parts.vectors.shape[1]), np.float32)
        for row, parts in enumerate(cut):
            whole = weights[parts] @ self._parts.vectors[parts]
            made[row] = whole / max(math.sqrt(whole @ whole), 1e-9)
        return made


class LateSimilar:
    """Finds similar passages; loads the vectors at the first search."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: SimilarPassages | None = None

    def find(self, passages: Passages, query: str, most: int, area: SearchArea) -> list[Hit]:
        """Do as `SimilarPassages.find`; raises what `load_parts` raises."""
        with self._lock:
            if self._found is None:
                self._found = SimilarPassages(load_parts())
        return self._found.find(passages, query, most, area)


def prepare_similar() -> LateSimilar:
    """Return a finder of similar passages; raises what `find_package` raises."""
    find_package()
    return LateSimilar()
