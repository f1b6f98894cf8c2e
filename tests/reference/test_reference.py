"""The reference agrees with the recorded decisions and with the edge cases of the rules."""

import pytest

from tests.cases import affinity_rows, node_rows, spread_rows
from tests.cases.row import Row, differences
from tests.reference.cluster import Cluster

ROWS = [*affinity_rows.ROWS, *spread_rows.ROWS, *node_rows.ROWS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_the_reference_says_what_the_row_says(row: Row) -> None:
    cluster = Cluster()
    for obj in row.objects:
        cluster.apply(obj)
    assert differences(row, cluster.evaluate(row.pod, row.config)) == []
