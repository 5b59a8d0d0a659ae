"""What a plain `pip install` gives: the wheel with its own requirements and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ullage import importers

ROOT = Path(__file__).parents[1]
FIX = "pip install 'ullage[all]'"

pytestmark = pytest.mark.slow


def required(name: str, seen: set[str]) -> Iterator[Distribution]:
    """Yield what a distribution requires without extras, and what that requires."""
    for line in distribution(name).requires or []:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        if wanted.name not in seen:
            seen.add(wanted.name)
            yield distribution(wanted.name)
            yield from required(wanted.name, seen)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `bin` of a new environment with the wheel, its requirements, and no pip."""
    folder = tmp_path_factory.mktemp("bare")
    pip = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check"]
    built = [
        *pip,
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder / "dist"),
    ]
    subprocess.run([*built, str(ROOT)], check=True, timeout=100)
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
    )
    python = folder / "venv" / "bin" / "python"
    wheel = next((folder / "dist").glob("ullage-*.whl"))
    install = [*pip, "--python", str(python), "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, timeout=100)
    site = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    for found in required("ullage", set()):
        for file in found.files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(str(found.locate_file(file))), site / file)
    return folder / "venv" / "bin"


def run(bare: Path, home: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ULLAGE_")}
    return subprocess.run(
        [str(bare / "ullage"), *words],
        input=stdin,
        env={**kept, "HOME": str(home), "PATH": str(bare), "PYTHONPATH": ""},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


HISTORY = json.dumps([{"role": "user", "content": "What is in the cellar? " * 50}])
WANTING: dict[str, tuple[str, ...]] = {
    "demo": ("--quick",),
    "run": ("hi", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"),
    "run --embedded": ("hi", "--embedded"),
    "chat": ("--base-url", "http://127.0.0.1:9/v1", "--model", "m"),
    "chat --embedded": ("--embedded",),
    "resume": ("s1",),
    "sessions": (),
    "show": ("s1",),
    "fork": ("s1",),
    "replay": ("s1",),
    "export": ("s1",),
    "import": ("session.ndjson",),
    "verify": ("s1",),
    "recall": ("u:0123456789abcdef", "--store", "sqlite:x.db"),
    "compact": ("s1", "--model", "gpt-5"),
    "serve": ("--upstream", "http://127.0.0.1:9"),
    "serve --demo": ("--demo",),
    "mcp": (),
    "context": ("packed.jsonl.zst",),
}
WHOLE: dict[str, tuple[str, ...]] = {
    "context": ("--demo",),
    "count": ("history.json", "--model", "gpt-4o"),
    "compact": ("history.json", "--target", "5000", "--dry-run"),
    "validate": ("history.json", "--window", "32768"),
    "explain-error": ("prompt is too long: 210000 tokens > 200000 maximum",),
    "window": ("gpt-5",),
    "models": ("show", "gpt-5"),
    "config": ("show",),
    "completion": ("bash",),
}


@pytest.mark.parametrize("name", WANTING)
def test_a_command_that_needs_more_names_one_extra(name: str, bare: Path, tmp_path: Path) -> None:
    (tmp_path / "session.ndjson").write_text("")
    (tmp_path / "packed.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    done = run(bare, tmp_path, *name.split()[:1], *WANTING[name])
    if name == "context" and sys.version_info >= (3, 14):
        pytest.skip("this Python reads Zstandard by itself")
    assert FIX in done.stderr
    assert done.stderr.count("ullage[") == 1
    assert done.returncode == 1
    assert not list(tmp_path.rglob("models")), "no model is fetched that nothing can run"
    assert "Traceback" not in done.stderr


def test_the_screen_of_an_installation_shows_what_the_commands_say(
    bare: Path, tmp_path: Path
) -> None:
    screen = (ROOT / "docs" / "screens" / "install.txt").read_text()
    shown = re.findall(r"(?m)^\$ a/bin/ullage (.+)\n(.+\n)", screen)
    assert shown
    for words, said in shown:
        assert run(bare, tmp_path, *words.split()).stderr.replace(str(tmp_path), "~") == said


@pytest.mark.parametrize("name", WHOLE)
def test_a_command_that_needs_no_more_works(name: str, bare: Path, tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text(HISTORY)
    done = run(bare, tmp_path, name, *WHOLE[name])
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stdout


def test_an_installed_wheel_is_verified_and_what_was_changed_in_it_is_told(
    bare: Path, tmp_path: Path
) -> None:
    assert run(bare, tmp_path, "doctor", "--verify").returncode == 0
    folder = next((bare.parent / "lib").glob("python*")) / "site-packages" / "ullage"
    changed, missing, added = folder / "lessons.py", folder / "top/app.py", folder / "core/new.py"
    source, gone = changed.read_bytes(), missing.read_bytes()
    try:
        changed.write_bytes(source.replace(b".", b",", 1))
        missing.unlink()
        added.touch()
        done = run(bare, tmp_path, "doctor", "--verify")
    finally:
        changed.write_bytes(source)
        missing.write_bytes(gone)
        added.unlink()
    assert done.returncode == 1
    assert "ullage/lessons.py has another sha256 than recorded" in done.stdout
    assert "ullage/top/app.py is missing" in done.stdout
    assert "ullage/core/new.py is in no record" in done.stdout


def test_the_plugin_for_pytest_is_in_the_wheel(bare: Path) -> None:
    code = (
        "from importlib.metadata import entry_points as find; "
        "print([one.value for one in find(group='pytest11', name='ullage_pytest')]); "
        "from ullage.testing import assert_lawful; assert_lawful([])"
    )
    done = subprocess.run(
        [str(bare / "python"), "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['ullage_pytest']\n"


def test_nothing_of_an_extra_is_there(bare: Path, tmp_path: Path) -> None:
    packages = ("aiohttp", "apsw", "mcp", "opentelemetry", "pip", "psycopg", "xllamacpp")
    code = f"from importlib.util import find_spec; print([*filter(find_spec, {packages})])"
    done = subprocess.run(
        [str(bare / "python"), "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    assert importers.SAMPLE.is_file()
