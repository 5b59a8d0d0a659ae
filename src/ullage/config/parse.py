"""Reads layers of settings by the schema: one parser for files, variables and options.

Every error names the place, the key, the value and the expected values, and for a mistyped name the
nearest valid one. No error shows a secret. The module does not find layers (see `sources`), and
makes only plain data and its struct (see `values`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import fields as struct_fields

from ullage.config.expected import bare, describe, extra
from ullage.config.layers import Layer, Path, Word, spell
from ullage.config.schema import (
    PolicyTable,
    RuleTable,
    RungTable,
    SettingsTable,
    SummarizerTable,
    Table,
    UpstreamTable,
)
from ullage.config.settings import SAME
from ullage.config.values import make_rung, naming
from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import find, suggest

VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")

OWN_ONLY: Final[Mapping[str, str]] = {
    "serve": "start a proxy",
    "retention_days": "erase sessions",
    "cache_dir": "move the cache folder",
}
"""Settings that the project's file may not contain, and what each would allow it to do."""

HOSTS: Final = frozenset({"localhost.", "host.docker.internal"})
"""Other names of this machine, the second one inside a container."""


class Replaced(dict[str, Any]):
    """A table that replaces the one of earlier layers: a policy or summarizer by name."""


@dataclass(slots=True)
class Parsed:
    """The result of all layers: plain data, the place of each value in it, and warnings."""

    tree: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def table(self) -> SettingsTable:
        """The data in the types of the schema."""
        return msgspec.convert(self.tree, SettingsTable)

    def place(self, *paths: str) -> str:
        """Return the place of the first of these settings that is set, or ""."""
        return find_place(self.places, *paths)


def find_place(places: Mapping[str, str], *paths: str) -> str:
    """Return where the first of these settings, or a part of it, was last set."""
    for path in paths:
        for name in reversed(list(places)):
            if name == path or name.startswith((f"{path}.", f"{path}[")):
                return places[name]
    return ""


def parse(layers: Sequence[Layer], environment: Mapping[str, str]) -> Parsed:
    """Return the result of the layers; later ones win key by key, and tables are merged.

    A secret written as `$NAME` is the value of that environment variable. Raises ConfigurationError
    for an unknown key and for an invalid value. An invalid window in `context_windows` is only left
    out with a warning.
    """
    parsed = Parsed()
    for layer in layers:
        reader = _Reader(layer, environment, parsed)
        _merge(parsed.tree, reader.read_table(SettingsTable, layer.data, ()), ahead=layer.ahead)
    return parsed


