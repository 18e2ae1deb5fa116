"""The ways to break a line of Python, and its position in the file."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import Any, Final

SWAPPED: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
}  # fmt: skip
BOUNDARIES: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
CLEANERS: Final = (
    "cancel", "clear", "close", "disable", "discard", "drop", "end", "forget", "join", "kill",
    "pop", "release", "remove", "restore", "shutdown", "stop", "terminate", "unlink", "unregister",
)  # fmt: skip
"""Calls that clean up, which no test misses at once."""
CLEANING_UP: Final = ("__exit__", "__del__", "close", "_close", "stop", "drain", "_drain", "forget")
Position = tuple[int, int]
"""A line, from 1, and a byte in it, from 0."""


@dataclass(frozen=True)
class Mutation:
    """One line broken in one way.

    Attributes:
        path: The file, from the root of the tree.
        line: Its number, from 1.
        within: The class and function around it, such as ``Ledger.observe``.
        was: The original text.
        becomes: Its replacement.
        marked_line: The line of its statement, before which another statement may be inserted.
        count_before: How often ``was`` occurs earlier in the line.
    """

    path: str
    line: int
    within: str
    was: str
    becomes: str
    marked_line: int
    count_before: int = 0

    def __str__(self) -> str:
        was = " ".join(self.was.split())
        return f"{self.path}:{self.line}: {was}  ->  {self.becomes}"

    def made_in(self, source: str) -> str:
        """The file with this line broken.

        Raises:
            ValueError: The line has changed.
        """
        lines = source.splitlines(keepends=True)
        head, rest = "".join(lines[: self.line - 1]), "".join(lines[self.line - 1 :])
        parts = rest.split(self.was)
        if len(parts) <= self.count_before + 1:
            raise ValueError(f"no longer there: {self}")
        before = self.was.join(parts[: self.count_before + 1])
        return head + before + self.becomes + rest[len(before) + len(self.was) :]


def mutations_of(path: str, source: str, *, subtle: bool) -> list[Mutation]:
    """All mutations of a file, in the order of its lines.

    ``subtle``: only those that are easily missed: boundaries, bounds and clean-up.
    """
    return sorted(_Reader(path, source, subtle).of_body(ast.parse(source)), key=lambda m: m.line)


def drawn(found: Sequence[Mutation], count: int, seed: int) -> list[Mutation]:
    """One mutation each of random lines, from each folder in proportion to its size."""
    lines = [list(ways) for _, ways in groupby(found, key=lambda m: (m.path, m.line))]
    lines.sort(key=lambda ways: (ways[0].path.rpartition("/"), ways[0].line))
    chance = random.Random(seed)
    count = min(count, len(lines))
    edges = [len(lines) * index // count for index in range(count + 1)]
    picks = [chance.randrange(*stratum) for stratum in pairwise(edges)]
    return [chance.choice(lines[pick]) for pick in picks]


def found_again(mutation: Mutation, present: Sequence[Mutation]) -> Mutation | None:
    """The same mutation where its line is now; ``None`` if there is no such line.

    A line is identified by its text, then by its function and file.
    """
    alike = [m for m in present if (m.was, m.becomes) == (mutation.was, mutation.becomes)]

    def nearness(other: Mutation) -> tuple[bool, bool, bool, int]:
        return (
            other.path == mutation.path,
            other.within == mutation.within,
            PurePath(other.path).name == PurePath(mutation.path).name,
            -abs(other.line - mutation.line),
        )

    nearest = max(alike, key=nearness, default=None)
    if nearest is None or not any(nearness(nearest)[:3]):
        return None
    return nearest


class _Reader:
    """Reads one file, statement by statement."""

    def __init__(self, path: str, source: str, subtle: bool) -> None:
        self._path, self._subtle = path, subtle
        self._lines = source.encode().splitlines(keepends=True)
        self._within: tuple[str, ...] = ()
        self._cleans_up = False

    def of_body(self, node: ast.AST) -> Iterator[Mutation]:
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            inside = getattr(node, name, [])
            outer, self._cleans_up = (
                self._cleans_up,
                self._cleans_up or name in ("handlers", "finalbody"),
            )
            for child in inside if isinstance(inside, list) else []:
                yield from self._of_statement(child)
            self._cleans_up = outer

    def _of_statement(self, node: ast.AST) -> Iterator[Mutation]:
        if _is_trivial(node):
            return
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            outer = self._within, self._cleans_up
            self._within = (*self._within, node.name)
            self._cleans_up = node.name in CLEANING_UP
            yield from self.of_body(node)
            self._within, self._cleans_up = outer
            return
        if isinstance(node, ast.stmt):
            yield from self._dropped(node)
            for expression in _expressions(node):
                yield from self._of_expression(expression, node)
        yield from self.of_body(node)

    def _dropped(self, node: ast.stmt) -> Iterator[Mutation]:
        if isinstance(node, ast.Continue | ast.Break | ast.Delete) and self._subtle:
            yield self._mutation(node, "pass", node)
        elif isinstance(node, ast.Return) and not self._subtle:
            if ast.unparse(node) not in ("return", "return None"):
                yield self._mutation(node, "return None", node)
        elif self._within[-1:] == ("__init__",) and isinstance(node, ast.Assign):
            return  # any use of the object notices
        elif _can_be_dropped(node) and (not self._subtle or self._cleans_up or _is_clean_up(node)):
            yield self._mutation(node, "pass", node)
        if isinstance(node, ast.If | ast.While) and not self._subtle:
            yield self._mutation(node.test, f"not ({ast.unparse(node.test)})", node)

    def _of_expression(self, node: ast.AST, statement: ast.stmt) -> Iterator[Mutation]:
        """Of the expression and its parts, except for text."""
        if isinstance(node, ast.JoinedStr | ast.Lambda):
            return
        for replacement in _replacements(node, self._subtle):
            yield self._mutation(node, replacement, statement)
        for child in ast.iter_child_nodes(node):
            yield from self._of_expression(child, statement)

    def _mutation(self, node: ast.AST, becomes: str, statement: ast.stmt) -> Mutation:
        assert isinstance(node, ast.expr | ast.stmt)
        start, end = (
            (node.lineno, node.col_offset),
            (node.end_lineno or 0, node.end_col_offset or 0),
        )
        was = self._text(start, end)
        before = self._text((node.lineno, 0), start)
        within = ".".join(self._within)
        marked = self._first_line_of(statement)
        return Mutation(self._path, node.lineno, within, was, becomes, marked, before.count(was))

    def _first_line_of(self, statement: ast.stmt) -> int:
        """Of an ``elif`` the line of its ``if``: no statement may precede the ``elif``."""
        number = statement.lineno
        indent = b" " * statement.col_offset
        if self._lines[number - 1].startswith(indent + b"elif "):
            while not self._lines[number - 1].startswith(indent + b"if "):
                number -= 1
        return number

    def _text(self, start: Position, end: Position) -> str:
        lines = self._lines[start[0] - 1 : end[0]]
        lines[-1] = lines[-1][: end[1]]
        lines[0] = lines[0][start[1] :]
        return b"".join(lines).decode()


def _is_trivial(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Assert)


def _expressions(node: ast.stmt) -> list[ast.AST]:
    """What a statement computes, without annotations and messages of errors."""
    if isinstance(node, ast.Raise):
        return []
    if isinstance(node, ast.AnnAssign):
        return [node.value] if node.value is not None else []
    children = ast.iter_child_nodes(node)
    return [child for child in children if isinstance(child, ast.expr | ast.withitem)]


def _can_be_dropped(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return isinstance(node, ast.AugAssign | ast.Raise)


def _is_clean_up(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = ast.unparse(call.func).rpartition(".")[2]
    return name.lstrip("_").split("_")[0] in CLEANERS


def _replacements(node: ast.AST, subtle: bool) -> Iterator[str]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        if not subtle or isinstance(node.ops[0], BOUNDARIES):
            swapped = ast.Compare(node.left, [_other(node.ops[0])], node.comparators)
            yield ast.unparse(swapped)
    elif isinstance(node, ast.BoolOp) and not subtle:
        yield f"({ast.unparse(ast.BoolOp(_other(node.op), node.values))})"
    elif isinstance(node, ast.BinOp) and not subtle and type(node.op) in SWAPPED:
        yield f"({ast.unparse(ast.BinOp(node.left, _other(node.op), node.right))})"
    elif isinstance(node, ast.IfExp) and not subtle:
        yield f"({ast.unparse(ast.IfExp(node.test, node.orelse, node.body))})"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield from _other_numbers(node.value, subtle)
    elif subtle and _is_clamp(node):
        assert isinstance(node, ast.Call)
        yield f"({ast.unparse(node.args[1])})"


def _other_numbers(value: object, subtle: bool) -> Iterator[str]:
    """An integer off by one; a float half as large again."""
    if isinstance(value, float):
        yield repr(value * 1.5 or 0.5)
    elif isinstance(value, int):
        yield repr(value + 1)
        if subtle and value > 0:
            yield repr(value - 1)


def _is_clamp(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    return node.func.id in ("min", "max") and len(node.args) == 2 and not starred


def _other(operator: ast.AST) -> Any:
    return SWAPPED[type(operator)]()
