"""Skills from folders: each folder with a SKILL.md is a skill, read once, in a fixed order.

An unusable skill is left out and reported; the others stay. The module does not know prompts or
sessions.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ullage.core.session.skills import NAME, Skill, hash_text

FILE: Final = "SKILL.md"
MOST_BYTES: Final = 64 * 1024
"""Most bytes of a SKILL.md: about 16,000 tokens, which is more than a skill should take of a
window."""

MOST_ENTRIES: Final = 1_000
"""Most entries of a folder of skills; the rest, by name, is left out."""

MOST_DESCRIPTION: Final = 1_024
"""Most characters of a description (the open format of SKILL.md)."""

FENCE: Final = "---"
FLAGS: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Links are not followed, and a pipe in place of a file blocks nobody."""

Tell = Callable[[str], object]


class _Refused(Exception):  # noqa: N818 - never leaves the module: it is told as a notice
    """An unusable skill, with the reason."""


def load(folders: Iterable[Path], tell: Tell | None = None) -> tuple[Skill, ...]:
    """Return the skills in these folders, by name; the first folder wins if names repeat.

    A missing folder is empty. `tell` gets one sentence for each skill that is left out: what, where
    and what to do. Links are not followed.
    """
    say = tell or _nothing
    found: dict[str, Path] = {}
    skills: list[Skill] = []
    for folder in folders:
        for place in _places(Path(folder), say):
            try:
                skill = _read(place)
            except _Refused as refused:
                say(f"the skill {place} is left out: {refused}")
                continue
            if skill.name in found:
                say(f"the skill {place} is left out: {found[skill.name]} has its name")
                continue
            found[skill.name] = place
            skills.append(skill)
    return tuple(sorted(skills, key=lambda skill: skill.name))


def _nothing(_: str) -> None:
    pass


def _places(folder: Path, say: Tell) -> Iterator[Path]:
    """Return the folders of skills in a folder, by name."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        say(f"the folder of skills {folder} cannot be read: {error.strerror}")
        return
    if len(names) > MOST_ENTRIES:
        say(
            f"the folder of skills {folder} holds {len(names):,} entries, and only the first "
            f"{MOST_ENTRIES:,} are read: move skills that you do not need to another folder"
        )
    for name in names[:MOST_ENTRIES]:
        place = folder / name
        if place.is_symlink():
            say(f"the skill {place} is left out: it is a link, copy the folder instead")
        elif place.is_dir() and not name.startswith("."):
            yield place


def _read(place: Path) -> Skill:
    """Read one skill; raises _Refused."""
    fields, text = _split_front_matter(_content(place / FILE))
    name, description = fields.get("name", ""), fields.get("description", "")
    if not NAME.fullmatch(name):
        raise _Refused(
            f"its name is {name!r:.80}; write `name:` with up to 64 lower-case letters, digits "
            "and hyphens"
        )
    if name != place.name:
        raise _Refused(f"its name is {name!r}, but its folder {place.name!r}: rename one of them")
    if not 0 < len(description) <= MOST_DESCRIPTION:
        raise _Refused(
            f"its description has {len(description):,} characters; write `description:` with 1 to "
            f"{MOST_DESCRIPTION:,} on one line"
        )
    if not text.strip():
        raise _Refused(f"its {FILE} has nothing after its head")
    return Skill(name, description, hash_text(text), text)


def _content(path: Path) -> str:
    """Return the text of a regular file, within the limit."""
    try:
        file = os.open(path, FLAGS)
    except FileNotFoundError:
        raise _Refused(f"it has no {FILE}") from None
    except OSError as error:
        raise _Refused(f"its {FILE} cannot be read, or is a link: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _Refused(f"its {FILE} is no file")
    with os.fdopen(file, "rb") as opened:
        data = opened.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _Refused(
            f"its {FILE} is larger than {MOST_BYTES:,} bytes: move parts of it into other files"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _Refused(f"its {FILE} is not UTF-8: {error.reason} at byte {error.start}") from error
    return text.replace("\r\n", "\n")


def _split_front_matter(text: str) -> tuple[Mapping[str, str], str]:
    """Return the fields of the head and the text after it.

    Fields other than name and description, and lines indented below them, are skipped.
    """
    first, _, rest = text.partition("\n")
    if first.rstrip() != FENCE:
        raise _Refused(f"its {FILE} does not begin with a line {FENCE!r}")
    fields: dict[str, str] = {}
    lines = rest.split("\n")
    for number, line in enumerate(lines, 2):
        if line.rstrip() == FENCE:
            return fields, "\n".join(lines[number - 1 :]).lstrip("\n")
        if not line.strip() or line.startswith((" ", "\t", "#", "- ")):
            continue
        key, colon, value = line.partition(":")
        if not colon:
            raise _Refused(f"line {number} of its {FILE} is {line!r:.60}: expected `name: value`")
        if key in fields:
            raise _Refused(f"line {number} of its {FILE} gives {key!r:.60} a second time")
        fields[key] = _plain(key, value.strip(), number)
    raise _Refused(f"the head of its {FILE} has no end: put a line {FENCE!r} after it")


def _plain(key: str, value: str, number: int) -> str:
    """Return the value of a field without its quotes."""
    if key not in ("name", "description"):
        return value
    if value[:1] in ("|", ">"):
        raise _Refused(f"line {number} of its {FILE}: write {key} on one line")
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    if value[:1] == '"':
        try:
            return str(json.loads(value))
        except ValueError as error:
            raise _Refused(f"line {number} of its {FILE}: {key} has no closed quotes") from error
    return value
