"""`ullage doctor --watch`: reports when a server silently cuts prompts, one line for each finding.

It watches for changes: a server's log, the newest session of this folder, a running proxy, the
window that a server serves. It checks a file's size first, and reads only the new part. It makes no
decisions: the log's table and `core.tokens.truncation` do.
"""

from __future__ import annotations

import argparse
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ullage.cli import notices, stations
from ullage.cli.doctor import Local, diagnose, examine
from ullage.cli.glyphs import clean
from ullage.cli.lines import note, out
from ullage.cli.loglines import read_line
from ullage.core.dialects.usage import Usage
from ullage.core.errors import ConfigurationError
from ullage.core.tokens.truncation import ReportRange, detect
from ullage.core.values.fullness import CallLine, Fullness, read_count
from ullage.importers import tail
from ullage.importers.files import find_input
from ullage.transport import HttpRequest, Timeouts, Transport, mask_url

FOUND: Final = 3
"""The exit code after a finding."""

PIECE: Final = 1024 * 1024
"""Most bytes of a log that are read at once; of more, only the end."""

INTERVAL_S: Final = 2.0
SERVER_S: Final = 30.0
"""Seconds between two looks, and between two requests to a server about its window."""

REPORTS: Final = 2
LIMITS: Final = Timeouts(connect_s=0.5, read_s=3.0)
PROXY: Final = "http://127.0.0.1:8790"
CUTS: Final = "ullage_silent_truncations_total"


class Finding(NamedTuple):
    """A finding, and its place."""

    where: str
    what: str


class Watched(Protocol):
    """A source that is checked again and again."""

    missed: str
    """Why the last look could see nothing, or ""."""

    def look(self) -> Iterator[Finding]:
        """Yield the new problems."""
        ...


class WatchOptions(NamedTuple):
    """How to watch; `for_s` is the duration, None for ever."""

    once: bool = False
    for_s: float | None = None
    interval_s: float = INTERVAL_S
    notify: bool = False


class LogFile:
    """A growing log: its new lines, from its end on; with `whole`, also its last lines."""

    missed = ""

    def __init__(self, path: str, *, whole: bool) -> None:
        self._path = path
        self._rest = b""
        told = self._stat()
        if told is not None and not stat.S_ISREG(told.st_mode):
            raise ConfigurationError(f"--log {path} is no plain file; - reads stdin")
        self._inode = told.st_ino if told is not None else 0
        self._place = told.st_size if told is not None and not whole else 0

    def look(self) -> Iterator[Finding]:
        """Yield the findings in new lines; a rotated log is read from its start."""
        told = self._stat()
        self.missed = f"the log {self._path} is not there" if told is None else ""
        if told is None:
            return
        if told.st_ino != self._inode or told.st_size < self._place:
            self._inode, self._place, self._rest = told.st_ino, 0, b""
        if told.st_size == self._place:
            return
        start = max(self._place, told.st_size - PIECE)
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123 - the path as it was given
                file.seek(start)
                data = file.read(told.st_size - start)
        except OSError:
            return
        lines = _split(self._rest if start == self._place else b"", data)
        self._place, self._rest = start + len(data), lines.pop()
        yield from _read_lines(lines, self._path)

    def _stat(self) -> os.stat_result | None:
        try:
            return os.stat(self._path)  # noqa: PTH116 - asked at every look
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(f"--log {self._path} cannot be read: {error}") from error


class LogStream:
    """A log on stdin, as far as it came; `ended` tells that it is complete."""

    missed = ""

    def __init__(self, number: int) -> None:
        self._number = number
        self._rest = b""
        self.ended = False

    def look(self) -> Iterator[Finding]:
        """Yield the findings in new lines."""
        read = 0
        while not self.ended and read < PIECE and stations.is_ready(self._number, 0.0):
            data = os.read(self._number, 65536)
            read += len(data)
            self.ended = not data
            lines = _split(self._rest, data)
            self._rest = lines.pop()
            yield from _read_lines([*lines, self._rest] if self.ended else lines, "stdin")


def _split(rest: bytes, data: bytes) -> list[bytes]:
    """Return lines; the last one has no end, and only its last bytes are kept."""
    lines = (rest + data).split(b"\n")
    lines[-1] = lines[-1][-PIECE:]
    return lines


def _read_lines(lines: Sequence[bytes], where: str) -> Iterator[Finding]:
    for line in lines:
        said = read_line(line.decode("utf-8", "replace"))
        if said is not None:
            yield Finding(where, said)


