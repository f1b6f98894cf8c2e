"""The completed configuration reads back as itself."""

import json

import pytest

from scheduler.daemon.settings.loading import default_settings, parse_settings
from scheduler.daemon.settings.writing import as_json, resolved_yaml
from scheduler.engine.model.semantics import Gate, Version, semantics_of
from tests.daemon.settings.configurations import HEAD, one_profile

COMPLETED = {
    "defaults": HEAD,
    "names that look like other things": HEAD
    + "profiles: [{schedulerName: 'yes', percentageOfNodesToScore: 5}, {schedulerName: '1e3'}]",
    "odd numbers": HEAD
    + "clientConnection: {qps: 0.1, burst: 7}\nleaderElection: {leaseDuration: 2562047h47m16.854775807s}",
    "plugins": one_profile("""
            plugins:
              multiPoint: {enabled: [{name: NodePorts, weight: 3}], disabled: [{name: NodeName}]}
              filter: {enabled: [{name: InterPodAffinity}]}
              score: {enabled: [{name: ImageLocality, weight: 20}, {name: NodeAffinity, weight: -4}]}
            """),
}


@pytest.mark.parametrize("text", COMPLETED.values(), ids=COMPLETED)
def test_the_completed_configuration_reads_back_equal(text):
    settings = parse_settings(text, "f")
    again = parse_settings(resolved_yaml(settings), "again")
    assert again == settings
    assert again.notes == ()


def test_remarks_are_comments_at_the_top(snapshot):
    settings = parse_settings(
        one_profile("pluginConfig: [{name: TaintToleration, args: {}}]"),
        "f",
        semantics_of(Version(1, 34), {Gate.POD_LEVEL_RESOURCES: False}),
    )
    lines = resolved_yaml(settings).splitlines()
    remarks = [line for line in lines if line.startswith("#")]
    assert remarks == snapshot
    assert lines[: len(remarks)] == remarks
    assert "# emulatedVersion: 1.34" in remarks
    assert "PodLevelResources=false" in remarks[-1]


def test_configz_has_upstreams_component_and_our_remarks():
    settings = default_settings()
    document = json.loads(as_json(settings))
    assert parse_settings(json.dumps(document["componentconfig"]), "configz") == settings
    assert all(isinstance(each["kind"], str) for each in document.values())
    assert document["affinity-scheduler"]["featureGates"]["PodLevelResources"] is True
