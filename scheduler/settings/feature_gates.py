"""
Feature gates that change decisions, with upstream's names and defaults.

Unlike upstream, gates that are generally available can be switched off too: both variants are built and tested.
Source: pkg/features/kube_features.go (kubernetes 1.36).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from scheduler.settings.problems import Problems, shown

DEFAULT_FEATURE_GATES: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "MatchLabelKeysInPodAffinity": True,
        "MatchLabelKeysInPodTopologySpread": True,
        "MatchLabelKeysInPodTopologySpreadSelectorMerge": True,
        "NodeInclusionPolicyInPodTopologySpread": True,
        "SchedulerAsyncPreemption": True,
    }
)
#: The values that Go's strconv.ParseBool reads.
BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
FLAG: Final = "--feature-gates"


def parse_feature_gates(text: str) -> Mapping[str, bool]:
    """
    Return the state of every gate after `text`, "A=true,B=false"; gates not named keep their defaults.

    Of several values for one gate the last counts, as upstream.

    Raises:
        InvalidSettingsError: naming each unknown gate and each value that is no boolean.
    """
    problems = Problems(FLAG)
    gates = dict(DEFAULT_FEATURE_GATES)
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if name not in gates:
            problems.found(shown(name), "an unrecognized feature gate", f"one of {', '.join(gates)}")
        elif not equals:
            problems.found(shown(name), "no value", f"{name}=true or {name}=false")
        elif value not in BOOLEANS:
            problems.found(shown(name), shown(value), "true or false")
        else:
            gates[name] = BOOLEANS[value]
    problems.raise_if_any()
    return MappingProxyType(gates)
