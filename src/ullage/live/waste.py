"""Parts of a request with little or no use, with their price for each request.

The module reads a history and its report, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ullage.core.dialects.usage import Usage
from ullage.core.messages.fields import as_mapping
from ullage.core.tokens.cost import cost
from ullage.core.tokens.counting import tool_sizes
from ullage.live.values import Waste

if TYPE_CHECKING:
    from ullage.core.messages.transcript import Message
    from ullage.core.tokens.cost import Price
    from ullage.core.tokens.counting import Meter

SHOWN: Final = 20
LEAST: Final = 20
"""Fewest tokens that are worth a line."""


def list_waste(
    report: Mapping[str, Any],
    messages: Sequence[Message],
    tools: Sequence[Any],
    meter: Meter,
    prices: Sequence[Price] = (),
) -> tuple[Waste, ...]:
    """Return the parts that every request could leave out, the largest first.

    `report` is the form of `ullage context --json` for these messages.
    """
    called = {call.name for message in messages for call in message.calls}
    found = [
        *_list_unused_tools(tools, called, meter),
        *_list_repeats(report),
        *_list_reasoning(report),
    ]
    worth = sorted((one for one in found if one.tokens >= LEAST), key=lambda one: -one.tokens)
    return tuple(_price(one, prices) for one in worth[:SHOWN])


def _list_unused_tools(tools: Sequence[Any], called: set[str], meter: Meter) -> Iterator[Waste]:
    known = [tool for tool in tools if as_mapping(tool) is not None]
    if not known:
        return
    for name, size in tool_sizes(known, meter)[1]:
        if name not in called:
            tokens = meter.scale.of(size).best
            yield Waste("unused tool", name, tokens, "it was never called: do not offer it")


def _list_repeats(report: Mapping[str, Any]) -> Iterator[Waste]:
    for row in report["rows"]:
        for item in row["items"]:
            if item["reclaimable"] > 0:
                again = item["duplicates"]
                yield Waste(
                    "repeated result",
                    item["name"],
                    item["reclaimable"],
                    f"{again:,} earlier result{'s'[: again != 1]} came again later",
                )


def _list_reasoning(report: Mapping[str, Any]) -> Iterator[Waste]:
    for row in report["rows"]:
        if row["id"] in ("reasoning", "thinking") and row["tokens"] > 0:
            advice = "a policy that strips reasoning leaves out what no model needs any more"
            yield Waste("carried reasoning", row["name"], row["tokens"], advice)


def _price(waste: Waste, prices: Sequence[Price]) -> Waste:
    found = cost(Usage(waste.tokens), prices).total if prices else None
    if found is None:
        return waste
    return Waste(waste.kind, waste.name, waste.tokens, waste.advice, found)
