"""Names of cases that are the same in every process: what `repr` says, without addresses."""

from __future__ import annotations

import re
from typing import Final

ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


def plainly(value: object) -> str:
    """Return what names a case."""
    return ADDRESS.sub("", repr(value))
