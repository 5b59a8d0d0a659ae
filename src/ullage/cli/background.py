"""Serves a web application from a thread, while the process works in the foreground.

It handles no signals: its owner ends it. The module does not know requests or clients.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Final

from ullage.cli import serve
from ullage.core.errors import ConfigurationError

LOOK_S: Final = 0.01
"""Seconds between two checks whether the server has started."""

DRAIN_S: Final = 1.0
"""Seconds for answers whose clients are gone."""

END_S: Final = 10.0
"""Seconds before the process ends without waiting for a stuck thread."""


class BackgroundServer:
    """Serves an application on a socket from `begin` to `end`."""

    def __init__(self, app: Any, listening: socket.socket) -> None:
        self._app = app
        self._listening = listening
        self._server = serve.make_server(app, DRAIN_S)
        self._thread = threading.Thread(target=self._run, name="ullage-proxy", daemon=True)

    def begin(self) -> None:
        """Start serving; raises ConfigurationError if the server does not start."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(LOOK_S)
        if not self._server.started:
            raise ConfigurationError("the proxy did not start: a file named by --log says why")

    def end(self) -> None:
        """Stop serving; running answers are broken off."""
        self._server.should_exit = True
        self._app.end_streams()
        self._thread.join(END_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=serve.find_loop()) as runner:
            runner.run(self._server.serve(sockets=[self._listening]))
