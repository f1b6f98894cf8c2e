"""The reference agrees with the recorded decisions and with the edge cases of the rules."""

from fractions import Fraction
from pathlib import Path

import pytest

from tests.conformance.replay import answers
from tests.conformance.subject import ReferenceSubject
from tests.conformance.traces import read
from tests.reference import arithmetic, quantity
from tests.reference.cluster import Cluster
from tests.reference.pod_topology_spread import NAME as SPREAD
from tests.reference.taint_toleration import NAME as TAINTS
from tests.support import build
from tests.support.cases.row import Row, differences
from tests.support.cases.rows import ALL

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize("row", ALL, ids=lambda row: f"{row.plugin} {row.id}")
def test_the_reference_says_what_the_row_says(row: Row) -> None:
    cluster = Cluster()
    for obj in row.objects:
        cluster.apply(obj)
    assert differences(row, cluster.evaluate(row.pod, row.config)) == []


def test_no_two_rows_share_a_name():
    names = [(row.plugin, row.id) for row in ALL]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("kind", ["affinity", "spread", "node", "mixed", "volumes", "preempt"])
def test_the_reference_decides_as_recorded(kind: str) -> None:
    """Every fifth trace, to stay quick; the runner takes them all."""
    found = [
        f"{place} {mismatch}"
        for trace in list(read(DATA / f"{kind}.jsonl.gz"))[::5]
        for place, mismatches in answers(trace, ReferenceSubject, fresh=False)
        for mismatch in mismatches
    ]
    assert found == []


@pytest.mark.parametrize(
    ("operator", "taint", "tolerated"),
    [
        pytest.param("Gt", "950", True, id="greater"),
        pytest.param("Gt", "750", False, id="not greater"),
        pytest.param("Lt", "749", True, id="less"),
        pytest.param("Gt", "high", False, id="no number"),
        pytest.param("Gt", "0950", False, id="a leading zero"),
    ],
)
def test_comparing_tolerations_need_their_gate(operator: str, taint: str, tolerated: bool):
    cluster = Cluster()
    cluster.apply(build.node("a", taints=[f"k={taint}:NoSchedule"]))
    incoming = build.pod(tolerations=[build.toleration("k", operator, "750")])
    gated = cluster.evaluate(incoming, gates={"TaintTolerationComparisonOperators": True})
    assert (TAINTS not in gated["filter"]) is tolerated
    assert TAINTS in cluster.evaluate(incoming)["filter"]


def test_match_label_keys_of_spread_constraints_can_be_gated_off():
    cluster = Cluster()
    cluster.apply(build.node("a"))
    cluster.apply(build.node("b"))
    cluster.apply(build.pod("e", node="a", labels={"app": "web", "v": "1"}))
    constraint = build.spread(build.HOSTNAME, build.selector("app=web"), match_label_keys=["v"])
    incoming = build.pod(labels={"app": "web", "v": "2"}, spread=[constraint])
    off = cluster.evaluate(incoming, gates={"MatchLabelKeysInPodTopologySpread": False})
    assert SPREAD not in cluster.evaluate(incoming)["filter"]
    assert list(off["filter"][SPREAD]) == ["a"]


def test_a_cluster_without_nodes_is_an_error():
    assert Cluster().evaluate(build.pod()) == {"error": "no nodes available to schedule pods"}


def test_an_evaluation_changes_nothing():
    cluster = Cluster()
    cluster.apply(build.node("a"))
    incoming = build.pod(cpu="20")
    assert cluster.evaluate(incoming) == cluster.evaluate(incoming)


def test_the_message_counts_each_node_once_for_each_reason_of_its_first_refusal():
    cluster = Cluster()
    for name, taints in (("a", ["k=v:NoSchedule"]), ("b", []), ("c", [])):
        cluster.apply(build.node(name, taints=taints, allocatable={"cpu": "1", "memory": "1"}))
    incoming = build.pod(containers=[build.container(requests={"cpu": "2", "memory": "2"})])
    message = cluster.evaluate(incoming)["message"]
    assert (
        message
        == "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu, 2 Insufficient memory."
    )


