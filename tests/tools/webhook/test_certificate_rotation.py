"""The webhook's own certificates, and how replicas share and renew them without a gap."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509 import verification

from scheduler.daemon.metrics.logs import Logger, configure
from scheduler.daemon.port.certificates import (
    LIFETIME_S,
    RENEW_BEFORE_S,
    TrustedKeyPair,
    expires_s,
    issue,
    renew,
    renewal_reason,
)
from scheduler.daemon.port.serving_certificate import FileCertificate
from scheduler.daemon.port.tls import KeyPair
from scheduler.errors import Forbidden, NotFound, ServerFault, SettingsError, Unreachable
from scheduler.tools.webhook.certificate_rotation import LEARN_S, CertificateRotation
from tests.tools.webhook.memory_store import Clock, Served, Shared

HOST = "affinity-scheduler-webhook.somewhere.svc"
NOW_S = Clock().now_s
MONTH_S = 30 * 86_400.0


def trusts(authorities: bytes, pair: KeyPair, *, host: str = HOST, now_s: float = NOW_S) -> bool:
    """Return whether a TLS client that trusts these authorities accepts the pair for the host."""
    store = verification.Store(x509.load_pem_x509_certificates(authorities))
    builder = verification.PolicyBuilder().store(store).time(datetime.fromtimestamp(now_s, UTC))
    verifier = builder.build_server_verifier(x509.DNSName(host))
    try:
        verifier.verify(x509.load_pem_x509_certificate(pair.cert), [])
    except verification.VerificationError:
        return False
    return True


def test_an_issued_pair_is_valid_for_its_hosts_and_time():
    made = issue([HOST, "127.0.0.1"], NOW_S)
    assert trusts(made.authorities, made.pair)
    assert not trusts(made.authorities, made.pair, host="elsewhere.svc")
    assert not trusts(made.authorities, made.pair, now_s=NOW_S + LIFETIME_S + 1)
    assert not trusts(issue([HOST], NOW_S).authorities, made.pair)
    assert expires_s(made.pair.cert) == NOW_S + LIFETIME_S
    assert renewal_reason(made, [HOST, "127.0.0.1"], NOW_S) is None


GOOD, OTHER = issue([HOST], NOW_S), issue([HOST], NOW_S)


def kept(
    authorities: bytes = GOOD.authorities, cert: bytes = GOOD.pair.cert, key: bytes = GOOD.pair.key
) -> TrustedKeyPair:
    return TrustedKeyPair(authorities, KeyPair(cert, key))


EMPTY, RUBBISH = kept(b"", b"", b""), kept(b"x", b"y", b"z")
MIXED_UP, OF_ANOTHER = kept(key=OTHER.pair.key), kept(OTHER.authorities)
RENEWED_S = NOW_S + LIFETIME_S - RENEW_BEFORE_S


@pytest.mark.parametrize(
    ("trusted", "host", "now_s", "reason"),
    [
        pytest.param(EMPTY, HOST, NOW_S, "there is none", id="empty Secret"),
        pytest.param(RUBBISH, HOST, NOW_S, "there is none", id="rubbish"),
        pytest.param(kept(key=b""), HOST, NOW_S, "there is none", id="no key"),
        pytest.param(GOOD, HOST, RENEWED_S, "it expires soon", id="a month left"),
        pytest.param(GOOD, HOST, RENEWED_S - 1, None, id="more than a month left"),
        pytest.param(GOOD, HOST, NOW_S + LIFETIME_S, "it has expired", id="the last second"),
        pytest.param(GOOD, HOST, NOW_S - MONTH_S, "it is not valid yet", id="from the future"),
        pytest.param(GOOD, "other.svc", NOW_S, "it is for other names", id="renamed"),
        pytest.param(MIXED_UP, HOST, NOW_S, "its key does not match", id="mixed up"),
        pytest.param(OF_ANOTHER, HOST, NOW_S, "its authority is not known", id="another authority"),
    ],
)
def test_a_pair_that_is_no_longer_valid_is_replaced(trusted, host, now_s, reason):
    assert renewal_reason(trusted, [host], now_s) == reason


def test_a_renewed_pair_is_trusted_beside_the_old_one():
    fresh = renew([HOST], NOW_S, GOOD.authorities)
    assert trusts(fresh.authorities, fresh.pair)
    assert trusts(fresh.authorities, GOOD.pair)


def test_expired_authorities_are_dropped_and_their_number_is_bounded():
    trusted = GOOD
    for number in range(6):
        trusted = renew([HOST], NOW_S + number, trusted.authorities)
    assert trusted.authorities.count(b"BEGIN") == 3
    assert renew([HOST], NOW_S + LIFETIME_S + 10, trusted.authorities).authorities.count(b"BEGIN") == 1


def test_a_pair_is_never_shown():
    for value in (GOOD, GOOD.pair):
        assert "BEGIN" not in repr(value)


# Replicas


class Replica:
    """One webhook process and the pairs that it serves."""

    def __init__(self, shared: Shared, clock: Clock, now: Clock | None = None) -> None:
        self.log = io.StringIO()
        self.served = Served()
        logger = configure(verbosity=2, form="text", stream=self.log)
        self.rotation = CertificateRotation(
            shared, [HOST], self.served, log=logger, clock_s=clock, now_s=now or clock
        )

    @property
    def serves(self) -> KeyPair:
        return self.served.pairs[-1]


class EndError(Exception):
    """Ends the endless loop."""


async def slept(replica: Replica, n: int, after: Callable[[int], None] = lambda _: None) -> list[float]:
    """Run the replica until it sleeps for the n-th time, with `after` called each time; return how long it slept."""
    pauses_s: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses_s.append(seconds)
        after(len(pauses_s))
        if len(pauses_s) == n:
            raise EndError

    with pytest.raises(EndError):
        await replica.rotation.run(sleep)
    return pauses_s


async def test_every_served_pair_is_trusted_at_every_moment_of_a_year():
    shared, clock = Shared(), Clock()
    replicas = [Replica(shared, clock), Replica(shared, clock)]
    heard = b""
    for round_number in range(2 * 365):
        clock.now_s += 12 * 3600.0
        for replica in replicas:
            await replica.rotation.check()
            clock.now_s += 20.0
            for each in replicas:
                if each.served.pairs and heard:
                    assert trusts(heard, each.serves, now_s=clock.now_s), round_number
            clock.now_s += LEARN_S
            heard = shared.published[-1]
    assert 4 <= shared.n_writes <= 8
    assert all(len(replica.served.pairs) == shared.n_writes for replica in replicas)


async def test_a_clock_that_is_set_back_does_not_delay_a_renewed_pair():
    shared, clock, now = Shared(trusted=GOOD), Clock(), Clock()
    replica = Replica(shared, clock, now)
    await replica.rotation.check()
    clock.now_s = RENEWED_S
    await replica.rotation.check()
    clock.now_s -= 3600
    now.now_s += LEARN_S
    await replica.rotation.check()
    assert replica.serves == shared.trusted.pair != GOOD.pair


async def test_an_emptied_secret_is_refilled_and_every_served_pair_stays_trusted():
    shared, clock = Shared(), Clock()
    replicas = [Replica(shared, clock), Replica(shared, clock)]
    for replica in replicas:
        await replica.rotation.check()
    shared.trusted = EMPTY
    for _ in range(3):
        for replica in replicas:
            await replica.rotation.check()
            clock.now_s += LEARN_S / 2
            for each in replicas:
                assert trusts(shared.published[-1], each.serves, now_s=clock.now_s)
    assert [len(replica.served.pairs) for replica in replicas] == [2, 2]


async def test_another_pair_in_the_secret_is_served_at_once():
    """The served pair is not trusted any more, so waiting would gain nothing."""
    shared, clock = Shared(), Clock()
    replica = Replica(shared, clock)
    await replica.rotation.check()
    shared.trusted = issue([HOST], clock.now_s)
    await replica.rotation.check()
    assert replica.serves == shared.trusted.pair
    assert trusts(shared.published[-1], replica.serves, now_s=clock.now_s)


# Without the right to write the Secret

NO_RIGHT = Forbidden(403, "Forbidden", "cannot patch resource secrets")


@pytest.mark.parametrize("left_s", [RENEW_BEFORE_S, 1.0])
@pytest.mark.parametrize(
    "refusal",
    [
        NO_RIGHT,
        NotFound(404, "NotFound", "deleted meanwhile"),
        ServerFault(500, "InternalError", "etcd"),
        Unreachable(0, "Timeout", "no answer"),
    ],
    ids=lambda refusal: refusal.reason,
)
async def test_a_restarted_replica_serves_the_old_pair_while_it_is_valid(left_s, refusal):
    """One line says so, however long it lasts. Renewed once that is possible, it waits as ever."""
    shared, clock = Shared(trusted=GOOD, refusal=refusal), Clock(NOW_S + LIFETIME_S - left_s)
    replica = Replica(shared, clock)
    for _ in range(3):
        assert not await replica.rotation.check()
    assert replica.served.pairs == [GOOD.pair]
    assert shared.published == [GOOD.authorities]
    assert trusts(shared.published[-1], replica.serves, now_s=clock.now_s)
    (line,) = replica.log.getvalue().splitlines()
    assert "Failed to renew the serving certificate; serving the old one" in line
    assert refusal.message in line
    assert f'until="{datetime.fromtimestamp(NOW_S + LIFETIME_S, UTC).isoformat()}"' in line
    shared.refusal = None
    assert await replica.rotation.check()
    assert shared.trusted.pair != GOOD.pair
    assert replica.serves == GOOD.pair
    assert trusts(shared.published[-1], replica.serves, now_s=clock.now_s)
    clock.now_s += LEARN_S
    await replica.rotation.check()
    assert replica.serves == shared.trusted.pair


@pytest.mark.parametrize(
    ("stored", "late_s"),
    [
        pytest.param(GOOD, LIFETIME_S, id="expired for good"),
        pytest.param(EMPTY, 0.0, id="an empty Secret"),
        pytest.param(RUBBISH, 0.0, id="rubbish"),
        pytest.param(OF_ANOTHER, 0.0, id="another authority"),
        pytest.param(MIXED_UP, LIFETIME_S - 1, id="mixed up, and expires soon"),
    ],
)
async def test_a_restarted_replica_serves_nothing_that_clients_refuse(stored, late_s):
    """Nor does it publish its authority. Once the Secret can be written, it serves a new pair at once."""
    shared, clock = Shared(trusted=stored, refusal=NO_RIGHT), Clock(NOW_S + late_s)
    replica = Replica(shared, clock)
    with pytest.raises(Forbidden):
        await replica.rotation.check()
    assert (replica.served.pairs, shared.published) == ([], [])
    shared.refusal = None
    assert await replica.rotation.check()
    assert trusts(shared.published[-1], replica.serves, now_s=clock.now_s)


@pytest.mark.parametrize("stored", [EMPTY, RUBBISH])
async def test_a_running_replica_serves_on_whatever_the_secret_has(stored):
    shared, clock = Shared(trusted=GOOD), Clock()
    replica = Replica(shared, clock)
    await replica.rotation.check()
    shared.trusted, shared.refusal = stored, NO_RIGHT
    with pytest.raises(Forbidden):
        await replica.rotation.check()
    assert (replica.served.pairs, shared.published) == ([GOOD.pair], [GOOD.authorities])


async def test_what_a_user_writes_amid_a_renewal_is_not_published():
    """The served pair stays trusted, and the next check writes a new pair."""
    shared, clock = Shared(trusted=GOOD), Clock(RENEWED_S)
    shared.faster = RUBBISH
    replica = Replica(shared, clock)
    assert not await replica.rotation.check()
    assert (replica.serves, shared.published) == (GOOD.pair, [GOOD.authorities])
    assert await replica.rotation.check()
    assert trusts(shared.published[-1], replica.serves, now_s=clock.now_s)
    assert trusts(shared.published[-1], shared.trusted.pair, now_s=clock.now_s)


async def test_two_replicas_that_renew_at_once_agree():
    """Both have read the old pair before one of them writes."""
    shared, clock = Shared(trusted=GOOD), Clock(RENEWED_S)
    replicas = [Replica(shared, clock), Replica(shared, clock)]
    assert await asyncio.gather(*(replica.rotation.check() for replica in replicas)) == [True, True]
    assert shared.n_writes == 1
    clock.now_s += LEARN_S
    for replica in replicas:
        await replica.rotation.check()
        assert replica.serves == shared.trusted.pair != GOOD.pair
        assert replica.served.pairs[0] == GOOD.pair
        assert trusts(shared.published[-1], GOOD.pair, now_s=clock.now_s)


async def test_retries_are_ever_slower_up_to_the_period_and_begin_anew():
    """Each kind of failure is one line."""
    shared, clock = Shared(trusted=GOOD, refusal=NO_RIGHT), Clock(NOW_S + LIFETIME_S - 1)
    replica = Replica(shared, clock)

    def change(number: int) -> None:
        shared.refusal = None if number == 6 else NO_RIGHT
        if number == 7:
            shared.trusted = RUBBISH

    assert await slept(replica, 9, change) == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0, 5.0, 10.0]
    lines = [line.partition("] ")[2].partition(" err")[0] for line in replica.log.getvalue().splitlines()]
    assert lines == [
        '"Failed to renew the serving certificate; serving the old one"',
        '"Renewed the serving certificate" reason="it expires soon"',
        '"Failed to check the serving certificate; retrying"',
    ]


async def test_nothing_is_served_that_the_api_server_may_not_know():
    """Neither the Secret nor a configuration may be written. One line says so, and none that it serves."""
    shared = Shared(trusted=GOOD, refusal=NO_RIGHT, is_publishing_refused=True)
    replica = Replica(shared, Clock(NOW_S + LIFETIME_S - 1))
    await slept(replica, 4)
    (line,) = replica.log.getvalue().splitlines()
    assert "cannot patch configurations" in line
    assert replica.served.pairs == []


# Files


@pytest.fixture
def log() -> Logger:
    return configure(verbosity=0, form="text", stream=io.StringIO())


def write(folder: Path, pair: KeyPair) -> tuple[Path, Path]:
    cert, key = folder / "tls.crt", folder / "tls.key"
    cert.write_bytes(pair.cert)
    key.write_bytes(pair.key)
    return cert, key


def test_changed_files_are_served_and_unchanged_ones_not_reloaded(tmp_path, log):
    served = Served()
    rotation = FileCertificate(*write(tmp_path, GOOD.pair), served, log=log)
    rotation.load()
    rotation.load()
    write(tmp_path, OTHER.pair)
    rotation.load()
    assert served.pairs == [GOOD.pair, OTHER.pair]


@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_invalid_certificate_files_are_one_line(tmp_path, log, content):
    cert, key = write(tmp_path, GOOD.pair)
    if content is None:
        cert.unlink()
    else:
        cert.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        FileCertificate(cert, key, Served(), log=log).load()
    assert str(caught.value).startswith(f"--tls-cert-file: {cert}: found")
    assert "\n" not in str(caught.value)
