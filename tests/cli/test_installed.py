"""`ullage doctor --verify` on packages as installers lay them, and on what may happen to them."""

from __future__ import annotations

import hashlib
import json
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

import ullage
from ullage.cli.main import main

FILES = {
    "ullage/__init__.py": "VERSION = 1\n",
    "ullage/core/gauge.py": "FULL = 1.0\n",
    "ullage-9.dist-info/METADATA": "Name: ullage\nVersion: 9\nRequires-Dist: Brought_Along>=1\n",
}
BROUGHT = {
    "brought/__init__.py": "",
    "brought_along-1.dist-info/METADATA": "Name: brought.along\nVersion: 1\nRequires-Dist: gone\n",
}


def lay(site: Path, files: dict[str, str], info: str, *more: str) -> None:
    """Write files and their record, as an installer does."""
    rows = [*more, f"{info}/RECORD,,"]
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        digest = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(text)}")
    (site / info / "RECORD").write_text("\n".join(rows))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path.resolve() / "site-packages"
    lay(site, FILES, "ullage-9.dist-info", "ullage/__pycache__/__init__.cpython-311.pyc,,")
    lay(site, BROUGHT, "brought_along-1.dist-info")
    (site / "left_behind.dist-info").mkdir()
    cache = site / "ullage" / "core" / "__pycache__"
    cache.mkdir()
    (cache / "gauge.cpython-311.pyc").write_bytes(b"compiled")
    (site / "_virtualenv.pth").write_text("import _virtualenv")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setattr(ullage, "__file__", str(site / "ullage" / "__init__.py"))
    return site


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", "--json", "--verify", *words])
    return code, json.loads(capsys.readouterr().out)


def differences(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(d["path"], d["what"]) for one in found["packages"] for d in one["differences"]]


def test_what_lies_as_it_was_installed_is_intact(site, capsys) -> None:
    code, found = check(capsys)
    (one,) = found["packages"]
    assert (code, found["intact"], found["loose"]) == (0, True, [])
    assert (one["version"], one["place"]) == ("9", str(site))
    assert (one["files"], one["compiled"]) == (3, 1)  # without the record and what was compiled
    assert main(["doctor", "--verify"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == "ullage 9: 3 files compared with the record"
    assert second.startswith("what Python compiled was not looked at (.pyc: 1)")
    assert last == "nothing differs"


def test_an_added_file_is_to_be_deleted_as_another_installation_leaves_it(site, capsys) -> None:
    (site / "ullage/core/added.py").write_text("")
    assert main(["doctor", "--verify"]) == 1
    out = capsys.readouterr().out
    assert "fix: find out what put there what is in no record, and delete it" in out
    assert "force-reinstall" not in out
    (site / "ullage/core/gauge.py").write_text("")
    assert main(["doctor", "--verify"]) == 1
    assert "force-reinstall" in capsys.readouterr().out


def test_all_takes_in_what_is_depended_on(site, capsys) -> None:
    (site / "brought" / "__init__.py").write_text("#")
    assert check(capsys)[0] == 0
    code, found = check(capsys, "all")
    assert [one["name"] for one in found["packages"]] == ["brought.along", "ullage"]
    assert (code, differences(found)) == (
        1,
        [("brought/__init__.py", "has 1 bytes; the record says 0")],
    )


def test_a_changed_byte_a_missing_file_and_an_added_module_are_told(site, capsys) -> None:
    (site / "ullage/core/gauge.py").write_text("FULL = 2.0\n")
    (site / "ullage-9.dist-info/METADATA").chmod(0o600)
    (site / "ullage/__init__.py").unlink()
    (site / "ullage/core/added.py").write_text("")
    (site / "ullage/core/__pycache__/hidden.cpython-311.pyc").write_bytes(b"compiled")
    assert main(["doctor", "--verify"]) == 1
    out = capsys.readouterr().out
    for told in (
        "ullage/core/gauge.py has another sha256 than recorded",
        "ullage/__init__.py is missing",
        "ullage/core/added.py is in no record",
        "hidden.cpython-311.pyc is in no record",
        "pip install --force-reinstall --no-deps 'ullage==9'",
        "the installation is not as recorded",
    ):
        assert told in out


@pytest.mark.parametrize("name", ["evil.pth", "_virtualenv.pth", "sitecustomize.py"])
def test_what_python_runs_at_its_start_and_no_record_names_is_told(site, capsys, name) -> None:
    (site / name).write_text("import os; os.getpid()")
    code, found = check(capsys)
    assert (code, [Path(one["path"]).name for one in found["loose"]]) == (1, [name])
    assert main(["doctor", "--verify"]) == 1
    assert "Python reads it at every start" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("ullage/core/gauge.py,,", "has no hash in the record"),
        ("ullage/core/gauge.py,crc=1,", "has a hash of an unknown kind in the record: 'crc'"),
        ("ullage/core,sha256=x,", "cannot be read: Is a directory"),
    ],
)
def test_a_row_that_compares_nothing_is_told(site, capsys, row, what) -> None:
    lay(site, FILES, "ullage-9.dist-info", row)
    code, found = check(capsys)
    assert (code, differences(found)) == (1, [(row.partition(",")[0], what)])


def test_a_package_without_a_record_is_told(site, capsys) -> None:
    (site / "ullage-9.dist-info/RECORD").unlink()
    code, found = check(capsys)
    assert code == 1
    assert "no record of its files is installed" in differences(found)[0][1]


def test_an_editable_installation_is_said_to_be_one(site, tmp_path, capsys, monkeypatch) -> None:
    source = tmp_path.resolve() / "the source"
    told = json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}})
    files = {**FILES, "ullage-9.dist-info/direct_url.json": told}
    lay(site, files, "ullage-9.dist-info")
    assert differences(check(capsys)[1])[0][1] == "runs as ullage, and is not of this installation"
    monkeypatch.setattr(ullage, "__file__", str(source / "src/ullage/__init__.py"))
    code, found = check(capsys)
    assert (code, found["packages"][0]["editable"]) == (0, str(source))
    assert main(["doctor", "--verify"]) == 0
    assert f"its modules are those in {source}, which no record names" in capsys.readouterr().out


def test_without_an_installation_it_says_where_ullage_runs_from(site, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert main(["doctor", "--verify"]) == 1
    assert f"it runs from {site / 'ullage'}; install it" in capsys.readouterr().err


@pytest.mark.parametrize("more", [("--watch",), ("--once",), ("--ports", "80"), ("--store", "s")])
def test_what_asks_servers_or_stores_is_no_part_of_it(more, capsys) -> None:
    assert main(["doctor", "--verify", *more]) == 1
    assert "another `ullage doctor`" in capsys.readouterr().err