def test_the_message_of_nodes_that_were_never_asked():
    cluster = Cluster()
    cluster.apply(build.node("a", unschedulable=True))
    cluster.apply(build.node("b"))
    named = build.affinity(node_required=[build.node_term(named=["in a"])])
    assert cluster.evaluate(build.pod(affinity=named))["message"] == (
        "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) were unschedulable."
    )


def test_an_image_keeps_the_size_first_reported_until_no_node_has_it():
    mb = 1024 * 1024
    incoming = build.pod(containers=[build.container(image="x:1")])
    cluster = Cluster()
    cluster.apply(build.node("a", images={"x:1": 1000 * mb}))
    cluster.apply(build.node("b", images={"x:1": 23 * mb}))
    cluster.delete("Node", None, "a")
    assert cluster.evaluate(incoming)["score"]["ImageLocality"] == {"b": 100}
    cluster.apply(build.node("b"))
    cluster.apply(build.node("b", images={"x:1": 23 * mb}))
    assert cluster.evaluate(incoming)["score"]["ImageLocality"] == {"b": 0}


@pytest.mark.parametrize(
    ("text", "units", "milli"),
    [
        ("100m", 1, 100),
        ("0.1", 1, 100),
        ("1e-1", 1, 100),
        ("9.01", 10, 9010),
        ("100.035Ki", 102436, 102435840),
        ("1.5Gi", 1610612736, 1610612736000),
        ("0.00000012345", 1, 1),
        ("0.000000000001Ki", 1, 1),
        ("-1.5", -2, -1500),
        (".5", 1, 500),
        ("1.", 1, 1000),
        ("1.G", 10**9, 10**12),
        ("1E", 10**18, 2**63 - 1),
        ("1E3", 1000, 10**6),
        ("+", 0, 0),
        (" 1 ", 1, 1000),
        (2, 2, 2000),
        (None, 0, 0),
        ("12E", 2**63 - 1, 2**63 - 1),
    ],
)
def test_quantities_round_away_from_zero(text: str | int | None, units: int, milli: int) -> None:
    assert quantity.whole_units(quantity.parse(text)) == units
    assert quantity.whole_milli(quantity.parse(text)) == milli


@pytest.mark.parametrize("text", ["9Ei", "9223372036854775807Ki"])
def test_binary_suffixes_are_capped(text: str) -> None:
    assert quantity.whole_units(quantity.parse(text)) == 2**63 - 1


def test_quantities_are_kept_to_the_ninth_decimal():
    assert quantity.parse("0.00000012345") == Fraction(124, 10**9)
    assert quantity.parse("0.000000000001Ki") == Fraction(2, 10**9)


@pytest.mark.parametrize("text", ["", " ", "1K", "1ki", "1MI", "1e", "1 Gi", "a", "1.2.3", "--1"])
def test_what_is_no_quantity_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("raw", "reverse", "final"),
    [
        ([1, 2, 3, 4], False, [25, 50, 75, 100]),
        ([1, 2, 3, 4], True, [75, 50, 25, 0]),
        ([1000, 10, 20, 30], False, [100, 1, 2, 3]),
        ([1000, 10, 20, 30], True, [0, 99, 98, 97]),
        ([1000, 1, 1, 1], False, [100, 0, 0, 0]),
        ([0, 0], False, [0, 0]),
        ([0, 0], True, [100, 100]),
    ],
)
def test_scores_are_stretched_to_the_highest(raw: list[int], reverse: bool, final: list[int]) -> None:
    by_node = {str(i): score for i, score in enumerate(raw)}
    assert list(arithmetic.normalised(by_node, reverse=reverse).values()) == final


@pytest.mark.parametrize(
    ("points", "at", "height"),
    [
        *(([(10, 1), (90, 9)], at, height) for at, height in ((-10, 1), (19, 1), (20, 2), (89, 8), (110, 9))),
        *(
            ([(0, 2), (40, 10), (100, 0)], at, height)
            for at, height in ((20, 6), (41, 10), (70, 5), (110, 0))
        ),
    ],
)
def test_the_broken_line_truncates_towards_zero(points: list[tuple[int, int]], at: int, height: int) -> None:
    assert arithmetic.broken_linear(points, at) == height
