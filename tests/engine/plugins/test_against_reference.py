"""After any history of a cluster, the counts are right and decisions equal the reference's."""

from collections.abc import Iterable

from hypothesis import event, given, settings
from hypothesis import strategies as st

from scheduler.engine.state.batches import finished
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.engine.plugins.lives import (
    BEGINNINGS,
    CHANGES,
    CONFIGURATIONS,
    Applied,
    Deleted,
    pods,
)
from tests.reference.cluster import Cluster
from tests.support import build
from tests.support.build import ZONE, Json


class Both:
    """The product and the plain reference with the same configuration and the same objects."""

    def __init__(self, config: Json | None, objects: Iterable[Applied] = ()) -> None:
        self.product, self.reference, self._config = ProductSubject(config), Cluster(), config
        for each in objects:
            self.tell(each)

    def tell(self, change: Applied | Deleted) -> None:
        """Apply the change to both."""
        change.tell(self.product, self.reference)

    def mismatches(self, pod: Json) -> list[str]:
        ours, theirs = self.product.evaluate(pod), self.reference.evaluate(pod, self._config)
        event(_outcome(theirs))
        return [str(mismatch) for mismatch in decision_mismatches(theirs, ours)]


def _outcome(decision: Json) -> str:
    if "error" in decision or "prefilter" in decision:
        return "error" if "error" in decision else "refused everywhere"
    return ("none feasible", "one feasible", "several feasible")[min(len(decision["feasible"]), 2)]


@settings(max_examples=50, deadline=None)
@given(
    config=st.sampled_from(CONFIGURATIONS),
    beginning=BEGINNINGS,
    changes=st.lists(CHANGES, min_size=1, max_size=10),
    incoming=st.lists(pods(placed=False), min_size=1, max_size=2),
    sweeps=st.booleans(),
)
def test_decisions_are_the_reference_s_whatever_happened_before(
    config: Json | None,
    beginning: list[Applied],
    changes: list[Applied | Deleted],
    incoming: list[Json],
    sweeps: bool,
):
    """
    The same pods are asked about again and again, so that what is kept between two decisions has to follow.

    `sweeps`: what nothing uses any more is thrown away after each step, as in a long life.
    """
    both = Both(config)
    waiting = [both.product.cluster.pod(pod) for pod in incoming]
    for change in (*beginning, *changes):
        both.tell(change)
        assert both.product.differences() == []
        for pod in incoming:
            assert both.mismatches(pod) == []
        if sweeps:
            finished(both.product.cluster.state.sweeping())
    # What is derived from a spec is kept for as long as a pod of it lives: these lived to the end.
    assert all(
        both.product.cluster.pod(pod).spec is held.spec for pod, held in zip(incoming, waiting, strict=True)
    )


@settings(max_examples=10, deadline=None)
@given(weights=st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_preferences_follow_pods_after_counts_were_dropped_however_often_a_term_stands(weights: list[int]):
    """A count that was dropped and computed again replaces all sums that were derived from the old one."""
    both = Both(None)
    web, db = (build.term(ZONE, build.selector(f"app={app}")) for app in ("web", "db"))
    liked = [*((weight, web) for weight in weights), (100, db)]
    incoming = build.pod("incoming", affinity=build.affinity(preferred=liked))
    asking_for_web_alone = build.pod("other", affinity=build.affinity(preferred=liked[:1]))
    waiting = both.product.cluster.pod(incoming)
    for name, zone, app in (("n0", "a", "web"), ("n1", "b", "db")):
        both.tell(Applied(build.node(name, labels={ZONE: zone})))
        both.tell(Applied(build.pod(app, labels={"app": app}, node=name)))
    assert both.mismatches(incoming) == []
    both.tell(Deleted("Pod", "default", "db"))
    for _ in range(3):
        finished(both.product.cluster.state.sweeping())
        assert both.mismatches(asking_for_web_alone) == []
    assert both.product.cluster.pod(incoming).spec is waiting.spec
    assert both.mismatches(incoming) == []


@settings(max_examples=20, deadline=None)
@given(
    values=st.lists(st.sampled_from(("1", "2", None)), min_size=2, max_size=4, unique=True),
    soft=st.booleans(),
)
def test_pods_of_one_spec_are_spread_among_those_that_share_their_own_values(
    values: list[str | None], soft: bool
):
    """`matchLabelKeys`: constraints cached by spec must not depend on the first pod's labels."""
    both = Both(None)
    own = build.spread(ZONE, build.selector("app=web"), soft=soft, match_label_keys=("v",))
    for name, v, zone in (("n1", "1", "a"), ("n2", "2", "b"), ("n3", "3", "c")):
        both.tell(Applied(build.node(name, labels={ZONE: zone})))
        both.tell(Applied(build.pod(f"p{v}", labels={"app": "web", "v": v}, node=name)))
    labels = [{"app": "web", **({} if v is None else {"v": v})} for v in values]
    incoming = [build.pod("incoming", labels=its, spread=[own]) for its in labels]
    waiting = [both.product.cluster.pod(pod) for pod in incoming]
    assert len({id(pod.spec) for pod in waiting}) == 1
    for pod in incoming:
        assert both.mismatches(pod) == []
