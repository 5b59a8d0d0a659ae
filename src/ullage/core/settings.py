"""What an operator may set: frozen values, parsed from layers of plain data.

Layers come in from the outside (`ullage.config` reads files and the environment); the last layer
that names a key wins, and where it came from is kept. Unknown keys are refused with the nearest
valid one. It reads nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Literal

from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import suggest

PolicyName = Literal["ladder", "advisory", "auto_summary", "off"]
POLICIES: Final[tuple[PolicyName, ...]] = ("ladder", "advisory", "auto_summary", "off")


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds where the code says nothing else. Times are in seconds.

    `context_windows` maps a model id to the operator's own number of tokens; `base_models` maps a
    deployment name (Azure) to the model behind it; `offline` asks no server and no provider;
    `store` is the URL of the store, as `storage.open_store` reads it.
    """

    context_windows: Mapping[str, int] = field(default_factory=dict)
    base_models: Mapping[str, str] = field(default_factory=dict)
    base_url: str | None = None
    policy: PolicyName = "ladder"
    offline: bool = False
    connect_timeout_s: float = 2.0
    read_timeout_s: float = 30.0
    cache_dir: str | None = None
    store: str | None = None


KEYS: Final[tuple[str, ...]] = tuple(f.name for f in fields(Settings))


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings: its name for people, its data, and the line of each key if known."""

    origin: str
    data: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)

    def where(self, key: str) -> str:
        """Name the place of a key: the origin, and the line where it is known."""
        line = self.lines.get(key)
        return self.origin if line is None else f"{self.origin}, line {line}"


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings, the origin of each key (`default` where nobody set it), and warnings."""

    settings: Settings = field(default_factory=Settings)
    origins: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(KEYS, "default"))
    warnings: tuple[str, ...] = ()


def parse(layers: Sequence[Layer]) -> Configured:
    """Return what the layers say, the last one winning key by key.

    Maps are merged entry by entry. Raises ConfigurationError for an unknown key or a value of the
    wrong type, naming file, line and the nearest valid key. An impossible window in
    `context_windows` is left out with a warning instead.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, "default")
    warnings: list[str] = []
    for layer in layers:
        for key, value in layer.data.items():
            if key not in KEYS:
                hint = suggest(key, KEYS, f"valid keys: {', '.join(KEYS)}")
                raise ConfigurationError(f"{layer.where(key)}: unknown setting {key!r}; {hint}")
            read = READERS[key](value, layer.where(key), warnings)
            merged = isinstance(read, dict)
            values[key] = {**values.get(key, {}), **read} if merged else read
            origins[key] = layer.where(key)
    frozen: dict[str, Any] = {
        k: MappingProxyType(v) if isinstance(v, dict) else v for k, v in values.items()
    }
    return Configured(Settings(**frozen), origins, tuple(warnings))


Reader = Callable[[Any, str, list[str]], Any]


def _windows(value: Any, where: str, warnings: list[str]) -> dict[str, int]:
    table = _table(value, where, "context_windows")
    found: dict[str, int] = {}
    for model, tokens in table.items():
        if type(tokens) is int and tokens > 0:
            found[model] = tokens
        else:
            warnings.append(
                f"{where}: context_windows[{model!r}] is {tokens!r}, no positive number of tokens: "
                "ignored"
            )
    return found


def _names(value: Any, where: str, warnings: list[str]) -> dict[str, str]:
    del warnings
    table = _table(value, where, "base_models")
    for name, model in table.items():
        if not isinstance(model, str) or not model:
            raise ConfigurationError(f"{where}: base_models[{name!r}] must be a model id")
    return dict(table)


def _table(value: Any, where: str, key: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping) and all(isinstance(k, str) for k in value):
        return value
    raise ConfigurationError(f"{where}: {key} must be a table of names, not {value!r}")


def _text(value: Any, where: str, warnings: list[str]) -> str:
    del warnings
    if isinstance(value, str) and value:
        return value
    raise ConfigurationError(f"{where}: expected text, not {value!r}")


def _policy(value: Any, where: str, warnings: list[str]) -> str:
    del warnings
    if value in POLICIES:
        return str(value)
    raise ConfigurationError(f"{where}: policy is {value!r}; valid are {', '.join(POLICIES)}")


def _switch(value: Any, where: str, warnings: list[str]) -> bool:
    del warnings
    if isinstance(value, bool):
        return value
    raise ConfigurationError(f"{where}: expected true or false, not {value!r}")


def _seconds(value: Any, where: str, warnings: list[str]) -> float:
    del warnings
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    raise ConfigurationError(f"{where}: expected seconds above 0, not {value!r}")


READERS: Final[Mapping[str, Reader]] = {
    "context_windows": _windows,
    "base_models": _names,
    "base_url": _text,
    "policy": _policy,
    "offline": _switch,
    "connect_timeout_s": _seconds,
    "read_timeout_s": _seconds,
    "cache_dir": _text,
    "store": _text,
}
