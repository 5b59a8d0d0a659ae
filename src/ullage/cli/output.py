"""The end of a command whose standard output cannot be written any more.

The module does not know commands.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""The system's errors if a file or a disk is full."""


def end_output(error: OSError) -> int:
    """Report an output error and return the exit code; raise any other error.

    A closed pipe, as with `head`, is no failure: its reader has enough.
    """
    broken = isinstance(error, BrokenPipeError)
    if not broken and (error.errno not in FULL or error.filename is not None):
        raise error
    # Python flushes this file at its exit, so it must be open (its documentation, "Note on
    # SIGPIPE").
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if broken:
        return 0
    from ullage.cli import lines

    lines.note(f"ullage: the output cannot be written: {error.strerror}")
    return 1
