"""Completions at the cursor: commands, names of sessions, files of the workspace."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prompt_toolkit.completion import Completer, Completion

from ullage.cli import lines
from ullage.core.errors import UllageError
from ullage.tools.survey import SKIPPED
from ullage.tools.tool import Fault
from ullage.tools.workspace import Workspace

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

MOST_FILES: Final = 5_000
"""Most files of a workspace that are listed."""

OFFERED: Final = 50
"""Most files that are offered at once."""

FRESH_S: Final = 5.0
"""Seconds that a list of files is used."""

NAMED: Final = re.compile(r"(?:^|\s)@([^\s\"]*)$")
SESSIONS: Final = "/sessions "


@dataclass(slots=True)
class FileList:
    """The files of a workspace by path, listed again when the list is old."""

    workspace: Workspace | None
    clock: Callable[[], float] = time.monotonic
    _paths: list[str] = field(default_factory=list)
    _at: float | None = None

    def find(self, word: str) -> list[str]:
        """Return the paths that match a word: those that begin with it first, then all others."""
        if self._at is None or self.clock() - self._at > FRESH_S:
            self._paths, self._at = list(self._walk()), self.clock()
        wanted = word.casefold()
        if not wanted:
            return [path for path in self._paths if "/" not in path][:OFFERED]
        begun = [path for path in self._paths if path.casefold().startswith(wanted)]
        names = [p for p in self._paths if wanted in p.casefold() and p not in set(begun)]
        return [*begun, *sorted(names, key=len)][:OFFERED]

    def _walk(self) -> Iterator[str]:
        if self.workspace is None:
            return
        try:
            entries = self.workspace.walk("", enter=lambda entry: entry.name not in SKIPPED)
            for number, entry in enumerate(entries):
                if number >= MOST_FILES:
                    return
                if entry.is_file and entry.path.isprintable():
                    yield entry.path
        except (Fault, OSError):  # the folder is gone: nothing to offer
            return


@dataclass(slots=True)
class ChatCompleter(Completer):
    """Completes the typed text; `commands` and `sessions` have a description for each name."""

    commands: Mapping[str, str]
    files: FileList
    sessions: Callable[[], Sequence[tuple[str, str]]]

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        del complete_event
        text = document.text_before_cursor
        if found := NAMED.search(text):
            for path in self.files.find(found[1]):
                said = f'"{path}"' if " " in path else path
                yield Completion(said, -len(found[1]), display=lines.visible(path))
        elif text.startswith(SESSIONS):
            yield from self._complete_sessions(text.removeprefix(SESSIONS))
        elif text.startswith("/") and " " not in text:
            for name, said in self.commands.items():
                if name.startswith(text):
                    yield Completion(name, -len(text), display_meta=said)

    def _complete_sessions(self, word: str) -> Iterator[Completion]:
        try:
            found = self.sessions()
        except UllageError:  # unreadable list: the command says why
            return
        for name, about in found:
            if name.startswith(word):
                yield Completion(name, -len(word), display_meta=lines.brief(about, 40))
