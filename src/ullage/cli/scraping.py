"""Serves Prometheus text from a thread, only to this machine. The module knows no workers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from ullage.core.errors import ConfigurationError, UllageError
from ullage.telemetry import CONTENT_TYPE
from ullage.workers.queue import JobQueue

if TYPE_CHECKING:
    from ullage.workers.counters import JobMetrics

log = logging.getLogger("ullage.serve")


@contextmanager
def serve_metrics(port: int, metrics: JobMetrics, store: str, engine: str) -> Iterator[int]:
    """Serve `/metrics` on 127.0.0.1 while the block runs; lend the port."""
    with JobQueue(store, engine) as queue:
        handler = _make_handler(metrics, queue)
        try:
            server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigurationError(
                f"cannot listen on 127.0.0.1, port {port} ({why}): choose "
                "another by --metrics-port, 0 for a free one"
            ) from error
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        log.info("metrics: http://127.0.0.1:%d/metrics", server.server_port)
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _make_handler(metrics: JobMetrics, queue: JobQueue) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404, "there is only /metrics")
                return
            try:
                text = metrics.render(queue.report(0)).encode()
            except UllageError as error:
                self.send_error(503, str(error))
                return
            self.send_response(200)
            self.send_header("content-type", CONTENT_TYPE)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
