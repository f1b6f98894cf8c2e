"""The JSON paths of printer columns."""

import pytest

from scheduler.sandbox.devcluster.kinds import PrinterColumn
from scheduler.sandbox.devcluster.printing.json_paths import find
from scheduler.sandbox.devcluster.printing.tables import table
from scheduler.sandbox.devcluster.timestamps import rfc3339

NOW_S = 1_700_000_000.0
OBJ = {
    "metadata": {"name": "o", "labels": {"a.b/c": "d"}, "creationTimestamp": rfc3339(NOW_S - 90)},
    "spec": {"size": 3, "on": False, "hosts": ["x", "y"], "parts": {"p": 1}},
    "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".spec.size", 3),
        (".spec.on", False),
        (".spec.hosts[1]", "y"),
        (".spec.hosts[-1]", "y"),
        (".spec.hosts[7]", None),
        (".spec.missing.below", None),
        (".spec.size.below", None),
        (r".metadata.labels.a\.b/c", "d"),
        (".metadata.labels['a.b/c']", "d"),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.conditions[?(@.type=='Gone')].status", None),
        (".spec.hosts[*]", None),
        ("spec.size", None),
    ],
)
def test_a_path_finds_a_value_or_none(path, value):
    assert find(OBJ, path) == value


def test_custom_columns_print_what_they_find():
    columns = [
        PrinterColumn("Size", "integer", ".spec.size", wide=False),
        PrinterColumn("Age", "date", ".metadata.creationTimestamp", wide=False),
        PrinterColumn("Parts", "string", ".spec.parts", wide=True),
        PrinterColumn("Missing", "string", ".spec.missing", wide=True),
    ]
    # A kind that is built in has the same name.
    printed = table("Service", [OBJ], NOW_S, printer_columns=columns)
    assert [row["cells"] for row in printed["rows"]] == [["o", 3, "90s", '{"p":1}', None]]
    assert [one["priority"] for one in printed["columnDefinitions"]] == [0, 0, 0, 1, 1]
