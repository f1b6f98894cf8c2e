"""
Columns of tables, and the cells that many kinds have.

Source: pkg/printers/internalversion/printers.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from scheduler.sandbox.devcluster.label_selectors import selector_text
from scheduler.sandbox.devcluster.printing.ages import age

Object = Mapping[str, Any]
Cell = str | int | bool
#: Make a cell of an object, at a time in seconds since 1970.
MakeCell = Callable[[Object, float], Cell | None]


class Column(NamedTuple):
    """A column of a table; only `-o wide` shows it if it is `wide`."""

    title: str
    make_cell: MakeCell
    type: str = "string"
    wide: bool = False

    def definition(self) -> dict[str, Any]:
        """Return the column as a Table defines it."""
        return {
            "name": self.title,
            "type": self.type,
            "format": "name" if self.title == "Name" else "",
            "description": f"{self.title} of the object.",
            "priority": int(self.wide),
        }


def at(obj: Object, path: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value at a dotted path; `default` if it is absent or null."""
    value: Any = obj
    for step in path.split("."):
        value = (value or {}).get(step)
    return default if value is None else value


def field(path: str, default: Cell = "") -> MakeCell:
    """Return the maker of a cell with the value at a path."""
    return lambda obj, _: at(obj, path, default)


def size(*paths: str) -> MakeCell:
    """Return the maker of a cell that counts the elements at some paths."""
    return lambda obj, _: sum(len(at(obj, path, ())) for path in paths)


def ratio(path: str, total_path: str) -> MakeCell:
    """Return the maker of a cell with two values and a slash."""
    return lambda obj, _: f"{at(obj, path, 0)}/{at(obj, total_path, 1)}"


def labels_text(path: str) -> MakeCell:
    """Return the maker of a cell with labels as `a=1,b=2`."""

    def make(obj: Object, _: float) -> Cell:
        labels = sorted(at(obj, path, {}).items())
        return ",".join(f"{key}={value}" for key, value in labels) or "<none>"

    return make


def of_containers(name: str, template: str = "spec.template") -> MakeCell:
    """Return the maker of a cell with a field of each container of a pod template."""
    return lambda obj, _: ",".join(c.get(name, "") for c in at(obj, f"{template}.spec.containers", ()))


def first_of(obj: Object, *paths: str, default: Any = "") -> Any:  # noqa: ANN401 - any JSON value
    """Return the first value at these paths that is not empty."""
    return next((value for path in paths if (value := at(obj, path))), default)


NAME: Final = Column("Name", field("metadata.name"))
AGE: Final = Column("Age", lambda obj, now_s: age(at(obj, "metadata.creationTimestamp"), now_s))
CONTAINERS: Final = (
    Column("Containers", of_containers("name"), wide=True),
    Column("Images", of_containers("image"), wide=True),
)
SELECTOR: Final = Column(
    "Selector", lambda obj, _: selector_text(at(obj, "spec.selector")) or "<none>", wide=True
)
