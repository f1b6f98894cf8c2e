"""
The mutants of a module: each changes one comparison, one constant or one branch of it.

Left out is what no test can or should notice: annotations, decorators, docstrings, asserts, exceptions that are raised,
branches and variables for type checkers, the texts of audits, which only a defect brings out, and the last unit of
bounds: one entry more in a cache or one pod more in a piece of work changes no answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

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
_OPERATORS: Final = (ast.operator, ast.cmpop, ast.boolop)
#: What changes the answer at equality alone, by the operator that it replaces.
_BORDERS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
#: Fields that are not mutated, by the type of their node; a type without fields is left out as a whole.
_LEFT_OUT: Final[dict[type[ast.AST], frozenset[str]]] = {
    ast.FunctionDef: frozenset({"decorator_list", "returns"}),
    ast.AsyncFunctionDef: frozenset({"decorator_list", "returns"}),
    ast.ClassDef: frozenset({"decorator_list", "bases"}),
    ast.AnnAssign: frozenset({"annotation", "target"}),
    ast.arg: frozenset({"annotation"}),
    ast.FormattedValue: frozenset({"format_spec"}),
    ast.Assert: frozenset(),
    ast.Raise: frozenset(),
}
#: The type checker refuses any other text.
_TYPES_OF_EVENT: Final = {"Normal": "Warning", "Warning": "Normal"}
#: Words in the names of constants that are bounds.
_BOUNDS: Final = frozenset(
    ("BATCH", "CAPACITY", "COST", "ENTRY", "FEW", "MANY", "MAX", "MEMOIZED", "MOST", "ONCE", "PART", "PARTS", "PIECE",
     "REMEMBERED", "SIZE", "UNITS", "UNLIMITED")
)  # fmt: skip
#: Modules whose texts are left out.
_WITHOUT_TEXTS: Final = ("audit.py",)


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    One change of a module.

    Attributes:
        path: of the module, from the root of the repository.
        number: of the change in the module.
        line: of the changed expression.
        code_line: of its code: the line, or its statement's first, as a constant may be loaded there.
        where: the qualified name of the function or class around it; empty at the top of the module.
        before, after: the changed expression or statement.
    """

    path: str
    number: int
    line: int
    code_line: int
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
    lines = lines_of(compile(tree, path, "exec", dont_inherit=True))
    has_texts = Path(path).name not in _WITHOUT_TEXTS
    return [
        Mutant(
            path, number, change.line, change.line if change.line in lines else change.first_line,
            change.where, change.before, change.after,
        )
        for number, change in enumerate(_changes(tree, "", 0))
        if has_texts or not change.is_of_text
    ]  # fmt: skip


def lines_of(code: CodeType) -> set[int]:
    """Return the lines that have code, of the module or function and all within."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {line for _, _, line in code.co_lines() if line}.union(*map(lines_of, inner))


def mutated(root: Path, mutant: Mutant) -> CodeType:
    """Return the compiled module with the change."""
    tree = ast.parse((root / mutant.path).read_text())
    change = next(each for number, each in enumerate(_changes(tree, "", 0)) if number == mutant.number)
    change.apply()
    return compile(ast.fix_missing_locations(tree), str(root / mutant.path), "exec", dont_inherit=True)


class _Change:
    """The change of a field of a node, or of one item of the field's list, to another node."""

    def __init__(
        self, node: ast.AST, field: str, index: int | None, new: ast.AST, *, where: str, first_line: int
    ) -> None:
        self._node, self._field, self._index, self._new = node, field, index, new
        old = getattr(node, field) if index is None else getattr(node, field)[index]
        shown: Any = node if isinstance(old, _OPERATORS) or _is_bare(node, old) else old
        self.line, self.where, self.before = shown.lineno, where, _text(shown)
        self.first_line = first_line
        self.is_of_text = isinstance(old, ast.Constant) and isinstance(old.value, str)
        self.apply()
        self.after = _text(node if shown is node else new)
        self._put(old)

    def apply(self) -> None:
        """Make the change."""
        self._put(self._new)

    def _put(self, new: ast.AST) -> None:
        if self._index is None:
            setattr(self._node, self._field, new)
        else:
            getattr(self._node, self._field)[self._index] = new


def _is_bare(node: ast.AST, old: ast.AST) -> bool:
    """Return whether the old value says nothing without the comparison or assignment around it."""
    around = ast.Compare | ast.Assign | ast.AnnAssign | ast.AugAssign
    return isinstance(old, ast.Constant) and isinstance(node, around)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return repr(node.value)
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else text[:97] + "..."


def _changes(node: ast.AST, where: str, first_line: int) -> Iterator[_Change]:
    """Yield the changes below the node, depth first; `first_line` is that of the statement around it."""
    left_out = _LEFT_OUT.get(type(node))
    if left_out == frozenset() or _is_for_type_checkers(node):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    if isinstance(node, ast.stmt):
        first_line = node.lineno
    for field, value in ast.iter_fields(node):
        if left_out and field in left_out:
            continue
        items = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in items:
            if not isinstance(child, ast.AST) or _is_docstring(child) or _is_slots(child) or _is_bound(child):
                continue
            for new in _replacements(node, field, child):
                yield _Change(node, field, index, new, where=where, first_line=first_line)
            yield from _changes(child, where, first_line)


def _replacements(parent: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in the node's place in a mutant."""
    border = _BORDERS.get(type(node)) if isinstance(parent, ast.Compare) and _has_bound(parent) else None
    for swap in _SWAPS.get(type(node), ()):
        if swap is not border:
            yield swap()
    match node:
        case ast.Constant(bool(value)):
            yield ast.copy_location(ast.Constant(not value), node)
        case ast.Constant(int(value) | float(value)):
            yield ast.copy_location(ast.Constant(value + 1), node)
        case ast.Constant(str(value)):
            yield ast.copy_location(ast.Constant(_TYPES_OF_EVENT.get(value, f"XX{value}")), node)
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


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_slots(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__slots__", "__all__")


def _is_for_type_checkers(node: ast.AST) -> bool:
    """Return whether the node is a branch for type checkers, or makes a type variable."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("TypeVar", "ParamSpec")
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _is_bound(node: ast.AST) -> bool:
    """Return whether the statement says how large a bound is."""
    match node:
        case (
            ast.AnnAssign(target=ast.Name(name), value=ast.Constant(int() | float()) | ast.BinOp())
            | ast.Assign(targets=[ast.Name(name)], value=ast.Constant(int() | float()) | ast.BinOp())
        ):
            return _is_name_of_bound(name)
        case ast.keyword("maxlen" | "maxsize"):
            return True
        case _:
            return False


def _has_bound(comparison: ast.Compare) -> bool:
    sides = (comparison.left, *comparison.comparators)
    return any(isinstance(node, ast.Name) and _is_name_of_bound(node.id) for node in sides)


def _is_name_of_bound(name: str) -> bool:
    """Return whether it is a constant that is a bound; a duration is a rule."""
    return name.isupper() and not name.endswith("_S") and not _BOUNDS.isdisjoint(name.split("_"))
