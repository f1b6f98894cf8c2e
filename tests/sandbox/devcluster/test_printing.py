"""Tables say what `kubectl get` prints on a real cluster."""

import pytest

from scheduler.sandbox.devcluster.kinds import KINDS, Kind
from scheduler.sandbox.devcluster.label_selectors import selector_text
from scheduler.sandbox.devcluster.printing import age, find, human_duration, table
from scheduler.sandbox.devcluster.timestamps import rfc3339

BORN = "2026-01-01T00:00:00Z"
NOW_S = 1767225660.0  # a minute later


def named(name, **fields):
    return {"metadata": {"name": name, "creationTimestamp": BORN}, **fields}


def shown(kind, obj, *, wide=False):
    """Return the cells of one object by header, as kubectl prints them."""
    printed = table(Kind("", "v1", kind, "", ""), [obj], NOW_S, metadata={})
    columns = printed["columnDefinitions"]
    return {
        column["name"]: cell
        for column, cell in zip(columns, printed["rows"][0]["cells"], strict=True)
        if wide or not column["priority"]
    }


RUNNING = {"running": {"startedAt": BORN}}


def container(name, *, restarts=0):
    return {"name": name, "ready": True, "restartCount": restarts, "state": RUNNING}


def pod(*, containers=1, deleted=False, **status):
    spec = {"containers": [{"name": f"c{n}"} for n in range(containers)]}
    made = named("p", spec=spec, status={"phase": "Pending", **status})
    if deleted:
        made["metadata"]["deletionTimestamp"] = BORN
    return made


def scheduled(reason):
    return [{"type": "PodScheduled", "status": "False", "reason": reason}]


def running(*containers, **fields):
    return pod(phase="Running", containerStatuses=list(containers), **fields)


@pytest.mark.parametrize(
    ("obj", "cells"),
    [
        pytest.param(pod(conditions=scheduled("SchedulingGated")), "0/1 SchedulingGated 0", id="gated"),
        pytest.param(pod(conditions=scheduled("Unschedulable")), "0/1 Pending 0", id="unschedulable"),
        pytest.param(running(container("c0"), containers=2), "1/2 Running 0", id="one of two is ready"),
        pytest.param(running(container("c0", restarts=2)), "1/1 Running 2", id="restarts are counted"),
        pytest.param(pod(phase="Failed", reason="Evicted"), "0/1 Evicted 0", id="the pod's own reason"),
        pytest.param(pod(phase="Running", deleted=True), "0/1 Terminating 0", id="deleted"),
        pytest.param(pod(phase="Succeeded", deleted=True), "0/1 Completed 0", id="deleted and ended"),
    ],
)
def test_the_cells_of_a_pod(obj, cells):
    assert " ".join(list(shown("Pod", obj).values())[1:4]) == cells


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchExpressions": [{"key": "k", "operator": "Exists"}]}, "k"),
        ({"matchExpressions": [{"key": "k", "operator": "DoesNotExist"}]}, "!k"),
        ({"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["b", "a"]}]}, "k notin (a,b)"),
        (None, ""),
    ],
)
def test_selectors_are_written_as_arguments_of_minus_l(selector, text):
    assert selector_text(selector) == text


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_has_as_many_cells_as_there_are_columns(kind):
    printed = table(kind, [named("x")], NOW_S, metadata={})
    assert len(printed["rows"][0]["cells"]) == len(printed["columnDefinitions"])


# -- paths and ages ------------------------------------------------------------------------------------------


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
        (".spec.hosts[7]", None),
        (".spec.missing.below", None),
        (".spec.size.below", None),
        (r".metadata.labels.a\.b/c", "d"),
        (".metadata.labels['a.b/c']", "d"),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.conditions[?(@.type=='Gone')].status", None),
        (".spec.hosts[*]", ["x", "y"]),
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
        (-5, "0s"), (0, "0s"), (119, "119s"),
        (2 * MINUTE, "2m"), (9 * MINUTE + 59, "9m59s"), (10 * MINUTE + 59, "10m"), (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"), (7 * HOUR + 59 * MINUTE, "7h59m"), (47 * HOUR, "47h"),
        (2 * DAY, "2d"), (7 * DAY + 23 * HOUR, "7d23h"), (729 * DAY, "729d"),
    ],
)  # fmt: skip
def test_durations_have_two_or_three_figures(duration_s, text):
    assert human_duration(duration_s) == text


def test_an_age_counts_from_the_timestamp():
    assert age("2026-01-01T00:00:00Z", 1767225600.0 + 303) == "5m3s"


@pytest.mark.parametrize("timestamp", [None, "", "yesterday", 12])
def test_the_age_of_no_timestamp_is_unknown(timestamp):
    assert age(timestamp, 0.0) == "<unknown>"
