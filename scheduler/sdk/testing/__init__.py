"""
Tries plugins: in tests, and in a notebook on a snapshot of production.

    from affinity_scheduler.testing import Cluster, PluginTests, make_node, make_pod

`Cluster` decides, explains and simulates as the scheduler does, in memory. `PluginTests` are ready tests that any
plugin is put through. pytest finds the fixture `devcluster` by itself: an embedded API server and a scheduler.
"""

from scheduler.sdk.testing.cluster import Cluster
from scheduler.sdk.testing.decisions import Decision, Explained, Simulated, Table
from scheduler.sdk.testing.objects import make_node, make_pod
from scheduler.sdk.testing.plugin_tests import PluginTests

__all__ = [
    "Cluster",
    "Decision",
    "Explained",
    "PluginTests",
    "Simulated",
    "Table",
    "make_node",
    "make_pod",
]
