"""The stream of one round on its way to the client, without calls of the added tools.

`core.dialects.rounds` decides, frame by frame, what the client sees; the calls are read from the
same frames. Frames end as in `proxy.relay`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ullage.core.dialects import registry
from ullage.proxy.relay import BLANK, LONGEST_BLANK, MOST, EventRelay, read_data

if TYPE_CHECKING:
    from ullage.core.dialects.reply import Reply
    from ullage.core.dialects.rounds import Rounds


class RoundRelay(EventRelay):
    """The data of one round, read as its frames pass, and the frames to send on.

    With `spliced` the proxy asked for the usage report: the frame that holds only this report is
    left out. `salt` names calls that came without an id.
    """

    def __init__(
        self, dialect: str, rounds: Rounds, *, spliced: bool = False, salt: str = ""
    ) -> None:
        super().__init__(dialect, spliced=spliced)
        self._reader = registry.make_reader(dialect, salt)
        self._rounds = rounds

    @property
    def has_turned(self) -> bool:
        """True if the round is over and called an added tool."""
        return self._rounds.turned and self.ended and self.failed is None

    def reply(self) -> Reply:
        """Return the answer of the round, whether or not it was sent on."""
        return self._reader.reply()

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; return those to send to the client now."""
        if self._deaf:
            return b"" if self._rounds.turned else chunk
        data = self._tail + chunk
        out: list[bytes] = []
        start = 0
        for found in BLANK.finditer(data, max(len(self._tail) - LONGEST_BLANK, 0)):
            stop = found.end()
            if stop == len(data) and data.endswith(b"\r"):
                break  # a line feed may follow: the frame ends there
            out.append(self._pass(data[start:stop]))
            start = stop
        self._tail = data[start:]
        if len(self._tail) > MOST:
            out.append(self.rest())
            self._deaf = True
        return b"".join(out)

    def rest(self) -> bytes:
        """Return the rest when the stream has ended, including an unfinished frame."""
        tail, self._tail = self._tail, b""
        self._open = bool(tail) and BLANK.search(tail) is None
        return (self._pass(tail) if tail else b"") + self._rounds.end()

    def _pass(self, frame: bytes) -> bytes:
        """Read a frame; return its part to send on."""
        self.events += 1
        event = self._read(frame)
        if event is None:
            return self._rounds.take(None, frame)
        self.tracker.take(event)
        self._reader.take(event)
        if self._spliced and event.get("choices") == [] and event.get("usage") is not None:
            return b""
        return self._rounds.take(event, frame)

    def _read(self, frame: bytes) -> Mapping[str, Any] | None:
        """Return the event of a frame, or None without one."""
        data = read_data(frame)
        if data is None or data == b"[DONE]":
            self._done = self._done or data is not None
            return None
        try:
            event = _JSON.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return event if isinstance(event, Mapping) else None


_JSON: Final = msgspec.json.Decoder()
