"""Each alert's runbook names metrics and panels that exist, and is tried beside its fault, with its commands."""

from __future__ import annotations

import re

import pytest

from tests.system.monitoring.incident import quick
from tests.system.monitoring.queries import ALERTS, panels
from tests.system.monitoring.rows import ROWS
from tests.system.monitoring.runbooks import PREFIX, command_with, commands, rule_of
from tests.system.monitoring.test_expressions import EXPORTED

EACH_ALERT = pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])


@EACH_ALERT
def test_metrics_paths_and_panels_of_a_runbook_exist(rule):
    """Also where they have no quotes."""
    text = rule["annotations"]["runbook"]
    for name in re.findall(r"\b(?:affinity_scheduler|scheduler|rest_client|leader_election)_\w+", text):
        assert name in EXPORTED
    for alert in re.findall(r"\bAffinityScheduler\w+", text):
        assert rule_of(alert.removeprefix("AffinityScheduler"))
    served = {"/configz", "/readyz", "/metrics", "/statusz", "/flagz"}
    paths = re.findall(r"(?<=[\s`])/(?!debug/api_priority)[a-z][\w/]*", text)
    assert set(paths) <= served
    titles = {panel["title"] for panel in panels()}
    for title in re.findall(r"\bpanels? (What moves pods|[A-Z]\w+(?: (?:and|by|[a-z]\w+))*)", text):
        assert any(title.startswith(known) for known in titles), title


def test_every_alert_is_tried_and_every_command():
    assert {f"{PREFIX}{row.alert}" for row in ROWS} == {rule["alert"] for rule in ALERTS}
    tried = [command_with(row.alert, part) for row in ROWS for part in row.shows]
    left = [words for rule in ALERTS for words in commands(rule) if words not in tried]
    # A remedy, and the command of a real API server, which tests/proof/nights/test_throttled.py runs.
    assert {words[1] for words in left} == {"apply", "get"}
    assert [words for words in left if words[1] == "get" and "--raw" not in words] == []


@EACH_ALERT
def test_a_quick_rule_has_the_thresholds_of_the_rule(rule):
    made = quick(rule, 3.0)
    assert made["expr"].replace("3000ms", "") == re.sub(r"(?<=\[)\w+(?=\])|(?<=offset )\w+", "", rule["expr"])
    assert {**made, "expr": "", "for": ""} == {**rule, "expr": "", "for": ""}
