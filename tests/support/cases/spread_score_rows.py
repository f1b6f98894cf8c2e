"""Edge cases of PodTopologySpread's score that the recordings have not, by the numbers of the rules' rows."""

from typing import Final

from tests.support.build import HOSTNAME, ZONE, Json, configuration, node, pod, selector, spread
from tests.support.cases.spread_filter_rows import (
    FOO,
    FOO_SERVICE,
    A,
    B,
    X,
    defaults,
    foo,
    row,
    spread_pod,
)


def _hosts(**counts: int) -> list[Json]:
    return [*(node(name) for name in counts), *foo(**counts)]


TAINTED: Final = node("c", labels={"node": "c"}, taints=["dedicated=x:NoSchedule"])
#: Lets a pod onto nodes whose taints it does not tolerate, so that spreading alone scores them.
TAINTS_OFF: Final = configuration(filters_off=["TaintToleration"])


def _soft_hosts(max_skew: int = 1) -> Json:
    return spread(HOSTNAME, FOO, soft=True, max_skew=max_skew)


ROWS: Final = [
    *(
        row(
            f"65 key node 2/1/1, an excluded but feasible node, policy {policy}",
            [A, B, TAINTED],
            foo(a=2, b=1, c=1),
            spread_pod(spread("node", FOO, soft=True, taints_policy=policy)),
            config=TAINTS_OFF,
            scores=scores,
        )
        for policy, scores in (
            ("Honor", {"a": 0, "b": 33, "c": 100}),
            ("Ignore", {"a": 66, "b": 100, "c": 100}),
        )
    ),
    row(
        "66 minDomains of a soft constraint",
        [A, B, X],
        foo(a=2, b=2, x=1),
        spread_pod(spread("node", FOO, soft=True, max_skew=2, min_domains=2)),
        scores={"a": 75, "b": 75, "x": 100},
    ),
    row(
        # Zone sizes {z, ""} = 2: ln 4; hostname size 4: ln 6. Raw 13, 17, 6, 2.
        "67 System defaults, two nodes of one zone, two of none: 1/3/2/0",
        [node("a", labels={ZONE: "z"}), node("b", labels={ZONE: "z"}), node("x"), node("y")],
        [FOO_SERVICE, *foo(a=1, b=3, x=2)],
        pod(labels={"foo": "x"}),
        scores={"a": 35, "b": 11, "x": 76, "y": 100},
    ),
    row(
        # w = ln 5: raw 3, 0, 2.
        "82 two nodes with one hostname: each is scored with its own pods",
        [node("a", hostname="h"), node("b", hostname="h"), node("x")],
        foo(a=2, x=1),
        spread_pod(_soft_hosts()),
        scores={"a": 0, "b": 100, "x": 33},
    ),
    row(
        "83 hostname 2/1/1, an excluded but feasible node, policy Honor: its pods count",
        [A, B, TAINTED],
        foo(a=2, b=1, c=1),
        spread_pod(spread(HOSTNAME, FOO, soft=True, taints_policy="Honor")),
        config=TAINTS_OFF,
        scores={"a": 66, "b": 100, "c": 100},
    ),
    *(
        row(
            f"85 {word} defaults, a node without one soft key",
            [node("a", labels={ZONE: "z"}), node("b")],
            [FOO_SERVICE, *foo(a=1)],
            pod(labels={"foo": "x"}),
            config=config,
            scores=scores,
        )
        for word, config, scores in (
            (
                "List",
                defaults(
                    spread(HOSTNAME, None, soft=True, max_skew=3), spread(ZONE, None, soft=True, max_skew=5)
                ),
                {"a": 100, "b": 0},
            ),
            # Raw: a ln 4 + 2 + ln 4 + 4 = 8.77 -> 9, b 2.
            ("System", None, {"a": 22, "b": 100}),
        )
    ),
    row(
        # w = ln 4: a 1.39 + 1.39 -> 3, x 4.16 + 0 -> 4. Rounded one by one, a would be 2 and x would get 50.
        "2.8 the total of all constraints is rounded, not each",
        [A, X],
        [*foo(a=1, x=3), pod("bar", node="a", labels={"bar": "x"})],
        pod(
            labels={"foo": "x", "bar": "x"},
            spread=[spread("zone", FOO, soft=True), spread("zone", selector("bar"), soft=True)],
        ),
        scores={"a": 100, "x": 75},
    ),
    row(
        # Sizes {z, ""} = 2 and hostname 2: ln 4. Raw a 9, b 5; with one zone, a would be 8.
        "2.8 System defaults, a node without zone where only an infeasible one has an empty zone",
        [
            node("a", labels={ZONE: "z"}),
            node("b"),
            node("c", labels={ZONE: ""}, unschedulable=True),
        ],
        [FOO_SERVICE, *foo(a=1, b=2)],
        pod(labels={"foo": "x"}),
        scores={"a": 55, "b": 100},
    ),
    row(
        # Zones {"", z} = 2 and hostname 2: ln 4. Raw a 2 + ln 4 + 4 = 7.39 -> 7, x 6.
        "2.8 System defaults, pods on an infeasible node without zone count in the empty zone",
        [
            node("a", labels={ZONE: ""}),
            node("x", labels={ZONE: "z"}),
            node("c", unschedulable=True),
        ],
        [FOO_SERVICE, *foo(c=1)],
        pod(labels={"foo": "x"}),
        scores={"a": 85, "x": 100},
    ),
]
