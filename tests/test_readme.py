"""The README's Python runs as it stands, against a real server."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from ullage.cli.main import parser
from ullage.embedded import Server

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
COMMANDS = re.findall(r"(?m)^ullage .+$", README.read_text("utf-8"))


def run(code: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    return out.getvalue()


def test_the_guard_example_runs_on_a_real_server(tiny_server: Server) -> None:
    code = BLOCKS[0].replace("http://127.0.0.1:8080/v1", tiny_server.base_url)
    assert re.fullmatch(r"ctx=\d+/2\.0k\n", run(code))


def test_the_wrapped_client_of_the_guard_example_answers(tiny_server: Server) -> None:
    code = BLOCKS[0].replace("http://127.0.0.1:8080/v1", tiny_server.base_url)
    lines = [x for x in code.splitlines() if x.startswith(("import", "client", "messages"))]
    told = "messages=messages, model='qwen3-8b', max_tokens=8"
    say = f"print(client.chat.completions.create({told}).usage.prompt_tokens)"
    assert int(run("\n".join([*lines, BLOCKS[1], say]))) > 0


def test_the_pieces_example_runs_and_says_what_it_promises() -> None:
    out = run(BLOCKS[2])
    assert "gpt-5: 272,000 tokens of input" in out
    assert "\nFalse\n" in out
    assert re.search(r"\nTrue \d+ \d+\n$", out)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_shown_is_one_that_the_program_takes(line: str) -> None:
    given = parser().parse_args(shlex.split(line, comments=True)[1:])
    assert given.command == line.split()[1]


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_are_targets_of_the_makefile(command: str) -> None:
    assert command in README.read_text("utf-8")
    makefile = README.with_name("Makefile").read_text("utf-8")
    assert f"\n{command.split()[1]}: " in makefile
