"""The fixtures with the real server."""

from __future__ import annotations

from pathlib import Path

from tests.embedded.asking import gone
from tests.support.fixtures import StartServer
from ullage.embedded import Launch, Server


def test_the_same_launch_gives_the_same_server(
    llama_server: StartServer, tiny_server: Server
) -> None:
    assert llama_server() is llama_server(Launch()) is tiny_server
    assert llama_server(Launch(slots=2)) is not tiny_server
    assert tiny_server.alive


def test_a_stopped_server_is_handed_out_running(llama_server: StartServer) -> None:
    mine = llama_server(Launch(window=768))
    mine.stop()
    assert llama_server(Launch(window=768)).alive


def test_the_model_is_there(tiny_model: Path) -> None:
    assert tiny_model.read_bytes().startswith(b"GGUF")


def test_no_process_is_gone_that_lives(tiny_server: Server) -> None:
    assert not gone(tiny_server.pid)
