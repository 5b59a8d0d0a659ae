"""What one holder of a token learns of another's conversations: nothing, whatever changes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.pages.watching import JSON, act, answer, find_key, grow, of, read, say, until
from tests.proxy.sockets import HOST, Behind, Served, ask, request, serving
from ullage.live.feed import Changes
from ullage.live.source import Viewer
from ullage.live.values import LiveSession
from ullage.pages.app import tell_changes

ANNA, BEN = "a-token-of-anna-0123456789", "a-token-of-ben-0123456789"
AS_ANNA, AS_BEN = f"x-ullage-token: {ANNA}", f"x-ullage-token: {BEN}"
TWO: Final[Any] = {"tokens": {"anna": ANNA, "ben": BEN}}
ONE: Final[Any] = {"tokens": {"anna": ANNA}}


@contextmanager
def watching(port: int, *lines: str) -> Iterator[Stream]:
    """Lend a stream of the pages."""
    with socket.create_connection((HOST, port), 30) as connection:
        connection.sendall(request("GET", "/ullage/live", b"", *lines))
        yield Stream(connection)


class Stream:
    """What came so far; `ended` tells that the server ended it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.ended = False
        self.text = ""

    def read(self, wait_s: float = 0.1) -> bool:
        """Take in what comes within some time; return True."""
        until_s = time.monotonic() + wait_s
        while (left := until_s - time.monotonic()) > 0 and not self.ended:
            self._connection.settimeout(left)
            try:
                piece = self._connection.recv(65_536)
            except TimeoutError:
                break
            self.ended |= not piece or piece.endswith(b"0\r\n\r\n")
            self.text += piece.decode("utf-8", "replace")
        return True


def reload(served: Served, old: str, new: str) -> None:
    """Change the configuration, and have it read again."""
    file = served.folder / "serve.toml"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")
    before = served.log.count("was read again")
    os.kill(served.pid, signal.SIGHUP)
    until(lambda: served.log.count("was read again") > before)


def list_rows(port: int, line: str) -> list[Any]:
    found: list[Any] = read(port, "/ullage/conversations", line, JSON)["conversations"]
    return found


def test_two_that_begin_with_the_same_words_have_conversations_of_their_own(tmp_path: Path):
    with Behind(answer) as behind, serving(tmp_path, [behind.url], **TWO) as served:
        for line, model in ((AS_ANNA, "of-anna"), (AS_BEN, "of-ben")):
            say(served.port, [{"role": "user", "content": "hi"}], line, model=model)
        for line, model in ((AS_ANNA, "of-anna"), (AS_BEN, "of-ben")):
            until(partial(list_rows, served.port, line))
            (row,) = list_rows(served.port, line)
            assert (row["model"], row["requests"]) == (model, 1)


def test_a_stream_tells_nothing_of_what_others_do(tmp_path: Path):
    with (
        Behind(answer) as behind,
        serving(tmp_path, [behind.url], **TWO) as served,
        watching(served.port, AS_BEN) as stream,
    ):
        until(lambda: stream.read() and '"whole": true' in stream.text)
        before = len(stream.text)
        say(served.port, [{"role": "user", "content": "hi"}], AS_ANNA)
        until(lambda: list_rows(served.port, AS_ANNA))
        stream.read(1.0)
        assert stream.text[before:] == ""


def test_the_pages_are_their_own_alone_also_behind_tls(tmp_path: Path):
    friend: Any = {"origins": ["https://friend.test"]}
    with Behind(answer) as behind, serving(tmp_path, [behind.url], **friend) as served:
        say(served.port, [{"role": "user", "content": "hi"}])
        key = find_key(served.port, "hi")
        at = f"127.0.0.1:{served.port}"
        for origin, status in (
            (f"http://{at}", 200),
            (f"https://{at}", 200),
            ("https://friend.test", 403),
            (f"https://{at}.evil.test", 403),
            ("null", 403),
        ):
            lines = (f"origin: {origin}", JSON)
            asked = request("GET", of("messages", key), b"", *lines, host=at)
            assert ask(served.port, asked).status == status, origin
        chat = say(served.port, [{"role": "user", "content": "x"}], "origin: https://friend.test")
        assert chat.status == 200


def test_what_goes_is_told_to_those_who_saw_it():
    ben = Viewer("ben", is_operator=False, reads=False)
    own, other = (LiveSession(source="proxy", id=n, owner=n) for n in ("ben", "anna"))
    known: set[str] = set()
    told = tell_changes(Changes(2, [own, other], [], whole=True), ben, known)
    assert [row["id"] for row in told["rows"]] == ["ben"]
    gone = Changes(4, [], [own.key, other.key], whole=False)
    assert tell_changes(gone, ben, known)["gone"] == [own.key]
    assert known == set()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP here")
def test_a_second_token_ends_what_the_first_was_shown(tmp_path: Path):
    with Behind(answer) as behind:
        more: Any = {"store_transcripts": True, "rules": [{"window": 8_000}]}
        with serving(tmp_path, [behind.url], **ONE, **more) as served:
            said = grow(served.port, 10, "Annas words.", shown=AS_ANNA)
            key = find_key(served.port, "Annas words", AS_ANNA)
            shown = json.dumps(read(served.port, of("messages", key), AS_ANNA, JSON))
            reference = re.findall(r"u:[0-9a-f]{16}", shown)[0]
            with watching(served.port, AS_ANNA) as stream:
                until(lambda: stream.read() and "Annas words" in stream.text)
                ben = f'operators = ["ben"]\n[serve.tokens]\nben = "{BEN}"'
                reload(served, "[serve.tokens]", ben)
                until(lambda: stream.read() and stream.ended)
            lines = (AS_BEN, "content-type: application/json", JSON)
            recalled = act(served.port, key, *lines, action="recall", reference=reference)
            assert (recalled.status, b"part" in recalled.body) == (403, False)
            reload(served, f'anna = "{ANNA}"', "")
            assert ask(served.port, request("GET", "/", b"", JSON, AS_ANNA)).status == 200
            assert ask(served.port, request("GET", "/ullage/live", b"", AS_ANNA)).status == 401
            rows = json.dumps(list_rows(served.port, AS_BEN))
            assert said
            assert "Annas words" not in rows
            refused = ask(served.port, request("GET", of("messages", key), b"", AS_BEN, JSON))
            assert refused.status == 409
