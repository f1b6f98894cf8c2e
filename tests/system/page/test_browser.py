"""The page as an operator uses it, in a browser against a cluster whose rollout is stuck on its anti-affinity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal
from urllib.request import urlopen

import pytest

from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.tools.page.stream import MAX_VIEWERS
from tests.support import build
from tests.support.browser import problems_of
from tests.system.page.conftest import Served, Standby, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

#: Each view, and a text that it has once its data are there.
VIEWS = {
    "Now": "in step, the quietest last heard",
    "Domains": "app=shop",
    "Devices": "12 devices of gpu.nvidia.com free",
    "Pending": "didn't match pod anti-affinity rules",
    "Groups": "No group is waiting",
    "Nodes": "Fullest resource",
    "Decisions": "is an attempt until the API server has answered its bind",
    "What if": "Decided on a copy of the cluster",
}
_PATIENCE_MS = 60_000
GPUS = "gpu.nvidia.com"
SIZES = {"a laptop": (1280, 720), "a phone held upright": (390, 844)}
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    """Yield the page on the view Now. At the end it has had no error and requested nothing but the scheduler."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    page = context.new_page()
    problems, foreign = problems_of(page), []
    page.on(
        "request", lambda sent: None if sent.url.startswith(served.scheduler) else foreign.append(sent.url)
    )
    methods: set[str] = set()
    page.on("request", lambda sent: methods.add(sent.method))
    page.goto(f"{served.scheduler}/ui")
    page.get_by_text("Pods per second").wait_for()
    yield page
    context.close()
    assert (problems, foreign) == ([], [])
    assert methods <= {"GET", "POST"}


def open_view(page: Page, title: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=title).click()


def assert_fits(page: Page) -> None:
    """Wait until nothing is wider than the window, on every size of it; charts are drawn anew a moment later."""
    for width, height in SIZES.values():
        page.set_viewport_size({"width": width, "height": height})
        until(lambda: page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens_and_fits(
    browser: Browser, served: Served, scheme: Literal["light", "dark"]
) -> None:
    """Nothing is wider than the window, and each view has something to say."""
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    problems = problems_of(page)
    page.goto(f"{served.scheduler}/ui/")
    for title, text in VIEWS.items():
        open_view(page, title)
        page.get_by_text(text).first.wait_for()
        assert page.title() == f"{title} · affinity-scheduler"
        assert_fits(page)
    context.close()
    assert problems == []


def test_the_stuck_rollout_leads_to_its_blocking_pods_by_clicks(page: Page) -> None:
    """From Pending to a pod's explanation, to a blocking pod, and to what would help."""
    open_view(page, "Pending")
    group = page.locator(".group", has_text="didn't match pod anti-affinity rules")
    group.get_by_role("link").first.click()
    page.get_by_role("heading", name="Rules in the way").wait_for()
    blocking = page.locator(".blocking").first
    assert "not beside pods with app=shop" in blocking.inner_text()
    assert blocking.locator("li", has_text="on node-").count() == 3
    page.get_by_role("heading", name="What would help").wait_for()
    page.locator(".suggestions li").first.wait_for()
    assert "rolls out with maxSurge: 0" in page.locator(".suggestions li").first.inner_text()
    page.locator(".suggestions li", has_text="has matchLabelKeys: [pod-template-hash]").wait_for()
    blocking.get_by_role("link").first.click()
    page.get_by_text("runs on node-").wait_for()


def test_a_group_is_explained_by_its_next_member_in_the_order_of_the_command(
    page: Page, served: Served
) -> None:
    """Two pods want nodes of their own with a label that one node has."""
    node = served.request("GET", "/api/v1/nodes")["items"][0]["metadata"]["name"]
    served.merge(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"gang": "yes"}}})
    alone = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=gang"))])
    of_group = {
        "affinity-scheduler.io/pod-group": "gang",
        "affinity-scheduler.io/pod-group-min-count": "2",
        "app": "gang",
    }
    for name in ("g-0", "g-1"):
        served.add_pod(name, labels=of_group, affinity=alone, node_selector={"gang": "yes"})
    until(lambda: "needs 2 places" in json.dumps(served.shown("pending")))
    open_view(page, "Groups")
    page.locator(".why", has_text="needs 2 places").wait_for()
    row = page.locator("tr", has_text="of gang")
    assert row.inner_text().split("\t")[1:4] == ["2", "0", "2"]
    row.get_by_role("link").click()
    page.locator("h3", has_text="Nodes that refuse member g-1").wait_for()
    page.locator(".suggestions li", has_text="has the label gang=yes").first.wait_for()
    body = page.locator("article").inner_text()
    parts = ["needs 2 places", "on its own: fits", "Nodes that refuse", "Rules in the way", "What would help"]
    assert sorted(parts, key=body.index) == parts
    assert f"default/g-0 on {node}" in body
    for name in ("g-0", "g-1"):
        served.request("DELETE", f"/api/v1/namespaces/default/pods/{name}")


