"""Each alert's runbook names commands, metrics and panels that exist, and is tried beside its fault."""

from __future__ import annotations

import re

import pytest

from scheduler.cli.main import _parse
from scheduler.daemon.settings.loading import default_settings
from scheduler.sandbox.devcluster.kinds import kind_of
from tests.support import accounts
from tests.support.manifest_files import MANIFESTS, resources
from tests.system.monitoring.incident import quick
from tests.system.monitoring.queries import ALERTS, panels
from tests.system.monitoring.rows import ROWS
from tests.system.monitoring.runbooks import PREFIX, commands, rule_of
from tests.system.monitoring.test_expressions import EXPORTED

EACH_ALERT = pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
#: Of kubectl's verbs, those that change nothing or repair the manifests, and their flags that a runbook may have.
_FLAGS = {
    "apply": {"-k"},
    "get": {"-A", "-l", "-o", "-n", "--field-selector", "--raw"},
    "logs": {"-l", "-n", "--previous", "--tail"},
    "describe": {"-l", "-n"},
    "auth": {"--as", "--list", "-n"},
    "top": {"-l", "-n"},
}
#: Kinds that a runbook reads, as kubectl's verbs take them.
_KINDS = {"pods": "v1/Pod", "events": "v1/Event", "lease": "coordination.k8s.io/v1/Lease"}
_KINDS["leases"] = _KINDS["lease"]
_HAS_VALUE = {"-n", "-l", "-o", "-k", "--field-selector", "--raw"}


@EACH_ALERT
def test_a_runbook_has_a_command(rule):
    assert commands(rule)


@EACH_ALERT
def test_the_commands_of_this_program_are_accepted(rule):
    """With all flags; a refused one ends the program."""
    for words in commands(rule):
        if words[:2] == ["kubectl", "affinity"]:
            words = ["affinity-scheduler", *words[2:]]
        if words[0] == "affinity-scheduler":
            _parse(words[1:])


@EACH_ALERT
def test_the_commands_of_kubectl_have_verbs_flags_and_kinds_that_exist(rule):
    """And name objects of the manifests."""
    for words in commands(rule):
        if words[0] == "kubectl" and words[1] != "affinity":
            _check_kubectl(words[1:])


def _check_kubectl(words: list[str]) -> None:
    flags, arguments = {}, []
    rest = iter(words)
    for word in rest:
        name, _, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not word.startswith("-"):
            arguments.append(word)
        else:
            flags[name] = next(rest) if name in _HAS_VALUE and not value else value
    verb, *named = arguments
    assert set(flags) <= _FLAGS[verb]
    if verb == "get" and "--raw" not in flags:
        group, _, kind = _KINDS[named[0]].rpartition("/")
        assert kind_of(group, kind) is not None
    if verb == "apply":
        assert f"kubectl apply -k {flags['-k']}" in (MANIFESTS / "README.md").read_text()
    if verb == "auth":
        assert named[0] == "can-i"
        assert flags["--as"] == accounts.COMPONENTS["scheduler"].user
    if "-l" in flags:
        components = {path: resources(MANIFESTS / path) for path in ("base", "enforcer", "webhook")}
        label, _, value = flags["-l"].partition("=")
        (deployment,) = (
            each
            for objects in components.values()
            for each in objects
            if each["kind"] == "Deployment" and each["spec"]["selector"]["matchLabels"].get(label) == value
        )
        namespace = flags.get("-n", "-A" if "-A" in flags else "")
        assert namespace in (deployment["metadata"].get("namespace") or "kube-system", "-A")
    if named[:1] == ["lease"]:
        assert named[1] == default_settings().configuration.leader_election.resource_name


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


def test_every_alert_is_tried():
    assert {f"{PREFIX}{row.alert}" for row in ROWS} == {rule["alert"] for rule in ALERTS}


@EACH_ALERT
def test_a_quick_rule_has_the_thresholds_of_the_rule(rule):
    made = quick(rule, 3.0)
    assert made["expr"].replace("3000ms", "") == re.sub(r"(?<=\[)\w+(?=\])|(?<=offset )\w+", "", rule["expr"])
    assert {**made, "expr": "", "for": ""} == {**rule, "expr": "", "for": ""}
