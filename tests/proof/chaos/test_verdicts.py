"""Each verdict is found where it applies and only there: in handmade journals and with guards removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.binds import BindJudge
from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod, Happening
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import Decided, Journal, Sent, Written
from tests.proof.chaos.kinds import Shape
from tests.proof.chaos.run import Outcome, replay, run
from tests.proof.chaos.sabotage import SABOTAGES, Sabotage
from tests.proof.chaos.shrinking import shortest
from tests.proof.chaos.venue import Setting
from tests.proof.chaos.verdicts import Verdict
from tests.support import build

ALONE = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=alone"))])


class Book:
    """A handmade journal in which every record takes a second."""

    def __init__(self) -> None:
        self.journal = Journal(lambda: float(self.journal.version))
        self._now: dict[str, JsonObject] = {}
        for name in ("n1", "n2"):
            self.write("Node", name, build.node(name, allocatable={"cpu": "2"}))
        self.write("Namespace", "default", build.namespace("default"))

    def write(self, kind: str, key: str, obj: JsonObject | None, by: str = "") -> int:
        """Record a write; return its version."""
        version = self.journal.version + 1
        if obj is not None:
            obj = {
                **obj,
                "metadata": {"uid": f"uid-{key}", **obj["metadata"], "resourceVersion": str(version)},
            }
        before = self._now.get(kind + key)
        self.journal.add(Written(version, float(version), kind, key, obj, before, by))
        self._now[kind + key] = obj or {}
        return version

    def pod(self, name: str, **settings: Any) -> None:
        """Record a pending pod that requests one CPU."""
        containers = [build.container(requests={"cpu": settings.pop("cpu", "1")})]
        self.write("Pod", f"default/{name}", build.pod(name, containers=containers, **settings))

    def decide(self, name: str, node: str, by: str = "one-1", **known: Any) -> None:
        """Record a decision of `by`, which by default has seen everything."""
        version = self.journal.version
        seen = known.pop("seen", version)
        versions = {"Pod": seen, "Node": version, "Namespace": version}
        assumed = known.pop("assumed", {})
        self.journal.decided.append(
            Decided(
                float(version), by, f"uid-default-{name}", f"default/{name}", node, version, versions, assumed
            )
        )

    def bind(self, name: str, node: str, by: str = "one-1") -> None:
        """Record the bind."""
        pod = self._now[f"Poddefault/{name}"]
        self.write("Pod", f"default/{name}", {**pod, "spec": {**pod["spec"], "nodeName": node}}, by)

    def place(self, name: str, node: str, by: str = "one-1", **known: Any) -> None:
        """Record the decision and the bind."""
        self.decide(name, node, by, **known)
        self.bind(name, node, by)

    def found(self, **how: Any) -> list[Verdict]:
        """Return the judge's verdicts."""
        journal = replace(self.journal, group_of={"one": OURS, "two": OURS, "rival": "theirs"}, **how)
        return [one.verdict for one in BindJudge(journal).wrongs()]


def test_a_pod_bound_twice() -> None:
    book = Book()
    book.pod("a")
    book.place("a", "n1")
    book.place("a", "n2", by="two-1")
    assert Verdict.TWICE in book.found()


def test_a_bind_without_the_lease() -> None:
    book = Book()
    book.journal.sent.append(Sent(1.0, "one-1", "/pods/a/binding", "one-1"))
    assert book.found(elected=["one"]) == []
    book.journal.sent.append(Sent(2.0, "one-1", "/pods/a/binding", "two-1"))
    assert book.found(elected=["one"]) == [Verdict.LEASE]
    assert book.found() == [], "who holds no election needs no Lease"


@pytest.mark.parametrize("blind_s", [None, 5.0], ids=["decisions known", "from the write log alone"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"labels": {"app": "alone"}}, {"affinity": ALONE}, id="anti-affinity"),
        pytest.param({"labels": {"app": "alone"}, "affinity": ALONE}, {"labels": {"app": "alone"}}, id="of others"),
        pytest.param({"cpu": "2"}, {}, id="no room"),
        pytest.param({}, {"node_selector": {build.HOSTNAME: "n2"}}, id="another node"),
        pytest.param({}, {"affinity": build.affinity(required=[build.term(build.HOSTNAME, {})])}, id="affinity"),
    ],
)  # fmt: skip
def test_a_bind_that_breaks_a_rule(
    first: dict[str, Any], second: dict[str, Any], blind_s: float | None
) -> None:
    """The first pod is known, since it is our own."""
    book = Book()
    book.pod("a", **first)
    book.pod("b", **second)
    # Only the first pod could satisfy the affinity, and it is on the other node.
    book.place("a", "n2" if "required" in str(second.get("affinity", {}).get("podAffinity")) else "n1")
    book.place("b", "n1")
    assert book.found(blind_s=blind_s) == [Verdict.RULE]


