"""
`python -m tests.system.monitoring.slow_plugin run ...`: affinity-scheduler with a defect, a slow
InterPodAffinity.
"""

import sys
import time

from scheduler.cli.main import main
from scheduler.engine.framework.interface import PodContext, PreFiltered
from scheduler.engine.plugins.inter_pod_affinity.plugin import InterPodAffinity
from scheduler.engine.state.cluster_view import ClusterView

#: Above the objective of 100 ms.
_TAKES_S = 0.15
_real = InterPodAffinity.prefilter


def _slow(plugin: InterPodAffinity, context: PodContext, view: ClusterView) -> PreFiltered:
    time.sleep(_TAKES_S)
    return _real(plugin, context, view)


if __name__ == "__main__":
    setattr(InterPodAffinity, "prefilter", _slow)  # noqa: B010 - a method cannot be assigned
    sys.exit(main(sys.argv[1:]))
