"""Cells of the kinds that charts bring, as upstream words them."""

import pytest

from scheduler.sandbox.devcluster.printing.tables import table
from scheduler.sandbox.devcluster.timestamps import rfc3339

NOW_S = 1_700_000_000.0


def cell(kind, title, **fields):
    """Return the cell in a column of the only row."""
    obj = {"metadata": {"name": "x", **fields.pop("metadata", {})}, **fields}
    printed = table(kind, [obj], NOW_S)
    titles = [column["name"] for column in printed["columnDefinitions"]]
    return printed["rows"][0]["cells"][titles.index(title)]


def ended(name):
    return {"conditions": [{"type": name, "status": "True"}]}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "Running"),
        ({"status": ended("Complete")}, "Complete"),
        ({"status": ended("Failed")}, "Failed"),
        ({"status": ended("Suspended")}, "Suspended"),
        ({"metadata": {"deletionTimestamp": rfc3339(NOW_S)}}, "Terminating"),
    ],
)
def test_the_status_of_a_job(fields, text):
    assert cell("Job", "Status", **fields) == text


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"completions": 3}, "1/3"),
        ({"parallelism": 1}, "1/1"),
        ({"parallelism": 4}, "1/1 of 4"),
    ],
)
def test_the_completions_of_a_job(spec, text):
    assert cell("Job", "Completions", spec=spec, status={"succeeded": 1}) == text


def test_the_duration_of_a_job_ends_with_it():
    began, done = rfc3339(NOW_S - 100), rfc3339(NOW_S - 30)
    assert cell("Job", "Duration") == ""
    assert cell("Job", "Duration", status={"startTime": began}) == "100s"
    assert cell("Job", "Duration", status={"startTime": began, "completionTime": done}) == "70s"


@pytest.mark.parametrize(
    ("kind", "title", "fields", "text"),
    [
        ("CronJob", "Last Schedule", {}, "<none>"),
        ("CronJob", "Last Schedule", {"status": {"lastScheduleTime": rfc3339(NOW_S - 60)}}, "60s"),
        ("CronJob", "Suspend", {"spec": {"suspend": True}}, "True"),
        (
            "HorizontalPodAutoscaler",
            "Targets",
            {"spec": {"metrics": [{"resource": {"name": "cpu", "target": {"averageUtilization": 50}}}]}},
            "cpu: <unknown>/50%",
        ),
        ("HorizontalPodAutoscaler", "Targets", {}, "<none>"),
        ("Ingress", "Hosts", {}, "*"),
        ("Ingress", "Hosts", {"spec": {"rules": [{"host": h} for h in "abcd"]}}, "a,b,c + 1 more..."),
        ("Ingress", "Ports", {"spec": {"tls": [{}]}}, "80, 443"),
        ("NetworkPolicy", "Pod-Selector", {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}, "a=b"),
        ("StorageClass", "AllowVolumeExpansion", {}, False),
        ("CSIDriver", "TokenRequests", {}, "<unset>"),
        ("CSINode", "Drivers", {"spec": {"drivers": [{}, {}]}}, 2),
        (
            "PersistentVolume",
            "Access Modes",
            {"spec": {"accessModes": ["ReadWriteMany", "ReadWriteOnce"]}},
            "RWO,RWX",
        ),
        ("PersistentVolumeClaim", "Capacity", {"status": {"capacity": {"storage": "1Gi"}}}, ""),
    ],
)
def test_cells_are_worded_as_upstream_does(kind, title, fields, text):
    assert cell(kind, title, **fields) == text
