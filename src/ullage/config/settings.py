"""The settings as values: what holds where the code says nothing else.

It reads nothing: `config.parse` makes these values out of what files, variables and options say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from ullage.core.compaction.policy import Policy

DEFAULT: Final = "default"
"""The origin of a value that nobody set."""


SAME: Final = "same"
"""What names the conversation's own model as its summarizer."""


@dataclass(frozen=True, slots=True)
class SummarizerSettings:
    """A summarizer as settings name it; the fields are those of `ullage.Summarizer`."""

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
    """What holds where the code says nothing else. Times are in seconds.

    `context_windows` maps a model id to the operator's own number of tokens; `base_models` maps a
    deployment name (Azure) to the model behind it; `offline` asks no server and no provider;
    `store` is the URL of the store, as `storage.open_store` reads it. `policy` is a Policy or the
    name of a preset; `shares` divide the window as in `ullage.allocate`; `pins` are positions that
    stay in every history, besides those of a call; `summarizer` writes summaries, "same" is the
    conversation's own model. What is older than `retention_days` is erased; `redact_keys` keeps
    well-known keys out of the log of sessions. `window_places` says where each of the
    `context_windows` was set. `counter` is the package that counts OpenAI's
    vocabularies, "auto" the best one that is installed. With `embeddings` a search finds what
    means the same, too. `logging` maps a room, or "all", to a level.
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
        """Pickle the tables as plain ones: a view that cannot be written to cannot be pickled."""
        values = [getattr(self, each.name) for each in fields(self)]
        return type(self), tuple(dict(v) if isinstance(v, Mapping) else v for v in values)


KEYS: Final[tuple[str, ...]] = tuple(f.name for f in fields(Settings) if f.compare)
"""What may be set: all but what is told of a setting."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings, and where they come from.

    `origins` has the place of each key of `Settings`: file and line, variable, option, or
    `default`. `tree` has what was set, as plain data with its secrets; `places` the origin of each
    value in it by its path, such as `policy.thresholds.warning`.
    """

    settings: Settings = field(default_factory=Settings)
    origins: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(KEYS, DEFAULT))
    warnings: tuple[str, ...] = ()
    tree: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    places: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
