"""Attachments of a message: files named by `@`, pasted text, images.

Texts follow the typed text, between tags, so that no rule is taken from them
(`core.facts.quoting`); images are parts. The module reads files of the workspace, and sends
nothing.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ullage.core.dialects import registry
from ullage.core.errors import ConfigurationError
from ullage.core.messages.transcript import DialectName
from ullage.tools.tool import Fault
from ullage.tools.workspace import Workspace

LARGEST_FILE: Final = 100_000
"""Most bytes of an attached file: some 25,000 tokens."""

LARGEST_ALL: Final = 400_000
"""Most bytes of all texts attached to one message."""

LARGEST_IMAGE: Final = 5_000_000
"""Most bytes of an image: the limit of Anthropic's API (Vision, "Image size"), the lowest of the
APIs."""

NAMED: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))')
ENDS: Final = ".,;:!?)]}'"
"""Punctuation that may follow the name of a file in a sentence."""

NO_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
"""The system's errors for a name without a file."""

PASTED: Final = re.compile(r"\[pasted [\d,]+ (?:lines|characters)(?:, \d+)?\]")
"""The label of a paste in the line."""

HEADS: Final[Mapping[bytes, str]] = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
"""The first bytes of images that all APIs accept; WebP has its own check."""

SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})


@dataclass(slots=True)
class Outgoing:
    """A message to send: a text, and further parts; `notes` list the attachments and omissions."""

    text: str
    parts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Attaching:
    """The context of a message: the workspace, the dialect, the pastes.

    `workspace` is None if no files can be attached. `pastes` maps labels in the line to texts,
    `images` maps labels to paths.
    """

    workspace: Workspace | None
    dialect: DialectName
    pastes: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, Path] = field(default_factory=dict)

    def compose(self, line: str) -> Outgoing:
        """Return the message of a line; raises ConfigurationError for invalid attachments."""
        made = Outgoing(line)
        texts = [*self._find_pastes(line), *self._find_files(line, made)]
        for label, path in self.images.items():
            if label in line:
                made.parts.append(self._read_image(str(path), path.read_bytes))
        size = sum(len(text.encode()) for _, _, text in texts)
        if size > LARGEST_ALL:
            raise ConfigurationError(
                f"the attachments have {size:,} bytes, and at most {LARGEST_ALL:,} are sent: "
                "attach fewer files, or let the model read them with its tools"
            )
        made.text = "\n\n".join([line, *(_enclose(*text) for text in texts)])
        return made

    # --- texts ----------------------------------------------------------------------------------

    def _find_pastes(self, line: str) -> Iterator[tuple[str, str, str]]:
        for label in dict.fromkeys(PASTED.findall(line)):
            if label not in self.pastes:
                raise ConfigurationError(f"the text of {label} is gone: paste it again")
            yield "pasted", label, self.pastes[label]

    def _find_files(self, line: str, made: Outgoing) -> Iterator[tuple[str, str, str]]:
        """Yield the texts of the files that the line names; images become parts."""
        read: set[str] = set()
        place = self.workspace
        if place is None:
            named = [match[1] or match[2] for match in NAMED.finditer(line)]
            made.notes += [f"@{name}: no workspace to read from, sent as typed" for name in named]
            return
        for match in NAMED.finditer(line):
            name, path = _settle(place, match[1] or match[2])
            if path is None:
                made.notes.append(f"@{name}: no such file beneath the workspace, sent as typed")
            elif path not in read:
                read.add(path)
                data = _read(place, path)
                if Path(path).suffix.lower() in SUFFIXES:
                    made.parts.append(self._read_image(path, lambda data=data: data))
                    made.notes.append(f"attached the image {path}, {len(data):,} bytes")
                else:
                    made.notes.append(f"attached {path}, {len(data):,} bytes")
                    yield "file", path, _decode(path, data)

    # --- images ---------------------------------------------------------------------------------

    def _read_image(self, name: str, read: Any) -> dict[str, Any]:
        """Return an image as a part; raises ConfigurationError if it cannot be sent."""
        try:
            data = read()
        except OSError as error:
            raise ConfigurationError(f"the image {name} cannot be read: {error.strerror}") from None
        if len(data) > LARGEST_IMAGE:
            raise ConfigurationError(
                f"the image {name} has {len(data):,} bytes, at most {LARGEST_IMAGE:,} are sent"
            )
        media = find_media_type(data)
        if media is None:
            raise ConfigurationError(f"{name} is no PNG, JPEG, GIF or WebP image by its content")
        part = {"type": "image", "media_type": media, "data": base64.b64encode(data).decode()}
        if registry.find(self.dialect).make_form().part(part) is None:
            raise ConfigurationError(f"the dialect {self.dialect} takes no images: {name}")
        return part


def find_media_type(data: bytes) -> str | None:
    """Return the media type of an image, or None if it is no image that can be sent."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media for head, media in HEADS.items() if data.startswith(head)), None)


def find_image(text: str) -> Path | None:
    """Return the image whose path was pasted, as terminals paste a dropped file."""
    line = text.strip()
    if not line or "\n" in line or len(line) > 4_096:
        return None
    if len(line) > 1 and line[0] == line[-1] and line[0] in "'\"":
        line = line[1:-1]
    else:
        line = line.removeprefix("file://").replace("\\ ", " ")
    path = Path(line).expanduser()
    try:
        found = path.suffix.lower() in SUFFIXES and path.is_absolute() and path.is_file()
    except OSError:
        return None
    return path if found else None


def _settle(place: Workspace, name: str) -> tuple[str, str | None]:
    """Return a name without the punctuation after it, and its path in the workspace.

    The path is None if there is no such file. Raises ConfigurationError for a path that leads out
    of the workspace.
    """
    for each in (name, name.rstrip(ENDS)):
        try:
            path = place.relative(each)
            with place.file(path):
                return each, path
        except (Fault, OSError) as error:
            if getattr(error, "errno", None) in NO_FILE:
                continue
            said = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"@{each} cannot be attached: {said}") from None
    return name, None


def _read(place: Workspace, path: str) -> bytes:
    is_image = Path(path).suffix.lower() in SUFFIXES
    most = LARGEST_IMAGE if is_image else LARGEST_FILE
    with (
        place.file(path) as descriptor,
        os.fdopen(os.dup(descriptor), "rb") as file,
    ):
        size = os.fstat(descriptor).st_size
        data = file.read(most + 1)
    if len(data) > most:
        raise ConfigurationError(
            f"@{path} has {size:,} bytes, at most {most:,} are attached: let the model read a "
            "part of it by its tools, or paste that"
        )
    return data


def _decode(path: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigurationError(f"@{path} is no UTF-8 text, and no image: it cannot be attached")
    return text.replace("\r\n", "\n")


def _enclose(kind: str, name: str, text: str) -> str:
    """Return a text between tags that its own content cannot close."""
    mark, number = kind, 1
    while f"</{mark}" in text:
        number += 1
        mark = f"{kind}-{number}"
    said = json.dumps(name[-150:]).replace("<", "\\u003c").replace(">", "\\u003e")
    return f"<{mark} name={said}>\n{text.rstrip()}\n</{mark}>"
