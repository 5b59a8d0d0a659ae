"""Places of this user's wheels: the package indexes that pip and uv are configured for.

It reads their variables and files and asks them for their default; it names no index itself, and
downloads nothing. Keyrings and client certificates are not read. Linux only, like its package.
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from ullage.core.errors import ConfigurationError
from ullage.transport import Route

FIX: Final = "name an index by PIP_INDEX_URL or UV_DEFAULT_INDEX"

_HELP_TIMEOUT_S: Final = 60.0
_YES: Final = frozenset({"1", "true", "yes", "on", "y", "t"})


@dataclass(frozen=True, slots=True)
class Places:
    """Roots of package indexes, folders or pages of links, and how to reach them.

    Each is a URL, or a local path. A user and password in a URL are for that URL.
    """

    indexes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    route: Route = Route()


def find_places(environment: Mapping[str, str] | None = None) -> Places:
    """Return the places that pip and uv search here, configured ones first.

    Raises ConfigurationError if one of their files cannot be read, or if no index is configured and
    neither tool is installed to tell its default.
    """
    given = os.environ if environment is None else environment
    pip, uv = _Settings(_of_pip(given)), _Settings(_of_uv(given))
    found = Places(
        _unique([*uv.several("index"), *pip.several("extra-index-url"), *_main(uv, pip)]),
        _unique([*uv.several("find-links"), *pip.several("find-links")]),
        Route(
            pip.one("proxy"),
            pip.one("cert"),
            frozenset([*pip.several("trusted-host"), *uv.several("insecure-host")]),
        ),
    )
    if uv.is_on("offline") or uv.is_on("no-index") or pip.is_on("no-index"):
        return replace(found, indexes=())
    if _main(uv, pip):
        return found
    return replace(found, indexes=(*found.indexes, default(given)))


def default(environment: Mapping[str, str], carried: Sequence[Path] | None = None) -> str:
    """Return the default index of pip or uv, whichever is installed.

    `carried` are wheels of pip that Python brings, by default those of `ensurepip`.
    """
    for command in _tools(environment, _list_bundled_wheels() if carried is None else carried):
        try:
            done = subprocess.run(  # noqa: S603 - an installed interpreter or tool, constant words
                [*command, "install", "--help"],
                cwd="/",  # `-m` would run a stray pip.py in the working folder
                env={**environment, "COLUMNS": "500", "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_HELP_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if told := _DEFAULT.search(" ".join(done.stdout.split())):
            return told[1]
    raise ConfigurationError(
        f"neither pip nor uv is here to tell which package index is the usual one: {FIX}"
    )


_DEFAULT: Final = re.compile(
    r"--(?:default-index|index-url) .*?\((?:by )?default:? <?(https?://[^)>\s]+)"
)
"""The form of the default in `pip install --help` and `uv pip install --help`."""


def _tools(environment: Mapping[str, str], carried: Sequence[Path]) -> Iterator[list[str]]:
    """Yield the commands to ask: this Python's pip, the uv that started it, then any other."""
    path = environment.get("PATH")
    if find_spec("pip") is not None:
        yield [sys.executable, "-m", "pip"]
    for uv in (environment.get("UV"), which("uv", path=path)):
        if uv:
            yield [uv, "pip"]
    for wheel in carried:
        yield [sys.executable, f"{wheel}/pip"]  # Python can run a wheel without installing it
    if pip := which("pip3", path=path):
        yield [pip]


def _list_bundled_wheels() -> list[Path]:
    """Return the wheels of pip in `ensurepip`; some distributions keep them elsewhere."""
    elsewhere = sysconfig.get_config_var("WHEEL_PKG_DIR")
    folders = [Path(os.__file__).parent / "ensurepip" / "_bundled", Path(elsewhere or os.devnull)]
    return [wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))]


# ── settings ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of one tool: the last value of each name, as text."""

    values: Mapping[str, str]

    def one(self, name: str) -> str | None:
        return self.values.get(name, "").strip() or None

    def several(self, name: str) -> list[str]:
        return self.values.get(name, "").split()

    def is_on(self, name: str) -> bool:
        return self.values.get(name, "").strip().lower() in _YES


def _main(uv: _Settings, pip: _Settings) -> list[str]:
    return [url for tool in (uv, pip) if (url := tool.one("index-url"))]


def _unique(urls: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(url.rstrip("/") for url in urls))


