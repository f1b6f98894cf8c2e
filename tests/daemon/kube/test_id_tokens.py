"""ID tokens of `auth-provider: oidc`, renewed by an issuer with a certificate of its own authority."""

import asyncio
import ssl
import sys
import time
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from scheduler.errors import SettingsError
from tests.daemon.kube.kubeconfigs import changed, encoded, id_token, loaded, written
from tests.support.scripted_server import answering

pytestmark = [
    # By aiohttp, about the arguments that kubernetes-asyncio passes.
    pytest.mark.filterwarnings(
        "ignore:(ssl_context|BasicAuth|The 'auth' parameter) is deprecated:DeprecationWarning"
    ),
]

HOUR_S = 3600.0
EXPIRED = id_token("expired", exp=1.0)


def valid(name, lifetime_s=HOUR_S):
    return id_token(name, exp=int(time.time() + lifetime_s))


class Issuer:
    """Answers each renewal with the next of `answers`: tokens, or a status; records the refresh tokens."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.url = ""
        self.metadata = None
        self.refreshed = []

    async def answer(self, request):
        if request.method == "GET":
            assert request.path == "/.well-known/openid-configuration"
            return web.json_response(self.metadata or {"token_endpoint": f"{self.url}/token"})
        form = await request.post()
        assert request.headers["Authorization"] == f"Basic {encoded(b'us:secret-of-client')}"
        assert (request.path, form["grant_type"]) == ("/token", "refresh_token")
        self.refreshed.append(form["refresh_token"])
        answer = self.answers.pop(0)
        return web.Response(status=answer) if isinstance(answer, int) else web.json_response(answer)


@asynccontextmanager
async def issuing(authority, *answers):
    issuer = Issuer(*answers)
    pair = authority.issue("issuer", subject="CN=issuer")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    async with answering(issuer.answer, context) as issuer.url:
        yield issuer


def kubeconfig(folder, issuer, authority, **config):
    """Write a kubeconfig; a configuration of None leaves the field out."""
    fields = {
        "client-id": "us",
        "client-secret": "secret-of-client",
        "refresh-token": "secret-1",
        "idp-issuer-url": issuer.url if issuer else "https://issuer.invalid",
        "idp-certificate-authority": str(authority.pair.cert),
        **{name.replace("_", "-"): value for name, value in config.items()},
    }
    present = {name: value for name, value in fields.items() if value is not None}
    user = {"auth-provider": {"name": "oidc", "config": present}}
    return written(folder / "config", changed(user=user))


OLD = {
    "missing": None,
    "expired": EXPIRED,
    "without an expiry": id_token("endless"),
    "expires soon": valid("soon", 5.0),
}


@pytest.mark.parametrize("old", OLD.values(), ids=OLD)
@pytest.mark.parametrize("inline", [False, True], ids=["CA file", "CA data"])
async def test_a_token_that_is_missing_or_expires_is_renewed(tmp_path, authority, old, inline):
    """By an issuer that our CA proves. The data have precedence over the file, which is not written."""
    new = valid("new")
    trust = {"idp_certificate_authority_data": encoded(authority.pair.cert.read_bytes())} if inline else {}
    async with issuing(authority, {"id_token": new, "refresh_token": "secret-2"}) as issuer:
        path = kubeconfig(tmp_path, issuer, authority, id_token=old, **trust)
        before = path.read_text()
        credentials = await loaded(path)
        assert await credentials.authorization() == f"Bearer {new}"
        assert issuer.refreshed == ["secret-1"]
        assert path.read_text() == before


async def test_a_token_is_renewed_before_it_expires_with_the_latest_refresh_token(tmp_path, authority):
    """At four fifths of its lifetime and after a 401. An issuer may keep the refresh token valid."""
    now_s = 1000.0
    old, new = valid("old"), [valid(f"new-{n}") for n in range(3)]
    answers = [
        {"id_token": new[0], "refresh_token": "secret-2"},
        {"id_token": new[1]},
        503,
        {"id_token": new[2]},
    ]
    async with issuing(authority, *answers) as issuer:
        path = kubeconfig(tmp_path, issuer, authority, id_token=old)
        credentials = await loaded(path, now_s=lambda: now_s)
        now_s += 0.75 * HOUR_S
        assert await credentials.authorization() == f"Bearer {old}"
        assert issuer.refreshed == []
        now_s += 0.1 * HOUR_S
        assert await credentials.authorization() == f"Bearer {new[0]}"
        now_s += 60.0
        assert await credentials.renew(f"Bearer {new[0]}", 0)
        assert await credentials.authorization() == f"Bearer {new[1]}"
        now_s += 0.85 * HOUR_S
        assert await credentials.authorization() == f"Bearer {new[1]}", "a failure keeps it"
        now_s += 60.0
        assert await credentials.authorization() == f"Bearer {new[2]}"
        assert issuer.refreshed == ["secret-1", "secret-2", "secret-2", "secret-2"]


FIELD = "users[u].user.auth-provider.config"
NO_TOKEN = "no new ID token from the issuer: "
REFUSALS = {
    "a refused refresh token": (400, {}, f"{FIELD}: found {NO_TOKEN}400, message='Bad Request'"),
    "no ID token": ({"access_token": "a"}, {}, f"{NO_TOKEN}Object missing required field `id_token`"),
    "no JWT": ({"id_token": "secret"}, {}, f"{FIELD}: found an ID token that is no JWT"),
    "an unknown authority": (400, {"idp_certificate_authority": None}, "CERTIFICATE_VERIFY_FAILED"),
    "a CA that is not PEM": (400, {"idp_certificate_authority_data": "eA=="}, "authority-data: found "),
    "a missing CA": (400, {"idp_certificate_authority": "gone"}, "/gone, expected an existing file"),
    "no refresh token": (400, {"refresh_token": None}, f"{FIELD}: found no refresh-token for an ID token"),
    "plain HTTP": (400, {"idp_issuer_url": "http://h"}, "idp-issuer-url 'http://h', which is no https URL"),
    "nobody there": (400, {"idp_issuer_url": "https://127.0.0.1:1"}, f"{NO_TOKEN}[Errno 111]"),
}


@pytest.mark.parametrize(("answer", "config", "found"), REFUSALS.values(), ids=REFUSALS)
async def test_a_token_that_is_not_renewed_is_one_line(tmp_path, authority, caplog, answer, config, found):
    async with issuing(authority, answer) as issuer:
        with pytest.raises(SettingsError) as caught:
            await loaded(kubeconfig(tmp_path, issuer, authority, **{"id_token": EXPIRED} | config))
        assert len(issuer.refreshed) == (not config)
    line = str(caught.value)
    assert found in line
    assert "\n" not in line
    assert "secret" not in line + caplog.text


@pytest.mark.parametrize("metadata", [[1], {"issuer": "x"}])
async def test_an_issuer_without_a_token_endpoint_is_one_line(tmp_path, authority, metadata):
    """The library subscripts whatever it gets."""
    async with issuing(authority) as issuer:
        issuer.metadata = metadata
        with pytest.raises(SettingsError, match="its metadata are no object with a token_endpoint"):
            await loaded(kubeconfig(tmp_path, issuer, authority))


async def test_kubernetes_asyncio_is_not_imported_for_a_valid_token(tmp_path, authority):
    """Its import takes a second."""
    path = kubeconfig(tmp_path, None, authority, id_token=valid("alice"))
    program = (
        "import asyncio, sys\nfrom scheduler.daemon.kube.credentials import load_credentials\n"
        f"asyncio.run(load_credentials(kubeconfig={str(path)!r}, master=None, environ={{}}))\n"
        "sys.exit('kubernetes_asyncio' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0