def _merge(into: dict[str, Any], found: Mapping[str, Any], *, ahead: bool) -> None:
    for key, value in found.items():
        held = into.get(key)
        if isinstance(value, dict) and isinstance(held, dict) and not isinstance(value, Replaced):
            _merge(held, value, ahead=ahead)
        elif isinstance(value, list) and ahead:
            into[key] = [*value, *(held or [])]
        else:
            into[key] = dict(value) if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one layer."""

    layer: Layer
    environment: Mapping[str, str]
    parsed: Parsed

    def read_table(self, kind: type[Table], data: Any, path: Path) -> dict[str, Any]:
        """Return the values of a table, each read by its field."""
        if not isinstance(data, Mapping):
            self._refuse(path, data, describe(kind))
        types = {each.name: each.type for each in struct_fields(kind)}
        found: dict[str, Any] = {}
        for key, value in data.items():
            at = (*path, str(key))
            if key not in types:
                self._refuse_key(str(key), at, tuple(types))
            self._place(at)
            found[key] = self._read(types[key], value, at)
        missing = [f.name for f in struct_fields(kind) if f.required and f.name not in found]
        if missing:
            raise ConfigurationError(
                f"{self.layer.where(path)}: {spell(path)} needs {' and '.join(missing)}: write "
                f"{'it' if len(missing) == 1 else 'them'} into the table"
            )
        return found

    def _read(self, kind: Any, value: Any, at: Path) -> Any:
        if self.layer.foreign:
            self._check_foreign(value, at)
        inner = bare(kind)
        container = get_origin(inner) in (list, dict) or _is_table(inner)
        if isinstance(value, Word) and container:
            value = self._decode(kind, value, at)
        if _is_table(inner):
            return self._inner(inner, value, at)
        if get_origin(inner) is list and _is_table(bare(get_args(inner)[0])):
            if not isinstance(value, list):
                self._refuse(at, value, f"a list of tables; write [[{spell(at)}]]")
            kind = bare(get_args(inner)[0])
            return [self._element(kind, each, (*at, i)) for i, each in enumerate(value)]
        if get_origin(inner) is dict:
            return self._names(get_args(inner)[1], value, at)
        return self._leaf(kind, value, at)

    def _check_foreign(self, value: Any, at: Path) -> None:
        """Refuse a setting of the project's file that could do harm: others may have written it."""
        said = _find_forbidden(value, at)
        if said is not None:
            raise ConfigurationError(
                f"{self.layer.where(at)}: the project's file may not {said}, because it may come "
                f"with somebody else's code: put {spell(at)} into your own settings"
            )

    def _inner(self, kind: type[Table], value: Any, at: Path) -> dict[str, Any]:
        """Return a nested table."""
        if kind is PolicyTable and isinstance(value, str):
            self._place((*at, "preset"))
            return Replaced({"preset": self._leaf(_preset(), value, at)})
        if kind is SummarizerTable and isinstance(value, str):
            if value != SAME:  # the text may hold a secret, so it is not quoted
                raise ConfigurationError(
                    f'{self.layer.where(at)}: {spell(at)} is a text other than "{SAME}": write '
                    "it for the conversation's own model, or a table with model and base_url"
                )
            return Replaced({"same": True})
        return self.read_table(kind, value, at)

    def _element(self, kind: type[Table], value: Any, at: Path) -> dict[str, Any]:
        """Return one table of a list, checked at its own place."""
        found = self.read_table(kind, value, at)
        with naming(lambda about: self.layer.where((*at, *about.split(".")) if about else at)):
            made = msgspec.convert(found, kind)
            if isinstance(made, RungTable):
                make_rung(made)
            elif isinstance(made, UpstreamTable | RuleTable):
                from ullage.config.serving import make_rule, make_upstream

                _ = make_upstream(made) if isinstance(made, UpstreamTable) else make_rule(made)
        return found

    def _names(self, kind: Any, value: Any, at: Path) -> dict[str, Any]:
        """Return a table of names; an invalid window is left out with a warning."""
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            self._refuse(at, value, f"a table of names, each with {describe(kind)}")
        found = {}
        for name, each in value.items():
            try:
                found[name] = self._leaf(kind, each, (*at, name))
            except ConfigurationError as error:
                if at != ("context_windows",):
                    raise
                self.parsed.warnings.append(f"{error}: ignored")
            else:
                self._place((*at, name))
        return found

    def _leaf(self, kind: Any, value: Any, at: Path) -> Any:
        """Return one value; a secret may be the name of a variable."""
        known, secret = extra(kind, "known"), extra(kind, "secret")
        plain = isinstance(value, Word)
        if isinstance(value, list) and get_origin(bare(kind)) is list:
            item = get_args(bare(kind))[0]
            value = [self._leaf(item, each, (*at, i)) for i, each in enumerate(value)]
        try:
            made = msgspec.convert(str(value) if plain else value, kind, strict=not plain)
        except msgspec.ValidationError:
            self._refuse(at, value, describe(kind), kind=kind)
        if known is not None and made not in known():
            self._refuse(at, value, describe(kind), kind=kind)
        return self._secret(made, at) if secret else made

    def _secret(self, text: str, at: Path) -> str:
        named = VARIABLE.fullmatch(text)
        if named is None:
            return text
        if self.layer.foreign:
            raise ConfigurationError(
                f"{self.layer.where(at)}: {spell(at)} is ${named[1]}, and the project's file may "
                "not read variables, because it may come with somebody else's code: put it into "
                "your own settings"
            )
        held = self.environment.get(named[1])
        if not held:
            raise ConfigurationError(
                f"{self.layer.where(at)}: {spell(at)} is ${named[1]}, and that variable is not "
                "set: set it, or write the value"
            )
        return held

    def _decode(self, kind: Any, text: Word, at: Path) -> Any:
        """Return the value of a text of the environment; a table or a list is read as JSON."""
        if bare(kind) is PolicyTable and not text.lstrip().startswith("{"):
            return text
        if bare(kind) is SummarizerTable and text == SAME:
            return SAME
        try:
            return json.loads(text)
        except ValueError as error:
            # The text may hold a secret, so it is not quoted.
            raise ConfigurationError(
                f"{self.layer.where(at)} is no JSON ({error}): write {describe(kind)}, such as "
                f"{_example(kind)}"
            ) from error

    def _place(self, at: Path) -> None:
        self.parsed.places.pop(spell(at), None)
        self.parsed.places[spell(at)] = self.layer.where(at)

    def _refuse(self, at: Path, value: Any, expected: str, *, kind: Any = None) -> NoReturn:
        """Raise the error that names the place, the key, the value and the expected values."""
        hidden = extra(kind, "secret") or isinstance(value, Mapping | list) or "tokens" in at
        shown = _kind(value) if hidden else f"{value!r:.80}"
        known = extra(kind, "known")
        near = suggest(value, known()) if known is not None and isinstance(value, str) else ""
        raise ConfigurationError(
            f"{self.layer.where(at)}: {spell(at) or 'the file'} is {shown}, expected {expected}"
            f"{near and f'; {near}'}"
        )

    def _refuse_key(self, key: str, at: Path, known: Sequence[str]) -> NoReturn:
        near = find(key, known)
        path = next((path for path in paths() if path.split(".")[-1] == key), None)
        if near is not None:
            hint = f"did you mean {near!r}?"
        elif path is not None:
            hint = f"did you mean {path!r}?"
        else:
            hint = f"there are {', '.join(known)}"
        raise ConfigurationError(f"{self.layer.where(at)}: unknown setting {spell(at)!r}; {hint}")


