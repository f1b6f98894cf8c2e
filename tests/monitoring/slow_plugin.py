"""`python -m tests.monitoring.slow_plugin run ...`: affinity-scheduler with a defect, a slow InterPodAffinity."""

import sys
import time

from scheduler.cli.main import main
from scheduler.framework.interface import PodContext, PreFiltered
from scheduler.plugins.inter_pod_affinity.plugin import InterPodAffinity
from scheduler.state.cluster_view import ClusterView

#: Above the objective of 100 ms.
_TAKES_S = 0.15
_real = InterPodAffinity.prefilter


def _slow(plugin: InterPodAffinity, context: PodContext, view: ClusterView) -> PreFiltered:
    time.sleep(_TAKES_S)
    return _real(plugin, context, view)


if __name__ == "__main__":
    setattr(InterPodAffinity, "prefilter", _slow)  # noqa: B010 - a method cannot be assigned
    sys.exit(main(sys.argv[1:]))
