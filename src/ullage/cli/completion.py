"""`ullage completion`: completion scripts for shells, made from the command line's own parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

SUMMARY = "print a completion script for bash, zsh or fish"

EPILOG = """examples:
  source <(ullage completion bash)                          bash, in ~/.bashrc
  source <(ullage completion zsh)                           zsh, in ~/.zshrc, behind compinit
  ullage completion fish > ~/.config/fish/completions/ullage.fish
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(given: argparse.Namespace) -> int:
    """Print the script."""
    from ullage.cli.main import parser

    commands = _commands(parser())
    if given.shell == "fish":
        print("\n".join(_fish(commands)))
        return 0
    opening = ["autoload -Uz bashcompinit && bashcompinit"] if given.shell == "zsh" else []
    print("\n".join([*opening, *_bash(commands)]))
    return 0


Options = Mapping[str, tuple[str, ...]]
"""The options of a command with their possible values, empty if any value is allowed."""


def _commands(top: argparse.ArgumentParser) -> dict[str, Options]:
    """Return the options of each command; the values of arguments stand under no option."""
    (subs,) = (a for a in top._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001 - argparse offers no reading of a parser
    return {name: dict(_options(sub)) for name, sub in subs.choices.items()}


def _options(sub: argparse.ArgumentParser) -> Iterator[tuple[str, tuple[str, ...]]]:
    for action in sub._actions:  # noqa: SLF001 - see above
        values = tuple(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - see above
            values = tuple(action.choices)
        if not action.option_strings and values:
            yield "", values
        for option in action.option_strings:
            yield option, values


def _bash(commands: Mapping[str, Options]) -> Iterator[str]:
    yield "_ullage() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""'
    yield '  case "${COMP_WORDS[1]} $before" in'
    for name, options in commands.items():
        for option, values in options.items():
            if option and values:
                yield f'    "{name} {option}") words="{" ".join(values)}" ;;'
    yield "  esac"
    yield '  if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'    words="{" ".join(commands)}"'
    yield '  elif [ -z "$words" ]; then'
    yield '    case "${COMP_WORDS[1]}" in'
    for name, options in commands.items():
        listed = [*(o for o in options if o), *options.get("", ())]
        yield f'      {name}) words="{" ".join(listed)}" ;;'
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield "complete -o default -F _ullage ullage"


def _fish(commands: Mapping[str, Options]) -> Iterator[str]:
    yield f'complete -c ullage -n __fish_use_subcommand -a "{" ".join(commands)}"'
    for name, options in commands.items():
        seen = f'-n "__fish_seen_subcommand_from {name}"'
        for option, values in options.items():
            taken = f' -xa "{" ".join(values)}"' if values else ""
            if option.startswith("--"):
                yield f"complete -c ullage {seen} -l {option[2:]}{taken}"
            elif option:
                yield f"complete -c ullage {seen} -s {option[1:]}{taken}"
            else:
                yield f"complete -c ullage {seen}{taken}"
