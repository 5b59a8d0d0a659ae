"""Sessions and the agent that runs their turns: a durable loop over the guard."""

from ullage.agent.agent import Agent, Compacting
from ullage.agent.folders import load as load_skills
from ullage.agent.options import Equipment, TurnOptions
from ullage.agent.session import Live, Session
from ullage.agent.subagents import Subagents
from ullage.core.dialects.reply import Reply
from ullage.core.messages.transcript import Call
from ullage.core.session.log.event import Draft, Event
from ullage.core.session.permissions import Consent, Decision, Grant, Rule
from ullage.core.session.tools import Pending, Preview, Spec, ToolOutcome
from ullage.core.session.turn.effects import Ended
from ullage.tools import Executor, Sandbox, Tool

__all__ = [
    "Agent",
    "Call",
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
    "Pending",
    "Preview",
    "Reply",
    "Rule",
    "Sandbox",
    "Session",
    "Spec",
    "Subagents",
    "Tool",
    "ToolOutcome",
    "TurnOptions",
    "load_skills",
]
