"""Files in one folder, reached only through open descriptors, and never the state directory.

It never checks a path and then opens it: it checks the opened descriptor. It opens folders with
openat2 if the system has it, else name by name without following links. It knows no tool.

Reads follow links that stay inside. Writes follow none: a policy on a path must hold for the file,
whatever other name it has. For the same reason a file with several names is not written.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from ullage.core.errors import ConfigurationError
from ullage.tools import syscalls
from ullage.tools.tool import Fault

DEEPEST: Final = 64
"""Most levels of folders that a walk visits."""

MOST_LINKS: Final = 8
"""Most links followed one after another to a file."""

# Windows lacks most flags. No workspace can be made there, but this module is imported.
_NOFOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)
_ASIDE: Final[int] = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_FOLDER: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOEXEC
_READ: Final = os.O_RDONLY | _NOFOLLOW | _ASIDE | _CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC

Identity = tuple[int, int]
"""Identifies a file on this machine, independent of its name: device and inode."""


class Journal(Protocol):
    """Notes the changes that tools make, before they make them."""

    def begin_write(
        self, entry: FolderEntry | None, path: str, data: bytes, made: list[str]
    ) -> None:
        """Note a file that gets these bytes; `entry` is the current file, `made` new folders.

        If it raises an error, the file is not written.
        """
        ...

    def begin_command(self) -> Any:
        """Note the state of the workspace before a command, which may change anything."""
        ...

    def end_command(self, before: Any) -> None:
        """Note the changes of a command; `before` is the result of `begin_command`."""
        ...


class StateRefused(Fault):
    """Report a path that leads to the state directory."""


class FolderEntry(NamedTuple):
    """One entry found on a walk; `folder` is the open descriptor of its folder."""

    path: str
    name: str
    folder: int
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        """Tell whether it is a folder."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Tell whether it is an ordinary file."""
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        """Tell whether it is a symbolic link."""
        return stat.S_ISLNK(self.status.st_mode)