def test_the_machine_room_shows_who_sits_where_and_the_hole_of_a_waiting_group(
    page: Page, served: Served
) -> None:
    """Two blocks, of two racks and of one; on every size of window."""
    block, rack = "example.com/block", "topology.kubernetes.io/zone"
    for node in served.request("GET", "/api/v1/nodes")["items"]:
        meta = node["metadata"]
        labels = {block: "block-2" if meta["labels"][rack] == "zone-c" else "block-1"}
        served.merge(f"/api/v1/nodes/{meta['name']}", {"metadata": {"labels": labels}})
    names = [
        *_room_members(served, "seated", 2, rack),
        *_room_members(served, "wide", 9, block, rack, cpu="3"),
    ]
    until(lambda: [hole["lacking"] for hole in served.shown("room")["waiting"]] == [5])
    until(lambda: [group["placed"] for group in served.shown("room")["groups"]] == [2])
    open_view(page, "Groups")
    room = page.locator(".room")
    room.get_by_text(f"needs 9 places in one {block}: block-1 has room for 4, 5 too few").wait_for()
    hole = room.locator(".block", has_text="the hole")
    assert hole.locator("h3").inner_text().split() == [
        "block-1",
        "4",
        "hosts,",
        "room",
        "for",
        "4",
        "the",
        "hole",
    ]
    assert hole.locator(".domain.hole").count() == 2
    assert room.locator(".domain").count() == 3
    seats = room.locator(".host .seat")
    assert {seat.inner_text()[0] for seat in seats.all()} == {"1"}
    room.get_by_role("button", name="default/seated").click()
    room.locator(".dimmed .host .seat.lit").first.wait_for()
    room.get_by_role("link", name="default/wide").click()
    room.locator("a[aria-current]", has_text="default/wide").wait_for()
    assert_fits(page)
    for name in names:
        served.request("DELETE", f"/api/v1/namespaces/default/pods/{name}")


def _room_members(
    served: Served, group: str, n: int, required: str, preferred: str = "", cpu: str = "100m"
) -> list[str]:
    """Create the members of a group, and return their names."""
    prefix = "affinity-scheduler.io/pod-group"
    labels = {prefix: group, f"{prefix}-min-count": str(n)}
    asked = {f"{prefix}-required-topology": required}
    if preferred:
        asked[f"{prefix}-preferred-topology"] = preferred
    names = [f"{group}-{index}" for index in range(n)]
    for name in names:
        served.add_pod(name, labels=labels, annotations=asked, cpu=cpu)
    return names


def test_decisions_are_mapped_by_duration_and_every_axis_has_its_unit(page: Page, served: Served) -> None:
    """The stuck rollout has had at least six decisions, three of which failed."""
    total = sum(map(sum, served.shown("now")["throughput"]["decision"]["overTime"]["columns"]))
    chart = page.locator("svg.durations").first
    chart.wait_for()
    assert total >= 6
    assert int((chart.get_attribute("aria-label") or "").split()[0]) >= 6
    assert {text.split()[1] for text in chart.locator("text").all_text_contents() if " " in text} <= {
        "µs",
        "ms",
        "s",
    }


def test_durations_that_round_up_to_another_digit_have_no_exponent(page: Page) -> None:
    shown = page.evaluate(
        "import('./wording.js').then((it) => [0.0123, 0.0997, 0.25, 0.9996, 1.5].map(it.duration))"
    )
    assert shown == ["12 ms", "100 ms", "250 ms", "1000 ms", "1.5 s"]


def test_nodes_say_how_full_they_are(page: Page) -> None:
    open_view(page, "Nodes")
    page.get_by_placeholder("part of its name").fill("node-0002")
    page.locator("tbody tr", has_text="node-0001").wait_for(state="detached")
    assert " of " in page.locator("tr", has_text="node-0002").inner_text()


def test_a_full_domain_names_the_pods_that_it_holds_off(page: Page, served: Served) -> None:
    """By the keyboard alone: the map takes the focus, arrow keys move, Enter opens a domain."""
    nodes: list[str | None] = []

    def each_zone_is_full() -> bool:
        pods = served.request("GET", "/api/v1/namespaces/shop-stuck/pods")["items"]
        nodes[:] = [pod["spec"].get("nodeName") for pod in pods]
        return len(nodes) - nodes.count(None) == 3

    until(each_zone_is_full)
    open_view(page, "Domains")
    page.get_by_role("link", name="app=shop").first.click()
    page.get_by_text("3 full").wait_for()
    page.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.get_by_text("zone-b: 1 pod, room 0, full").wait_for()
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="Domain zone-b")
    panel.get_by_role("heading", name=f"Pending pods that it holds off ({nodes.count(None)})").wait_for()
    page.keyboard.press("Escape")
    panel.wait_for(state="detached")
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"
    page.get_by_label("as a table").check()
    page.get_by_role("button", name="zone-a").wait_for()


