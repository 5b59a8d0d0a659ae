"""Sessions and the agent that runs their turns: a durable loop over the guard."""

from ullage.agent.agent import Agent, Compacting, Equipment, Options
from ullage.agent.session import Live, Session
from ullage.core.log.event import Draft, Event
from ullage.core.permissions import Decision, Rule
from ullage.core.tooling import Outcome, Spec
from ullage.core.turn.effects import Ended
from ullage.skills import load as load_skills
from ullage.tools import Executor, Sandbox, Tool

__all__ = [
    "Agent",
    "Compacting",
    "Decision",
    "Draft",
    "Ended",
    "Equipment",
    "Event",
    "Executor",
    "Live",
    "Options",
    "Outcome",
    "Rule",
    "Sandbox",
    "Session",
    "Spec",
    "Tool",
    "load_skills",
]
