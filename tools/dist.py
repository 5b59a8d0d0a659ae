"""Build the release twice, and require identical bytes: `make dist`, or `python -m tools.dist`.

Each time it copies the tracked files to another folder with another umask. hatchling builds the
sdist there, in another time zone and with another hash seed, and the wheel from the unpacked sdist.
Then dist/ has the wheel, the sdist, the bill of materials and SHA256SUMS. It publishes and signs
nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tools import sbom
from tools.files import ask_git, tracked

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = "src/ullage/docs.zip"
"""The place of the built pages in the wheel; not a file of the repository."""

MANUAL: Final = "man"
"""The folder where hatch_build.py looks for man pages; not a folder of the repository."""


class Circumstances(NamedTuple):
    """Circumstances of a build that must not affect its bytes."""

    folder: str
    umask: int
    environment: Mapping[str, str]


TWICE: Final = (
    Circumstances("one", 0o022, {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C"}),
    Circumstances(
        "another/deeper one", 0o077, {"PYTHONHASHSEED": "77", "TZ": "XYZ-13", "LC_ALL": "C.UTF-8"}
    ),
)


class BuildFailed(Exception):  # noqa: N818 - named for the event
    """Report a build that failed, or whose file differs from the first build."""


def read_epoch(root: Path) -> dict[str, str]:
    """Return the time for files in archives: the last commit's, or else hatchling's default."""
    told = (ask_git(root, "log", "-1", "--format=%ct") or "").strip()
    return {"SOURCE_DATE_EPOCH": told} if told else {}


def build(root: Path, folder: Path, around: Circumstances) -> list[Path]:
    """Build the sdist of the files that `root` tracks, and the wheel from it; return both."""
    before = os.umask(around.umask)
    try:
        copied, made = folder / around.folder / "copy", folder / around.folder / "dist"
        sources = {p: root / p for p in tracked(root) if not p.startswith(".")}
        sources |= find_pages(root)
        for name, source in sources.items():
            target = copied / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        variables = {**os.environ, **read_epoch(root), **around.environment}
        sdist = run_hatchling("sdist", copied, made, variables)
        with tarfile.open(sdist) as archive:
            # The argument exists only since 3.11.4; some distributions have older versions.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(made)  # noqa: S202 - we made it a moment ago
        unpacked = made / sdist.name.removesuffix(".tar.gz")
        return [sdist, run_hatchling("wheel", unpacked, made, variables)]
    finally:
        os.umask(before)


def find_pages(root: Path) -> dict[str, Path]:
    """Return the results of `make site` and `make man`, by the names that a build needs."""
    packed = root / "build" / "docs.zip"
    manual = sorted((root / "build" / "man").glob("*.1"))
    found = {f"{MANUAL}/{path.name}": path for path in manual}
    return found | ({PAGES: packed} if packed.exists() else {})


def run_hatchling(what: str, source: Path, made: Path, variables: Mapping[str, str]) -> Path:
    """Build one file from a folder of sources and return it. Raises BuildFailed."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", what, "-d", str(made)]
    done = subprocess.run(
        command, cwd=source, env=variables, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise BuildFailed(f"hatchling made no {what}: {done.stderr.strip()}")
    return next(made.glob("*.whl" if what == "wheel" else "*.tar.gz"))


def build_twice(root: Path, folder: Path) -> list[Path]:
    """Return sdist and wheel. Raises BuildFailed with the names of files that differ."""
    first, second = (build(root, folder, around) for around in TWICE)
    unequal = [a.name for a, b in zip(first, second, strict=True) if hash_file(a) != hash_file(b)]
    if unequal:
        raise BuildFailed(
            f"two builds differ in {', '.join(unequal)}: compare them with diffoscope"
        )
    return first


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the product twice and write dist/; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.dist", description=main.__doc__)
    parser.parse_args(arguments)
    out = ROOT / "dist"
    with TemporaryDirectory() as folder:
        try:
            made = build_twice(ROOT, Path(folder))
        except BuildFailed as error:
            print(f"dist: {error}", file=sys.stderr)
            return 1
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        files = [Path(shutil.copyfile(path, out / path.name)) for path in made]
    bill = out / (files[0].name.removesuffix(".tar.gz") + ".cdx.json")
    bill.write_text(sbom.write_bill(files[1]), "utf-8")
    files.append(bill)
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{hash_file(path)}  {path.name}\n" for path in files), "utf-8")
    print(f"{sums.read_text('utf-8')}built twice, the same bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
