"""The peers' virtual environments: one each, from a hash-locked list, wheels only.

The peers are never installed in ullage's own environment.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = "ullage"
BASE = "base"
QUIETLY = ("-qq", "--disable-pip-version-check", "--no-input")
CAREFULLY = ("--require-hashes", "--no-deps", "--only-binary=:all:")


def ready(name: str) -> Path | None:
    """Return the interpreter of a peer's environment, made if necessary, or None on failure."""
    if name == OURS:
        return Path(sys.executable)
    home = ROOT / f".venv-bench-{name}"
    python = home / "bin" / "python"
    lock = ROOT / "requirements" / f"bench-{name}.txt"
    made_of = hashlib.sha256(lock.read_bytes()).hexdigest() + sys.version
    stamp = home / "made-of"
    if stamp.exists() and stamp.read_text() == made_of:
        return python
    print(f"== setup: {home.name}", flush=True)
    steps: tuple[list[str | Path], ...] = (
        [sys.executable, "-m", "venv", "--clear", home],
        [python, "-m", "pip", *QUIETLY, "install", *CAREFULLY, "--requirement", lock],
    )
    for step in steps:
        if subprocess.run(step, check=False).returncode:
            print(f"   {home.name} cannot be set up here: its peers are left out", flush=True)
            return None
    stamp.write_text(made_of)
    return python


def environment(name: str) -> dict[str, str]:
    """Return a worker's environment: no network, no credentials, our package importable."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    path = [str(ROOT)]
    if name == OURS:
        path += filter(None, [os.environ.get("PYTHONPATH")])
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path),
        "TIKTOKEN_CACHE_DIR": str(vocabulary()),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LANGSMITH_TRACING": "false",
        "OMP_NUM_THREADS": "1",
    }


def vocabulary() -> Path:
    """Return the folder with tiktoken's vocabulary, unpacked once."""
    folder = ROOT / f".venv-bench-{BASE}" / "vocabulary"
    if not folder.is_dir():
        python = ROOT / f".venv-bench-{BASE}" / "bin" / "python"
        ours = {**os.environ, "PYTHONPATH": str(ROOT / "src")}  # only for the file names
        subprocess.run([python, "-m", "bench.vocabulary", folder], check=True, cwd=ROOT, env=ours)
    return folder
