"""The README and every page of the docs: their Python runs as it stands, with the real SDKs.

A real llama.cpp server stands in for every address in them; nothing else is changed. The blocks of
a page run in order, in one program.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ullage.cli.main import parser
from ullage.embedded import Server

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
GENERATED = ROOT / "docs" / "cli.md"

FRAMEWORKS = ROOT / "docs" / "integrations"
"""Pages whose Python runs in the framework's own environment, by `make integrations`."""

SKIPPED: Mapping[str, str] = {}
"""First lines of blocks that cannot run here, with the reason; there are none."""

ADDRESSES = re.compile(r"http://127\.0\.0\.1:\d+(?=/v1)")


def blocks(page: Path, *kinds: str) -> list[str]:
    """Return the fenced blocks of these kinds, in order; those in lists stand four spaces in."""
    found = re.findall(
        r"^((?: {4})*)```(\w*)\n(.*?)^\1```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return [textwrap.dedent(text) for _, kind, text in found if kind in kinds]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def having(*kinds: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, *kinds) and page != GENERATED]


def commands() -> list[str]:
    """Return every command line of ours that a page shows."""
    lines = [
        line.removeprefix("$ ")
        for page in having("sh", "console")
        for text in blocks(page, "sh", "console")
        for line in text.replace("\\\n", " ").splitlines()
    ]
    return sorted({line for line in lines if line.startswith("ullage ")})


def played(page: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, url: str) -> list[str]:
    """Run the Python of a page in a folder of its own; return what each block printed."""
    (folder / "project").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    program: dict[str, object] = {"__name__": named(page)}
    printed = []
    for code in blocks(page, "python"):
        if code.splitlines()[0] in SKIPPED:
            continue
        out = io.StringIO()
        text = ADDRESSES.sub(url.removesuffix("/v1"), code)
        with contextlib.redirect_stdout(out):
            exec(compile(text, named(page), "exec"), program)
        printed.append(out.getvalue())
    return printed


@pytest.mark.parametrize(
    "page", [page for page in having("python") if page.parent != FRAMEWORKS], ids=named
)
def test_the_python_of_a_page_runs_on_a_real_server(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_server: Server
) -> None:
    printed = played(page, monkeypatch, tmp_path, tiny_server.base_url)
    assert len(printed) == len(blocks(page, "python")) - len(SKIPPED)


def test_the_readme_says_what_its_comments_promise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_server: Server
) -> None:
    guard, call, _wrap, pieces = played(PAGES[0], monkeypatch, tmp_path, tiny_server.base_url)
    assert re.fullmatch(r"ctx=\d+/2\.0k\n", guard)
    assert call
    assert "gpt-5: 272,000 tokens of input" in pieces
    assert "\nFalse\n" in pieces
    assert re.search(r"\nTrue \d+ \d+\n$", pieces)


def test_the_first_page_is_the_readme_and_every_skip_is_of_a_block_that_there_is() -> None:
    assert PAGES[0].name == "README.md"
    first = [code.splitlines()[0] for page in having("python") for code in blocks(page, "python")]
    assert set(SKIPPED) <= set(first)


@pytest.mark.parametrize("line", commands())
def test_every_command_shown_is_one_that_the_program_takes(line: str) -> None:
    given = parser().parse_args(shlex.split(line, comments=True)[1:])
    assert given.command == line.split()[1]


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("ullage worker")])
def test_every_worker_shown_is_told_what_answers(line: str) -> None:
    given = parser().parse_args(shlex.split(line, comments=True)[1:])
    assert given.base_url or given.embedded or given.agents


@pytest.mark.parametrize("page", having("sh"), ids=named)
def test_every_block_of_shell_is_one_that_a_shell_reads(page: Path) -> None:
    for text in blocks(page, "sh"):
        subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True, timeout=20)


@pytest.mark.parametrize("page", having("json", "toml"), ids=named)
def test_every_block_of_data_can_be_read(page: Path) -> None:
    assert all(json.loads(text) for text in blocks(page, "json"))
    assert all(tomllib.loads(text) for text in blocks(page, "toml"))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    prose = re.sub(
        r"^((?: {4})*)```.*?^\1```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    links = re.findall(r"\]\(([^)#\s]+)", prose)
    there = [link for link in links if "://" not in link]
    assert [link for link in there if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_are_targets_of_the_makefile(command: str) -> None:
    assert command in PAGES[0].read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"\n{command.split()[1]}: " in makefile


def test_every_extra_that_a_page_installs_is_one_that_there_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted: Sequence[str] = [
        extra
        for page in PAGES
        for group in re.findall(r"ullage\[([\w, -]+)\]", page.read_text("utf-8"))
        for extra in re.split(r",\s*", group)
    ]
    assert set(wanted) <= set(project["optional-dependencies"])