class Workspace:
    """A folder that tools work in. Raises ConfigurationError if it is not a folder.

    `state` is a directory that no path may reach; it need not exist yet. `kernel` False means to
    work without openat2; by default it is used if the system has it.
    """

    def __init__(
        self, root: Path, state: Path | None = None, *, kernel: bool | None = None
    ) -> None:
        try:
            self.root = root.resolve(strict=True)
        except OSError as error:
            raise ConfigurationError(f"the workspace {root} cannot be used: {error}") from error
        if not self.root.is_dir():
            raise ConfigurationError(f"the workspace {root} is no folder")
        self.state = state.resolve() if state is not None else None
        if self.state is not None and (self.state == self.root or self.state in self.root.parents):
            raise ConfigurationError(f"the workspace {root} lies in the state directory {state}")
        self._given = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() follows links
        self._kernel = syscalls.has_openat2() if kernel is None else kernel
        self.journal: Journal | None = None

    def relative(self, path: str) -> str:
        """Return a path in the workspace without `.`, `..` and double slashes; "" for the root.

        An absolute path must lead into the workspace. Raises Fault. Links are not checked.
        """
        if "\0" in path:
            raise Fault("the path holds a NUL character")
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise Fault(f"the path {path!r:.200} cannot be a name of a file") from error
        inside = self._inside(path)
        parts: list[str] = []
        for part in inside.split("/"):
            if part == ".." and not parts:
                raise Fault(f"{path!r:.200} leads out of the workspace; stay beneath it")
            if part == "..":
                parts.pop()
            elif part not in {"", "."}:
                parts.append(part)
        return "/".join(parts)

    def protects(self, path: str) -> bool:
        """Tell whether a path leads to the state directory, also through links."""
        if self.state is None:
            return False
        with suppress(OSError, ValueError):
            found = Path(os.path.realpath(self.root / path))
            if found == self.state or self.state in found.parents:
                return True
            return any(_same(each, self.state) for each in (found, *found.parents))
        return False

    def is_in_repository(self, path: str) -> bool:
        """Tell whether a path leads into git's own files, also through links."""
        found = Path(os.path.realpath(self.root / path))
        return any(part.casefold() == ".git" for part in (*found.parts, *Path(path).parts))

    @contextmanager
    def folder(self, relative: str, *, links: bool = True) -> Iterator[int]:
        """Lend a descriptor of a folder. Raises Fault, or OSError if it does not exist."""
        with self._base() as base:
            descriptor = self._descend(base, relative, links=links)
            try:
                self._clear_of_state(descriptor, base)
                yield descriptor
            finally:
                os.close(descriptor)

    @contextmanager
    def file(self, relative: str) -> Iterator[int]:
        """Lend a descriptor of an ordinary file, for reading. Raises Fault or OSError."""
        descriptor = self._read(relative, MOST_LINKS)
        try:
            self._readable(descriptor, relative)
            yield descriptor
        finally:
            os.close(descriptor)

    def entry_file(self, entry: FolderEntry) -> int:
        """Open a file found on a walk, for reading. Raises Fault or OSError."""
        descriptor = os.open(entry.name, _READ, dir_fd=entry.folder)
        try:
            self._readable(descriptor, entry.path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def replace(self, relative: str, data: bytes, before: os.stat_result | None = None) -> bool:
        """Write a file in one step, with its folders; tell whether it is new.

        With `before`, the file that `data` is based on, the file must still be that one. It keeps
        its mode. Raises Fault or OSError; then nothing is changed.
        """
        parent, _, name = relative.rpartition("/")
        with self._lend_folder(parent) as (folder, made):
            found = self._target(folder, name, relative)
            if before is not None and (found is None or version(found) != version(before)):
                raise Fault(f"{relative!r} was changed meanwhile by someone else; read it again")
            if self.journal is not None:
                entry = None if found is None else FolderEntry(relative, name, folder, found)
                self.journal.begin_write(entry, relative, data, made)
            _write(folder, name, data, found)
            return found is None

    def put_file(
        self, relative: str, data: bytes, mode: int, expected: tuple[int, ...] | None
    ) -> None:
        """Write a file if the path has this version, None if nothing. Raises Fault or OSError."""
        parent, _, name = relative.rpartition("/")
        with self._lend_folder(parent) as (folder, _made):
            found = _check_unchanged(folder, name, relative, expected)
            if found is not None:
                self._target(folder, name, relative)
            _write(folder, name, data, found, mode)

    def put_link(self, relative: str, target: str, expected: tuple[int, ...] | None) -> None:
        """Make a symbolic link if the path has this version. Raises Fault or OSError."""
        parent, _, name = relative.rpartition("/")
        with self._lend_folder(parent) as (folder, _made):
            _check_unchanged(folder, name, relative, expected)
            made = f".ullage-{secrets.token_hex(8)}"
            os.symlink(target, made, dir_fd=folder)
            try:
                os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(made, dir_fd=folder)
                raise

    def put_folder(self, relative: str, mode: int) -> None:
        """Make a folder if it is missing, and set its mode. Raises Fault or OSError."""
        with self._lend_folder(relative) as (folder, _made):
            if sys.platform != "win32":
                os.fchmod(folder, mode)

    def take_away(self, relative: str, expected: tuple[int, ...] | None) -> None:
        """Remove a file or a link of this version. Raises Fault or OSError."""
        parent, _, name = relative.rpartition("/")
        with self.folder(parent, links=False) as folder:
            _check_unchanged(folder, name, relative, expected)
            os.unlink(name, dir_fd=folder)

    def remove_folder(self, relative: str) -> None:
        """Remove a folder that is empty. Raises Fault or OSError."""
        parent, _, name = relative.rpartition("/")
        with self.folder(parent, links=False) as folder:
            os.rmdir(name, dir_fd=folder)

    def would_write(self, relative: str) -> os.stat_result | None:
        """Return the status of the file that `replace` would overwrite, or None. Raises Fault."""
        parent, _, name = relative.rpartition("/")
        try:
            with self.folder(parent, links=False) as folder:
                return self._target(folder, name, relative)
        except FileNotFoundError:
            return None

    def walk(
        self,
        relative: str,
        deepest: int = DEEPEST,
        enter: Callable[[FolderEntry], bool] | None = None,
    ) -> Iterator[FolderEntry]:
        """Yield the entries of a folder by name, each folder before its own entries.

        It follows no link, and skips the state directory and the contents of folders that `enter`
        refuses. Raises Fault, or OSError if there is no such folder.
        """
        with self.folder(relative) as folder:
            yield from self._walk(folder, relative, deepest, enter)

    def _walk(
        self, folder: int, path: str, left: int, enter: Callable[[FolderEntry], bool] | None
    ) -> Iterator[FolderEntry]:
        state = self._state()
        with os.scandir(folder) as found:
            names = sorted(entry.name for entry in found)
        for name in names:
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if _identity(status) == state:
                continue
            entry = FolderEntry(f"{path}/{name}" if path else name, name, folder, status)
            yield entry
            if not entry.is_folder or left <= 1 or not (enter is None or enter(entry)):
                continue
            try:
                inner = os.open(name, _FOLDER | _NOFOLLOW, dir_fd=folder)
            except OSError:  # removed, replaced or closed to us since the listing
                continue
            try:
                yield from self._walk(inner, entry.path, left - 1, enter)
            finally:
                os.close(inner)

    def _inside(self, path: str) -> str:
        if not path.startswith("/"):
            return path
        for root in (str(self.root), str(self._given)):
            if path == root or path.startswith(root.rstrip("/") + "/"):
                return path[len(root) :]
        raise Fault(f"{path!r:.200} is outside the workspace; use paths beneath it")

    @contextmanager
    def _base(self) -> Iterator[int]:
        descriptor = os.open(self.root, _FOLDER)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _descend(self, base: int, relative: str, *, links: bool) -> int:
        if not self._kernel:
            return _step_by_step(base, relative, create=False)
        resolve = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_MAGICLINKS
        if not links:
            resolve |= syscalls.RESOLVE_NO_SYMLINKS
        try:
            return syscalls.openat2(base, relative or ".", _FOLDER, resolve)
        except OSError as error:
            raise _explain_error(error, relative) from error

    @contextmanager
    def _lend_folder(self, relative: str) -> Iterator[tuple[int, list[str]]]:
        """Lend a folder for writing; create the missing part of its path.

        Also yields the paths of the folders that were created.
        """
        there = relative
        while there:
            try:
                with self.folder(there, links=False):
                    break
            except FileNotFoundError:
                there = there.rpartition("/")[0]
        with self.folder(there, links=False) as folder:
            missing = relative[len(there) :].strip("/")
            descriptor = _step_by_step(folder, missing, create=True)
            parts = relative.split("/")
            first = len(there.split("/")) if there else 0
            try:
                new = [] if not missing else range(first, len(parts))
                yield descriptor, ["/".join(parts[: end + 1]) for end in new]
            finally:
                os.close(descriptor)

    def _read(self, relative: str, links: int) -> int:
        parent, _, name = relative.rpartition("/")
        with self.folder(parent) as folder:
            try:
                return os.open(name or ".", _READ, dir_fd=folder)
            except OSError as error:
                if error.errno not in {errno.ELOOP, errno.EMLINK}:
                    raise
                target = os.readlink(name, dir_fd=folder)
        if not links:
            raise Fault(f"{relative!r} is a chain of more than {MOST_LINKS} links")
        aim = target if target.startswith("/") else f"{parent}/{target}".lstrip("/")
        return self._read(self.relative(aim), links - 1)

    def _readable(self, descriptor: int, relative: str) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise Fault(f"{relative or '.'!r} is a folder; list it")
        if not stat.S_ISREG(status.st_mode):
            raise Fault(f"{relative!r} is {_kind(status)}, no ordinary file")
        if status.st_nlink > 1 and self.state is not None and _holds(self.state, status):
            raise StateRefused(f"{relative!r} is a file of the state directory")

    def _target(self, folder: int, name: str, relative: str) -> os.stat_result | None:
        if not name:
            raise Fault("the path names the workspace itself; name a file in it")
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise Fault(f"{relative!r} is {_kind(found)}; only ordinary files are written")
        if found.st_nlink > 1:
            raise Fault(
                f"{relative!r} is one of {found.st_nlink} names of a file (hard links), and others "
                "may be outside the workspace; write a new file"
            )
        return found

    def _clear_of_state(self, folder: int, base: int) -> None:
        """Go up from an open folder to the workspace; raise if it meets the state directory."""
        state = self._state()
        if state is None:
            return
        root, at = _identity(os.fstat(base)), os.dup(folder)
        try:
            while (here := _identity(os.fstat(at))) != root:
                up = os.open("..", _FOLDER, dir_fd=at)
                os.close(at)
                at = up
                if here == state:
                    raise StateRefused("the state directory is closed to tools")
                if here == _identity(os.fstat(at)):
                    raise Fault("the folder was moved out of the workspace meanwhile")
        finally:
            os.close(at)

    def _state(self) -> Identity | None:
        if self.state is None:
            return None
        try:
            return _identity(self.state.stat())
        except OSError:
            return None


def _step_by_step(base: int, relative: str, *, create: bool) -> int:
    """Open a folder name by name, following no link; the caller closes it."""
    at = os.dup(base)
    try:
        for name in filter(None, relative.split("/")):
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=at)
            inner = os.open(name, _FOLDER | _NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
    except OSError as error:
        os.close(at)
        raise _explain_error(error, relative) from error
    return at


def _check_unchanged(
    folder: int, name: str, relative: str, expected: tuple[int, ...] | None
) -> os.stat_result | None:
    """Return the status of the file at a name; raise Fault unless it has this version."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if (None if found is None else version(found)) != expected:
        raise Fault(f"{relative!r} was changed meanwhile by someone else")
    return found


def _write(
    folder: int, name: str, data: bytes, found: os.stat_result | None, mode: int | None = None
) -> None:
    """Write a new file and move it to a name, in place of the old one."""
    made = f".ullage-{secrets.token_hex(8)}"
    descriptor = os.open(made, _CREATE, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if found is not None and sys.platform != "win32":
                if found.st_uid != os.geteuid() or found.st_gid != os.getegid():
                    with suppress(PermissionError):
                        os.fchown(file.fileno(), found.st_uid, found.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode) & 0o777)
            if mode is not None and sys.platform != "win32":
                os.fchmod(file.fileno(), mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(made, dir_fd=folder)
        raise


def _explain_error(error: OSError, relative: str) -> Exception:
    if error.errno == errno.EXDEV:
        return Fault(f"{relative!r} leads out of the workspace; stay beneath it")
    # O_DIRECTORY with O_NOFOLLOW gives ENOTDIR for a link as well.
    if error.errno == errno.ELOOP:
        return Fault(f"{relative!r} goes through a symbolic link; use the path that it points to")
    return error


def _holds(state: Path, status: os.stat_result) -> bool:
    """Tell whether one of the names of a file is in the state directory."""
    for folder, _, names in os.walk(state):
        for name in names:
            with suppress(OSError):
                if _identity(os.lstat(Path(folder, name))) == _identity(status):
                    return True
    return False


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def version(status: os.stat_result) -> tuple[int, ...]:
    """Return numbers that differ between two files, and before and after a change of one."""
    return (*_identity(status), status.st_mtime_ns, status.st_size)


def _kind(status: os.stat_result) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for test, name in kinds if test(status.st_mode)), "a device")
