"""The settings as values, which apply unless the code passes others.

The module reads nothing: `config.parse` makes these values from files, variables and options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from ullage.core.compaction.policy import Policy

DEFAULT: Final = "default"
"""The origin of an unset value."""


SAME: Final = "same"
"""The word for the conversation's own model as its summarizer."""


@dataclass(frozen=True, slots=True)
class SummarizerSettings:
    """A summarizer in the settings; the fields are those of `ullage.Summarizer`."""

    model: str
    base_url: str
    dialect: str | None = None
    api_key: str | None = field(default=None, repr=False)
    window: int | None = None
    max_tokens: int | None = None
    timeout_s: float | None = None
    parallel: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The values that apply unless the code passes others. Times are in seconds.

    `context_windows` maps a model id to the operator's own number of tokens; `base_models` maps a
    deployment name (Azure) to its model; `offline` asks no server and no provider; `store` is the
    URL of the store, in the form of `storage.open_store`. `policy` is a Policy or the name of a
    preset; `shares` divide the window as in `ullage.allocate`; `pins` are positions that stay in
    every history, in addition to those of a call; `summarizer` writes summaries, "same" is the
    conversation's own model. Data older than `retention_days` is erased; `redact_keys` keeps
    well-known keys out of the log of sessions. `window_places` has the place of each of the
    `context_windows`. `counter` is the package that counts OpenAI's vocabularies, "auto" the best
    installed one. With `embeddings`, a search also finds text with the same meaning. `logging` maps
    a room, or "all", to a level.
    """

    context_windows: Mapping[str, int] = field(default_factory=dict)
    base_models: Mapping[str, str] = field(default_factory=dict)
    base_url: str | None = None
    policy: Policy | str = "ladder"
    offline: bool = False
    connect_timeout_s: float = 2.0
    read_timeout_s: float = 30.0
    cache_dir: str | None = None
    store: str | None = None
    shares: Mapping[str, float] | None = None
    pins: tuple[int, ...] = ()
    summarizer: SummarizerSettings | Literal["same"] | None = None
    retention_days: float | None = None
    redact_keys: bool = True
    counter: str = "auto"
    embeddings: bool = False
    logging: Mapping[str, str] = field(default_factory=dict)
    window_places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[Settings], tuple[Any, ...]]:
        """Pickle the mappings as plain dicts, since a read-only view cannot be pickled."""
        values = [getattr(self, each.name) for each in fields(self)]
        return type(self), tuple(dict(v) if isinstance(v, Mapping) else v for v in values)


KEYS: Final[tuple[str, ...]] = tuple(f.name for f in fields(Settings) if f.compare)
"""The settings themselves, without the fields about them."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings and their origins.

    `origins` has the place of each key of `Settings`: file and line, variable, option, or
    `default`. `tree` has the set values as plain data with its secrets; `places` has the origin of
    each value in it by its path, such as `policy.thresholds.warning`.
    """

    settings: Settings = field(default_factory=Settings)
    origins: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(KEYS, DEFAULT))
    warnings: tuple[str, ...] = ()
    tree: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    places: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
