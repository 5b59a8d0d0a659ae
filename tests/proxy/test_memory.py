"""What a process holds is told, and what is freed goes back to the system."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ullage.proxy import memory

HOLDS = """
import os
from ullage.proxy import memory
memory.bound_arenas()
before = memory.measure(os.getpid())
held = [bytearray(2_000) for _ in range(50_000)]
full = memory.measure(os.getpid())
last = held[-1]
del held
memory.give_back()
print(full - before, memory.measure(os.getpid()) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and glibc")
def test_what_is_freed_goes_back_though_a_block_at_the_end_is_held() -> None:
    told = subprocess.run([sys.executable, "-c", HOLDS], capture_output=True, check=True).stdout
    full, left = map(int, told.split())
    assert full > 80_000_000
    assert left < 20_000_000


def test_of_a_process_that_is_gone_nothing_is_held() -> None:
    assert memory.measure(2**31 - 1) == 0
    assert memory.measure(os.getpid()) > 0 or sys.platform != "linux"
