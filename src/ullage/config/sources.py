"""The sources of settings: files, the environment and options, read on first use, not at import.

Later sources win: the user's file (`$ULLAGE_CONFIG`, else `config.toml` or `config.json` in the
platform's user config directory under `ullage`), the project's `ullage.toml` in the working
directory, a file that an option names, the environment, options. Arguments in code win over all.
The module does not know the settings: `schema` does.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from ullage.config.settings import Configured
from ullage.core.errors import ConfigurationError
from ullage.core.errors.nearest import find, suggest

PREFIX: Final = "ULLAGE_"
NAMED: Final = "ULLAGE_CONFIG"
LOG: Final = "ULLAGE_LOG"
ROOT: Final = "ULLAGE_ALLOW_ROOT"
"""Read by the sandbox: it must not come from a file that somebody else wrote."""
CLIENT: Final = "ULLAGE_HTTP_CLIENT"
"""Read by the transport, which does not know settings."""
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

SECRET: Final = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:$|_)", re.IGNORECASE
)
"""Names of variables whose values are secret."""

PROJECT_FILE: Final = "ullage.toml"

_GIVEN: Final[ContextVar[tuple[tuple[str, str, Any], ...]]] = ContextVar("given", default=())
"""Options of the running command: their names for people, the settings, the values."""


def load(
    environment: Mapping[str, str] | None = None,
    project: Path | None = None,
    *,
    named: Path | None = None,
    options: Sequence[tuple[str, str, Any]] = (),
) -> Configured:
    """Read all layers. Raises ConfigurationError naming file, line and the nearest valid key.

    `named` is a file that wins over the user's and the project's. `options` are settings of the
    command line: the option, the path of the setting, and the value, or None if it was not given;
    their lists come before those of the files. Warnings (an impossible window in a file) go to the
    logger `ullage.config`, once each.
    """
    environment = os.environ if environment is None else environment
    found = [(path, foreign) for path, foreign in _files(environment, project, named)]
    named_there = [name for name in variables(environment) if name != NAMED]
    set_by_hand = _GIVEN.get()
    given = [one for one in options if one[2] is not None]
    if not (found or named_there or set_by_hand or given):
        return Configured()
    from ullage.config.layers import Layer, Word
    from ullage.config.parse import parse, paths
    from ullage.config.values import make_configured

    known = tuple(path for path in paths() if "." not in path)
    layers = [_file(path, foreign=foreign) for path, foreign in found]
    warnings: list[str] = []
    for name in sorted(named_there, key=lambda name: (name.count("__"), name)):
        keys = name.removeprefix(PREFIX).lower().split("__")
        if keys[0] in known:
            layers.append(Layer(f"${name}", _nest_value(keys, Word(environment[name]))))
        else:
            near = find(keys[0], known)
            hint = "" if near is None else f"; did you mean {variable(near)!r}?"
            warnings.append(f"${name} is no setting and is ignored{hint}")
    for option, path, value in (*set_by_hand, *given):
        made = _nest_value(path.split("."), value)
        layers.append(Layer(option, made, ahead=not isinstance(value, Word)))
    parsed = parse(layers, environment)
    parsed.warnings += warnings
    for warning in parsed.warnings:
        logging.getLogger("ullage.config").warning("%s", warning)
    return make_configured(parsed)


def variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that set something: the one that names a file first, then by name."""
    held = sorted(name for name, value in environment.items() if value and _is_setting(name))
    return [*([NAMED] if environment.get(NAMED) else []), *held]


def variable(path: str) -> str:
    """Return the variable of a setting, with two underscores for each dot of its path."""
    return PREFIX + path.replace(".", "__").upper()


@contextmanager
def given_options(written: Sequence[str]) -> Iterator[None]:
    """Apply `KEY=VALUE` texts of the option `--set` over all other sources in this block.

    Raises ConfigurationError for a text without `=`.
    """
    from ullage.config.layers import Word

    found = []
    for text in written:
        key, equals, value = text.partition("=")
        if not (key.strip() and equals):
            raise ConfigurationError(
                f"--set {text!r:.80} names no value: write --set KEY=VALUE, such as "
                "--set policy.tail_share=0.5"
            )
        found.append((f"--set {key.strip()}", key.strip(), Word(value.strip())))
    token = _GIVEN.set((*_GIVEN.get(), *found))
    try:
        yield
    finally:
        _GIVEN.reset(token)


