"""Clusters with volumes: whatever happened before, the decision is the plain reference's."""

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.conformance.subject import FreshSubject
from tests.plugins.lives import Applied, Deleted
from tests.plugins.volume_lives import BEGINNINGS, CHANGES, pods
from tests.reference.cluster import Cluster
from tests.support.build import Json


@settings(max_examples=100, deadline=None)
@given(
    beginning=BEGINNINGS,
    changes=st.lists(CHANGES, min_size=3, max_size=12),
    incoming=st.lists(pods(placed=False), min_size=1, max_size=3),
)
def test_decisions_are_the_reference_s_whatever_happened_to_volumes(
    beginning: list[Applied], changes: list[Applied | Deleted], incoming: list[Json]
):
    live, fresh, reference = ProductSubject(None), FreshSubject(ProductSubject, None), Cluster()
    for change in (*beginning, *changes):
        for subject in (live, fresh, reference):
            if isinstance(change, Applied):
                subject.apply(change.object)
            else:
                subject.delete(*change)
        if change in beginning:
            continue
        for pod in incoming:
            expected = reference.evaluate(pod)
            for refusal in expected.get("prefilter", {}).values():
                event(f"prefilter: {refusal['reasons'][0].split(chr(34))[0]}")
            for plugin in expected.get("filter", {}):
                event(f"filter: {plugin}")
            assert decision_mismatches(expected, live.evaluate(pod)) == []
    for pod in incoming:
        assert decision_mismatches(reference.evaluate(pod), fresh.evaluate(pod)) == []
    assert live.differences() == []
