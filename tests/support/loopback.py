"""Runs a server of the standard library on the loopback, in a thread, while a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import TypeVar

Running = TypeVar("Running", bound=ThreadingHTTPServer)


@contextmanager
def serve(server: Running) -> Iterator[Running]:
    """Serve until the block ends, then close the server's socket."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
