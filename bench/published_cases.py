"""Generates the cases of CompactBench with its own code, as JSON, in its own environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LEVELS = ("medium", "hard", "elite")
SEEDS = (1, 2, 3, 4)


def list_cases(folder: Path) -> list[dict[str, Any]]:
    """Return the cases of all templates below a folder, for each level that a template has."""
    from compactbench.dsl import DifficultyLevel, parse_template_file
    from compactbench.engine import generate_case
    from compactbench.engine.errors import GenerationError

    cases: list[dict[str, Any]] = []
    for file in sorted(folder.rglob("*.yaml")):
        template = parse_template_file(file)
        for level in LEVELS:
            for seed in SEEDS:
                try:
                    case = generate_case(template, seed, DifficultyLevel(level))
                except GenerationError:  # a template without this level
                    continue
                cases.append(json.loads(case.model_dump_json()))
    return cases


if __name__ == "__main__":
    print(json.dumps(list_cases(Path(sys.argv[1]))))
