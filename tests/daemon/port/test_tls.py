"""Self-signed certificates: valid while the process runs, and never on disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.port import certificates
from scheduler.daemon.port.certificates import LIFETIME_S, RENEW_BEFORE_S, expires_s, issue
from scheduler.daemon.port.serving_certificate import SELF_SIGNED_HOSTS, SelfSignedCertificate
from scheduler.daemon.port.tls import KeyPair, load_pair, server_context
from scheduler.errors import SettingsError
from tests.tools.webhook.memory_store import Served

NOW_S = 1_800_000_000.0
LOG = Logger(logging.getLogger("tls"))


def test_a_self_signed_pair_is_renewed_a_month_before_it_expires():
    served, now_s = Served(), [NOW_S]
    keeper = SelfSignedCertificate(served, log=LOG, clock_s=lambda: now_s[0])
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


async def test_the_age_is_checked_periodically():
    served, rounds = Served(), []

    async def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            raise asyncio.CancelledError

    keeper = SelfSignedCertificate(served, log=LOG)
    with pytest.raises(asyncio.CancelledError):
        await keeper.run(sleep)
    assert (len(served.pairs), len(rounds)) == (1, 3)


def test_a_pair_is_loaded_on_a_read_only_file_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The image has one."""
    absent = str(tmp_path / "absent")
    monkeypatch.setenv("TMPDIR", absent)
    monkeypatch.setattr(tempfile, "tempdir", absent)
    context, pair = server_context(), issue(SELF_SIGNED_HOSTS, NOW_S).pair
    load_pair(context, pair)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl._create_unverified_context().wrap_bio(to_client, to_server)
    for side in (client, context.wrap_bio(to_server, to_client, server_side=True), client):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(pair.cert.decode())


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(KeyPair(b"", b""), id="nothing"),
        pytest.param(
            KeyPair(issue(["a"], NOW_S).pair.cert, issue(["a"], NOW_S).pair.key), id="another's key"
        ),
    ],
)
def test_an_invalid_pair_is_refused(pair: KeyPair):
    with pytest.raises(ssl.SSLError):
        load_pair(server_context(), pair)


def test_repr_of_a_pair_contains_no_secret():
    assert "KEY" not in repr(issue(["a"], NOW_S).pair)


@pytest.mark.parametrize("missing", ["None", "types.ModuleType('cryptography.x509')"])
def test_the_webhook_says_what_it_lacks(missing: str):
    """No package, or one that is too old: a distribution's own lacks names of today's."""
    code = (
        f"import sys, types; sys.modules['cryptography.x509'] = {missing};"
        "from scheduler.cli.main import main; sys.exit(main())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "webhook"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "affinity-scheduler webhook: found no package cryptography, or an old one, "
        "expected pip install 'affinity-scheduler[webhook]'\n"
    )


def test_without_cryptography_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, certificates.__name__)
    monkeypatch.delattr(certificates.__name__)
    with pytest.raises(SettingsError) as caught:
        SelfSignedCertificate(Served(), log=LOG).load()
    assert str(caught.value) == snapshot
