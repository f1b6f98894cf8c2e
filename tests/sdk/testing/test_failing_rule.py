"""A rule that fails in a running scheduler: each pod's message names it, and other pods are placed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduler.sdk.testing import make_node, make_pod

if TYPE_CHECKING:
    from scheduler.sdk.testing.devcluster import DevClusterFixture

RULE = """
from scheduler.sdk.plugin import NodeByNode


class Broken(NodeByNode):
    name = "Broken"
    only_pods_with_label = "team"

    def fits(self, pod, node):
        return pod.labels["tem"] == "blue"
"""
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: -1}
profiles:
  - schedulerName: affinity-scheduler
    plugins: {multiPoint: {enabled: [{name: Broken}]}}
"""


@pytest.mark.slow
def test_a_rule_that_fails_is_named_and_fails_its_pods_alone(devcluster: DevClusterFixture, tmp_path: Path):
    (tmp_path / "broken.py").write_text(RULE)
    (tmp_path / "config.yaml").write_text(CONFIG)
    devcluster.apply(make_node("a"))
    devcluster.run_scheduler(
        "--plugins", str(tmp_path / "broken.py"), "--config", str(tmp_path / "config.yaml")
    )
    devcluster.apply(make_pod("first", labels={"team": "blue"}))
    failure = "running PreFilter plugin \"Broken\": KeyError: 'tem' (broken.py, line 10)"
    assert devcluster.refusal_of("first") == failure
    devcluster.apply(*(make_pod(f"pod-{number}", labels={"team": "blue"}) for number in range(12)))
    devcluster.apply(make_pod("waits", labels={"team": "blue"}), make_pod("other"))
    assert devcluster.refusal_of("waits") == failure
    assert devcluster.node_of("other") == "a"