def _folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders of configuration, the system's before the user's."""
    system = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    home = environment.get("XDG_CONFIG_HOME") or str(_home(environment) / ".config")
    return [Path(name) for name in (*reversed(system.split(os.pathsep)), "/etc", home) if name]


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or Path.home())


def _of_pip(environment: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings: from its files, global to local, then from its variables.

    The order is that of pip's page "Configuration".
    """
    own = environment.get("PIP_CONFIG_FILE")
    *system, etc, user = _folders(environment)
    files = [*(folder / "pip/pip.conf" for folder in system), etc / "pip.conf"]
    files += [_home(environment) / ".pip/pip.conf", user / "pip/pip.conf"]
    files += [Path(sys.prefix) / "pip.conf"]
    if own is not None:
        files = [] if own == os.devnull else [*files, Path(own)]
    held: dict[str, str] = {}
    for path in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (OSError, configparser.Error, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}: mend it") from error
        for section in ("global", "install", "download"):
            if parser.has_section(section):
                held |= {name.replace("_", "-"): text for name, text in parser.items(section)}
    return held | {
        name.removeprefix("PIP_").replace("_", "-").lower(): text
        for name, text in environment.items()
        if name.startswith("PIP_") and text
    }


def _of_uv(environment: Mapping[str, str]) -> dict[str, str]:
    """Return uv's settings from the system's and the user's files, then from its variables.

    Files of projects are not read: they are about the projects.
    """
    held: dict[str, list[str]] = {}
    for path in _uv_files(environment):
        try:
            table = tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}: mend it") from error
        for part in (table.get("pip"), table):
            _take(part, held, environment)
    for name, key in _UV.items():
        if text := environment.get(name):
            words = [_resolve_named_index(word, environment) for word in text.split()]
            held[key] = [*words, *held.get(key, [])] if key == "index" else words
    return {name: " ".join(words) for name, words in held.items()}


_UV: Final[Mapping[str, str]] = {
    "UV_INDEX": "index",
    "UV_EXTRA_INDEX_URL": "index",
    "UV_INDEX_URL": "index-url",
    "UV_DEFAULT_INDEX": "index-url",
    "UV_FIND_LINKS": "find-links",
    "UV_NO_INDEX": "no-index",
    "UV_OFFLINE": "offline",
    "UV_INSECURE_HOST": "insecure-host",
}
"""uv's variables for the places of packages, and the setting of each; a later one wins."""


def _uv_files(environment: Mapping[str, str]) -> list[Path]:
    if environment.get("UV_NO_CONFIG"):
        return []
    if own := environment.get("UV_CONFIG_FILE"):
        return [Path(own)]
    return [folder / "uv/uv.toml" for folder in _folders(environment)]


def _take(table: Any, held: dict[str, list[str]], environment: Mapping[str, str]) -> None:
    """Read the settings in a table of uv.toml."""
    if not isinstance(table, dict):
        return
    for name, key in (("extra-index-url", "index"), ("find-links", "find-links")):
        if isinstance(urls := table.get(name), list):
            held[key] = [*map(str, urls), *held.get(key, [])]
    for name in ("index-url", "no-index", "offline"):
        if name in table:
            held[name] = [str(table[name])]
    if isinstance(hosts := table.get("allow-insecure-host"), list):
        held["insecure-host"] = [str(host) for host in hosts]
    rows = table.get("index")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and isinstance(row.get("url"), str):
            _index(row, held, environment)


def _index(
    row: Mapping[str, Any], held: dict[str, list[str]], environment: Mapping[str, str]
) -> None:
    """Read one `[[index]]` of uv.toml."""
    name = row.get("name")
    url = _resolve_named_index(f"{name}={row['url']}" if name else row["url"], environment)
    if row.get("format") == "flat":
        held.setdefault("find-links", []).append(url)
    elif row.get("default"):
        held["index-url"] = [url]
    else:
        held.setdefault("index", []).append(url)


def _resolve_named_index(text: str, environment: Mapping[str, str]) -> str:
    """Return the URL of `NAME=URL`, with uv's user and password for that name."""
    name, mark, url = text.partition("=")
    if not mark or not re.fullmatch(r"[\w.-]+", name):
        return text
    variable = f"UV_INDEX_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
    user = environment.get(f"{variable}_USERNAME", "")
    password = environment.get(f"{variable}_PASSWORD", "")
    parts = urlsplit(url)
    if not (user or password) or "@" in parts.netloc:
        return url
    held = f"{quote(user, '')}:{quote(password, '')}@{parts.netloc}"
    return urlunsplit(parts._replace(netloc=held))
