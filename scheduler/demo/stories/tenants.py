"""Story 3: the second story of KEP-3633. Each tenant gets a node pool to itself, whichever it is."""

from __future__ import annotations

from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.objects import Pod
from scheduler.demo.stage import Stage, Story

_MANIFEST: Final = "03-tenant.yaml"
_POOL: Final = "example.com/node-pool"
_FIRST: Final = "azure"
_TENANTS: Final = ("azure", "coral", "olive")
_LATECOMER: Final = "pearl"
_EACH: Final = 4


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.label_shares(_POOL, "pool", len(_TENANTS))
    for i, tenant in enumerate(_TENANTS, 1):
        await _apply(stage, tenant)
        await stage.wait_ready(i * _EACH)
    show.step("three tenants run, with the same rule in all their manifests")
    pods = await stage.check()
    await _expect_exclusive(stage, pods)
    show.good("every tenant has one pool to itself")

    await _apply(stage, _LATECOMER)
    reason = await stage.wait_refused(f"tenant-{_LATECOMER}", _EACH)
    show.step(f"a fourth tenant, {_LATECOMER}, finds every pool taken:")
    show.quote(reason)
    await stage.draw(await stage.placed(), _tenant, region="pool", key=_POOL)
    await stage.delete_namespace("tenant-coral")
    await stage.wait_ready(len(_TENANTS) * _EACH)
    show.step(f"coral has left, and {_LATECOMER} took its pool")
    pods = await stage.check()
    await _expect_exclusive(stage, pods)
    await stage.draw(pods, _tenant, region="pool", key=_POOL)


async def _apply(stage: Stage, tenant: str) -> None:
    await stage.apply(_MANIFEST, None if tenant == _FIRST else (_FIRST, tenant))


async def _expect_exclusive(stage: Stage, pods: list[Pod]) -> None:
    pool_by_node = await stage.region_by_node(_POOL)
    homes = {(pod.metadata.labels["tenant"], pool_by_node[pod.spec.node_name]) for pod in pods}
    stage.expect(
        len(homes) == len(dict(homes)) == len({pool for _, pool in homes}) == len(_TENANTS),
        f"one pool for each tenant, and one tenant in each pool; found {sorted(homes)}",
    )


def _tenant(pod: Pod) -> Group:
    name = pod.metadata.labels["tenant"]
    return Group(name[0].upper(), name)


STORY: Final = Story(
    "Tenants with a node pool each",
    "Every tenant's pods carry one rule: near my tenant's pods (matchLabelKeys: [tenant]), away from any other "
    "tenant's (mismatchLabelKeys: [tenant]). No manifest names a pool (KEP-3633, story 2).",
    _play,
)
