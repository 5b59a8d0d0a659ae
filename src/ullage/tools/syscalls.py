"""Linux's openat2(2), which neither Python nor the C library offers.

It knows nothing of workspaces.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Final

RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08
"""include/uapi/linux/openat2.h"""

_OPENAT2: Final = 437
"""The same number on every architecture (Linux 5.6)."""

_TRIES: Final = 32
"""EAGAIN occurs when something is renamed or mounted while a path with `..` or a link is
resolved."""


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """Open an existing path relative to an open folder and return the descriptor.

    Raises OSError: EXDEV if the path leads out of the folder, ELOOP for a refused link.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    library = ctypes.CDLL(None, use_errno=True)
    for _ in range(_TRIES):
        found: int = library.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(folder),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if found >= 0:
            return found
        if ctypes.get_errno() not in {errno.EAGAIN, errno.EINTR}:
            break
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), path)


def has_openat2() -> bool:
    """Tell whether this system has the call (containers may refuse it)."""
    if sys.platform != "linux":
        return False
    try:
        os.close(openat2(-100, "/", os.O_RDONLY | os.O_DIRECTORY, 0))  # -100 is AT_FDCWD
    except OSError:
        return False
    return True
