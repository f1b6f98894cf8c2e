"""What a report prints: what it leaves out, and which domains are open."""

from __future__ import annotations

import io

import pytest

from scheduler.tools.explain.formats.terminal import Style
from scheduler.tools.explain.report import more_lines, report_lines
from tests.support import build
from tests.support.json_cluster import Cluster, alone_per_zone, web, zoned


def test_an_open_domain_is_said_to_be_open() -> None:
    """Zone c takes no pod for want of room; the rule would let it in."""
    cluster = Cluster(
        [*zoned("a1 b1"), *zoned("c1", allocatable={"pods": "0"})], [web("one", "a1"), web("two", "b1")]
    )
    answer = cluster.explain(web("p", affinity=alone_per_zone()), try_changes=False)
    lines = report_lines(answer, Style(io.StringIO(), {}))
    start = next(number for number, line in enumerate(lines) if "DOMAIN" in line)
    assert [line.split() for line in lines[start : start + 4]] == [
        ["DOMAIN", "NODES", "PODS", "OPEN", "UP", "TO", "NOW"],
        ["a", "1", "1", "0", "closed"],
        ["b", "1", "1", "0", "closed"],
        ["c", "1", "0", "0", "open"],
    ]


def test_pods_that_are_counted_alone_are_named_by_a_wide_report() -> None:
    cluster = Cluster(zoned("a1"), [web(f"web-{number}", "a1") for number in range(5)])
    answer = cluster.explain(web("p", affinity=alone_per_zone()), try_changes=False)
    narrow, wide = (
        "\n".join(report_lines(answer, Style(io.StringIO(), {}, is_wide=is_wide)))
        for is_wide in (False, True)
    )
    assert "\nRULES (-o wide names more pods)\n" in narrow
    assert "web-2 on a1 (a) and 2 more" in narrow
    assert "\nRULES\n" in wide
    assert "web-4 on a1 (a)" in wide


@pytest.mark.parametrize(
    ("n_cut", "n_unlisted", "lines"),
    [
        (0, 0, []),
        (60, 0, ["  ... and 60 more domains (-o wide shows them)"]),
        (1, 0, ["  ... and 1 more domain (-o wide shows them)"]),
        (12, 48, ["  ... and 60 more domains (-o wide shows 12)"]),
        (0, 48, ["  ... and 48 more domains"]),
    ],
)
def test_what_is_cut_is_counted_with_what_shows_it(n_cut: int, n_unlisted: int, lines: list[str]) -> None:
    assert more_lines(n_cut, n_unlisted, "domain") == lines


def test_the_same_remedy_elsewhere_is_no_remedy_of_its_own() -> None:
    alone = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
    running = [build.pod(f"w{zone}", node=f"{zone}1", labels={"app": "web"}) for zone in "abc"]
    answer = Cluster(zoned("a1 a2 b1 b2 c1 c2"), running).explain(
        build.pod("p", labels={"app": "web"}, affinity=alone)
    )
    narrow, wide = (
        [line for line in report_lines(answer, Style(io.StringIO(), {}, is_wide=is_wide)) if "leaves" in line]
        for is_wide in (False, True)
    )
    assert narrow == [
        "  1. pod default/wa leaves node a1  -> a1",
        "     or likewise: pod default/wb leaves node b1; pod default/wc leaves node c1",
    ]
    assert [line[:5] for line in wide] == ["  1. ", "  2. ", "  3. "]
