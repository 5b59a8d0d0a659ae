"""The pages that are written from code and parsers: each is what its generator prints."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import manual, reference
from ullage.cli.main import COMMANDS, PAGES, parser
from ullage.core.errors import UllageError

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the generator sets in the environment from other tests."""
    monkeypatch.setenv("COLUMNS", manual.COLUMNS)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="argparse lays help out otherwise in later versions"
)
def test_the_page_of_the_command_line_is_what_the_parsers_say() -> None:
    assert (DOCS / "cli.md").read_text("utf-8") == manual.write_page(), "run `make docs`"


@pytest.mark.parametrize("page", reference.PAGES)
def test_a_page_of_the_reference_is_what_the_code_says(page: str) -> None:
    written = reference.PAGES[page]().rstrip() + "\n"
    assert (DOCS / "reference" / page).read_text("utf-8") == written, "run `make docs`"


def test_each_error_says_who_must_act_why_and_what_to_do() -> None:
    def walk(kind: type[UllageError]) -> set[str]:
        below = [
            each for each in kind.__subclasses__() if each.__module__ == UllageError.__module__
        ]
        return {kind.__name__}.union(*map(walk, below))

    assert walk(UllageError) - {"UllageError"} == set(reference.ACTS)


def test_every_command_and_each_in_one_ends_its_help_with_a_page_there_is() -> None:
    top = parser()
    assert set(PAGES) <= set(COMMANDS)
    for name, each in top.inner.items():
        page = PAGES.get(name, "cli")
        assert (DOCS / f"{page}.md").is_file(), name
        assert each.format_help().endswith(f"\n\nmore: ullage docs {page}\n")


def test_a_command_in_a_command_names_the_page_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser("models").parse_args(["models", "show", "--help"])
    assert capsys.readouterr().out.endswith("more: ullage docs table\n")


def test_there_is_a_man_page_a_command_that_troff_takes(tmp_path: Path) -> None:
    written = manual.write_man(tmp_path / "man")
    assert {path.name for path in written} == {
        "ullage.1",
        *(f"ullage-{name}.1" for name in COMMANDS),
    }
    for path in written:
        text = path.read_text("utf-8")
        assert text.startswith(".TH ")
        assert [
            line for line in (".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS") if line not in text
        ] == []
    groff = shutil.which("groff")
    if groff is not None:
        command = [groff, "-man", "-Tutf8", "-ww", "-z", *map(str, written)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert done.stderr == ""
