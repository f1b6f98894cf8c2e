"""Certificates of our own making: for as long as the process runs, and never on a disk."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scheduler.devcluster.server import DevCluster
from scheduler.observe.logs import Logger
from scheduler.serving.certificates import LIFETIME_S, RENEW_BEFORE_S, expires_s, issue
from scheduler.serving.tls import OWN_HOSTS, OwnKeeper, Pair, load_pair, server_context
from tests.support import accounts

NOW_S = 1_800_000_000.0
WITHOUT = (
    "import sys; sys.modules['cryptography'] = None; from scheduler.cli.main import main; sys.exit(main())"
)


@dataclass
class Served:
    """The pairs that were served, newest last."""

    pairs: list[Pair] = field(default_factory=list)

    def serve(self, pair: Pair) -> None:
        self.pairs.append(pair)


def test_a_pair_of_ones_own_is_renewed_a_month_before_it_expires():
    served, now_s = Served(), [NOW_S]
    keeper = OwnKeeper(served, log=Logger(logging.getLogger("tls")), clock_s=lambda: now_s[0])
    keeper.load()
    keeper.load()
    assert len(served.pairs) == 1
    assert expires_s(served.pairs[0].cert) == NOW_S + LIFETIME_S
    now_s[0] += LIFETIME_S - RENEW_BEFORE_S - 1
    keeper.load()
    assert len(served.pairs) == 1
    now_s[0] += 1
    keeper.load()
    assert len(served.pairs) == 2
    assert served.pairs[0] != served.pairs[1]


@pytest.mark.asyncio
async def test_it_looks_at_the_clock_again_and_again():
    served, rounds = Served(), []

    async def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            raise asyncio.CancelledError

    keeper = OwnKeeper(served, log=Logger(logging.getLogger("tls")))
    with pytest.raises(asyncio.CancelledError):
        await keeper.run(sleep)
    assert (len(served.pairs), len(rounds)) == (1, 3)


def test_a_pair_is_loaded_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The product's image has a file system that is read-only."""
    absent = str(tmp_path / "absent")
    monkeypatch.setenv("TMPDIR", absent)
    monkeypatch.setattr(tempfile, "tempdir", absent)
    load_pair(server_context(), issue(OWN_HOSTS, NOW_S).pair)


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(Pair(b"", b""), id="nothing"),
        pytest.param(Pair(issue(["a"], NOW_S).pair.cert, issue(["a"], NOW_S).pair.key), id="another's key"),
    ],
)
def test_what_is_no_pair_is_refused(pair: Pair):
    with pytest.raises(ssl.SSLError):
        load_pair(server_context(), pair)


def test_a_pair_is_never_shown():
    assert "KEY" not in repr(issue(["a"], NOW_S).pair)


@pytest.mark.asyncio
async def test_without_the_package_that_makes_certificates_it_says_what_to_do(tmp_path: Path):
    async with DevCluster() as cluster:
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", tmp_path)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WITHOUT, "run", "--kubeconfig", str(kubeconfig)),
            *("--bind-address", "0.0.0.0"),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
    assert process.returncode == 2
    assert said.decode() == (
        "--bind-address: found no certificate, and none can be made, expected --tls-cert-file and "
        "--tls-private-key-file, or: pip install 'affinity-scheduler[tls]'\n"
    )
