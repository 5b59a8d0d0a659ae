"""What a type checker tells a user: the types of the SDK's own answers, through the guard."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
import anthropic
import openai
from openai.types.chat import ChatCompletionMessageParam

import ullage

client = openai.OpenAI()
wrapped = ullage.wrap(client)
reveal_type(wrapped)
reveal_type(ullage.wrap(anthropic.AsyncAnthropic()))
guard = ullage.Guard("gpt-4o", policy="ladder")
messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Look."}]
reveal_type(guard.call(client.chat.completions.create, messages, max_tokens=5))
reveal_type(guard.call(client.responses.create, messages))


async def ask(aclient: openai.AsyncOpenAI) -> None:
    reveal_type(await guard.acall(aclient.chat.completions.create, messages))


def send(messages: list[ChatCompletionMessageParam]) -> int:
    return len(messages)


reveal_type(guard.call(send, messages))
small = ullage.compact(messages, target_tokens=800, policy="advisory", pins={0})
reveal_type(small)
reveal_type(small.undo())
client.chat.completions.create(model="gpt-4o", messages=small.messages)
mixed = [*messages, client.chat.completions.create(model="m", messages=[]).choices[0].message]
reveal_type(ullage.compact(mixed, target_tokens=800).messages)
ullage.compact(messages, target="800")
"""

REVEALED = (
    "openai.OpenAI",
    "anthropic.AsyncAnthropic",
    "openai.types.chat.chat_completion.ChatCompletion",
    "openai.types.responses.response.Response",
    "openai.types.chat.chat_completion.ChatCompletion",
    "int",
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_shows_the_types_of_the_sdk_through_the_guard(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        # with the settings of `make types`, strict too: the SDKs are read from what it has kept
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert not done.stderr
    shown = re.findall(r'Revealed type is "(.*?)"\n', done.stdout)
    assert [re.sub(r"_client\.|^builtins\.", "", text) for text in shown[:6]] == list(REVEALED)
    assert shown[6].startswith("ullage.api.compact.Compaction[")
    assert "ChatCompletionMessageParam" in shown[6] or "TypedDict" in shown[6]
    assert "list[" in shown[7]
    assert "dict[" not in shown[6]
    assert "dict[builtins.str, Any]" in shown[8] or "dict[str, Any]" in shown[8]
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    error = errors[0]
    assert len({line.partition(" error:")[0] for line in errors}) == 1
    assert 'Unexpected keyword argument "target"' in error
