"""Real kubeconfig files against real TLS servers: authentication, and renewal of identities."""

import asyncio
import ssl
import sys
import tempfile
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from scheduler.daemon.kube import login
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import REREAD_S, Credentials, Endpoint, load_credentials
from scheduler.daemon.kube.login import Identity
from scheduler.daemon.kube.requests import get_pod
from scheduler.errors import SettingsError, Unauthorized, Unreachable
from tests.daemon.kube.kubeconfigs import changed, encoded, id_token, loaded, written
from tests.support.scripted_server import answering
from tests.support.waiting import TIMEOUT_S

GET = get_pod("d", "p")


@asynccontextmanager
async def guarded(authority=None, *, host="IP:127.0.0.1", accepts=lambda _: True):
    """Start a server that returns the header and certificate that it got; 401 unless `accepts` the header."""

    async def answer(request):
        header = request.headers.get("Authorization", "")
        if not accepts(header):
            return web.Response(status=401)
        certificate = request.transport.get_extra_info("peercert")
        subject = dict(part[0] for part in certificate["subject"]) if certificate else {}
        return web.Response(text=f"{header}|{subject.get('commonName', '')}")

    context = None if authority is None else served_with(authority, host)
    async with answering(answer, context) as url:
        yield url


def served_with(authority, host="IP:127.0.0.1"):
    """Return the TLS context of a server that asks for certificates of the authority."""
    pair = authority.issue(f"server-{host.replace(':', '-')}", subject="CN=server", host=host)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.pair.cert)
    context.load_cert_chain(pair.cert, pair.key)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


async def answer_to(credentials):
    async with KubeClient(credentials) as client:
        return (await client.request(GET, timeout_s=5)).decode()


async def seen(path):
    return await answer_to(await loaded(path))


VALID = id_token("alice", exp=4e9)
USERS = {
    "no user": ({}, "|"),
    "token": ({"token": "t"}, "Bearer t|"),
    "token file beside the kubeconfig": ({"tokenFile": "beside"}, "Bearer of-file|"),
    "the file has precedence": ({"token": "t", "tokenFile": "beside"}, "Bearer of-file|"),
    "name and password": ({"username": "a", "password": "b"}, "Basic YTpi|"),
    "ID token": ({"auth-provider": {"name": "oidc", "config": {"id-token": VALID}}}, f"Bearer {VALID}|"),
    "the token has precedence over a plugin": (
        {"token": "t", "exec": {"command": "./gone", "apiVersion": "v1"}},
        "Bearer t|",
    ),
}


@pytest.mark.parametrize(("user", "shown"), USERS.values(), ids=USERS)
async def test_the_kubeconfigs_user_is_authenticated(tmp_path, user, shown):
    written(tmp_path / "beside", "of-file\n")
    async with guarded() as url:
        path = written(tmp_path / "config", changed(cluster={"server": url + "/"}, user=user))
        assert await seen(path) == shown


