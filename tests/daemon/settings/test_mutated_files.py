"""Any file is read, or refused with a message; any text: see `tests.proof.fuzz`."""

import copy
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.settings.loading import parse_settings
from scheduler.daemon.settings.problems import InvalidSettingsError
from scheduler.daemon.settings.writing import resolved_yaml
from tests.daemon.settings.configurations import HEAD

FULL: dict[str, Any] = yaml.safe_load(
    HEAD
    + """
parallelism: 4
leaderElection: {leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s, resourceLock: leases}
clientConnection: {kubeconfig: k, qps: 2.5, burst: 3}
percentageOfNodesToScore: 50
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 2
profiles:
- schedulerName: a
  percentageOfNodesToScore: 100
  plugins:
    multiPoint: {enabled: [{name: NodeName, weight: 2}], disabled: [{name: NodePorts}]}
    filter: {enabled: [{name: NodePorts}], disabled: [{name: '*'}]}
    score: {enabled: [{name: ImageLocality, weight: 5}]}
  pluginConfig:
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 2, ignorePreferredTermsOfExistingPods: true}}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: ['1']}]}]
        preferredDuringSchedulingIgnoredDuringExecution:
        - {weight: 1, preference: {matchFields: [{key: metadata.name, operator: In, values: [n]}]}}
  - name: NodeResourcesFit
    args:
      ignoredResources: [a/b]
      ignoredResourceGroups: [c]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 2}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 1}, {utilization: 9, score: 2}]}
  - {name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu, weight: 1}]}}
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}
  - {name: DynamicResources, args: {filterTimeout: 1s, bindingTimeout: 2s, preemptForDevices: false}}
  - {name: VolumeBinding, args: {bindTimeoutSeconds: 5}}
  - {name: DefaultPreemption, args: {minCandidateNodesPercentage: 1, minCandidateNodesAbsolute: 1}}
- schedulerName: b
extenders: []
"""
)

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        ["*", "VolumeBinding", "PrioritySort", "NodeName", "System", "-1s", "a/b/c", "9" * 40, "\u0661", ""]
    ),
    st.builds(list),
    st.builds(dict),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["name", "enabled", "x"]), st.just(1), max_size=2),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) inside `value`."""
    if isinstance(value, dict):
        return [place for key, inner in value.items() for place in [(value, key), *places(inner)]]
    if isinstance(value, list):
        return [place for index, inner in enumerate(value) for place in [(value, index), *places(inner)]]
    return []


def test_the_unmutated_file_is_read():
    resolved = parse_settings(yaml.safe_dump(FULL), "f")
    assert parse_settings(resolved_yaml(resolved), "again") == resolved


@settings(max_examples=40)
@given(st.data())
def test_a_file_with_odd_values_is_read_or_refused(data):
    document = copy.deepcopy(FULL)
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(document)))
        match data.draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                container[key] = data.draw(ODD)
            case "remove":
                del container[key]
            case "add" if isinstance(container, list):
                container.append(
                    copy.deepcopy(container[key]) if data.draw(st.booleans()) else data.draw(ODD)
                )
            case _:
                container[data.draw(st.text(max_size=3))] = data.draw(ODD)
    try:
        resolved = parse_settings(yaml.safe_dump(document), "f")
    except InvalidSettingsError as error:
        assert error.lines
        assert all(line.startswith("f: ") and line.isprintable() for line in error.lines)
    else:
        assert parse_settings(resolved_yaml(resolved), "again") == resolved
