"""The proxies of the environment, as client-go reads them, and requests and watches through a real one."""

import ssl
from collections import Counter
from contextlib import aclosing, asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.kube.proxies import proxy_of
from scheduler.daemon.kube.requests import WatchPath, bind, delete_pod, get_pod, watch
from scheduler.errors import SettingsError, Unreachable
from tests.daemon.kube.kubeconfigs import changed, loaded, written
from tests.support.connect_proxy import connect_proxy

PROXY = "http://proxy:3128"
BOTH = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": "http://plain:80"}

# Expected: httpproxy.FromEnvironment().ProxyFunc() of golang.org/x/net.
CASES = {
    "none": ({}, "https://api:6443", None),
    "of https": (BOTH, "https://api:6443", PROXY),
    "of http": (BOTH, "http://api:8080", "http://plain:80"),
    "small letters": ({"https_proxy": PROXY}, "https://api:6443", PROXY),
    "capitals first": ({"https_proxy": "http://other", "HTTPS_PROXY": PROXY}, "https://api", PROXY),
    "without a scheme": ({"HTTPS_PROXY": "proxy:3128"}, "https://api:6443", PROXY),
    "with a password": ({"HTTPS_PROXY": "http://a:b@proxy:3128"}, "https://api", "http://a:b@proxy:3128"),
    "loopback": (BOTH, "https://127.0.0.1:6443", None),
    "loopback of IPv6": (BOTH, "https://[::1]:6443", None),
    "localhost": (BOTH, "https://localhost:6443", None),
}
EXEMPT = {
    "*": ("https://api:6443", True),
    "other, *": ("https://api:6443", True),
    "api": ("https://api:6443", True),
    "API": ("https://api:6443", True),
    "api:6443": ("https://api:6443", True),
    "api:443": ("https://api:6443", False),
    "api:443,x": ("https://api", True),
    "example.com": ("https://api.example.com", True),
    ".example.com": ("https://api.example.com", True),
    ".com": ("https://example.com", True),
    ".example.com,x": ("https://example.com", False),
    "*.example.com": ("https://api.example.com", True),
    "*.example.com,x": ("https://example.com", False),
    "ample.com": ("https://example.com", False),
    "10.96.0.1": ("https://10.96.0.1:443", True),
    "10.96.0.1:6443": ("https://10.96.0.1:443", False),
    "10.96.0.0/12": ("https://10.96.0.1:443", True),
    "10.96.0.1/12": ("https://10.111.0.9:443", True),
    "10.96.0.0/16": ("https://10.97.0.1:443", False),
    "fd00::/8": ("https://[fd00::1]:6443", True),
    "fd00::1": ("https://[fd00::1]:6443", True),
    "[fd00::1]": ("https://[fd00::1]:6443", True),
    "[fd00::1]:6443": ("https://[fd00::1]:6443", True),
    "[fd00::1]:443": ("https://[fd00::1]:6443", False),
    "10.0.0.0/8": ("https://[::ffff:10.1.1.1]:6443", True),
    " , ,": ("https://api", False),
    "10.0.0.0/99": ("https://10.0.0.1", False),
}


@pytest.mark.parametrize(("environ", "server", "proxy"), CASES.values(), ids=CASES)
def test_the_proxy_of_the_environment_is_the_one_of_client_go(environ, server, proxy):
    assert proxy_of(server, environ) == proxy


@pytest.mark.parametrize(("pattern", "case"), EXEMPT.items(), ids=EXEMPT)
def test_addresses_of_no_proxy_are_asked_directly(pattern, case):
    server, is_exempt = case
    assert proxy_of(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": pattern}) == (None if is_exempt else PROXY)
    assert proxy_of(server, {"HTTPS_PROXY": PROXY, "no_proxy": pattern}) == (None if is_exempt else PROXY)


@pytest.mark.parametrize("value", ["socks5://a:s3cret@proxy:1080", "http://proxy:port", "http://"])
def test_a_proxy_that_cannot_be_asked_is_named_by_its_variable(value):
    """Its value may hold a password."""
    with pytest.raises(SettingsError) as caught:
        proxy_of("https://api", {"https_proxy": value})
    assert str(caught.value).startswith("$https_proxy: ")
    assert "s3cret" not in str(caught.value)


@asynccontextmanager
async def api_server(authority, *, host, listens="127.0.0.1", n_lost=None):
    """
    Yield the address of an HTTPS server that names the request, and streams two lines for a watch.

    With `n_lost` it counts there by method, and answers nothing.
    """

    async def answer(request):
        if n_lost is not None:
            n_lost[request.method] += 1
            request.transport.abort()
        if "watch" not in request.query:
            return web.Response(text=f"{request.method} {request.headers['Authorization']}")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\ntwo\n")
        return response

    pair = authority.issue(f"server-{host.replace(':', '-')}", subject="CN=server", host=host)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.cert, pair.key)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app, scheme="https", host=listens)
    try:
        await server.start_server(ssl=tls)
    except OSError:
        pytest.skip(f"this machine has no {listens}")
    async with server:
        yield server.port


