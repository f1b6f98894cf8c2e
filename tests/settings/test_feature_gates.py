"""The --feature-gates flag."""

import pytest

from scheduler.model.semantics import DEFAULT_SEMANTICS, Gate, semantics_of
from scheduler.settings.feature_gates import parse_feature_gates
from scheduler.settings.problems import InvalidSettingsError

AFFINITY = Gate.MATCH_LABEL_KEYS_IN_POD_AFFINITY
SPREAD = Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD
KNOWN = (
    "MatchLabelKeysInPodAffinity, MatchLabelKeysInPodTopologySpread, "
    "MatchLabelKeysInPodTopologySpreadSelectorMerge, NodeInclusionPolicyInPodTopologySpread, "
    "PodLevelResources, SchedulerAsyncPreemption, SchedulerPopFromBackoffQ"
)


GATES = {
    "nothing": ("", {}),
    "one off": (f"{AFFINITY}=false", {AFFINITY: False}),
    "two off": (f"{AFFINITY}=false,{SPREAD}=F", {AFFINITY: False, SPREAD: False}),
    "spaces and a stray comma": (f" {AFFINITY} = false , ", {AFFINITY: False}),
    "the last counts": (f"{AFFINITY}=0,{AFFINITY}=1", {}),
}


@pytest.mark.parametrize(("text", "changed"), GATES.values(), ids=GATES)
def test_gates_not_named_keep_upstreams_defaults(text, changed):
    assert parse_feature_gates(text) == semantics_of(DEFAULT_SEMANTICS.version, changed)


def test_every_mistake_is_named():
    with pytest.raises(InvalidSettingsError) as caught:
        parse_feature_gates(f"Foo=true,{AFFINITY}=maybe,{SPREAD}")
    assert caught.value.lines == (
        f'--feature-gates: "Foo": found an unrecognized feature gate, expected one of {KNOWN}',
        f'--feature-gates: "{AFFINITY}": found "maybe", expected true or false',
        f'--feature-gates: "{SPREAD}": found no value, expected {SPREAD}=true or {SPREAD}=false',
    )
