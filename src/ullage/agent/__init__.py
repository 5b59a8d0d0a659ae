"""Sessions and the agent that runs their turns: a durable loop over the guard."""

from ullage.agent.agent import Agent, Compacting, Equipment, Options
from ullage.agent.session import Live, Session
from ullage.core.log.event import Draft, Event
from ullage.core.permissions import Consent, Decision, Grant, Rule
from ullage.core.tooling import Outcome, Pending, Preview, Spec
from ullage.core.turn.effects import Ended
from ullage.skills import load as load_skills
from ullage.tools import Executor, Sandbox, Tool

__all__ = [
    "Agent",
    "Compacting",
    "Consent",
    "Decision",
    "Draft",
    "Ended",
    "Equipment",
    "Event",
    "Executor",
    "Grant",
    "Live",
    "Options",
    "Outcome",
    "Pending",
    "Preview",
    "Rule",
    "Sandbox",
    "Session",
    "Spec",
    "Tool",
    "load_skills",
]
