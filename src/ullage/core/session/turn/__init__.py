"""The turn as a state machine: events in, effects out."""

from ullage.core.session.turn.effects import Ended, TurnOrder
from ullage.core.session.turn.machine import run

__all__ = ["Ended", "TurnOrder", "run"]