@pytest.mark.parametrize("inline", [False, True], ids=["files", "data"])
async def test_a_client_certificate_is_sent_to_a_trusted_server(tmp_path, authority, inline, monkeypatch):
    """Also on a read-only file system, as the image has one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    pair = authority.issue("alice", subject="CN=alice,O=team")
    if inline:
        cert, key = (encoded(file.read_bytes()) for file in (pair.cert, pair.key))
        trust = {"certificate-authority-data": encoded(authority.pair.cert.read_bytes())}
        user = {"client-certificate-data": cert, "client-key-data": key}
    else:
        (tmp_path / "ca.crt").write_bytes(authority.pair.cert.read_bytes())
        trust = {"certificate-authority": "ca.crt"}
        user = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
    async with guarded(authority) as url:
        path = written(tmp_path / "config", changed(cluster={"server": url} | trust, user=user))
        assert await seen(path) == "|alice"


CA = {"certificate-authority": "ca.crt"}
SERVERS = {
    "a context without a user": ("IP:127.0.0.1", CA, {"context": {"cluster": "c"}}, "|"),
    "an unknown authority": ("IP:127.0.0.1", {}, {}, Unreachable),
    "an unknown authority, skipped": ("IP:127.0.0.1", {"insecure-skip-tls-verify": True}, {}, "Bearer t|"),
    "another name": ("DNS:api.example", CA, {}, Unreachable),
    "another name, expected": ("DNS:api.example", CA | {"tls-server-name": "api.example"}, {}, "Bearer t|"),
}


@pytest.mark.parametrize(("host", "cluster", "parts", "shown"), SERVERS.values(), ids=SERVERS)
async def test_a_server_is_trusted_by_its_authority_and_name(
    tmp_path, authority, host, cluster, parts, shown
):
    """`tls-server-name` is for servers behind tunnels."""
    (tmp_path / "ca.crt").write_bytes(authority.pair.cert.read_bytes())
    async with guarded(authority, host=host) as url:
        path = written(tmp_path / "config", changed(cluster={"server": url} | cluster, **parts))
        if shown is Unreachable:
            with pytest.raises(Unreachable) as caught:
                await seen(path)
            assert caught.value.reason == "TLS"
        else:
            assert await seen(path) == shown


async def test_requests_go_through_the_proxy(tmp_path):
    """It gets the whole address."""

    async def answer(request):
        return web.Response(text=f"{request.url}|{request.headers['Authorization']}")

    async with answering(answer) as url:
        cluster = {"server": "http://api.invalid", "proxy-url": url}
        path = written(tmp_path / "config", changed(cluster=cluster))
        assert await seen(path) == "http://api.invalid/api/v1/namespaces/d/pods/p|Bearer t"


async def test_master_replaces_the_server_and_nothing_else(tmp_path):
    """The kubeconfig's user stays; without a kubeconfig there is no user."""
    path = written(tmp_path / "config", changed(cluster={"server": "http://127.0.0.1:1"}))
    async with guarded() as url:
        for kubeconfig, shown in ((str(path), "Bearer t|"), (None, "|")):
            credentials = await load_credentials(kubeconfig=kubeconfig, master=url, environ={})
            assert await answer_to(credentials) == shown


def plugin(folder, body):
    """Write an exec plugin: a Python script that counts its runs in a file beside it."""
    count = folder / "count"
    count.write_text("0")
    script = folder / "plugin"
    script.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib, sys\n"
        f"count = pathlib.Path({str(count)!r})\nrun = int(count.read_text()) + 1\ncount.write_text(str(run))\n"
        "def give(**status):\n"
        "    version = json.loads(os.environ['KUBERNETES_EXEC_INFO'])['apiVersion']\n"
        "    print(json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status}))\n" + body
    )
    script.chmod(0o755)
    return {
        "exec": {
            "command": "./plugin",
            "apiVersion": "client.authentication.k8s.io/v1",
            "args": ["one"],
            "env": [{"name": "FROM_CONFIG", "value": "two"}],
        }
    }


async def test_an_exec_plugin_gives_a_token(tmp_path):
    """It is found beside the kubeconfig, gets its arguments and environment, and may write more than a pipe takes."""
    token = "'-'.join([sys.argv[1], os.environ['FROM_CONFIG'], str(run)])"
    user = plugin(tmp_path, f"sys.stderr.write('x' * 300_000)\ngive(token={token})")
    async with guarded() as url:
        path = written(tmp_path / "config", changed(cluster={"server": url}, user=user))
        assert await seen(path) == "Bearer one-two-1|"


async def test_an_exec_plugin_may_give_a_certificate(tmp_path, authority):
    clock = Clock()
    pairs = [authority.issue(name, subject=f"CN={name}") for name in ("bob", "next")]
    texts = [
        {"clientCertificateData": pair.cert.read_text(), "clientKeyData": pair.key.read_text()}
        for pair in pairs
    ]
    expiry = (datetime.now(UTC) + timedelta(seconds=1000)).isoformat()
    user = plugin(tmp_path, f"give(**{texts!r}[run - 1], expirationTimestamp={expiry!r})")
    async with guarded(authority) as url:
        cluster = {"server": url, "certificate-authority": str(authority.pair.cert)}
        path = written(tmp_path / "config", changed(cluster=cluster, user=user))
        credentials = await loaded(path, now_s=clock)
        assert await answer_to(credentials) == "|bob"
        clock.now_s += 900.0
        assert await answer_to(credentials) == "|next"


async def test_a_client_certificate_is_sent_beside_the_token_of_an_exec_plugin(tmp_path, authority):
    pair = authority.issue("carol", subject="CN=carol")
    user = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
    async with guarded(authority) as url:
        cluster = {"server": url, "certificate-authority": str(authority.pair.cert)}
        content = changed(cluster=cluster, user=user | plugin(tmp_path, "give(token='t')"))
        assert await seen(written(tmp_path / "config", content)) == "Bearer t|carol"