def test_a_pool_shows_which_pod_has_each_device_and_which_are_tainted(page: Page, served: Served) -> None:
    """Six pods with a GPU each; of the devices left over one is tainted."""
    served.apply("16-inference.yaml")
    until(lambda: served.shown("devices")["drivers"] == [{"driver": GPUS, "free": 6, "allocated": 6}])
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    chosen = served.request("GET", slices)["items"][0]
    devices = chosen["spec"]["devices"]
    devices[1]["taints"] = [{"key": "example.com/hot", "effect": "NoExecute"}]
    served.merge(f"{slices}/{chosen['metadata']['name']}", {"spec": {"devices": devices}})
    open_view(page, "Devices")
    page.get_by_text("6 of 12 devices of gpu.nvidia.com free").wait_for()
    name = chosen["spec"]["pool"]["name"]
    page.get_by_label("Search pools").fill(name)
    row = page.locator(".rules tbody tr")
    # The list is drawn again a moment after the last key.
    row.nth(1).wait_for(state="detached")
    row.get_by_text("1 tainted").wait_for()
    row.get_by_role("link", name=name).click()
    page.locator("tr", has_text="gpu-1").get_by_text("example.com/hot:NoExecute").wait_for()
    used = next(one for one in served.shown("devices")["pools"] if one["free"] < 2)
    page.get_by_label("Search pools").fill(used["pool"])
    page.get_by_role("link", name=used["pool"]).click()
    page.get_by_role("link", name="models/inference-").first.wait_for()
    page.get_by_text("by claim models/inference-").first.wait_for()
    served.request("DELETE", "/apis/apps/v1/namespaces/models/deployments/inference")
    until(lambda: not served.request("GET", "/api/v1/namespaces/models/pods")["items"])


def test_a_question_is_answered_and_writes_nothing(page: Page, served: Served) -> None:
    """Three replicas by zone fit in three zones; without one of them, two do."""
    before = served.request("GET", "/api/v1/pods")["metadata"]["resourceVersion"]
    open_view(page, "What if")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("3 of 3 replicas fit").wait_for()
    page.get_by_label("Nodes taken away, by label").select_option("topology.kubernetes.io/zone")
    page.get_by_label("Value").fill("zone-a")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("2 of 3 replicas fit").wait_for()
    page.get_by_text("Without the changes: 3 of 3").wait_for()
    page.get_by_role("heading", name="What stops the next one").wait_for()
    page.get_by_text("0 of 1 pod finds another node").wait_for()
    changes = served.request(
        "GET", f"/api/v1/pods?resourceVersion={before}&resourceVersionMatch=NotOlderThan"
    )
    assert not [pod for pod in changes["items"] if pod["metadata"]["name"].startswith("web-")]


def test_a_bad_manifest_is_answered_in_one_line(page: Page) -> None:
    """With what was found and expected."""
    open_view(page, "What if")
    page.get_by_label("or one of your files").set_input_files(
        {"name": "bad.yaml", "mimeType": "text/yaml", "buffer": b"kind: Deployment\n"}
    )
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("alert").wait_for()
    assert "expected" in page.get_by_role("alert").inner_text()


def test_affinity_by_a_key_that_no_node_has_has_no_domains(page: Page, served: Served) -> None:
    """Its pods wait, so that it may not be shown as if there were room."""
    term = build.term("example.com/absent", build.selector("app=far"))
    served.add_pod("far", affinity=build.affinity(required=[term]))
    open_view(page, "Domains")
    page.locator("tr", has_text="app=far").get_by_text("none", exact=True).wait_for()


def test_a_decision_arrives_while_one_looks(page: Page, served: Served) -> None:
    """The feed shows a new pod without being asked, with its scores by plugin."""
    open_view(page, "Decisions")
    page.get_by_text("Live.").wait_for()
    served.add_pod("live-one")
    row = page.locator("tr", has_text="live-one")
    row.wait_for()
    row.get_by_role("button", name="Why?").click()
    page.locator(".scores .score").first.wait_for()
    page.get_by_text("Standing still").wait_for()


