"""Plain tables: rows, text, and a pandas frame where pandas is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scheduler.tools.explain.formats.table import table_lines

Row = Mapping[str, Any]


class Table(Sequence[Row]):
    """Rows with the same columns, in order. `str()` is an aligned text."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self.columns = tuple(columns)
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - as Sequence's
        return self.rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __str__(self) -> str:
        cells = [["" if row.get(name) is None else row[name] for name in self.columns] for row in self.rows]
        return "\n".join(table_lines([name.upper() for name in self.columns], cells, indent=""))

    __repr__ = __str__

    def frame(self) -> Any:  # noqa: ANN401 - pandas is optional
        """Return the table as a pandas DataFrame. Raises ImportError, which says what to install."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("frame() needs pandas: pip install pandas; rows are in .rows") from error
        return pandas.DataFrame(self.rows, columns=list(self.columns))
