"""What holds of all adapters without their frameworks: files, extras, pages, the plain run."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

from tests.integrations.conformance import (
    CLAIMS,
    FIRST,
    ROOT,
    SHORT,
    list_faults,
    run_framework,
    start,
)
from tests.integrations.frameworks import IN_CI, ROWS
from tests.integrations.model_server import ModelServer
from tests.support.loopback import serve

ROOM = ROOT / "src" / "ullage" / "integrations"
MOST, MOST_TOGETHER = 210, 2_150
"""Lines of code of an adapter, and of all: neither blank nor a comment nor of a docstring.

80 and 1,200 are wanted. These may only fall.
"""


def count_code(path: Path) -> int:
    """Return the lines that hold code."""
    text = path.read_text()
    quiet = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in quiet and token.type != tokenize.ENDMARKER
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_each_adapter_is_small_and_all_are_together():
    sizes = {name: count_code(ROOM / f"{name}.py") for name in ROWS}
    assert {name: size for name, size in sizes.items() if size > MOST} == {}
    assert sum(sizes.values()) <= MOST_TOGETHER


def test_each_file_of_the_room_is_an_adapter_or_shared():
    shared = {"__init__", "adapter", "pieces", "reports", "state", "streaming"}
    assert {path.stem for path in ROOM.glob("*.py")} == shared | set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_an_adapter_has_its_extra_its_page_its_driver_and_its_lock(name: str):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert name.replace("_", "-") in extras["optional-dependencies"]
    page = (ROOT / "docs" / "integrations" / f"{name}.md").read_text()
    assert page.count("```python") == 1
    assert f"ullage[{name.replace('_', '-')}]" in page
    assert (ROOT / "tests" / "integrations" / "drivers" / f"{name}.py").exists()
    assert "--hash=" in (ROOT / "requirements" / f"bench-adapter-{name}.txt").read_text()


def test_what_ci_runs_is_there():
    assert set(IN_CI) <= set(ROWS)


def test_the_plain_guard_conforms():
    made = run_framework("plain")
    assert list_faults("plain", made, made) == []
    assert len(made.long.refused) == 1  # the overflow that the server reports, and no other
    assert made.short.largest <= 16_000
    assert len(made.short.breaks) >= 3


def test_a_bare_program_fails_where_the_guard_does_not(tmp_path: Path):
    with (
        serve(ModelServer(CLAIMS, CLAIMS)) as server,
        start("plain", sys.executable, tmp_path / "log") as bare,
    ):
        setup = {"url": server.url, "model": FIRST, "window": 16_000, "folder": str(tmp_path)}
        bare.ask("open", 900, **setup, guarded=False)
        assert bare.ask("run", 1, SHORT)
