"""
The mutants of a module: each changes one comparison, one constant or one branch of it.

Left out is what no test can or should notice: annotations, decorators, docstrings, asserts, exceptions that are raised,
branches and variables for type checkers, the texts of audits, which only a defect brings out, estimates of memory, and
the last unit of bounds: one entry more in a cache or one pod more in a piece of work changes no answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Final

#: Of a comparison the first changes the answer at equality alone.
_SWAPS: Final[dict[type[ast.AST], tuple[type[ast.AST], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    # Masks are joined by these, which are their branches.
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
}
#: Fields of nodes that are not mutated.
_FIELDS: Final = ("annotation", "bases", "decorator_list", "format_spec", "returns")
#: Arguments that are bounds, or refuse what type checker and audits do.
_KEYWORDS: Final = ("frozen", "maxlen", "maxsize", "strict")
#: Functions that return what an audit says, or an estimate of memory.
_FUNCTIONS: Final = ("differences", "nbytes", "wrongly_assumed")
#: Words in the names of constants that are bounds.
_BOUNDS: Final = frozenset(
    ("BATCH", "CAPACITY", "COST", "ENTRY", "FEW", "MANY", "MAX", "MEMOIZED", "MOST", "ONCE", "PART", "PARTS", "PIECE",
     "REMEMBERED", "SIZE", "UNITS", "UNLIMITED")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    One change of a module.

    Attributes:
        path: of the module, from the root of the repository.
        number: of the change in the module.
        line: of the changed expression.
        first_line: of its statement, where a constant may be loaded.
        where: the qualified name of the function or class around it; empty at the top of the module.
        before, after: the changed expression or statement.
    """

    path: str
    number: int
    line: int
    first_line: int
    where: str
    before: str
    after: str

    @property
    def name(self) -> str:
        """Return what `--only` takes."""
        return f"{self.path}#{self.number}"

    @property
    def change(self) -> str:
        """Return the function and the change, without the line."""
        return f"{self.where}: {self.before}  ->  {self.after}"

    def __str__(self) -> str:
        place = f" in {self.where}" if self.where else ""
        return f"{self.path}:{self.line}{place}: {self.before}  ->  {self.after}"


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Return all mutants of the module."""
    tree = ast.parse((root / path).read_text())
    has_texts = Path(path).name != "audit.py"
    found = []
    for number, change in enumerate(_changes(tree, "", 0)):
        if has_texts or not change.is_of_text:
            shown = change.shown
            before = _text(shown)
            old = change.put(change.new)
            after = _text(shown if shown is change.node else change.new)
            change.put(old)
            found.append(Mutant(path, number, shown.lineno, change.first_line, change.where, before, after))
    return found


def mutated(root: Path, mutant: Mutant) -> CodeType:
    """Return the compiled module with the change."""
    tree = ast.parse((root / mutant.path).read_text())
    change = next(each for number, each in enumerate(_changes(tree, "", 0)) if number == mutant.number)
    change.put(change.new)
    return compile(ast.fix_missing_locations(tree), str(root / mutant.path), "exec", dont_inherit=True)


@dataclass(frozen=True)
class _Change:
    """The change of a field of a node, or of one item of the field's list, to another node."""

    node: ast.expr | ast.stmt
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST
    where: str
    first_line: int

    @property
    def is_of_text(self) -> bool:
        return isinstance(self.old, ast.Constant) and isinstance(self.old.value, str)

    @property
    def shown(self) -> ast.expr | ast.stmt:
        """Return the old value, or the node around it where the value alone says nothing."""
        around = ast.Compare | ast.Assign | ast.AnnAssign | ast.AugAssign
        is_bare = isinstance(self.old, ast.Constant) and isinstance(self.node, around)
        return self.old if isinstance(self.old, ast.expr | ast.stmt) and not is_bare else self.node

    def put(self, new: ast.AST) -> ast.AST:
        """Put the new value into its place, and return the one that was there."""
        if self.index is None:
            setattr(self.node, self.field, new)
        else:
            getattr(self.node, self.field)[self.index] = new
        return self.old


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return repr(node.value)
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else text[:97] + "..."


def _changes(node: ast.AST, where: str, first_line: int) -> Iterator[_Change]:
    """Yield the changes below the node, depth first; `first_line` is that of the statement around it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    if isinstance(node, ast.stmt):
        first_line = node.lineno
    for field, value in ast.iter_fields(node):
        if field in _FIELDS:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not _is_left_out(child):
                for new in _replacements(node, field, child):
                    yield _Change(node, field, index, child, new, where, first_line)  # type: ignore[arg-type]
                yield from _changes(child, where, first_line)


def _is_left_out(node: ast.AST) -> bool:
    """Return whether nothing of the node is mutated."""
    match node:
        case ast.Assert() | ast.Raise() | ast.Expr(ast.Constant()):
            return True
        case ast.FunctionDef(name):
            return name in _FUNCTIONS
        case ast.Call(ast.Name("TypeVar" | "ParamSpec")) | ast.If(ast.Name("TYPE_CHECKING")):
            return True
        case ast.keyword(name):
            return name in _KEYWORDS
        case (
            ast.AnnAssign(target=ast.Name(name), value=ast.Constant(int() | float()) | ast.BinOp())
            | ast.Assign(targets=[ast.Name(name)], value=ast.Constant(int() | float()) | ast.BinOp())
        ):
            return _is_bound(name)
        case _:
            return False


def _is_bound(name: str) -> bool:
    """Return whether it is the name of a constant that is a bound; a duration is a rule."""
    return name.isupper() and not name.endswith("_S") and not _BOUNDS.isdisjoint(name.split("_"))


def _replacements(parent: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in the node's place in a mutant."""
    swaps = _SWAPS.get(type(node), ())
    if len(swaps) > 1 and isinstance(parent, ast.Compare):
        sides = (parent.left, *parent.comparators)
        if any(isinstance(side, ast.Name) and _is_bound(side.id) for side in sides):
            swaps = swaps[1:]
    yield from (swap() for swap in swaps)
    match node:
        case ast.Constant(bool(value)):
            yield ast.copy_location(ast.Constant(not value), node)
        case ast.Constant(int(value) | float(value)):
            yield ast.copy_location(ast.Constant(value + 1), node)
        case ast.Constant(str(value)):
            yield ast.copy_location(ast.Constant(f"XX{value}"), node)
        case ast.Break():
            yield ast.copy_location(ast.Continue(), node)
        case ast.Continue():
            yield ast.copy_location(ast.Break(), node)
        case ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript() | ast.NamedExpr():
            if _is_condition(parent, field):
                yield ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


def _is_condition(parent: ast.AST, field: str) -> bool:
    """Return whether the truth of the field's value decides what happens."""
    match parent:
        case ast.If() | ast.While() | ast.IfExp():
            return field == "test"
        case ast.comprehension():
            return field == "ifs"
        case ast.match_case():
            return field == "guard"
        case ast.UnaryOp(ast.Not()):
            return True
        case _:
            return False
