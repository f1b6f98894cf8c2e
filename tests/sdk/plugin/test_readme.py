"""The page of the contract shows plugins and tests that work as it says."""

import re
from pathlib import Path
from typing import Any

import scheduler.sdk.plugin
from scheduler.sdk.testing import Cluster, make_node, make_pod

PAGE = (Path(scheduler.sdk.plugin.__file__).parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def _shown(*words: str) -> dict[str, Any]:
    """Return the names that the blocks with these words define, one after the other."""
    names: dict[str, Any] = {}
    for word in words:
        (block,) = (block for block in BLOCKS if word in block)
        exec(block, names)  # what the page shows is what runs
    return names


def test_the_rule_node_by_node_refuses_and_prefers():
    cluster = Cluster(plugins=[_shown("class NoCrowds")["NoCrowds"]], alone=True)
    cluster.add(make_node("empty"), make_node("busy"), make_node("full"))
    for node, n_pods in (("busy", 10), ("full", 50)):
        cluster.add(*(make_pod(f"{node}-{i}", node=node) for i in range(n_pods)))
    decision = cluster.decide(make_pod())
    assert decision.refused == {"full": "node(s) had 50 pods"}
    assert decision.totals == {"empty": 100, "busy": 80}


def test_the_shown_tests_pass():
    names = _shown("class TeamPerRack:", "class TestTeamPerRack")
    names["test_a_full_rack_is_refused"]()
    tests = names["TestTeamPerRack"]()
    tests.test_every_pod_is_decided()
    tests.test_answers_follow_changes()
    tests.test_events_wake_the_pods_that_were_refused()


def test_the_shown_arguments_are_arguments():
    names: dict[str, Any] = {"Args": scheduler.sdk.plugin.Args}
    (block,) = (block for block in BLOCKS if "class TeamPerRackArgs" in block)
    exec(block, names)
    assert names["TeamPerRackArgs"]().topology_key == "example.com/rack"


def test_every_name_of_the_page_is_exported():
    found = re.findall(r"from affinity_scheduler\.plugin import (\([^)]*\)|.*)", "".join(BLOCKS))
    imported = {name.strip() for names in found for name in names.strip("()").split(",")} - {""}
    assert imported
    assert imported <= set(scheduler.sdk.plugin.__all__)
    assert all(hasattr(scheduler.sdk.plugin, name) for name in scheduler.sdk.plugin.__all__)


def test_every_member_of_the_snapshot_that_the_page_names_exists():
    table = PAGE[PAGE.index("What the view has") : PAGE.index("## Class attributes")]
    rows = [row.split("|")[2] for row in table.splitlines() if row.startswith("|") and "`" in row]
    named = {name for row in rows for name in re.findall(r"`([a-z_.]+)", row)}
    assert named

    class Looking:
        name = "Looking"

        def prescore(self, context: Any, view: Any, feasible: Any) -> Any:
            for member in named:
                of, _, last = member.rpartition(".")
                assert hasattr(getattr(view, of) if of else view, last), member
            return scheduler.sdk.plugin.SKIP

    decided = Cluster(plugins=[Looking], alone=True).add(make_node("n"), make_node("m")).decide(make_pod())
    assert decided.node is not None, decided.message
