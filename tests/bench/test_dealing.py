"""How pods of a shape and plain ones are dealt out in turn, and what their bindings tell."""

from itertools import accumulate, groupby

import pytest

from tests.bench.dealing import BLOCK, can_be_dealt, dealt, relative_speed
from tests.bench.http_level import measure_beside_plain
from tests.bench.scene import Size, build_scene
from tests.bench.shapes import SHAPE_BY_NAME, SHAPES


def _scene(name: str, n_pods: int):
    return build_scene(SHAPE_BY_NAME[name], Size(10, n_pods))


@pytest.mark.parametrize(("n_pods", "n_block"), [(4, 1), (23, 5), (4 * BLOCK, BLOCK), (10 * BLOCK, BLOCK)])
def test_plain_pods_come_first_last_and_between(n_pods, n_block):
    """All of one namespace; their names put them in that order."""
    scene = _scene("preferred-affinity", n_pods)
    pods = sorted(dealt(scene).measured, key=lambda pod: (pod.namespace, pod.name))
    blocks = [(name, len(list(block))) for name, block in groupby(pod.template.name for pod in pods)]
    n_blocks = n_pods // n_block
    assert blocks == [
        ("default", n_block),
        *[("preferred-affinity", n_block), ("default", n_block)] * n_blocks,
    ]
    assert {pod.namespace for pod in pods} == {scene.shape.measured_namespace}
    assert len({pod.name for pod in pods}) == len(pods)


def test_plain_pods_are_not_dealt_out_with_plain_ones_nor_with_too_few():
    plain = {shape.name for shape in SHAPES if not can_be_dealt(build_scene(shape, Size(10, 4)))}
    assert plain == {"basic", "mixed-base", "gated", "unschedulable", "churn"}
    assert not can_be_dealt(_scene("preferred-affinity", 3))


def _bound_s(n_measured: int, *, plain_s: float, shape_s: float, slower: float = 0.0) -> list[float]:
    """Bindings of a dealt scene, each `slower` times more slow than the one before."""
    pods = sorted(dealt(_scene("preferred-affinity", n_measured)).measured, key=lambda pod: pod.name)
    took_s = [plain_s if pod.template.name == "default" else shape_s for pod in pods]
    return list(accumulate(took * (1 + slower * number) for number, took in enumerate(took_s)))


@pytest.mark.parametrize("n_measured", [4, 23, 400, 1000])
def test_the_relative_speed_is_that_of_the_shape_to_plain_pods(n_measured):
    bound_s = _bound_s(n_measured, plain_s=0.001, shape_s=0.002)
    assert relative_speed(bound_s, n_measured) == pytest.approx(0.5)


def test_a_machine_that_gets_slower_and_slower_changes_nothing():
    """As it does by a half within these 2,100 bindings."""
    bound_s = _bound_s(1000, plain_s=0.001, shape_s=0.00125, slower=0.5 / 2100)
    assert relative_speed(bound_s, 1000) == pytest.approx(0.8)


def test_both_ends_are_left_out():
    bound_s = _bound_s(1000, plain_s=0.001, shape_s=0.002)
    late_s = [at_s + 5.0 * (number >= BLOCK) for number, at_s in enumerate(bound_s)]
    assert relative_speed(late_s, 1000) == pytest.approx(0.5)


def test_a_shape_is_measured_beside_plain_pods():
    """On the embedded cluster, too few to tell more than that all were bound."""
    scene = build_scene(SHAPE_BY_NAME["anti-affinity"], Size(40, 20))
    assert measure_beside_plain(scene, "devcluster") > 0.0