def test_a_decision_that_evicts_for_a_group_says_so_without_a_node(page: Page, served: Served) -> None:
    """A group's victims may be on several nodes."""
    open_view(page, "Decisions")
    page.get_by_text("Live.").wait_for()
    node = build.node("apart", labels={"apart": ""}, allocatable={"cpu": "1"}, taints=["apart:NoSchedule"])
    served.request("POST", "/api/v1/nodes", node)
    of_rank = {
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"apart": ""},
        "tolerations": [{"operator": "Exists"}],
    }
    served.add_pod("low", node="apart", cpu="1")
    served.add_pod("rank", labels={GROUP: "ranks", MIN_COUNT: "1"}, cpu="1", spec=of_rank)
    row = page.locator("tr", has_text="rank").filter(has_text="evicts")
    row.get_by_text("evicts 1 pod for its group").wait_for()
    row.get_by_role("button", name="Why?").click()
    page.get_by_text("Evicted for its group: default/low.").wait_for()


def test_an_eviction_arrives_with_its_reason(page: Page, served: Served) -> None:
    """As one of the enforcer's or of a drain would."""
    open_view(page, "Decisions")
    page.get_by_text("Live.").wait_for()
    pods = served.request("GET", "/api/v1/namespaces/shop-stuck/pods")["items"]
    name = next(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    served.request("POST", f"/api/v1/namespaces/shop-stuck/pods/{name}/eviction", eviction)
    row = page.locator("tr", has_text="evicted").filter(has_text=name)
    row.get_by_text("through the Eviction API").wait_for()


def test_default_constraints_are_soft_rules(page: Page) -> None:
    """Required rules are listed first; soft ones on request."""
    open_view(page, "Domains")
    page.get_by_role("link", name="app=shop").first.wait_for()
    page.get_by_label("Which rules").select_option("soft")
    page.locator("tr", has_text="spread, maxSkew 5, soft per topology.kubernetes.io/zone").first.wait_for()


def test_one_viewer_too_many_is_told_and_sees_figures(browser: Browser, standby: Standby) -> None:
    """It is not live, and asks again; a viewer who closes the page makes room."""
    with ExitStack() as streams:
        opened = [streams.enter_context(urlopen(f"{standby.url}/api/v1/stream")) for _ in range(MAX_VIEWERS)]
        assert {one.status for one in opened} == {200}
        context = browser.new_context()
        page = context.new_page()
        page.clock.install()
        page.goto(f"{standby.url}/ui/")
        page.get_by_text("not live").wait_for()
        page.get_by_text("Pods per second").wait_for()
        open_view(page, "Decisions")
        page.get_by_text("No decision yet").wait_for()

    def is_live() -> bool:
        page.clock.fast_forward(10_000)  # when it may ask again
        return page.get_by_text("not live").count() == 0

    until(is_live)
    context.close()


def test_the_page_of_a_standby_says_so_and_survives_its_restart(browser: Browser, standby: Standby) -> None:
    """A connected page tells that the connection broke, and goes on by itself."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{standby.url}/ui/")
    page.get_by_text("This instance is a standby: it shows its own caches").wait_for()
    standby.stop()
    page.get_by_text("not connected").wait_for()
    standby.start()
    page.get_by_text("not connected").wait_for(state="detached", timeout=_PATIENCE_MS)
    page.get_by_role("status").get_by_text("standby").wait_for(timeout=_PATIENCE_MS)
    context.close()


def test_a_scheduler_that_is_down_is_one_state_said_once(browser: Browser, standby: Standby) -> None:
    """Not live, no standby any more, and no view repeats it; what it showed stays, and from when it is."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{standby.url}/ui/")
    page.get_by_text("This instance is a standby").wait_for()
    open_view(page, "Pending")
    page.locator(".group").first.wait_for()
    open_view(page, "Decisions")
    page.get_by_text("No decision yet.", exact=True).wait_for()
    standby.stop()
    notice = page.get_by_role("alert")
    notice.wait_for()
    for title in VIEWS:
        open_view(page, title)
        page.wait_for_load_state("networkidle")
        assert notice.count() == 1, title
        text = page.locator("body").inner_text()
        said = notice.inner_text()
        assert said.startswith(
            "The scheduler does not answer. The page tries again by itself; what it shows is of "
        )
        assert "not connected" in text
        for wrong in ("Live.", "standby", "Failed to fetch", "network error"):
            assert wrong not in text, (title, wrong)
        assert_fits(page)
    context.close()


def test_hostile_text_stays_text(page: Page, served: Served) -> None:
    """The scheduler's message quotes an annotation that contains markup."""
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{HOSTILE: 1}]}}
    annotations = {"affinity-scheduler.io/affinity": json.dumps(affinity)}
    served.add_pod("hostile", labels={"constructor": "prototype"}, annotations=annotations)
    until(lambda: "onerror" in json.dumps(served.shown("pending")))
    open_view(page, "Pending")
    page.get_by_text("onerror").first.wait_for()
    page.get_by_role("link", name="default/hostile").click()
    page.locator(".message", has_text="onerror").first.wait_for()
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "Pending · affinity-scheduler"
