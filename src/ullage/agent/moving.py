"""Moves large texts from a log or a store to object storage and back, and finds orphans there.

The object is written first, then the row that names it. An interruption in between leaves an object
that no row names, which a sweep finds. The module does not know commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ullage.core.errors import ConfigurationError
from ullage.storage.objects import MovedText, ObjectPlace, ObjectReader
from ullage.storage.retaining import MovesOriginals, MovesTexts, RemovesSessions

if TYPE_CHECKING:
    from ullage.storage.log import EventLog
    from ullage.storage.protocol import Store

LEAST: Final = 32 * 1024
"""Fewest bytes of a text that is worth an object of its own (docs/scale.md)."""

BATCH: Final = 64
"""Most texts that are held in memory at once."""

GRACE_S: Final = 24 * 3600.0
"""Seconds before an unnamed object counts as an orphan, since a row may soon name it."""


@dataclass(frozen=True, slots=True)
class Movement:
    """A movement: texts, their bytes, and the number of sessions; `lost` are missing objects."""

    texts: int = 0
    size: int = 0
    sessions: int = 0
    lost: tuple[str, ...] = ()

    def __add__(self, other: Movement) -> Movement:
        return Movement(
            self.texts + other.texts,
            self.size + other.size,
            self.sessions + other.sessions,
            self.lost + other.lost,
        )


@dataclass(frozen=True, slots=True)
class Orphans:
    """Objects that no row names: their names, and their total bytes."""

    names: tuple[str, ...] = ()
    size: int = 0


def move_texts(
    log: EventLog, place: ObjectPlace | None, before: float, least: int = LEAST
) -> Movement:
    """Move the large texts of sessions without an event since `before` (Unix seconds) to a place.

    A large text has `least` bytes or more. Without a place, the texts are only counted. A session
    may be written meanwhile; its history reads as before. Raises StoreAway if the place fails: the
    texts moved by then stay moved.
    """
    if not (isinstance(log, MovesTexts) and isinstance(log, RemovesSessions)):
        raise _make_refusal(log.url)
    done = Movement()
    for extent in log.survey(sized=False):
        if extent.last < before:
            done += _move_session(log, extent.session, place, least)
    return done


def _move_session(log: MovesTexts, session: str, place: ObjectPlace | None, least: int) -> Movement:
    done = Movement(sessions=1)
    most = BATCH if place is not None else 2**31
    while found := log.list_texts(session, least, most):
        swapped = 0
        for held in found:
            if place is None or _put(place, held.text, partial(log.swap_text, session, held)):
                swapped += 1
                done += Movement(1, len(held.text.encode("utf-8", "surrogatepass")))
        if place is None or not swapped:  # another process rewrites these
            break
    return done if done.texts else Movement()


def move_originals(
    store: Store, place: ObjectPlace | None, before: float, least: int = LEAST
) -> Movement:
    """Move the large originals of a store that were not used since `before`; see `move_texts`."""
    if not isinstance(store, MovesOriginals):
        raise _make_refusal(store.url)
    done = Movement()
    most = BATCH if place is not None else 2**31
    while found := store.list_originals(least, before, most):
        swapped = 0
        for number, text in found:
            if place is None or _put(place, text, partial(store.swap_original, number, text)):
                swapped += 1
                done += Movement(1, len(text.encode("utf-8", "surrogatepass")))
        if place is None or not swapped:
            break
    return done


def _put(place: ObjectPlace, text: str, swap: Callable[[str], bool]) -> bool:
    """Write an object, then make a row name it; delete it if the row has changed."""
    moved = place.put(text)
    if swap(moved.write()):
        return True
    place.delete([moved.name])
    return False


def fetch_texts(log: EventLog, store: Store | None = None) -> Movement:
    """Bring all moved texts back and delete their objects.

    `lost` lists objects that are gone, changed or unreadable: their texts stay elsewhere.
    """
    if not isinstance(log, MovesTexts):
        raise _make_refusal(log.url)
    reader, done = ObjectReader(), Movement()
    for head in log.sessions():
        count = done.texts
        for held in log.list_moved(head.session):
            done += _fetch(reader, held.text, partial(log.swap_text, head.session, held))
        done += Movement(sessions=int(done.texts > count))
    originals = _find_originals(store)
    if originals is not None:
        for number, place in originals.list_moved_originals():
            done += _fetch(reader, place, partial(originals.swap_original, number, place))
    return done


def _fetch(reader: ObjectReader, held: str, swap: Callable[[str], bool]) -> Movement:
    (text,) = reader.resolve([held], lost=True)
    if text == held:
        return Movement(lost=(str(MovedText.read(held)),))
    if not swap(text):
        return Movement()
    reader.forget([held])
    return Movement(1, len(text.encode("utf-8", "surrogatepass")))


def find_orphans(
    place: ObjectPlace, log: EventLog, store: Store | None, now: float, grace_s: float = GRACE_S
) -> Orphans:
    """Return the objects of a place that neither this log nor this store names.

    Objects of the last `grace_s` seconds are left out: a row may be about to name them. The objects
    are listed first. A place belongs to one log and its store: objects that another one names there
    would count as orphans.
    """
    if not isinstance(log, MovesTexts):
        raise _make_refusal(log.url)
    there = dict(place.list_objects(now - grace_s))
    texts = [held.text for held in log.list_moved()]
    originals = _find_originals(store)
    texts += [text for _, text in originals.list_moved_originals()] if originals else []
    named = {moved.name for text in texts if (moved := MovedText.read(text)) is not None}
    left = {name: size for name, size in there.items() if name not in named}
    return Orphans(tuple(sorted(left)), sum(left.values()))


def _find_originals(store: object) -> MovesOriginals | None:
    return store if isinstance(store, MovesOriginals) else None


def _make_refusal(url: str) -> ConfigurationError:
    return ConfigurationError(
        f"texts of {url} cannot be moved: a log or store in SQLite or PostgreSQL can "
        "(ullage.storage.retaining says what another needs)"
    )
