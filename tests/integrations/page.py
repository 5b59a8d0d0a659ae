"""Writes docs/integrations.md: what the conformance suite found, and what each seam cannot do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.integrations.conformance import ANSWERED, LONG, SHORT, Outcome, list_faults
from tests.integrations.frameworks import IN_CI, ROWS

HEAD = Path(__file__).with_name("head.md")

PLAIN = "no framework"


def write_page(path: Path, made: Mapping[str, Outcome]) -> None:
    """Write the page of all that ran."""
    ci = ", ".join(ROWS[name].title for name in IN_CI if name in ROWS)
    head = HEAD.read_text().format(short=SHORT, long=LONG, answered=ANSWERED, ci=ci)
    rows = "".join(_write_row(name, one, made["plain"]) for name, one in made.items())
    limits = "\n".join(_list_limits(made))
    path.write_text(f"{head}{rows}\n## What a seam cannot do\n\n{limits}\n")


def _write_row(name: str, made: Outcome, plain: Outcome) -> str:
    row = ROWS.get(name)
    title = PLAIN if row is None else f"[{row.title}](integrations/{name}.md)"
    count = len(made.short.breaks) + len(made.long.breaks)
    same = (made.short.breaks, made.long.breaks) == (plain.short.breaks, plain.long.breaks)
    added = made.added_ms
    cells = (
        title,
        made.version,
        "`Guard.call`" if row is None else row.seam,
        ", ".join(made.sizes),
        str(len(made.failed)),
        "as it was" if not made.lost else f"{len(made.lost)} results edited",
        f"{count}, {'the same' if same else 'not the same'}",
        "yes" if made.reopened else "-",
        "" if added is None else f"{added:.1f} ms",
    )
    return f"| {' | '.join(cells)} |\n"


def _list_limits(made: Mapping[str, Outcome]) -> Iterator[str]:
    for name, row in ROWS.items():
        if row.cannot:
            yield f"- **{row.title}**: {row.cannot}"
        for fault in list_faults(name, made[name], made["plain"]) if name in made else ():
            yield f"- **{row.title}** does not conform here: {fault}"
