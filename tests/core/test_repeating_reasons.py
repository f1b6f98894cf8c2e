"""
Why nodes are refused while rollouts go on: for other reasons than before, by other filters, or by two at once.

That a repeated decision gives the reasons of one made anew is said by conftest; here is drawn what happens in between.
"""

from random import Random

import pytest

from scheduler.model.pods import Pod
from tests.support import build
from tests.support.build import HOSTNAME, ZONE, Json
from tests.support.driving import Driver, bind_of

_N_NODES, _N_ZONES = 9, 3
_WEB, _DB = {"app": "web"}, {"app": "db"}
_FAR_ON_NODES = build.affinity(anti_required=[build.term(HOSTNAME, build.selector("app=db"))])
_FAR = build.affinity(anti_required=[build.term(ZONE, build.selector("app=db"))])

_ROLLOUTS: dict[str, Json] = {
    "anywhere": {},
    "hard": {"spread": [build.spread(ZONE, build.selector("app=web"))]},
    "far": {"affinity": _FAR},
    "far on nodes": {"affinity": _FAR_ON_NODES},
    "hard and far": {"spread": [build.spread(ZONE, build.selector("app=web"), max_skew=2)], "affinity": _FAR},
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rollout", _ROLLOUTS)
def test_nodes_are_refused_for_what_they_would_be_refused_for_anew(rollout: str, seed: int) -> None:
    """Nodes run out of processors, memory and places in any order, in zones that are open or closed, and back."""
    chance, driver = Random(seed), Driver(seed)
    for index in range(_N_NODES):
        labels = {ZONE: f"z{index % _N_ZONES}", HOSTNAME: f"n{index}"}
        driver.node(f"n{index}", labels=labels, allocatable={"cpu": "2", "memory": "2Gi", "pods": "4"})
    running: list[Pod] = []
    n_bound = 0
    for number in range(150):
        draw = chance.random()
        if draw < 0.25:
            requests = {"cpu": chance.choice(["0", "1", "2"]), "memory": chance.choice(["0", "1Gi", "2Gi"])}
            running.append(
                driver.pod(
                    f"other-{number}",
                    node=f"n{chance.randrange(_N_NODES)}",
                    labels=chance.choice([_WEB, _DB, {}, {}]),
                    containers=[build.container(requests=requests)],
                )
            )
        elif draw < 0.55 and running:
            driver.lose(running.pop(chance.randrange(len(running))))
        else:
            requests = {"cpu": "200m", "memory": "200Mi"}
            pod = driver.pod(
                f"web-{number}",
                labels=_WEB,
                containers=[build.container(requests=requests)],
                **_ROLLOUTS[rollout],
            )
            binds = [bind_of([one]) for one in driver.cycle() if getattr(one, "node_name", "")]
            if binds:
                n_bound += 1
                running.append(driver.confirm(pod, binds[0].node_name))
            else:
                driver.lose(pod)
    driver.audit()
    assert n_bound > 20


def test_a_node_that_was_full_is_refused_for_another_reason_once_it_is_not() -> None:
    """What all others are refused for, from the beginning: it was the only one with another reason."""
    driver = Driver()
    for index in range(6):
        driver.node(f"n{index}", labels={HOSTNAME: f"n{index}"}, allocatable={"cpu": "2", "pods": "9"})
    driver.pod("db-0", node="n0", labels=_DB)

    def roll_out(name: str) -> str:
        requests = {"cpu": "100m"}
        pod = driver.pod(
            name, labels=_WEB, affinity=_FAR_ON_NODES, containers=[build.container(requests=requests)]
        )
        return driver.confirm(pod, bind_of(driver.cycle()).node_name).node_name

    used = {"n0", *[roll_out(f"web-{number}") for number in range(3)]}
    free = min({f"n{index}" for index in range(6)} - used)
    large = driver.pod("large", node=free, containers=[build.container(requests={"cpu": "2"})])
    roll_out("web-3")
    driver.lose(large)
    driver.pod("db-1", node=free, labels=_DB)
    roll_out("web-4")
