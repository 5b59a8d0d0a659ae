"""The end of a command whose standard output takes no more.

It knows no command.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What the system says where a file or a disk takes no more."""


def end_output(error: OSError) -> int:
    """Return the exit code where output could not be written, and say why; else raise the error.

    Whoever read a pipe, such as `head`, has enough: that is no failure.
    """
    broken = isinstance(error, BrokenPipeError)
    if not broken and (error.errno not in FULL or error.filename is not None):
        raise error
    # What Python flushes at its exit must find an open file (its documentation, "Note on SIGPIPE").
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if broken:
        return 0
    from ullage.cli import lines

    lines.note(f"ullage: the output cannot be written: {error.strerror}")
    return 1