def set_log_levels(
    environment: Mapping[str, str] | None = None, levels: Mapping[str, str] | None = None
) -> None:
    """Set logger levels from the settings; ULLAGE_LOG (all) and ULLAGE_LOG_WINDOWS win over them.

    Raises ConfigurationError for an unknown level.
    """
    environment = os.environ if environment is None else environment
    for room, level in (levels or {}).items():
        get_logger(room).setLevel(level.upper())
    for name in sorted(environment):
        if name != LOG and not name.startswith(f"{LOG}_"):
            continue
        room = name.removeprefix(LOG).removeprefix("_").lower()
        level = environment[name].upper()
        if level not in LEVELS:
            names = [one.lower() for one in LEVELS]
            raise ConfigurationError(
                f"${name} is {environment[name]!r:.80}, expected one of {', '.join(names)}; "
                f"{suggest(level.lower(), names)}".removesuffix("; ")
            )
        get_logger(room).setLevel(level)


def get_logger(room: str) -> logging.Logger:
    """Return the logger of a room; "all" and "" mean that of the package."""
    names = {"": "ullage", "all": "ullage", "requests": "ullage.proxy.requests"}
    return logging.getLogger(names.get(room, f"ullage.{room}"))


def credentials(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the values of variables whose names mark keys, tokens, secrets or passwords."""
    environment = os.environ if environment is None else environment
    return tuple(value for name, value in sorted(environment.items()) if SECRET.search(name))


def files(environment: Mapping[str, str], project: Path | None = None) -> list[Path]:
    """Return the files that exist, the user's before the project's."""
    return [path for path, _ in _files(environment, project, None)]


def _files(
    environment: Mapping[str, str], project: Path | None, named: Path | None
) -> Iterator[tuple[Path, bool]]:
    """Yield the existing files, and whether each is the project's."""
    listed = environment.get(NAMED)
    if listed:
        if not Path(listed).is_file():
            raise ConfigurationError(
                f"${NAMED} is {listed!r}, which is no file: name a file, or take the variable away"
            )
        user = [Path(listed)]
    else:
        import platformdirs

        folder = Path(platformdirs.user_config_dir("ullage", appauthor=False))
        user = [folder / name for name in ("config.toml", "config.json")]
    chosen = [path for path in user if _is_there(path)][:1]
    yield from ((path, False) for path in chosen)
    here = (project or Path.cwd()) / PROJECT_FILE
    own = [*chosen, *([named] if named is not None else [])]
    known = [os.path.realpath(path) for path in own]  # for circular links it returns the name
    if _is_there(here) and os.path.realpath(here) not in known:
        yield here, True
    if named is not None:
        yield named, False


def _is_there(path: Path) -> bool:
    """Tell whether this name exists, even as a folder or a broken link: reading it reports that.

    Raises ConfigurationError if that cannot be found out.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _make_unread(path, error) from error
    return True


def _is_setting(name: str) -> bool:
    others = name in (NAMED, LOG, ROOT, CLIENT) or name.startswith(f"{LOG}_")
    return name.startswith(PREFIX) and name != PREFIX and not others


def _nest_value(keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a value nested in the tables of its path."""
    for key in reversed(keys):
        value = {key: value}
    made: dict[str, Any] = value
    return made


def _make_unread(path: Path, error: OSError | UnicodeDecodeError) -> ConfigurationError:
    """Return the error for a file of settings that cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        why = f"line {line} is not UTF-8 (byte 0x{error.object[error.start]:02x}); save it as UTF-8"
    elif isinstance(error, FileNotFoundError):
        why = "there is no such file; check its path"
    elif isinstance(error, IsADirectoryError):
        why = f"it is a folder; name a file, such as {path / PROJECT_FILE}"
    else:
        why = f"{error.strerror}; check its path and permissions"
    return ConfigurationError(f"{path} cannot be read: {why}")


def _file(path: Path, *, foreign: bool) -> Any:
    import tomllib

    from ullage.config.layers import Layer, json_lines, toml_lines

    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _make_unread(path, error) from error
    of_json = path.suffix == ".json"
    try:
        data = json.loads(text, object_pairs_hook=_once) if of_json else tomllib.loads(text)
    except ValueError as error:
        kind = "JSON" if of_json else "TOML"
        raise ConfigurationError(f"{path} is not valid {kind}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path} must hold a table of settings, not {data!r:.80}")
    lines = json_lines(text, data) if of_json else toml_lines(text)
    return Layer(str(path), data, lines, foreign=foreign)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; a key that appears twice is an error, as in TOML."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice: remove one")
    return made
