"""Clients that can run behind the proxy: one row each, with the way to redirect it.

A row is data: the command, its installation, its providers, and its variables. A client that reads
a setting instead of a variable has a function that makes the setting: as arguments, a variable, or
a file in a temporary folder. The module starts nothing and sends nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ullage.config.serving import Upstream
from ullage.core.dialects import names

CONTEXT: Final = 128_000
"""A window in tokens for clients that need a number; the proxy knows the true one."""

PLACEHOLDER: Final = "ullage"
"""A key for servers without keys: clients refuse to start without one."""

SERVED: Final = "ullage"
"""The name of the server behind the proxy in settings of clients that name their providers."""


@dataclass(frozen=True, slots=True)
class ProviderHome:
    """A provider with known clients.

    `base_url` is the address of its API. `models` are globs of its models, for clients with several
    providers. `says` are variables in which users name another address; the first one that is set
    counts. `keys` are the variables of its keys. `paths` are the paths of conversations.
    """

    name: str
    base_url: str
    models: tuple[str, ...]
    says: tuple[str, ...]
    keys: tuple[str, ...]
    paths: str


ANTHROPIC: Final = ProviderHome(
    names.ANTHROPIC,
    "https://api.anthropic.com",
    ("claude*", "anthropic*"),
    ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"),
    "Anthropic's Messages API (/v1/messages)",
)
GOOGLE: Final = ProviderHome(
    "google",
    "https://generativelanguage.googleapis.com",
    ("gemini*", "models/gemini*"),
    ("GOOGLE_GEMINI_BASE_URL",),
    ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "Gemini's API (/v1beta/models)",
)
OPENAI: Final = ProviderHome(
    "openai",
    "https://api.openai.com",
    ("*",),
    ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    ("OPENAI_API_KEY",),
    "OpenAI's API (/v1/chat/completions, /v1/responses)",
)
OLLAMA: Final = ProviderHome(
    "ollama", "http://127.0.0.1:11434", ("*",), ("OLLAMA_HOST",), (), "Ollama's API (/api/chat)"
)

SDK: Final[Mapping[str, str]] = {
    "OPENAI_BASE_URL": "/v1",
    "OPENAI_API_BASE": "/v1",
    "ANTHROPIC_BASE_URL": "",
    "ANTHROPIC_API_BASE": "",
    "GOOGLE_GEMINI_BASE_URL": "",
}
"""Variables that SDKs read, and LiteLLM in aider, with the path after the proxy's address."""


class ClientPlace(NamedTuple):
    """The target of a client: the proxy's address, a folder for files, and its server.

    `foreign` says that the server is not the client's own provider. `models` are its listed models,
    requested only if the row needs them. `words` are the user's own arguments. `answer` is the most
    tokens of an answer, or None: a small model may never stop by itself.
    """

    root: str
    folder: Callable[[], Path]
    foreign: bool
    models: Sequence[str]
    words: Sequence[str]
    environ: Mapping[str, str]
    answer: int | None = None


class ClientStart(NamedTuple):
    """Additions to a client's start: arguments before the user's, and variables."""

    words: Sequence[str] = ()
    variables: Mapping[str, str] = {}


def _tell_nothing(place: ClientPlace) -> ClientStart:
    del place
    return ClientStart()


