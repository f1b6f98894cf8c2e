"""`shadow` with the rights of manifests/shadow on the embedded cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Called
from tests.cli.test_commands import served
from tests.cli.test_rights import granted_rights, used_rights
from tests.support import accounts
from tests.support.forking import forked
from tests.support.manifest_files import documents

ROLE = accounts.EXPLAIN_READER.parents[1] / "shadow" / "role.yaml"


async def test_the_role_has_exactly_the_rights_that_shadow_uses(tmp_path: Path) -> None:
    """It needs the lists and watches of all kinds; without pods of its own the report has nothing to tell."""
    record = accounts.Record()
    async with served(tmp_path) as cluster:
        cluster.decision_listeners.append(record.add)
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, ROLE)
        shadow = await forked("scheduler", "shadow", "--for", "500ms", "--kubeconfig", kubeconfig)
        out, _ = await shadow.communicate()
    assert shadow.returncode == 0
    assert out.decode().startswith("0 pods bound by default-scheduler: 0 as we would")
    (user,) = record.granted
    assert record.refused == {}
    used, allowed = used_rights(record.granted[user]), granted_rights(documents(ROLE))
    assert used <= allowed
    # A watch begins with the objects that there are; only other servers need the lists.
    # The embedded cluster is 1.36, beside which no taint rules are read.
    taint_rules = {("resource.k8s.io", "devicetaintrules", "watch")}
    assert {each for each in allowed if each[2] == "watch"} <= used | taint_rules
    assert {each[2] for each in allowed} == {"list", "watch"}


@pytest.mark.parametrize(
    "flags", [("--for", "soon"), ("--for", "0s"), ("--percentage-of-nodes-to-score", "101")]
)
async def test_wrong_flags_are_one_line(flags: tuple[str, str], called: Called) -> None:
    code, out, err = await called("shadow", *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"{flags[0]}: found {flags[1]}, expected ")
