"""Whatever happens between pods that are decided in a row: each decision is the plain reference's."""

from copy import deepcopy
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from scheduler.core.decide import Placement
from scheduler.core.repeating import Repeating
from scheduler.core.standings import Standings
from scheduler.framework.observer import Unobserved
from tests.build import ZONE, Json, affinity, container, node, owned_by, pod
from tests.plugins.lives import (
    CHANGES,
    CONFIGURATIONS,
    EVEN_CHANGES,
    MB,
    NODE_PREFERENCES,
    POD_LABELS,
    SPREADS,
    TERMS,
    WEIGHTED,
    Applied,
    Deleted,
)
from tests.plugins.told import Told


class _Counting(Unobserved):
    """How many decisions were made anew."""

    n_anew = 0

    def enter(self, point: str) -> None:
        self.n_anew += point == "PreFilter"


class _InARow(Told):
    """The product, which repeats its decisions, and the reference, which knows nothing of the last one."""

    def __init__(self, config: Json | None, beginning: list[Applied]) -> None:
        super().__init__(config)
        self._observer = _Counting()
        self._repeating = Repeating(self.product.cluster.snapshot(), Random(1), self._observer)
        self.n_placed = self.n_repeated = 0
        for change in beginning:
            self.tell(change)

    def place(self, template: Json) -> None:
        """One more pod is decided by both, and bound where there is a node for it."""
        made = deepcopy(template)
        made["metadata"]["name"] = made["metadata"]["uid"] = f"row-{self.n_placed}"
        wanted = self.reference.evaluate(made, self.config)
        n_anew = self._observer.n_anew
        decision = self._repeating.decide(self.product.cluster.pod(made), self.product.profile)
        if not isinstance(decision, Placement):
            assert not wanted.get("feasible")
            return
        self._compare(decision.standings, wanted)
        made["spec"]["nodeName"] = decision.node_name
        self.tell(Applied(made))
        self.n_placed += 1
        self.n_repeated += self._observer.n_anew == n_anew
        assert self.product.differences() == []

    def _compare(self, standings: Standings, wanted: Json) -> None:
        names = self.product.cluster.state.nodes
        rows = {names.name_of(row): row for row in standings.feasible.mask.nonzero()[0].tolist()}
        assert rows.keys() == set(wanted["feasible"])
        if len(rows) == 1:
            # A node that is the only one is not scored.
            return
        assert {name: standings.totals.item(row) for name, row in rows.items()} == wanted["total"]
        for one in standings.scores:
            by_node = {name: one.scores.item(row) for name, row in rows.items()}
            # The reference leaves out who has nothing to say, which may change between two pods.
            assert by_node == wanted["score"].get(one.plugin, dict.fromkeys(rows, 0)), one.plugin


#: Nodes that hold a few pods in a row, and fill up.
_NODES = st.builds(
    lambda *args, **kwargs: Applied(node(*args, **kwargs)),
    st.sampled_from([f"n{index}" for index in range(9)]),
    labels=st.fixed_dictionaries(
        {ZONE: st.sampled_from("abc")}, optional={"rack": st.sampled_from(("r1", "r2"))}
    ),
    allocatable=st.fixed_dictionaries({"pods": st.sampled_from("248"), "cpu": st.sampled_from("348")}),
    taints=st.sampled_from(([], [], [], ["k=w:PreferNoSchedule"], ["l:PreferNoSchedule"])),
    images=st.dictionaries(st.just("web:1"), st.just(700 * MB), max_size=1),
)
_WANTED = st.sampled_from(({}, {"cpu": "100m"}, {"cpu": "1", "memory": "64Mi"}))
_ASKED: st.SearchStrategy[Json] = st.one_of(
    st.just({}),
    st.builds(lambda one: {"affinity": affinity(required=[one])}, TERMS),
    st.builds(lambda one: {"affinity": affinity(anti_required=[one])}, TERMS),
    st.builds(
        lambda some: {"affinity": affinity(preferred=some)}, st.lists(WEIGHTED, min_size=1, max_size=3)
    ),
    st.builds(
        lambda some: {"affinity": affinity(anti_preferred=some)}, st.lists(WEIGHTED, min_size=1, max_size=3)
    ),
    st.builds(lambda some: {"affinity": affinity(node_preferred=some)}, NODE_PREFERENCES),
    st.builds(lambda some: {"spread": some}, st.lists(SPREADS, min_size=1, max_size=2)),
    st.just({"owner": owned_by("ReplicaSet", "rs")}),
    st.builds(
        lambda far, liked, shunned, spread: {
            "affinity": affinity(anti_required=far, preferred=liked, anti_preferred=shunned),
            "spread": spread,
        },
        st.lists(TERMS, max_size=1),
        st.lists(WEIGHTED, max_size=2),
        st.lists(WEIGHTED, max_size=1),
        st.lists(SPREADS, min_size=1, max_size=2),
    ),
)


@st.composite
def _likes(draw: st.DrawFn) -> Json:
    """What pods in a row are made from: they ask for little, so that most of them find several nodes."""
    one = container(image="web:1", requests=draw(_WANTED), host_ports=draw(st.sampled_from(([], [], ["80"]))))
    return pod("x", labels=draw(POD_LABELS), containers=[one], **draw(_ASKED))


@settings(max_examples=200, deadline=None)
@given(
    config=st.sampled_from(CONFIGURATIONS),
    beginning=st.lists(_NODES, min_size=6, max_size=14),
    templates=st.lists(_likes(), min_size=1, max_size=3),
    steps=st.lists(st.one_of(st.integers(2, 5), CHANGES, EVEN_CHANGES), min_size=4, max_size=12),
)
def test_pods_in_a_row_are_decided_as_the_reference_decides_each(
    config: Json | None,
    beginning: list[Applied],
    templates: list[Json],
    steps: list[int | Applied | Deleted],
) -> None:
    """Steps are pods of each template in turn, or whatever else happens to a cluster."""
    row = _InARow(config, beginning)
    for step in steps:
        if isinstance(step, int):
            for _ in range(step):
                for template in templates:
                    row.place(template)
        else:
            row.tell(step)
    event(f"{min(row.n_repeated, 5)} repeated, or more")
