"""Client certificates and tokens that expire: what is renewed in time is not noticed, and what is late heals."""

import base64
import json
import ssl
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from tests.proof.nights.servers import Night, night
from tests.support.api_client import Api
from tests.support.certificates import Authority, Pair
from tests.support.cluster import kubeconfig_text
from tests.support.daemon import started
from tests.support.waiting import TIMEOUT_S, until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

_USER = "system:kube-scheduler"
_LEASE = ("--leader-elect-resource-name", "kube-scheduler", "--leader-elect-lease-duration", "6s")
_ELECTION = (*_LEASE, "--leader-elect-renew-deadline", "5s", "--leader-elect-retry-period", "500ms")
#: Until the first identity expires; a start takes a part of it.
_SHORT_S, _LONG_S = 25.0, 3600.0
#: kube-apiserver accepts tokens for so long after they have expired (go-jose's leeway).
_LEEWAY_S = 60.0

#: Writes the files of an identity that is valid for so many seconds.
Issue = Callable[[float], object]


def _issued(authority: Authority, lifetime_s: float) -> Pair:
    """Return the user's new pair, written over the last one as kubelet and cert-manager do."""
    return authority.issue("user", subject=f"CN={_USER}", lifetime_s=lifetime_s)


def _with_user(of: Night, user: dict[str, str]) -> Path:
    """Write a kubeconfig of this user."""
    config = yaml.safe_load(kubeconfig_text(of.address.url, ca_file=str(of.address.ca_file)))
    config["users"] = [{"name": "u", "user": user}]
    path = of.folder / "user.kubeconfig"
    path.write_text(json.dumps(config))
    return path


async def _service_account(of: Night) -> str:
    """Create a ServiceAccount that may do what kube-scheduler's user may, and more; return its UID."""
    api = of.cluster.api
    accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
    uid: str = (await api.post(accounts, {"metadata": {"name": "night"}})).ok["metadata"]["uid"]
    binding = {
        "metadata": {"name": "night"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "night"}],
    }
    (await api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)).ok  # noqa: B018
    return uid


def _token(of: Night, uid: str, lifetime_s: float) -> str:
    """Return a token of the ServiceAccount as the API server signs it, which gives none for less than ten minutes."""
    now_s = int(time.time())
    claims = {
        "iss": "https://contract.test",
        "aud": ["https://contract.test"],
        "sub": "system:serviceaccount:kube-system:night",
        "iat": now_s - 3600,
        "nbf": now_s - 3600,
        "exp": int(now_s + lifetime_s - _LEEWAY_S),
        "kubernetes.io": {"namespace": "kube-system", "serviceaccount": {"name": "night", "uid": uid}},
    }
    head, body = (_encoded(json.dumps(part).encode()) for part in ({"alg": "ES256", "typ": "JWT"}, claims))
    pem = (of.folder / "service-accounts" / "ca.key").read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    r, s = utils.decode_dss_signature(key.sign(f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256())))
    return f"{head}.{body}.{_encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def _identity(of: Night, authority: Authority, kind: str) -> tuple[Path, Issue]:
    """Return a kubeconfig whose identity is in files, and what writes these."""
    if kind == "certificate":
        pair = _issued(authority, _SHORT_S)
        files = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
        return _with_user(of, files), partial(_issued, authority)
    uid, token_file = await _service_account(of), of.folder / "token"

    def issue(lifetime_s: float) -> None:
        token_file.write_text(_token(of, uid, lifetime_s))

    issue(_SHORT_S)
    return _with_user(of, {"tokenFile": str(token_file)}), issue


async def _is_refused(of: Night, kind: str) -> bool:
    """Return whether the server answers 401 to the identity in the files; for 10 s it remembers a good token."""
    context = ssl.create_default_context(cafile=str(of.address.ca_file))
    headers = {}
    if kind == "certificate":
        context.load_cert_chain(of.folder / "user.crt", of.folder / "user.key")
    else:
        headers["Authorization"] = f"Bearer {(of.folder / 'token').read_text()}"
    async with Api(of.address.url, headers, ssl=context) as api:
        return (await api.get("/version")).code == 401


@pytest.mark.parametrize("kind", ["certificate", "token"])
async def test_an_identity_that_expires(tmp_path: Path, kind: str) -> None:
    """Renewed in time: the leader leads on. Renewed late: what waited is bound, without a restart."""
    authority = Authority(tmp_path)
    async with night(tmp_path, f"--client-ca-file={authority.pair.cert}") as server:
        cluster = server.cluster
        await cluster.add_node("n")
        kubeconfig, issue = await _identity(server, authority, kind)
        async with started(kubeconfig, *_ELECTION) as daemon:

            async def refused() -> float:
                assert daemon.process.returncode is None, daemon.log()
                return await daemon.metric("rest_client_requests_total", code="401")

            await until(lambda: daemon.metric("leader_election_master_status"))
            issue(_LONG_S)
            # The first identity is used until the server refuses it: one request of each connection.
            await until(refused)
            await cluster.add_pod("in-time")
            await cluster.node_of("in-time")
            assert await daemon.metric("leader_election_master_status") == 1
            assert not daemon.logged("Traceback"), daemon.log()
        issue(_SHORT_S)
        async with started(kubeconfig, "--leader-elect=false") as daemon:
            await until(daemon.is_ready)
            await until(
                lambda: _is_refused(server, kind),
                timeout_s=2 * TIMEOUT_S,
                period_s=0.5,
                what="its expiry",
            )
            # The pod is shown by a watch that began in time.
            await cluster.add_pod("late")
            await until(refused, lambda n: n > 0, what="a refused bind")
            await until(lambda: daemon.metric("scheduler_schedule_attempts_total", result="error"))
            assert daemon.logged("Error scheduling pod", "Unauthorized"), daemon.log()
            issue(_LONG_S)
            await cluster.node_of("late")
            assert (await daemon.get("/readyz"))[0] == 200
            assert not daemon.logged("Traceback"), daemon.log()
