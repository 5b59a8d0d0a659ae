"""Who stands between driver and upstream: nobody, and the proxies; how each is started.

All of them listen on the loopback, write no access log and run as one process.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench import venvs
from bench.proxy.processes import HOST, Cores, Program, free_port, listening

START_S: Final = 120.0
"""How long a proxy may take to listen: LiteLLM's first import takes a quarter of it."""

WINDOW: Final = 256_000
"""Tokens of the window that ullage is told: in these workloads nothing has to be compacted."""

KEPT: Final = ("PATH", "HOME", "LANG", "TMPDIR")
NGINX: Final = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr error;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_buffer_size 2m;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000;
  upstream fake {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://fake;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 300s;
    }}
  }}
}}
"""
LITELLM: Final = """
model_list:
  - model_name: bench
    litellm_params:
      model: openai/bench
      api_base: http://127.0.0.1:{upstream}/v1
      api_key: none
general_settings:
  master_key: {key}
"""
KEY: Final = f"sk-{secrets.token_hex(32)}"
"""What clients present: LiteLLM does not start without one. Made up for each run."""


class Place(NamedTuple):
    """Where a contender is to be started, and before whom."""

    folder: Path
    upstream: int
    port: int


class Contender(NamedTuple):
    """One that takes requests: its port, and its program unless it is the upstream itself."""

    name: str
    port: int
    program: Program | None


def ullage(place: Place) -> list[str | Path] | None:
    """Return the command of the guard proxy, its store in a file."""
    (place.folder / "config.toml").touch()
    store = ("--store", f"sqlite:{place.folder / 'sessions.db'}", "--window", str(WINDOW))
    return [Path(sys.executable).parent / "ullage", "serve", "-q", *_between(place), *store]


def bare(place: Place) -> list[str | Path] | None:
    """Return the command of the relay that does nothing."""
    return [sys.executable, "-m", "bench.proxy.bare", *_between(place)]


def nginx(place: Place) -> list[str | Path] | None:
    """Return the command of nginx, with a configuration written for it; None where it is not."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        return None
    config = place.folder / "nginx.conf"
    told = {"folder": place.folder, "upstream": place.upstream, "port": place.port}
    config.write_text(NGINX.format(**told), encoding="utf-8")
    return [found, "-p", place.folder, "-c", config]


def litellm(place: Place) -> list[str | Path] | None:
    """Return the command of LiteLLM's proxy, installed in a venv of its own."""
    python = venvs.ready("litellm-proxy")
    if python is None:
        return None
    config = place.folder / "litellm.yaml"
    config.write_text(LITELLM.format(upstream=place.upstream, key=KEY), encoding="utf-8")
    more = ("--host", HOST, "--port", str(place.port), "--num_workers", "1")
    return [python.parent / "litellm", "--config", config, *more, "--telemetry", "False"]


Command = Callable[[Place], Sequence[str | Path] | None]

DIRECT: Final = "direct"
OURS: Final = "ullage"
PROXIES: Final[Mapping[str, Command]] = {
    OURS: ullage,
    "bare relay": bare,
    "nginx": nginx,
    "LiteLLM": litellm,
}


@contextmanager
def started(name: str, folder: Path, upstream: int, cores: Cores) -> Iterator[Contender | None]:
    """Start a contender and wait until it listens; None where it is not to be had here."""
    if name == DIRECT:
        yield Contender(name, upstream, None)
        return
    home = folder / name.replace(" ", "-")
    home.mkdir(parents=True, exist_ok=True)
    place = Place(home, upstream, free_port())
    command = PROXIES[name](place)
    if command is None:
        print(f"   {name} is not installed here: left out", flush=True)
        yield None
        return
    env = environment(home)
    with Program(command, home / "errors.txt", cores.proxy, env, heard=False) as program:
        if listening(program, place.port, START_S):
            yield Contender(name, place.port, program)
        else:
            print(f"   {name} does not listen, see {home / 'errors.txt'}: left out", flush=True)
            yield None


def environment(home: Path) -> dict[str, str]:
    """Return what a program may know: no credentials, nobody's settings, no network wanted."""
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join((str(venvs.ROOT / "src"), str(venvs.ROOT))),
        "XDG_DATA_HOME": str(home / "data"),
        "ULLAGE_CACHE_DIR": str(home / "cache"),
        "ULLAGE_CONFIG": str(home / "config.toml"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }


def _between(place: Place) -> tuple[str, ...]:
    return "--upstream", f"http://{HOST}:{place.upstream}", "--port", str(place.port)
