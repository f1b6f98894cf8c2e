"""The ClusterRoles of manifests/explain and manifests/shadow have exactly the rights that the commands use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scheduler.sandbox.devcluster.access.rbac import Attributes
from tests.cli.conftest import DEPLOYMENT, Called, served
from tests.support import accounts
from tests.support.forking import forked
from tests.support.manifest_files import documents
from tests.support.rights import granted

SHADOW = accounts.EXPLAIN_READER.parents[1] / "shadow" / "role.yaml"
#: Kubernetes 1.36, which the embedded cluster is, has none.
_TAINT_RULES = ("resource.k8s.io", "devicetaintrules")


async def test_the_role_has_exactly_the_rights_that_the_commands_use(tmp_path: Path, called: Called) -> None:
    record, manifest = accounts.Record(), tmp_path / "web.yaml"
    manifest.write_text(DEPLOYMENT)
    async with served(tmp_path) as cluster:
        cluster.decision_listeners.append(record.add)
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, accounts.EXPLAIN_READER)
        for command, code in {
            ("explain", "web-3"): 1,
            ("explain", "web-0"): 0,
            ("explain", "-f", str(manifest)): 1,
            ("simulate", "-f", str(manifest), "--replicas", "1"): 1,
            ("simulate", "-f", str(manifest), "--priority-class", "none"): 2,
            ("simulate", "--drain", "node-0001"): 1,
            ("snapshot", "-o", str(tmp_path / "snapshot.json")): 0,
        }.items():
            assert (await called(*command, "--kubeconfig", kubeconfig))[0] == code
    (user,) = record.granted
    assert record.refused == {}
    (role,) = documents(accounts.EXPLAIN_READER)
    (path_rule,) = (rule for rule in role["rules"] if "nonResourceURLs" in rule)
    role["rules"].remove(path_rule)
    assert used_rights(record.granted[user]) | {(*_TAINT_RULES, "list")} == granted_rights([role])


async def test_the_role_of_shadow_has_exactly_the_rights_that_it_uses(tmp_path: Path) -> None:
    """It needs the lists and watches of all kinds; without pods of its own the report has nothing to tell."""
    record = accounts.Record()
    async with served(tmp_path) as cluster:
        cluster.decision_listeners.append(record.add)
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, SHADOW)
        shadow = await forked("scheduler", "shadow", "--for", "500ms", "--kubeconfig", kubeconfig)
        out, _ = await shadow.communicate()
    assert shadow.returncode == 0
    assert out.decode().startswith("0 pods bound by default-scheduler: 0 as we would")
    (user,) = record.granted
    assert record.refused == {}
    used, allowed = used_rights(record.granted[user]), granted_rights(documents(SHADOW))
    assert used <= allowed
    # A watch begins with the objects that there are; only other servers need the lists.
    assert {each for each in allowed if each[2] == "watch"} <= used | {(*_TAINT_RULES, "watch")}
    assert {each[2] for each in allowed} == {"list", "watch"}


def used_rights(wishes: Iterable[Attributes]) -> set[tuple[str, ...]]:
    """Return the rights to resources. Kinds that the embedded cluster lacks are paths to it."""
    return {(wish.group, wish.full_resource, wish.verb) for wish in wishes if wish.full_resource}


def granted_rights(roles: list[Any]) -> set[tuple[str, ...]]:
    """Return the rights of the roles, but for groups of pods and Kueue's kinds, which the embedded cluster lacks."""
    rights = {tuple(each)[:3] for each in granted(roles)}
    return {each for each in rights if each[1] not in ("podgroups", "topologies", "resourceflavors")}
