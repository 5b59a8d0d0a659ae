"""What is released: the same bytes from two builds, and in them the product alone."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from tools import dist
from ullage.cli.main import COMMANDS

LARGEST = 1_000_000
"""Bytes of one file; the built pages are one archive, and may be larger."""

KINDS = {
    *(".css", ".gz", ".html", ".js", ".json", ".jsonl", ".py", ".sql", ".svg", ".txt", ".typed"),
    ".zip",
}
NOTICES = {
    "htmx.txt": "Zero-Clause BSD",
    "uPlot.txt": "Copyright (c) 2022 Leon Sorokin",
    "zensical.txt": "Copyright (c) 2025-2026 Zensical and contributors",
}
"""What each notice of others' scripts says at its head; zensical's are in the built pages."""

HOOK = """
import os

def change(self, version, build_data):
    Path(self.root, "src/ullage_pytest/made.py").write_text(os.environ["TZ"])

ManualHook.initialize = change
"""

BESIDE = {
    *("CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "hatch_build.py", "pyproject.toml"),
}
MANUAL = {"ullage.1", *(f"ullage-{name}.1" for name in COMMANDS)}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return sdist and wheel; two builds that differ raise."""
    command = [sys.executable, "-m", "tools.manual", "build/man"]
    subprocess.run(command, cwd=dist.ROOT, check=True, timeout=60)
    return dist.build_twice(dist.ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(built: list[Path]) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(built[1]) as archive:
        return archive.infolist()


@pytest.fixture(scope="module")
def sdist(built: list[Path]) -> list[tarfile.TarInfo]:
    with tarfile.open(built[0]) as archive:
        return archive.getmembers()


def read_metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def test_two_builds_give_the_same_bytes(built: list[Path]) -> None:
    assert [path.suffix for path in built] == [
        ".gz",
        ".whl",
    ]  # the fixture raises where two differ


def test_another_byte_in_the_second_build_is_told_with_its_file(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE", "src/ullage/__init__.py"):
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_bytes((dist.ROOT / name).read_bytes())
    (tmp_path / "root" / "src" / "ullage_pytest").mkdir()
    (tmp_path / "root" / "src" / "ullage_pytest" / "made.py").touch()
    hook = (dist.ROOT / "hatch_build.py").read_text("utf-8")
    (tmp_path / "root" / "hatch_build.py").write_text(hook + HOOK)
    with pytest.raises(dist.BuildFailed, match=r"two builds differ in ullage-.*\.whl"):
        dist.build_twice(tmp_path / "root", tmp_path)


def test_the_wheel_has_the_two_packages_and_their_record(wheel: list[zipfile.ZipInfo]) -> None:
    tops = {one.filename.split("/")[0] for one in wheel}
    assert {re.sub(r"-.*", "-", top) for top in tops} == {"ullage", "ullage_pytest", "ullage-"}
    assert [one.filename for one in wheel if one.filename.endswith(".pth")] == []
    inside = [one for one in wheel if not re.search(r"\.(dist-info|data)/", one.filename)]
    assert {Path(one.filename).suffix for one in inside} <= KINDS


def test_scripts_of_others_come_with_their_notices(built: list[Path]) -> None:
    told = Metadata.from_email(read_metadata(built[1]), validate=True)
    folder = "src/ullage/pages/licences"
    assert set(told.license_files or ()) == {"LICENSE", *(f"{folder}/{n}" for n in NOTICES)}
    with zipfile.ZipFile(built[1]) as archive:
        home = next(n for n in archive.namelist() if n.endswith("/METADATA")).rpartition("/")[0]
        for name, said in NOTICES.items():
            beside = archive.read(f"ullage/pages/licences/{name}").decode()
            assert said in beside
            assert archive.read(f"{home}/licenses/{folder}/{name}").decode() == beside


def test_man_pages_of_all_commands_are_where_man_looks(
    wheel: list[zipfile.ZipInfo], built: list[Path]
) -> None:
    where = f"{'-'.join(built[1].name.split('-')[:2])}.data/data/share/man/man1"
    pages = {one.filename for one in wheel if ".data/" in one.filename}
    assert pages == {f"{where}/{page}" for page in MANUAL}


def test_no_test_tool_or_stand_in_rides_along(
    wheel: list[zipfile.ZipInfo], sdist: list[tarfile.TarInfo]
) -> None:
    for names in ([one.filename for one in wheel], [one.name for one in sdist]):
        parts = {part for name in names for part in name.split("/")}
        assert not parts & {"bench", "conftest.py", "requirements", "support", "tests"}
        assert [name for name in names if re.search(r"(^|/)test_|_test\.py$|/fake", name)] == []


def test_the_sdist_has_what_a_build_needs_and_no_more(sdist: list[tarfile.TarInfo]) -> None:
    inside = [one.name.split("/", 1)[1] for one in sdist]
    pages = {f"man/{page}" for page in MANUAL}
    assert {name for name in inside if not name.startswith("src/ullage")} == BESIDE | pages


def test_files_are_plain_readable_and_small(
    wheel: list[zipfile.ZipInfo], sdist: list[tarfile.TarInfo]
) -> None:
    modes = {one.filename: one.external_attr >> 16 & 0o7777 for one in wheel}
    assert set(modes.values()) == {0o644}
    assert {(one.mode, one.type, one.uid, one.gid, one.uname) for one in sdist} == {
        (0o644, tarfile.REGTYPE, 0, 0, "")
    }
    large = [one.filename for one in wheel if one.file_size > LARGEST]
    large += [one.name for one in sdist if one.size > LARGEST]
    assert [name for name in large if not name.endswith("ullage/docs.zip")] == []


def test_the_metadata_is_valid_and_says_what_an_index_shows(built: list[Path]) -> None:
    text = read_metadata(built[1])
    told = Metadata.from_email(text, validate=True)
    assert (told.name, told.license_expression) == ("ullage", "Apache-2.0")
    assert told.description_content_type == "text/markdown"
    assert str(told.requires_python) == ">=3.11"
    message: Message = Parser().parsestr(text)
    assert "dev" in message.get_all("Provides-Extra", [])


def test_the_description_is_the_readme_without_links_that_lead_nowhere(built: list[Path]) -> None:
    told = Metadata.from_email(read_metadata(built[1]), validate=True).description or ""
    readme = (dist.ROOT / "README.md").read_text("utf-8")
    relative = re.compile(r"!?\[([^\]]*)\]\((?!https?:)[^)]*\)")
    assert len(relative.findall(readme)) > 30
    assert relative.findall(told) == []
    assert "how to check a release: SECURITY.md." in told
    assert "docs/screens/demo.svg" not in told
    assert re.findall(r"(?ms)^```.*?^```$", told) == re.findall(r"(?ms)^```.*?^```$", readme)
