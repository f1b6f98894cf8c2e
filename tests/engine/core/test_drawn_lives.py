"""
Random lives of clusters as large as they are in use: decisions are those of a state that has derived nothing yet.

At the end of each life, decisions are compared with the plain reference, which counts for itself.

More than 16 rows may move between two pods, and more than 32 classes of them take turns: so many are kept. What a rule
does is drawn by its seed; hypothesis draws which rules there are, and leaves out those that a failure does not need.
"""

from __future__ import annotations

from random import Random

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.state.batches import finished
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.engine.core.drawn_objects import NAMESPACES, Cluster, Templates, drawn_configuration, pod_of
from tests.engine.core.fresh import assert_as_if_fresh
from tests.reference.cluster import Cluster as Reference
from tests.support.build import Json

#: One decision in this number is compared, after as many changes.
_EACH_COMPARED = 5

#: Templates that the reference is asked about at the end.
_N_REFERRED = 2

seeds = st.integers(0, 1 << 32)
few = st.sampled_from((1, 1, 2, 5))


class DrawnLives(RuleBasedStateMachine):
    """Pods decided in a row, in turn or among changes, and all that happens in between."""

    @initialize(seed=seeds)
    def begin(self, seed: int) -> None:
        chance = self._chance = Random(seed)
        self._cluster, self._templates = Cluster(chance), Templates(chance)
        config = drawn_configuration(chance)
        note(f"configuration: {config}")
        self._config = config
        self._made = [self._templates.draw() for _ in range(chance.choice([1, 2, 3, 5, 8, 36]))]
        self._last = self._made[0]
        self._product = ProductSubject(config)
        self._rng = Random(1)
        self._n_decided = self._n_names = 0
        #: What the API server has, by kind and name; names of pods are unique.
        self._objects: dict[tuple[str, str], Json] = {}
        self._assumed: dict[str, Json] = {}
        for applied in self._cluster.beginning():
            self._tell(applied.object)

    def teardown(self) -> None:
        """Compare counts with a recount, and some decisions with the reference's."""
        if not hasattr(self, "_assumed"):
            return
        assert self._product.differences() == []
        reference = Reference()
        for made in (*self._objects.values(), *self._assumed.values()):
            reference.apply(made)
        for template in self._made[:_N_REFERRED]:
            wanted = reference.evaluate(template, self._config)
            found = decision_mismatches(wanted, self._product.evaluate(template))
            # The reference knows no weights but those of the default profile.
            assert [str(one) for one in found if one.field != "total"] == []

    # Decisions.

    @rule(seed=seeds, n=st.sampled_from((2, 5, 30)))
    def decide_a_row(self, seed: int, n: int) -> None:
        self._chance.seed(seed)
        template = self._chance.choice(self._made)
        for _ in range(n):
            self._decide(template)
        self._keep_room()

    @rule(seed=seeds, n_rounds=st.sampled_from((2, 4)), n_templates=st.sampled_from((2, 3, 5, 40)))
    def decide_in_turn(self, seed: int, n_rounds: int, n_templates: int) -> None:
        """Decide pods of some templates in turn, sometimes of more templates than caches hold."""
        self._chance.seed(seed)
        some = self._chance.sample(self._made, min(len(self._made), n_templates))
        for _ in range(n_rounds):
            for template in some:
                self._decide(template)
        self._keep_room()

    @rule(seed=seeds)
    def decide_among_changes(self, seed: int) -> None:
        """Decide pods of one template while other pods come and go."""
        chance = self._chance
        chance.seed(seed)
        template = chance.choice(self._made)
        for _ in range(30):
            for _ in range(chance.choice([0, 0, 1, 3])):
                if chance.random() < 0.5:
                    self._delete(1)
                else:
                    self._place(1)
            self._decide(template)
        self._keep_room()

    # What happens in between.

    @rule(seed=seeds, n=st.one_of(few, st.sampled_from((15, 17, 31, 33, 40))))
    def place(self, seed: int, n: int) -> None:
        self._chance.seed(seed)
        self._place(n)
        self._keep_room()
        self._decide_a_few()

    @rule(seed=seeds, n=st.sampled_from((2, 5, 40)), stay=st.sampled_from((False, False, True)))
    def crowd_a_node(self, seed: int, n: int, stay: bool) -> None:
        """Place many pods on one node, which may be gone before the next decision."""
        self._chance.seed(seed)
        for name in self._place(n, self._cluster.any_node()):
            if not stay:
                self._delete_pod(name)
        self._decide_a_few()

    @rule(seed=seeds, n=st.one_of(few, st.sampled_from((14, 17, 35, 1 << 20))))
    def delete(self, seed: int, n: int) -> None:
        self._chance.seed(seed)
        self._delete(n)
        self._decide_a_few()

    @rule(seed=seeds, n=few)
    def change_pods(self, seed: int, n: int) -> None:
        """Change some pods: other labels, terminating, or moved to another node."""
        chance, apps = self._chance, self._templates.apps
        chance.seed(seed)
        for name in self._some_pods(n):
            metadata: Json = {}
            node = None
            kind = chance.random()
            if kind < 0.5:
                app = chance.choice(apps)
                metadata = {"labels": chance.choice([{}, {"app": app}, {"app": app, "v": "1"}])}
            elif kind < 0.9:
                metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
            else:
                node = self._cluster.any_node()
            made = pod_of(self._objects["Pod", name], name, node)
            made["metadata"] |= metadata
            self._tell(made)
        self._decide_a_few()

    @rule(seed=seeds, n=few)
    def change_nodes(self, seed: int, n: int) -> None:
        self._chance.seed(seed)
        for _ in range(n):
            self._tell(self._cluster.node(self._chance.randrange(self._cluster.n_nodes)).object)
        self._decide_a_few()

    @rule(seed=seeds)
    def lose_node(self, seed: int) -> None:
        self._chance.seed(seed)
        self._lose("Node", None, self._cluster.any_node())
        self._decide_a_few()

    @rule(seed=seeds, name=st.sampled_from(NAMESPACES))
    def change_namespace(self, seed: int, name: str) -> None:
        self._chance.seed(seed)
        self._tell(self._cluster.space(name).object)
        self._decide_a_few()

    @rule(seed=seeds)
    def change_service(self, seed: int) -> None:
        self._chance.seed(seed)
        self._tell(self._cluster.service().object)
        self._decide_a_few()

    @rule()
    def sweep(self) -> None:
        finished(self._product.cluster.state.sweeping())

    def _decide_a_few(self) -> None:
        """Decide pods of the template that was decided last: what was kept for it is kept still."""
        for _ in range(self._chance.choice((0, 1, 5))):
            self._decide(self._last)

    def _decide(self, template: Json) -> None:
        """Decide one pod. Mostly it is bound; its bind may also fail, or end after another pod is decided."""
        self._last = template
        name = self._new_name("w")
        fate = self._chance.random()
        if fate < 0.1:
            self._asked(name, template)
        if (node := self._asked(name, template)) is not None:
            self._product.cluster.state.assume(self._product.cluster.pod(pod_of(template, name)), node)
            self._assumed[name] = pod_of(template, name, node)
        if fate < 0.2:
            self._asked(f"{name}-like", template)
        if node is None:
            return
        made = self._assumed.pop(name)
        if 0.15 < fate < 0.25:
            self._product.cluster.state.forget(name)
        else:
            self._tell(made)

    def _asked(self, name: str, template: Json) -> str | None:
        """Return the node that is decided for the pod."""
        product = self._product
        pod = product.cluster.pod(pod_of(template, name))
        decision = decide(pod, product.cluster.view(), product.profile, self._rng)
        self._n_decided += 1
        if self._n_decided % _EACH_COMPARED == 0:
            assert_as_if_fresh(pod, product.cluster.state, product.profile, decision)
        return decision.node_name if isinstance(decision, ScheduleResult) else None

    def _place(self, n: int, on: str | None = None) -> list[str]:
        """Place pods as another scheduler would: rarely on an unknown node, or with rules that no pod had before."""
        chance = self._chance
        names = [self._new_name("o") for _ in range(n)]
        for name in names:
            template = chance.choice(self._made) if chance.random() < 0.95 else self._templates.draw()
            node = on or (self._cluster.any_node() if chance.random() < 0.99 else "gone")
            self._tell(pod_of(template, name, node))
        return names

    def _delete(self, n: int) -> None:
        for name in self._some_pods(n):
            self._delete_pod(name)

    def _delete_pod(self, name: str) -> None:
        self._lose("Pod", self._objects["Pod", name]["metadata"]["namespace"], name)

    def _some_pods(self, n: int) -> list[str]:
        names = [name for kind, name in self._objects if kind == "Pod"]
        return self._chance.sample(names, min(n, len(names)))

    def _keep_room(self) -> None:
        n_pods = sum(kind == "Pod" for kind, _ in self._objects)
        if n_pods > 6 * self._cluster.n_nodes:
            self._delete(n_pods // 2)

    def _new_name(self, prefix: str) -> str:
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def _tell(self, made: Json) -> None:
        self._objects[made["kind"], made["metadata"]["name"]] = made
        self._product.apply(made)

    def _lose(self, kind: str, namespace: str | None, name: str) -> None:
        self._objects.pop((kind, name), None)
        self._product.delete(kind, namespace, name)


DrawnLives.TestCase.settings = settings(max_examples=12, stateful_step_count=35, deadline=None)
TestDrawnLives = DrawnLives.TestCase