class SessionFile:
    """The newest session of a folder: compares its last two reports."""

    missed = ""

    def __init__(self, asked: stations.Asked) -> None:
        self._asked = asked
        self._seen: tuple[str, float, int] | None = None
        self._told: tuple[str, int] | None = None
        self._times: tuple[int, ...] = ()

    def look(self) -> Iterator[Finding]:
        """Yield a cut that the last two reports show."""
        found = stations.find_file(self._asked)
        if found is None:
            return
        source, path = found
        try:
            seen = (path, *tail.stamp(path, source))
            if seen == self._seen:
                return
            self._seen = seen
            reports = tail.read_reports(path, source, REPORTS)
        except OSError:
            return
        yield from self._judge(f"{source} session {tail.identify(path)}", reports)

    def _judge(self, where: str, reports: Sequence[CallLine]) -> Iterator[Finding]:
        said = judge_reports(reports)
        mark = (where, reports[0].tokens or 0) if said else None
        if said is not None and mark != self._told:
            yield Finding(where, said)
        self._told = mark or self._told


class OwnSession(SessionFile):
    """The newest session of ullage's own log in a folder."""

    def look(self) -> Iterator[Finding]:
        """Yield a cut that the last two reports show."""
        from ullage.storage import tail as log

        try:
            path = stations.find_log(self._asked)
        except LookupError:  # broken settings: doctor's own report shows them
            return
        times = _list_times(path) if path is not None else ()
        if path is None or not times or times == self._times:
            return
        self._times = times
        try:
            name, reports = log.read_reports(path, self._asked.folder, REPORTS)
        except log.NoLog:
            return
        yield from self._judge(f"ullage session {name}", reports)


def _list_times(path: str) -> tuple[int, ...]:
    """Return the write times of a database and its journal, or () without a database."""
    made = []
    for name in (path, f"{path}-wal"):
        try:
            made.append(os.stat(name).st_mtime_ns)  # noqa: PTH116 - asked at every look
        except OSError:
            made.append(0)
    return tuple(made) if made[0] else ()


def judge_reports(reports: Sequence[CallLine]) -> str | None:
    """Return the message about a cut that the last report shows, or None.

    Without a compaction, a history only grows between two calls: the next prompt must hold the last
    prompt and the answer to it. Since programs also clear old results, a prompt that is only
    shorter proves nothing; it must be as long as a cut would leave it.
    """
    if len(reports) < REPORTS or reports[0].tokens is None or reports[1].tokens is None:
        return None
    last, before = reports[0], reports[1]
    least = reports[1].tokens
    expected = ReportRange.around(least, least + before.output, exact=True)
    usage = Usage(input=reports[0].tokens, output=last.output)
    found = detect(usage, expected, last.window)
    if found is None or not found.certain:
        return None
    return (
        f"a prompt of at least {least:,} tokens was read as {found.reported:,}: a window of "
        f"{found.limit:,} tokens cut it in silence"
    )


class ProxyPages:
    """A running proxy: its counter of silent cuts, and conversations over their window.

    It may be missing unless it was `named`.
    """

    missed = ""

    def __init__(
        self, url: str, ask: Callable[[str], str | None], *, whole: bool, named: bool = True
    ) -> None:
        self._url = url
        self._named = named
        self._ask = ask
        self._cuts: float | None = 0.0 if whole else None
        self._over: set[str] = set()

    def look(self) -> Iterator[Finding]:
        """Yield the cuts since the last look, and the conversations that do not fit."""
        text = self._ask(f"{self._url}/metrics")
        away = text is None and self._named
        self.missed = f"the proxy {self._url} does not answer" if away else ""
        if text is None:
            return
        counted = sum_counter(text, CUTS)
        if self._cuts is not None and counted > self._cuts:
            more = f"{counted - self._cuts:,.0f} prompts were cut by a server in silence"
            yield Finding(f"proxy {self._url}", more)
        self._cuts = counted
        yield from self._look_at_sessions()

    def _look_at_sessions(self) -> Iterator[Finding]:
        for name, used, window in read_entries(self._ask(f"{self._url}/ullage/sessions")):
            over = used > window
            if over and name not in self._over:
                said = f"conversation {name} has {used:,} tokens, and its window {window:,}"
                yield Finding(f"proxy {self._url}", said)
            (self._over.add if over else self._over.discard)(name)


def sum_counter(text: str, name: str) -> float:
    """Return the sum of a counter over its labels, from the text that Prometheus reads."""
    total = 0.0
    for line in text.splitlines():
        if line.startswith((f"{name} ", f"{name}{{")):
            try:
                total += float(line.rpartition(" ")[2])
            except ValueError:
                continue
    return total


def read_entries(text: str | None) -> Iterator[tuple[str, int, int]]:
    """Yield the conversations of a proxy that have a size and a window: id, used, window."""
    import json

    try:
        told = json.loads(text or "")
    except ValueError:
        return
    listed = told.get("sessions") if isinstance(told, dict) else None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            used, window = read_count(one.get("used")), read_count(one.get("window"))
            if used is not None and window:
                yield str(one.get("id")), used, window


