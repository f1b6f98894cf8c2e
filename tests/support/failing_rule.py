"""A rule of one's own that fails, and a configuration that switches it on."""

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
