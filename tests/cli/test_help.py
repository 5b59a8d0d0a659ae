"""What a newcomer meets first: the help, and what wrong words are answered with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ullage.cli.main import COMMANDS, main


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ullage", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_the_command_alone_prints_a_grouped_help_with_five_examples() -> None:
    alone, asked = run(), run("--help")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout == asked.stdout
    lines = alone.stdout.splitlines()
    listed = [line.split()[0] for line in lines if line[:2] == "  " != line[1:3]]
    assert [word for word in listed if word in COMMANDS] == list(COMMANDS)
    examples = [line for line in lines if line.startswith("  ullage ")]
    assert len(examples) == 5
    assert all(line.split()[1] in COMMANDS for line in examples)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chatt"], "invalid command: 'chatt'; did you mean 'chat'?"),
        (["Serve"], "did you mean 'serve'?"),
        (["zzz"], "choose from demo, docs, doctor, statusline"),
        (["count", "x", "--modle", "gpt-4o"], "did you mean '--model'?"),
        (["serve", "--upstraem=http://127.0.0.1:9"], "did you mean '--upstream'?"),
        (["models", "shwo", "x"], "did you mean 'show'?"),
        (["models", "show", "x", "--provder", "y"], "did you mean '--provider'?"),
        (["compact", "x", "--policy", "advisery"], "did you mean 'advisory'?"),
        (["context", "--from", "claud"], "did you mean 'claude'?"),
        (["run", "hi", "--qqq"], "unrecognized arguments: --qqq"),
        (["--verison"], "unrecognized arguments: --verison; did you mean '--version'?"),
        (
            ["serve", "--port", "abc"],
            "argument --port: 'abc' is no whole number: give one, such as",
        ),
        (["run", "hi", "--temperature", "warm"], "'warm' is no number: give one, such as 0.5"),
        (["run", "--", "hi", "--store", "x"], "no option may follow --"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest_one(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert "usage: ullage" in told


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["models", "show", "claude-sonet-4-5"], 1, "did you mean 'claude-sonnet-4-5'?"),
        (["models", "list", "--provider", "opnai"], 1, "did you mean 'openai'?"),
        (["window", "gpt-4oo"], 0, "did you mean 'gpt-4o'?"),
        (["context", "--demo", "--model", "gpt-4oo"], 0, "did you mean 'gpt-4o'?"),
        (["demo", "--model", "smolm2-135m"], 1, "did you mean 'smollm2-135m'? There are "),
        (["demo", "--model", "nosuch"], 1, "called 'nosuch': there are qwen2.5-coder-0.5b, "),
        (["models", "show", "nosuch"], 1, "has no row for nosuch: an id of another host needs"),
    ],
)
def test_a_wrong_model_is_answered_with_the_nearest_one(
    words: list[str], code: int, said: str
) -> None:
    done = run(*words)
    assert done.returncode == code
    assert said in done.stdout + done.stderr


def test_a_model_of_ones_own_is_likened_to_none() -> None:
    done = run("context", "--demo", "--model", "our-cellar-model")
    assert "did you mean" not in done.stderr
