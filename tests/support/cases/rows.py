"""All edge cases."""

from typing import Final

from tests.support.cases import (
    affinity_rows,
    node_rows,
    spread_rows,
    volume_rows,
)
from tests.support.cases.row import Row

ALL: Final[list[Row]] = [
    *affinity_rows.ROWS,
    *spread_rows.ROWS,
    *node_rows.ROWS,
    *volume_rows.ROWS,
]
