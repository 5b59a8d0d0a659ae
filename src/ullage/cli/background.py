"""A web application that is served from a thread, beside what the process does in the foreground.

It takes no signal: whoever began it ends it. It knows no request and no client.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Final

from ullage.cli import serve
from ullage.core.errors import ConfigurationError

LOOK_S: Final = 0.01
"""Seconds between two looks whether the server has begun."""

DRAIN_S: Final = 1.0
"""Seconds for answers whose client is gone."""

END_S: Final = 10.0
"""Seconds after which the process ends without waiting for what hangs."""


class BackgroundServer:
    """Serves an application on a socket from `begin` to `end`."""

    def __init__(self, app: Any, listening: socket.socket) -> None:
        self._app = app
        self._listening = listening
        self._server = serve.make_server(app, DRAIN_S)
        self._thread = threading.Thread(target=self._run, name="ullage-proxy", daemon=True)

    def begin(self) -> None:
        """Serve from now on; raises ConfigurationError where the server does not begin."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(LOOK_S)
        if not self._server.started:
            raise ConfigurationError("the proxy did not start: a file named by --log says why")

    def end(self) -> None:
        """Serve no longer; what still runs is broken off."""
        self._server.should_exit = True
        self._app.end_streams()
        self._thread.join(END_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=serve.find_loop()) as runner:
            runner.run(self._server.serve(sockets=[self._listening]))
