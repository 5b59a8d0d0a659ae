"""Objects that belong to one process refuse pickling and say what to pickle instead.

Values pickle as they are. This module knows none of them.
"""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex


class Unpicklable:
    """Refuse to be pickled or deep-copied: connections, locks and callbacks stay in their process.

    `instead` says what to pickle, and what to do with it in the other process.
    """

    __slots__ = ()
    instead: ClassVar[str]

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        name = next(kind.__name__ for kind in type(self).__mro__ if "instead" in vars(kind))
        raise TypeError(
            f"a {name} belongs to its process and can be neither pickled nor deep-copied: "
            f"{self.instead}"
        )