@asynccontextmanager
async def proxied(authority, host, **server):
    """Yield a proxy to such a server."""
    async with api_server(authority, host=host, **server) as port, connect_proxy("127.0.0.1", port) as proxy:
        yield proxy


async def all_answers(credentials):
    async with KubeClient(credentials) as client:
        read = await client.request(get_pod("d", "p"), timeout_s=5)
        wrote = await client.request(bind(namespace="d", name="p", uid="u", node_name="n"), timeout_s=5)
        request = watch(WatchPath("/api/v1/pods"), resource_version="1", timeout_s=300)
        async with aclosing(client.stream(request)) as batches:
            lines = [line async for batch in batches for line in batch]
    return read, wrote, lines


ANSWERS = (b"GET Bearer t", b"POST Bearer t", [b"one", b"two"])


def kubeconfig(folder, authority, server, **cluster):
    trust = {"server": server, "certificate-authority": str(authority.pair.cert)}
    return str(written(folder / "config", changed(cluster=trust | cluster)))


@pytest.mark.parametrize("how", ["the environment", "proxy-url"])
async def test_everything_goes_through_a_tunnel_of_the_proxy(tmp_path, authority, how):
    """The API server's name is known to the proxy alone; TLS is between us and the API server."""
    async with proxied(authority, "DNS:api.invalid") as proxy:
        url = proxy.url.replace("//", "//user:word@")
        cluster, environ = {"proxy-url": url}, {"NO_PROXY": "*"}
        if how == "the environment":
            cluster, environ = {}, {"HTTPS_PROXY": url, "NO_PROXY": "10.0.0.0/8"}
        path = kubeconfig(tmp_path, authority, "https://api.invalid:6443", **cluster)
        assert await all_answers(await loaded(path, environ=environ)) == ANSWERS
    assert set(proxy.asked) == {"CONNECT api.invalid:6443 HTTP/1.1"}
    assert set(proxy.credentials) == {"Basic dXNlcjp3b3Jk"}


async def test_a_service_account_reaches_the_server_through_the_proxy(tmp_path, authority):
    """In a pod, where the address is one of IPv6."""
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(authority.pair.cert.read_bytes())
    async with proxied(authority, "IP:fd00::1") as proxy:
        environ = {
            "KUBERNETES_SERVICE_HOST": "fd00::1",
            "KUBERNETES_SERVICE_PORT": "443",
            "HTTPS_PROXY": proxy.url,
        }
        credentials = await load_credentials(
            kubeconfig=None, master=None, environ=environ, service_account=tmp_path
        )
        assert await all_answers(credentials) == ANSWERS
    assert set(proxy.asked) == {"CONNECT [fd00::1]:443 HTTP/1.1"}


async def test_an_api_server_on_ipv6_is_reached_without_a_proxy_and_with_one(tmp_path, authority):
    async with (
        api_server(authority, host="IP:::1", listens="::1") as port,
        connect_proxy("::1", port) as proxy,
    ):
        server = f"https://[::1]:{port}"
        path = kubeconfig(tmp_path, authority, server)
        assert await all_answers(await loaded(path, environ={"HTTPS_PROXY": "http://127.0.0.1:1"})) == ANSWERS
        path = kubeconfig(tmp_path, authority, server, **{"proxy-url": proxy.url})
        assert await all_answers(await loaded(path)) == ANSWERS
    assert set(proxy.asked) == {f"CONNECT [::1]:{port} HTTP/1.1"}


async def test_a_proxy_that_does_not_answer_is_named(tmp_path, authority):
    """Else its address would be looked for in vain: the message of the API server's would be about another machine."""
    path = kubeconfig(tmp_path, authority, "https://api.invalid:6443", **{"proxy-url": "http://127.0.0.1:1"})
    with pytest.raises(Unreachable) as caught:
        await all_answers(await loaded(path))
    assert caught.value.reason == "ConnectionRefused"
    assert "127.0.0.1:1" in caught.value.message


async def test_a_deletion_that_lost_its_answer_is_not_sent_again_through_a_proxy(tmp_path, authority):
    """The answer of a second one would not tell whether the first one deleted the pod. A read had no effect."""
    n_lost: Counter[str] = Counter()
    async with proxied(authority, "DNS:api.invalid", n_lost=n_lost) as proxy:
        path = kubeconfig(tmp_path, authority, "https://api.invalid:6443", **{"proxy-url": proxy.url})
        async with KubeClient(await loaded(path)) as client:
            for request, in_doubt in ((delete_pod("d", "p", "u"), True), (get_pod("d", "p"), False)):
                with pytest.raises(Unreachable) as caught:
                    await client.request(request, timeout_s=5)
                assert (caught.value.reason, caught.value.took_effect_unknown) == ("ConnectionLost", in_doubt)
    assert n_lost == {"DELETE": 1, "GET": 2}
