"""Feature gates that plugins read, with upstream's names and 1.36 defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """
    The feature gates and their values.

    MatchLabelKeysInPodAffinity and MatchLabelKeysInPodTopologySpreadSelectorMerge take effect when pods are created,
    not in a decision; they are here so that one value has all gates of plugins.
    """

    match_label_keys_in_pod_affinity: bool = True
    match_label_keys_in_pod_topology_spread: bool = True
    match_label_keys_in_pod_topology_spread_selector_merge: bool = True
    node_inclusion_policy_in_pod_topology_spread: bool = True
