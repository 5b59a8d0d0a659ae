"""The turn as a state machine: what happened in, effects out."""

from ullage.core.turn.effects import Ended, Order
from ullage.core.turn.machine import run

__all__ = ["Ended", "Order", "run"]