class ServedWindow:
    """A server: its current window against the need of the newest session, and its cuts."""

    missed = ""

    def __init__(
        self,
        url: str,
        need: Callable[[], Fullness],
        now: Callable[[], float],
        examiner: Callable[[Sequence[str]], Sequence[Local]] = examine,
    ) -> None:
        self._url, self._need, self._now, self._examine = url, need, now, examiner
        self._next = 0.0
        self._told: set[str] = set()

    def look(self) -> Iterator[Finding]:
        """Yield the problems that were not reported before; the server is asked twice a minute."""
        if self._now() < self._next:
            return
        self._next = self._now() + SERVER_S
        servers = self._examine([self._url])
        self.missed = "" if servers else f"the server {mask_url(self._url)} does not answer"
        found = [said for local in servers for said in self._judge(local)]
        for said in found:
            if said not in self._told:
                yield Finding(f"server {mask_url(self._url)}", said)
        self._told = set(found)

    def _judge(self, local: Local) -> Iterator[str]:
        need = self._need()
        for served in local.models:
            bound = served.window.input_tokens
            if bound is not None and need.tokens is not None and need.tokens > bound:
                yield (
                    f"{served.model or 'its model'} has a window of {bound:,} tokens, and the "
                    f"session of {need.source} has {need.tokens:,}"
                )
        for problem in diagnose(local):
            if "cut" in problem.what:
                yield f"{problem.what}: {problem.fix}"


# ── the command ─────────────────────────────────────────────────────────────────────────────────


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `--watch`."""
    group = parser.add_argument_group("watching")
    group.add_argument(
        "--watch", action="store_true", help="tell when a server cuts prompts in silence"
    )
    group.add_argument(
        "--log", action="append", default=[], metavar="FILE", help="a server's log, or - for stdin"
    )
    group.add_argument(
        "--base-url", metavar="URL", help="a server whose window must be large enough"
    )
    group.add_argument("--proxy", metavar="URL", help=f"a running proxy ({PROXY})")
    group.add_argument(
        "--from",
        dest="source",
        choices=stations.SOURCES,
        help="the programs whose sessions to watch",
    )
    group.add_argument(
        "--store",
        metavar="URL",
        help="the log of ullage's own: sqlite:FILE; without "
        "--watch the version of its schema is told, of sqlite:FILE or postgresql://...",
    )
    group.add_argument("--for", dest="for_s", type=_seconds, metavar="SECONDS", help="end then")
    group.add_argument("--once", action="store_true", help="look once, also at what a log had")
    group.add_argument(
        "--interval", type=_seconds, default=INTERVAL_S, metavar="SECONDS", help="between looks (2)"
    )
    group.add_argument("--notify", action="store_true", help="also on the desktop")


def _seconds(text: str) -> float:
    """Read seconds; raises errors that argparse reports as wrong usage."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.05 <= number <= 1e7:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return number


def run(given: argparse.Namespace) -> int:
    """Watch what the arguments name; return the exit code as `watch` does."""
    options = WatchOptions(given.once, given.for_s, given.interval, given.notify)
    return watch(list_watched(given), options)


def list_watched(given: argparse.Namespace) -> list[Watched]:
    """Return the sources to watch."""
    folder = os.getcwd()  # noqa: PTH109 - as sessions name it
    asked = stations.Asked(given.source, None, folder)
    made: list[Watched] = [
        LogStream(find_input().fileno()) if path == "-" else LogFile(path, whole=given.once)
        for path in given.log
    ]
    if given.source != "ullage":
        made.append(SessionFile(asked))
    if given.source in (None, "ullage"):
        made.append(OwnSession(asked._replace(store=given.store)))
    url, named = (given.proxy or PROXY).rstrip("/"), given.proxy is not None
    made.append(ProxyPages(url, ask_page, whole=given.once, named=named))
    if given.base_url is not None:
        need = stations.find_fullness
        made.append(ServedWindow(given.base_url, lambda: need(asked), time.monotonic))
    return made


def ask_page(url: str) -> str | None:
    """Return a page of a proxy, or None if it does not answer."""
    answer = Transport(LIMITS).ask(HttpRequest(url))
    return answer.body.decode("utf-8", "replace") if answer.status == 200 else None


def watch(
    watched: Sequence[Watched],
    options: WatchOptions,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Look until the time is over, or once; print each finding as a line.

    Returns 3 after a finding; after a single look, 1 if a source could not be seen.
    """
    end = None if options.for_s is None else now() + options.for_s
    found = False
    try:
        while True:
            for one in watched:
                for finding in one.look():
                    found = True
                    _tell(finding, notify=options.notify)
            if options.once or _is_over(watched, end, now()):
                break
            sleep(options.interval_s)
    except KeyboardInterrupt:
        pass
    missed = [one.missed for one in watched if one.missed] if options.once else []
    for said in missed:
        note(f"not looked at: {said}")
    return FOUND if found else int(bool(missed))


def _is_over(watched: Sequence[Watched], end: float | None, now: float) -> bool:
    streams = [one for one in watched if isinstance(one, LogStream)]
    return (end is not None and now >= end) or (bool(streams) and all(s.ended for s in streams))


def _tell(finding: Finding, *, notify: bool) -> None:
    line = clean(f"{finding.where}: {finding.what}")
    out(line)
    fault = notices.notify(line) if notify else ""
    if fault:
        note(f"no notification: {fault}")