@dataclass(frozen=True, slots=True)
class KnownClient:
    """A client: its command, its name, its installation, its providers.

    `variables` map to the path after the proxy's address. `tell` makes the settings that have no
    variable; with `lists` it needs the models of a server that is not the client's own provider.
    """

    command: str
    title: str
    install: str
    homes: tuple[ProviderHome, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    tell: Callable[[ClientPlace], ClientStart] = _tell_nothing
    lists: bool = False


# ── settings without a variable ─────────────────────────────────────────────────────────────────


def _tell_claude(place: ClientPlace) -> ClientStart:
    """Set the address over settings files, which Claude Code reads before the environment."""
    if "--settings" in place.words or not _reads_address(place.environ):
        return ClientStart()
    return ClientStart(("--settings", json.dumps({"env": {"ANTHROPIC_BASE_URL": place.root}})))


def _reads_address(environ: Mapping[str, str]) -> bool:
    return find_settings_address(environ) is not None


def find_settings_address(environ: Mapping[str, str]) -> str | None:
    """Return the address in the user's own settings of Claude Code, or None."""
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    folder = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    try:
        fields = json.loads((folder / "settings.json").read_bytes())
        named = fields["env"]["ANTHROPIC_BASE_URL"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return named if isinstance(named, str) and named else None


def _tell_codex(place: ClientPlace) -> ClientStart:
    """Name a new provider: no variable can redirect the built-in one."""
    served: dict[str, str | bool] = {
        "name": SERVED,
        "base_url": f"{place.root}/v1",
        "wire_api": "responses",
    }
    if place.environ.get("OPENAI_API_KEY"):
        served["env_key"] = "OPENAI_API_KEY"
    elif not place.foreign:
        served["requires_openai_auth"] = True  # the key of `codex login --with-api-key`
    table = ",".join(f"{name}={json.dumps(value)}" for name, value in served.items())
    provider = f"model_providers.{SERVED}={{{table}}}"
    return ClientStart(("-c", f'model_provider="{SERVED}"', "-c", provider))


def _tell_opencode(place: ClientPlace) -> ClientStart:
    """Add settings over the user's, in the variable that opencode has for that."""
    bases = {names.ANTHROPIC: "/v1", "openai": "/v1", "google": "/v1beta"}
    providers: dict[str, Any] = {
        name: {"options": {"baseURL": place.root + path}} for name, path in bases.items()
    }
    settings: dict[str, Any] = {}
    if place.models:
        providers[SERVED] = {
            "npm": "@ai-sdk/openai-compatible",
            "name": SERVED,
            "options": {"baseURL": f"{place.root}/v1", "apiKey": _find_key(place.environ)},
            "models": {name: _describe_model(name, place.answer) for name in place.models},
        }
        settings["model"] = f"{SERVED}/{place.models[0]}"
    name = "OPENCODE_CONFIG_CONTENT"
    try:
        held = json.loads(place.environ.get(name) or "{}")
    except ValueError:
        held = {}
    held = held if isinstance(held, dict) else {}
    kept = held.get("provider")
    merged = {**(kept if isinstance(kept, dict) else {}), **providers}
    return ClientStart(variables={name: json.dumps({**settings, **held, "provider": merged})})


def _describe_model(name: str, answer: int | None) -> dict[str, Any]:
    """Return a model for opencode, whose own compaction must come after the proxy's."""
    limit = {} if answer is None else {"limit": {"context": CONTEXT, "output": answer}}
    return {"name": name, **limit}


def _tell_pi(place: ClientPlace) -> ClientStart:
    """Write an extension that sends pi's providers to the proxy; pi's own settings stay."""
    bases = {names.ANTHROPIC: "", "openai": "/v1", "google": "/v1beta"}
    made: dict[str, Any] = {name: {"baseUrl": place.root + path} for name, path in bases.items()}
    words: list[str] = []
    if place.models:
        about = {"reasoning": False, "input": ["text"], "contextWindow": CONTEXT}
        about |= {"maxTokens": place.answer or 16_384, "cost": dict.fromkeys(PRICES, 0)}
        made[SERVED] = {
            "baseUrl": f"{place.root}/v1",
            "api": "openai-completions",
            "apiKey": _find_key(place.environ),
            "models": [{"id": name, "name": name, **about} for name in place.models],
        }
        if not {"--model", "--provider", "-m"} & set(place.words):
            words = ["--model", f"{SERVED}/{place.models[0]}"]
    lines = [
        f"  pi.registerProvider({json.dumps(name)}, {json.dumps(settings)});"
        for name, settings in made.items()
    ]
    path = place.folder() / "ullage.mjs"
    path.write_text("\n".join(["export default function (pi) {", *lines, "}", ""]))
    return ClientStart(("--extension", str(path), *words))


PRICES: Final = ("input", "output", "cacheRead", "cacheWrite")


def _find_key(environ: Mapping[str, str]) -> str:
    return environ.get("OPENAI_API_KEY") or PLACEHOLDER


# ── the table ───────────────────────────────────────────────────────────────────────────────────

MANY: Final = (ANTHROPIC, GOOGLE, OPENAI)

ROWS: Final = (
    KnownClient(
        "claude",
        "Claude Code",
        "npm install -g @anthropic-ai/claude-code",
        (ANTHROPIC,),
        {"ANTHROPIC_BASE_URL": ""},
        _tell_claude,
    ),
    KnownClient("codex", "Codex", "npm install -g @openai/codex", (OPENAI,), {}, _tell_codex),
    KnownClient(
        "opencode", "opencode", "npm install -g opencode-ai", MANY, {}, _tell_opencode, lists=True
    ),
    KnownClient(
        "pi", "pi", "npm install -g @earendil-works/pi-coding-agent", MANY, {}, _tell_pi, lists=True
    ),
    KnownClient("aider", "aider", "python -m pip install aider-install", MANY, SDK),
    KnownClient("llm", "llm", "python -m pip install llm", MANY, SDK),
    KnownClient(
        names.GEMINI,  # the command has the dialect's name
        "Gemini CLI",
        "npm install -g @google/gemini-cli",
        (GOOGLE,),
        {"GOOGLE_GEMINI_BASE_URL": ""},
    ),
    KnownClient(
        "ollama", "Ollama", "see https://ollama.com/download", (OLLAMA,), {"OLLAMA_HOST": ""}
    ),
)


def find_client(command: str) -> KnownClient:
    """Return the row of a command, by its file name, or a row for any SDK."""
    name = PurePath(command).name
    for suffix in (".exe", ".cmd", ".ps1"):
        name = name.removesuffix(suffix)
    known = next((row for row in ROWS if row.command == name), None)
    return known or KnownClient(name, name, "", MANY, SDK)


# ── upstreams ───────────────────────────────────────────────────────────────────────────────────


def list_upstreams(client: KnownClient, environ: Mapping[str, str]) -> tuple[Upstream, ...]:
    """Return the servers for a client's requests: those that its user named, else its own.

    If there are several providers, the model's name decides; the last one takes the rest.
    """
    alone = len(client.homes) == 1
    found = []
    for home in client.homes:
        url = _find_address(client, home, environ) or home.base_url
        server = "ollama" if home is OLLAMA else None
        models = ("*",) if alone else home.models
        found.append(Upstream(home.name, url, models=models, server=server))
    return tuple(found)


def _find_address(
    client: KnownClient, home: ProviderHome, environ: Mapping[str, str]
) -> str | None:
    """Return the address that the user set for a provider, or None."""
    if client.command == "claude" and (named := find_settings_address(environ)):
        return named
    named = next((environ[name] for name in home.says if environ.get(name)), None)
    if named is None or home is not OLLAMA:
        return named
    url = named if "//" in named else f"http://{named}"  # it may only be a host
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname in (None, "0.0.0.0", "::") else parts.hostname  # noqa: S104 - dialled
    return f"{parts.scheme}://{host}:{parts.port or 11434}"


def is_foreign(client: KnownClient, upstreams: Sequence[Upstream]) -> bool:
    """Tell whether requests go to a server that is not one of the client's own providers."""
    own = {home.base_url for home in client.homes}
    return any(one.root not in own for one in upstreams)


def make_environment(
    client: KnownClient, place: ClientPlace, told: ClientStart, *, keyless: bool
) -> dict[str, str]:
    """Return the variables to run a client with.

    If the server is not the client's own provider and the user has no key, it gets a placeholder as
    key, so that no login is sent there; with `keyless` it always gets the placeholder.
    """
    made = dict(place.environ)
    made |= {name: place.root + path for name, path in client.variables.items()}
    if place.foreign:
        for home in client.homes:
            if keyless:
                made |= dict.fromkeys(home.keys[1:], "") | dict.fromkeys(home.keys[:1], PLACEHOLDER)
            elif home.keys and not any(made.get(name) for name in home.keys):
                made[home.keys[0]] = PLACEHOLDER
    made |= told.variables
    if any(made.get(name) for name in PROXIES):
        for name in ("NO_PROXY", "no_proxy"):
            made[name] = ",".join(filter(None, (made.get(name), "127.0.0.1", "localhost")))
    return {name: value for name, value in made.items() if value or name not in CLEARED}


PROXIES: Final = (
    "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"
)  # fmt: skip
"""Variables that would send a client's requests to 127.0.0.1 through another proxy."""

CLEARED: Final = frozenset(name for home in MANY for name in home.keys)
"""Variables that are removed if they are empty."""
