"""Where settings come from: files and the environment, read on first use and never at import.

Order, the later winning: the user's file (`$ULLAGE_CONFIG`, else `config.toml` or `config.json`
in the platform's user config directory under `ullage`), the project's `ullage.toml` in the
working directory, the environment. Arguments in code win over all. What a key means is
`core.settings`'s.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ullage.core.errors import ConfigurationError
from ullage.core.settings import Configured, Layer, parse

VARIABLES: Final[Mapping[str, str]] = {
    "ULLAGE_CONTEXT_WINDOWS": "context_windows",
    "ULLAGE_BASE_MODELS": "base_models",
    "ULLAGE_BASE_URL": "base_url",
    "ULLAGE_POLICY": "policy",
    "ULLAGE_OFFLINE": "offline",
    "ULLAGE_CONNECT_TIMEOUT_S": "connect_timeout_s",
    "ULLAGE_READ_TIMEOUT_S": "read_timeout_s",
    "ULLAGE_CACHE_DIR": "cache_dir",
    "ULLAGE_STORE": "store",
}
"""Environment variables by setting. Maps, numbers and switches are written as JSON."""

LOG: Final = "ULLAGE_LOG"
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

SECRET: Final = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:$|_)", re.IGNORECASE
)
"""Names of variables whose values are nobody's to read."""

PLAIN: Final = ("base_url", "policy", "cache_dir", "store")
PROJECT_FILE: Final = "ullage.toml"


def load(environment: Mapping[str, str] | None = None, project: Path | None = None) -> Configured:
    """Read all layers. Raises ConfigurationError naming file, line and the nearest valid key.

    Warnings (an impossible window in a file) go to the logger `ullage.config`, once each.
    """
    environment = os.environ if environment is None else environment
    layers = [_file(path) for path in files(environment, project)]
    configured = parse([*layers, *_variables(environment)])
    for warning in configured.warnings:
        logging.getLogger("ullage.config").warning("%s", warning)
    return configured


def set_log_levels(environment: Mapping[str, str] | None = None) -> None:
    """Set logger levels by the environment: ULLAGE_LOG for all, ULLAGE_LOG_WINDOWS for one room.

    Raises ConfigurationError for a word that is no level.
    """
    environment = os.environ if environment is None else environment
    for variable in sorted(environment):
        if variable != LOG and not variable.startswith(f"{LOG}_"):
            continue
        room = variable.removeprefix(LOG).removeprefix("_").lower()
        level = environment[variable].upper()
        if level not in LEVELS:
            raise ConfigurationError(
                f"${variable} is {environment[variable]!r}, no level: there are "
                f"{', '.join(LEVELS).lower()}"
            )
        logging.getLogger(f"ullage.{room}" if room else "ullage").setLevel(level)


def credentials(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the values of variables that are named as keys, tokens, secrets or passwords."""
    environment = os.environ if environment is None else environment
    return tuple(value for name, value in sorted(environment.items()) if SECRET.search(name))


def files(environment: Mapping[str, str], project: Path | None = None) -> list[Path]:
    """Return the files that there are, the user's before the project's."""
    named = environment.get("ULLAGE_CONFIG")
    if named:
        if not Path(named).is_file():
            raise ConfigurationError(f"ULLAGE_CONFIG names {named}, which is no file")
        user = [Path(named)]
    else:
        import platformdirs

        folder = Path(platformdirs.user_config_dir("ullage", appauthor=False))
        user = [folder / name for name in ("config.toml", "config.json")]
    here = (project or Path.cwd()) / PROJECT_FILE
    return [*[path for path in user if path.is_file()][:1], *([here] if here.is_file() else [])]


def _file(path: Path) -> Layer:
    import tomllib

    try:
        text = path.read_text("utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigurationError(f"{path} is not valid {kind}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path} must hold a table of settings, not {data!r}")
    return Layer(str(path), data, {key: _line(text, key) for key in data})


def _line(text: str, key: str) -> int:
    """Return the line on which a top-level key, or its TOML table, first stands."""
    pattern = re.compile(rf"""^\s*[{{,]?\s*\[?["']?{re.escape(key)}["']?\s*[\]=.:]""")
    lines = text.splitlines()
    return next((n for n, line in enumerate(lines, 1) if pattern.match(line)), 1)


def _variables(environment: Mapping[str, str]) -> list[Layer]:
    layers = []
    for variable, key in VARIABLES.items():
        text = environment.get(variable)
        if text:
            layers.append(Layer(f"${variable}", {key: _value(variable, key, text)}))
    return layers


def _value(variable: str, key: str, text: str) -> Any:
    if key in PLAIN:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"${variable} is {text!r}, which is not JSON ({error}): write a number, true, or an "
            'object such as {"my-model": 32768}'
        ) from error
