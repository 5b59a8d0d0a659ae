"""The rules for every Python file of this repository; each rule is one function on its AST.

ruff checks complexity and the number of parameters (C901, PLR09xx); this module only rejects inline
waivers of those. import-linter checks the layers. `tools.gates` applies the waivers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from tools.files import Finding
from ullage.core.dialects.names import DIALECTS

FILE_LINES: Final = 600
FUNCTION_LINES: Final = 60
VAGUE: Final = frozenset({"util", "helper", "common", "misc", "manager"})
DIALECTS_ROOM: Final = "src/ullage/core/dialects/"
PROVIDERS: Final = frozenset({"anthropic", "gemini"})
"""Dialects with the same name as their provider."""
PROVIDERS_ROOMS: Final = frozenset({"counters", "importers", "windows"})
"""Packages that know providers by name."""
BROAD: Final = frozenset({"Exception", "BaseException"})
MOCKS: Final = frozenset({"mock", "unittest.mock", "pytest_mock"})
WORLD: Final = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})
MUTABLE_CALLS: Final = frozenset(
    {"bytearray", "Counter", "defaultdict", "deque", "dict", "list", "OrderedDict", "set"}
)
READ_ONLY: Final = re.compile(r"\b(Mapping|Sequence|Collection|Iterable|AbstractSet)\b")
BUDGET_NOQA: Final = re.compile(r"#\s*noqa:[^#]*\b(C901|PLR091\d)\b")
FILE_NOQA: Final = re.compile(r"^\s*#\s*(ruff|flake8):\s*noqa", re.IGNORECASE)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed file."""

    path: str
    source: str
    tree: ast.Module
    scopes: tuple[tuple[str, Scope], ...]
    """Every function and class with its dotted name, outer before inner."""

    @classmethod
    def parse(cls, path: str, source: str) -> Module:
        """Read a file's source.

        Raises:
            SyntaxError: it is not Python.
        """
        tree = ast.parse(source, filename=path)
        return cls(path, source, tree, tuple(_scopes(tree, "")))

    def within(self, line: int) -> str:
        """Return the dotted name of the innermost function or class around a line, or ''."""
        found = ""
        for name, scope in self.scopes:
            if _first_line(scope) <= line <= (scope.end_lineno or scope.lineno):
                found = name
        return found

    def finding(self, rule: str, line: int, text: str) -> Finding:
        """Return a finding of `rule` at a line of this file."""
        return Finding(rule, self.path, line, self.within(line), text)


def check(module: Module) -> Iterator[Finding]:
    """Yield the findings of every rule for one file."""
    for rule in RULES:
        yield from rule(module)


def file_lines(module: Module) -> Iterator[Finding]:
    """Limit a file to a length that can be read in one sitting."""
    lines = module.source.count("\n")
    if lines > FILE_LINES:
        text = f"{lines} lines; the budget is {FILE_LINES}: it holds more than one concept"
        yield Finding("file-lines", module.path, 1, "", text)


def function_lines(module: Module) -> Iterator[Finding]:
    """Limit a function to a length that fits one screen."""
    for name, scope in module.scopes:
        if isinstance(scope, ast.ClassDef):
            continue
        lines = (scope.end_lineno or scope.lineno) - _first_line(scope) + 1
        if lines > FUNCTION_LINES:
            text = f"{name} has {lines} lines; the budget is {FUNCTION_LINES}"
            yield module.finding("function-lines", scope.lineno, text)


def file_name(module: Module) -> Iterator[Finding]:
    """Require a module name with one concept; a vague name attracts everything."""
    for part in PurePosixPath(module.path).with_suffix("").parts:
        vague = {word.removesuffix("s") for word in part.lower().split("_")} & VAGUE
        if vague:
            text = f"{part!r} names no concept ({', '.join(sorted(vague))}): say what it holds"
            yield Finding("file-name", module.path, 1, "", text)


def module_docstring(module: Module) -> Iterator[Finding]:
    """Require a module docstring with the purpose and the limits of its knowledge."""
    if module.tree.body and not ast.get_docstring(module.tree):
        yield Finding("module-docstring", module.path, 1, "", "no docstring: what is it for?")