def paths(kind: type[Table] = SettingsTable, prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of every setting, except those in lists of tables."""
    for each in struct_fields(kind):
        path = f"{prefix}{each.name}"
        yield path
        if _is_table(bare(each.type)):
            yield from paths(bare(each.type), f"{path}.")


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Table)


def _preset() -> Any:
    return next(each.type for each in struct_fields(PolicyTable) if each.name == "preset")


def _example(kind: Any) -> str:
    """Return an example text of a variable for a table or a list."""
    parts = get_args(bare(kind))
    if not parts:
        return '{"key": "value"}'
    inner = bare(parts[-1])
    value = "[0, 1]" if inner is int else '["a", "b"]' if inner is str else '[{"key": "value"}]'
    if get_origin(bare(kind)) is list:
        return value
    return '{"name": 32768}' if inner is int else '{"name": "value"}'


def _kind(value: Any) -> str:
    """Name the type of a value without showing it: it may be a secret in the wrong place."""
    return f"{'an empty ' if value == '' else 'a '}{type(value).__name__}"


def _find_forbidden(value: Any, at: Path) -> str | None:
    """Return what the project's file may not do by this setting, None if it may."""
    if at == ("redact_keys",) and value is not True:
        return "write keys to the log"
    if isinstance(value, str):
        if at[-1] == "base_url" and _is_remote(value):
            return "name a server beyond this machine"
        if at == ("store",) and not _is_file(value):
            return "name a store other than sqlite:FILE"
    return OWN_ONLY.get(spell(at))


def _is_remote(url: str) -> bool:
    """Tell whether a URL names a host other than this machine, or cannot be read."""
    from ullage.config.serving import loopback

    try:
        host = urlsplit(url).hostname
    except ValueError:
        return True
    return host is not None and host not in HOSTS and not loopback(host)


def _is_file(store: str) -> bool:
    """Tell whether a store is a file of SQLite on this machine, or memory."""
    scheme, _, path = store.partition(":")
    return scheme == "memory" or (scheme == "sqlite" and not path.startswith("\\\\"))
