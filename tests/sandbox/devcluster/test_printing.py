"""Tables say what `kubectl get` prints on a real cluster; test_kubectl.py shows most columns."""

import pytest

from scheduler.sandbox.devcluster.kinds import KINDS, POD
from scheduler.sandbox.devcluster.printing import age, find, human_duration, table

BORN = "2026-01-01T00:00:00Z"
BORN_S = 1767225600.0
GATED = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
ONE = [{"ready": True, "restartCount": 2}]


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        pytest.param({"phase": "Pending", "conditions": GATED}, "0/2 SchedulingGated 0", id="gated"),
        pytest.param(
            {"phase": "Running", "containerStatuses": ONE}, "1/2 Running 2", id="one of two is ready"
        ),
        pytest.param({"phase": "Failed", "reason": "Evicted"}, "0/2 Evicted 0", id="the pod's own reason"),
        pytest.param({"phase": "Running", "deleted": True}, "0/2 Terminating 0", id="deleted"),
        pytest.param({"phase": "Succeeded", "deleted": True}, "0/2 Completed 0", id="deleted and ended"),
    ],
)
def test_the_cells_of_a_pod(status, cells):
    metadata = {"name": "p", **({"deletionTimestamp": BORN} if "deleted" in status else {})}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}, "status": status}
    (row,) = table(POD, [pod], BORN_S, metadata={})["rows"]
    assert " ".join(row["cells"][1:4]) == cells


def test_every_row_has_as_many_cells_as_there_are_columns():
    for kind in KINDS:
        printed = table(kind, [{"metadata": {"name": "x"}}], BORN_S, metadata={})
        assert len(printed["rows"][0]["cells"]) == len(printed["columnDefinitions"]), kind


# -- paths and ages ------------------------------------------------------------------------------------------


OBJ = {
    "metadata": {"labels": {"a.b/c": "d"}},
    "spec": {"size": 3, "on": False, "hosts": ["x", "y"]},
    "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".spec.size", 3),
        (".spec.on", False),
        (".spec.hosts[1]", "y"),
        (".spec.hosts[7]", None),
        (".spec.missing.below", None),
        (".spec.size.below", None),
        (r".metadata.labels.a\.b/c", "d"),
        (".metadata.labels['a.b/c']", "d"),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.conditions[?(@.type=='Gone')].status", None),
        (".status.conditions[*].type", ["Other", "Ready"]),
        ("spec.size", None),
    ],
)
def test_a_path_finds_a_value_or_none(path, value):
    assert find(OBJ, path) == value


MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (-5, "0s"), (119, "119s"), (2 * MINUTE, "2m"), (9 * MINUTE + 59, "9m59s"), (179 * MINUTE, "179m"),
        (7 * HOUR + 59 * MINUTE, "7h59m"), (47 * HOUR, "47h"), (2 * DAY, "2d"), (7 * DAY + 23 * HOUR, "7d23h"),
        (729 * DAY, "729d"),
    ],
)  # fmt: skip
def test_durations_have_two_or_three_figures(duration_s, text):
    assert human_duration(duration_s) == age(BORN, BORN_S + duration_s) == text


def test_the_age_of_no_timestamp_is_unknown():
    assert {age(timestamp, 0.0) for timestamp in (None, "", "yesterday", 12)} == {"<unknown>"}