def broad_except(module: Module) -> Iterator[Finding]:
    """Require a broad handler to re-raise, or to be listed with a reason."""
    if module.path.startswith("tests/"):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises(node.body):
            text = "catches everything and does not re-raise: name the errors"
            yield module.finding("broad-except", node.lineno, text)
        if isinstance(node, ast.Call) and _called(node) == "suppress" and _any_broad(node.args):
            text = "suppresses everything: name the errors"
            yield module.finding("broad-except", node.lineno, text)


def global_statement(module: Module) -> Iterator[Finding]:
    """Refuse `global`: state must belong to an object with an owner."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            text = f"global {', '.join(node.names)}: keep it in an object that is passed"
            yield module.finding("global-statement", node.lineno, text)


def module_state(module: Module) -> Iterator[Finding]:
    """Require read-only annotations for tables at module level, so that mypy rejects changes."""
    if not module.path.startswith("src/"):
        return
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name != "__all__":
                annotation = ""
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                annotation = ast.unparse(node.annotation)
            case _:
                continue
        if _is_mutable(value) and not READ_ONLY.search(annotation):
            text = (
                f"{name} can be changed by anybody: annotate it Mapping or Sequence, or freeze it"
            )
            yield Finding("module-state", module.path, node.lineno, name, text)


def core_builtins(module: Module) -> Iterator[Finding]:
    """Refuse built-ins that reach outside the core, as import-linter cannot see them."""
    if not module.path.startswith("src/ullage/core/"):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and node.id in WORLD and isinstance(node.ctx, ast.Load):
            text = f"{node.id}() reaches outside; the core is handed values"
            yield module.finding("core-builtins", node.lineno, text)


def mocks(module: Module) -> Iterator[Finding]:
    """Refuse mocks: a fake keeps the contract, but a mock accepts anything."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                imported = {alias.name for alias in names}
            case ast.ImportFrom(module=str(source), names=names):
                imported = {source} | {f"{source}.{alias.name}" for alias in names}
            case ast.arg(arg="mocker"):
                imported = {"mock"}
            case _:
                continue
        if imported & MOCKS:
            text = "a mock: write a fake, or use one of tests.support"
            yield module.finding("mock", node.lineno, text)


def inline_waivers(module: Module) -> Iterator[Finding]:
    """Require waivers of budgets to be in tools/waivers.toml, where they can be counted."""
    for number, line in enumerate(module.source.splitlines(), start=1):
        if found := BUDGET_NOQA.search(line):
            text = f"waives {found[1]} inline; it needs its line in tools/waivers.toml too"
            yield module.finding("budget-noqa", number, text)
        if FILE_NOQA.match(line):
            yield module.finding("file-noqa", number, "waives a rule for the whole file")


def dialect_literal(module: Module) -> Iterator[Finding]:
    """Keep knowledge of a dialect in its folder: no other code compares its name."""
    path = PurePosixPath(module.path)
    if not module.path.startswith("src/") or DIALECTS_ROOM in module.path:
        return
    provider = any(room in path.parts for room in PROVIDERS_ROOMS)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and node.value in DIALECTS:
            if provider and node.value in PROVIDERS:
                continue
            text = f"the dialect {node.value!r} by name: read its value (core.dialects.registry)"
            yield module.finding("dialect-literal", node.lineno, text)


RULES: Final = (
    dialect_literal,
    file_lines,
    function_lines,
    file_name,
    module_docstring,
    broad_except,
    global_statement,
    module_state,
    core_builtins,
    mocks,
    inline_waivers,
)


def _scopes(node: ast.AST, prefix: str) -> Iterator[tuple[str, Scope]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Scope):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from _scopes(child, f"{name}.")
        else:
            yield from _scopes(child, prefix)


def _first_line(scope: Scope) -> int:
    return min([scope.lineno, *(d.lineno for d in scope.decorator_list)])


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return _any_broad(caught.elts)
    return caught is None or _last_name(caught) in BROAD


def _any_broad(caught: list[ast.expr]) -> bool:
    return any(_is_broad(c) for c in caught)


def _raises(body: list[ast.stmt]) -> bool:
    for statement in body:
        if isinstance(statement, ast.Raise):
            return True
        if isinstance(statement, Scope):
            continue
        inner = [n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.stmt)]
        handlers = getattr(statement, "handlers", [])
        if _raises(inner) or any(_raises(h.body) for h in handlers):
            return True
    return False


def _called(node: ast.Call) -> str:
    return _last_name(node.func)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return _called(value) in MUTABLE_CALLS
    literal = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
    return isinstance(value, literal)