async def test_an_exec_plugin_that_takes_too_long_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(login, "TIMEOUT_S", 0.1)
    path = written(tmp_path / "config", changed(user=plugin(tmp_path, "import signal\nsignal.pause()")))
    with pytest.raises(SettingsError, match=r"user\.exec: found nothing after 0 s"):
        await loaded(path)


async def test_an_exec_plugin_is_killed_when_nobody_waits_for_it(tmp_path):
    """After its deadline and at the end of the command."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def on_connection(reader, writer):
        started.set()
        await reader.read()
        writer.close()
        ended.set()

    async with await asyncio.start_server(on_connection, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        body = f"import signal, socket\nopen_until_it_ends = socket.create_connection({address!r})\nsignal.pause()"
        loading = asyncio.create_task(
            loaded(written(tmp_path / "config", changed(user=plugin(tmp_path, body))))
        )
        async with asyncio.timeout(TIMEOUT_S):
            await started.wait()
            assert not ended.is_set()
            loading.cancel()
            await asyncio.wait([loading])
            await ended.wait()
        assert loading.cancelled()


FAILURES = {
    "it fails": ("sys.exit('not logged in')", "exit code 1: not logged in"),
    "it says something else": ("print('hello')", "output that is no ExecCredential: JSON is malformed"),
    "it gives nothing": ("give()", "neither a token nor a client certificate with its key"),
    "it gives no key": ("give(clientCertificateData='c')", "neither a token nor a client certificate"),
    "another version": (
        """print('{"apiVersion": "v0", "kind": "ExecCredential", "status": {}}')""",
        "apiVersion 'v0', not 'client.authentication.k8s.io/v1'",
    ),
}


@pytest.mark.parametrize(("body", "found"), FAILURES.values(), ids=FAILURES)
async def test_an_exec_plugin_that_fails_is_one_line(tmp_path, caplog, body, found):
    with pytest.raises(SettingsError) as caught:
        await loaded(written(tmp_path / "config", changed(user=plugin(tmp_path, body))))
    assert (caught.value.field, found in caught.value.found) == ("users[u].user.exec", True)
    assert "\n" not in str(caught.value)
    assert caplog.records == []


async def test_an_exec_plugin_runs_again_after_a_401_but_not_too_often(tmp_path):
    """One run renews an expired token; a server that always answers 401 does not start a plugin per request."""
    clock = Clock()
    user = plugin(tmp_path, "give(token=f't{run}')")
    async with guarded(accepts=lambda header: header == "Bearer t2") as url:
        path = written(tmp_path / "config", changed(cluster={"server": url}, user=user))
        credentials = await loaded(path, now_s=clock)
        async with KubeClient(credentials) as client:
            with pytest.raises(Unauthorized):
                await client.request(GET, timeout_s=5)
            clock.now_s += 10.0
            assert (await client.request(GET, timeout_s=5)).decode() == "Bearer t2|"
            assert (await client.request(GET, timeout_s=5)).decode() == "Bearer t2|"
    assert (tmp_path / "count").read_text() == "2"


async def test_a_failed_renewal_keeps_the_old_token_until_the_server_refuses_it(tmp_path):
    clock = Clock()
    expiry = (datetime.now(UTC) + timedelta(seconds=100)).isoformat()
    failing = f"give(token='t1', expirationTimestamp={expiry!r}) if run == 1 else sys.exit('login needed')"
    accepted = {"Bearer t1"}
    async with guarded(accepts=lambda header: header in accepted) as url:
        path = written(tmp_path / "config", changed(cluster={"server": url}, user=plugin(tmp_path, failing)))
        credentials = await loaded(path, now_s=clock)
        async with KubeClient(credentials) as client:
            clock.now_s += 90.0
            assert (await client.request(GET, timeout_s=5)).decode() == "Bearer t1|"
            accepted.clear()
            clock.now_s += 10.0
            with pytest.raises(Unauthorized, match="login needed"):
                await client.request(GET, timeout_s=5)


async def test_a_rotated_token_file_is_reread(tmp_path):
    """After a minute; a broken or missing file keeps the last token; a 401 reads at once."""
    clock = Clock()
    file = written(tmp_path / "token", "one")
    path = written(tmp_path / "config", changed(user={"tokenFile": "token"}))
    credentials = await loaded(path, now_s=clock)
    file.write_text("two\n")
    assert await credentials.authorization() == "Bearer one"
    clock.now_s += REREAD_S
    assert await credentials.authorization() == "Bearer two"
    for replaced in (lambda: file.write_text("a\0b"), lambda: file.write_bytes(b"\xff"), file.unlink):
        replaced()
        clock.now_s += REREAD_S
        assert await credentials.authorization() == "Bearer two"
    file.write_text("three")
    assert await credentials.renew("Bearer two", 0)
    assert not await credentials.renew("Bearer three", 0)
    assert await credentials.renew("Bearer two", 0), "somebody else renewed meanwhile"


async def test_a_rotated_client_certificate_is_used_for_new_connections(tmp_path, authority):
    """A half finished rotation does no harm."""
    clock = Clock()
    old, new = authority.issue("old", subject="CN=old"), authority.issue("new", subject="CN=new")
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert.write_bytes(old.cert.read_bytes())
    key.write_bytes(old.key.read_bytes())
    context = ssl.create_default_context(cafile=str(authority.pair.cert))
    async with guarded(authority) as url:
        identity = Identity(certificate=cert, key=key)
        credentials = Credentials(Endpoint(url, context), identity, now_s=clock)

        async def shown():
            clock.now_s += REREAD_S
            return await answer_to(credentials)

        assert await shown() == "|old"
        cert.write_bytes(new.cert.read_bytes())
        await credentials.authorization()
        key.write_bytes(new.key.read_bytes())
        assert await shown() == "|new"


@pytest.mark.parametrize("streams", [False, True], ids=["requests", "watches"])
async def test_a_refused_client_certificate_is_read_again_and_sent_over_new_connections(
    tmp_path, authority, streams
):
    """Open connections keep the certificate that has expired, and a busy one is never idle for long."""
    pairs = {name: authority.issue(name, subject=f"CN={name}") for name in ("old", "new")}
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    refused = set()

    def rotate(name):
        cert.write_bytes(pairs[name].cert.read_bytes())
        key.write_bytes(pairs[name].key.read_bytes())

    async def answer(request):
        name = dict(part[0] for part in request.transport.get_extra_info("peercert")["subject"])["commonName"]
        return web.Response(status=401) if name in refused else web.Response(text=f"{name}\n")

    async def asked(client):
        if not streams:
            return (await client.request(GET, timeout_s=5)).decode().strip()
        return b"".join([line async for lines in client.stream(GET) for line in lines]).decode()

    rotate("old")
    context = ssl.create_default_context(cafile=str(authority.pair.cert))
    async with answering(answer, served_with(authority)) as url:
        credentials = Credentials(Endpoint(url, context), Identity(certificate=cert, key=key))
        async with KubeClient(credentials) as client:
            assert await asked(client) == "old"
            refused.add("old")
            with pytest.raises(Unauthorized):
                await asked(client)
            rotate("new")
            assert await asyncio.gather(*[asked(client) for _ in range(3)]) == ["new"] * 3


@pytest.fixture
def service_account(tmp_path, authority):
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("in-cluster\n")
    (folder / "ca.crt").write_bytes(authority.pair.cert.read_bytes())
    return folder


async def test_in_a_cluster_the_service_account_is_used_and_its_token_reread(service_account, authority):
    """Tokens are rotated about every hour."""
    clock = Clock()
    async with guarded(authority) as url:
        host, port = url.removeprefix("https://").split(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        credentials = await load_credentials(
            kubeconfig=None, master=None, environ=environ, service_account=service_account, now_s=clock
        )
        assert await answer_to(credentials) == "Bearer in-cluster|"
        (service_account / "token").write_text("rotated")
        clock.now_s += REREAD_S
        assert await answer_to(credentials) == "Bearer rotated|"


ACCOUNTS = {
    "no token": ("token", None, "token: found .*No such file.* expected a file with a bearer token"),
    "empty token": ("token", "", "token: found no token, expected a file with a bearer token"),
    "token not a token": ("token", "a\nb", "found a token with characters"),
    "no CA": ("ca.crt", None, "ca.crt: found .*No such file.*, expected certificates in PEM"),
    "CA not PEM": ("ca.crt", "rubbish", "ca.crt: found .*, expected certificates in PEM"),
}


@pytest.mark.parametrize(("name", "content", "message"), ACCOUNTS.values(), ids=ACCOUNTS)
async def test_a_broken_service_account_is_one_line(service_account, name, content, message):
    (service_account / name).unlink()
    if content is not None:
        (service_account / name).write_text(content)
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(SettingsError, match=message) as caught:
        await load_credentials(kubeconfig=None, master=None, environ=environ, service_account=service_account)
    assert str(service_account) in str(caught.value)


def test_repr_contains_no_secret():
    assert "secret" not in repr(Identity("Bearer secret"))
