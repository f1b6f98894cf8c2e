"""Every query names exported series and labels; the dashboard is valid for Grafana."""

import re
from itertools import combinations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.daemon.metrics import metrics
from scheduler.daemon.metrics.series import Family
from tests.support.manifest_files import BASE, MANIFESTS, documents, kustomization, one, resources
from tests.support.surface import families
from tests.system.monitoring.queries import (
    ALERTS,
    DASHBOARD,
    FOLDER,
    Query,
    groupings,
    of_alerts,
    of_dashboard,
    panels,
    selections,
)

#: Labels that Prometheus adds to every sample.
TARGET = {"job", "instance"}
QUERIES = [*of_dashboard(), *of_alerts()]


def series_of(family: Family) -> list[str]:
    if family.type != "histogram":
        return [family.name]
    return [f"{family.name}_{part}" for part in ("bucket", "sum", "count")]


def exported() -> dict[str, set[str]]:
    """Return the labels of every series by name: ours as declared, the process's as written."""
    labels = {"up": set(TARGET)}
    for family in families().values():
        for name in series_of(family):
            labels[name] = {*family.labels, *TARGET, *(["le"] if name.endswith("_bucket") else [])}
    for written in text_string_to_metric_families(metrics.Metrics().render().decode()):
        for sample in written.samples:
            labels.setdefault(sample.name, {*sample.labels, *TARGET})
    return labels


EXPORTED = exported()


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.where)
def test_a_query_names_series_and_labels_that_are_exported(query: Query):
    found = selections(query.expression)
    assert found
    for metric, labels in found:
        assert metric in EXPORTED
        assert labels <= EXPORTED[metric], metric
    assert any(groupings(query.expression) <= EXPORTED[metric] for metric, _ in found)


@pytest.mark.parametrize("query", of_alerts(), ids=lambda query: query.where)
def test_alerts_select_this_program_only(query):
    """kube-scheduler exports most of these names too."""
    jobs = re.findall(r'job="affinity-scheduler(?:-enforcer|-webhook)?"', query.expression)
    assert len(jobs) == len(selections(query.expression))


@pytest.mark.parametrize("query", of_dashboard(), ids=lambda query: query.where)
def test_panels_select_the_chosen_job_and_instances(query):
    """The enforcer and the webhook are jobs and instances of their own."""
    chosen = r'job="\$job",instance=~"\$instance"|job=~"\$job\(-(?:enforcer|webhook)\)\?"'
    assert len(re.findall(chosen, query.expression)) == len(selections(query.expression))
    assert "[" not in query.expression.replace("[$__rate_interval]", "").replace('"0[.]', "")


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule):
    assert rule["alert"].startswith("AffinityScheduler")
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    for name in ("summary", "description", "runbook"):
        assert rule["annotations"][name].endswith((".", "'"))
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}


def test_log_lines_named_in_a_runbook_exist():
    source = "".join(path.read_text() for path in (MANIFESTS.parent / "scheduler").rglob("*.py"))
    runbooks = " ".join(rule["annotations"]["runbook"] for rule in ALERTS)
    named = re.findall(r"log line `([^`]+)`", runbooks)
    assert len(named) >= 3
    assert [line for line in named if f'"{line}' not in source] == []


def test_every_family_is_drawn_or_named_among_those_that_are_not():
    drawn = {selection.metric for query in of_dashboard() for selection in selections(query.expression)}
    readme = (MANIFESTS / "README.md").read_text()
    (listed,) = re.findall(r"The dashboard does not draw (.*?)\.\n", readme, re.DOTALL)
    named = set(re.findall(r"`(\w+_\w+)`", listed))
    undrawn = {family.name for family in families().values() if drawn.isdisjoint(series_of(family))}
    assert undrawn == named


def test_the_dashboard_is_found_and_fits_any_grafana():
    (generated,) = kustomization(FOLDER)["configMapGenerator"]
    assert generated["options"]["labels"]["grafana_dashboard"] == "1"
    assert DASHBOARD["uid"] == "affinity-scheduler"
    # Grafana asks for inputs on a manual import; its sidecar cannot answer them.
    assert {"__inputs", "__requires", "id"}.isdisjoint(DASHBOARD)
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])
    for name in ("job", "instance"):
        assert variables[name]["datasource"] == chosen
        assert {each.metric for each in selections(variables[name]["query"]["query"])} - {name} <= set(
            EXPORTED
        )


def test_panels_have_unique_places_and_numbers_and_queries():
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in DASHBOARD["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one_, other in combinations((panel["gridPos"] for panel in DASHBOARD["panels"]), 2):
        beside = one_["x"] + one_["w"] <= other["x"] or other["x"] + other["w"] <= one_["x"]
        below = one_["y"] + one_["h"] <= other["y"] or other["y"] + other["h"] <= one_["y"]
        assert beside or below
    for panel in panels():
        letters = [target["refId"] for target in panel["targets"]]
        assert letters
        assert len(set(letters)) == len(letters)
        assert panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize(
    ("folder", "job"),
    [
        (BASE, "affinity-scheduler"),
        (MANIFESTS / "enforcer", "affinity-scheduler-enforcer"),
        (MANIFESTS / "webhook", "affinity-scheduler-webhook"),
    ],
    ids=["scheduler", "enforcer", "webhook"],
)
def test_the_monitor_finds_every_service_and_gives_it_the_job_that_alerts_select(folder, job):
    (monitor,) = documents(FOLDER / "service-monitor.yaml")
    service = one(resources(folder), "Service")
    labels = service["metadata"]["labels"]
    (asked,) = monitor["spec"]["selector"]["matchExpressions"]
    assert asked["operator"] == "In"
    assert labels[asked["key"]] in asked["values"]
    assert labels[monitor["spec"]["jobLabel"]] == job
    placed = service["metadata"].get("namespace") or kustomization(folder).get("namespace") or "kube-system"
    assert placed in monitor["spec"]["namespaceSelector"]["matchNames"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