def test_what_others_wrote_unseen_is_the_race_window_and_what_was_seen_is_not() -> None:
    """The rival's pod takes all the room; our watch has shown it, or has not."""
    for was_seen in (False, True):
        book = Book()
        book.pod("a", cpu="2")
        book.pod("b")
        seen = book.journal.version
        book.place("a", "n1", by="rival-1")
        book.place("b", "n1", seen=book.journal.version if was_seen else seen)
        assert book.found() == ([Verdict.RULE] if was_seen else [])


def test_our_own_binds_are_never_unseen() -> None:
    """This holds however late the watch is, for binds of another life or instance of ours."""
    for by in ("one-1", "two-1"):
        book = Book()
        book.pod("a", cpu="2")
        book.pod("b")
        seen = book.journal.version
        book.place("a", "n1", by=by)
        book.place("b", "n1", seen=seen)
        assert book.found() == [Verdict.RULE]


def test_a_life_that_lists_after_its_predecessor_s_deletion_may_use_the_room() -> None:
    """The list shows no pod of that version; without the deletion the bind is wrong."""
    for is_deleted in (False, True):
        book = Book()
        book.pod("a", cpu="2")
        book.pod("b")
        book.place("a", "n1")
        seen = book.journal.version
        if is_deleted:
            book.write("Pod", "default/a", None, "one-1")
        book.place("b", "n1", by="one-2", seen=seen)
        assert book.found() == ([] if is_deleted else [Verdict.RULE])


def test_a_pod_that_was_only_assumed_counts() -> None:
    """The bind of the first pod is stored after that of the second."""
    book = Book()
    book.pod("a", cpu="2")
    book.pod("b")
    book.decide("a", "n1")
    book.place("b", "n1", assumed={"uid-default-a": "n1"})
    book.bind("a", "n1")
    assert Verdict.RULE in book.found()


def test_a_decision_on_a_pod_that_is_bound_and_there() -> None:
    book = Book()
    book.pod("a")
    book.place("a", "n1")
    book.pod("b")
    book.decide("a", "n2")
    assert book.found() == [Verdict.STRANGE]
    book = Book()
    book.pod("a")
    book.place("a", "n1")
    book.write("Pod", "default/a", None)
    book.decide("a", "n2")
    assert book.found() == [], "a late watch may not have told yet that it is gone"


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda one: one.name)
def test_a_scheduler_without_a_guard_is_found_out(sabotage: Sabotage) -> None:
    """One of six runs finds it, mostly the first; a scripted one is right with the guard."""
    if sabotage.script:
        whole = sabotage.played(sabotage.first_seed)
        assert not whole.wrongs, whole.story()
    seeds = range(sabotage.first_seed, sabotage.first_seed + 6)
    with sabotage.committed():
        outcome = next((one for seed in seeds if (one := sabotage.played(seed)).wrongs), None)
    assert outcome is not None
    assert sabotage.verdict in {one.verdict for one in outcome.wrongs}, outcome.story()


def test_a_long_script_is_shrunk_to_what_it_takes() -> None:
    """Of thirty happenings a node and two pods with anti-affinity suffice if nothing is assumed."""
    sabotage = next(one for one in SABOTAGES if one.name == "nothing is assumed")
    script: list[tuple[float, Happening]] = [
        (0.0, AddNamespace("red", "x")),
        *((0.0, AddNode(f"n{number}", "8", "a")) for number in range(2)),
        *((1.0 + number / 10, AddPod(f"red/p{number}", "small", OURS)) for number in range(24)),
        *((4.0, AddPod(f"red/alone-{number}", "alone", OURS)) for number in range(3)),
    ]
    with sabotage.committed():
        outcome = replay(1, sabotage.shape, script, until_s=8.0)
        assert outcome.wrongs[0].verdict is Verdict.RULE
        short = shortest(outcome, within_s=120.0)
        assert short.wrongs[0].verdict is Verdict.RULE
        assert len(short.script) <= 5, short.as_test()
        assert _pasted(short).wrongs, "as a test it fails as well"
    assert not _pasted(short).wrongs, "and with its guard the scheduler is right"


def _pasted(short: Outcome) -> Outcome:
    """Run the printed test."""
    from tests.proof.chaos import happenings

    *_, body = short.as_test().partition("    outcome = replay(")
    names: dict[str, Any] = {**vars(happenings), "Shape": Shape, "Setting": Setting, "replay": replay}
    outcome: Outcome = eval("replay(" + body.rpartition("    assert")[0], names)
    return outcome


def test_a_script_reproduces_the_run() -> None:
    """The same writes happen at the same moments."""
    first = run(3, Shape.RIVALS)
    again = replay(3, Shape.RIVALS, first.script, first.setting)
    assert first.journal is not None
    assert again.journal is not None
    assert [(one.version, one.at_s, one.key, one.by) for one in first.journal.written] == [
        (one.version, one.at_s, one.key, one.by) for one in again.journal.written
    ]
