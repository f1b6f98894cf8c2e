"""Which kubeconfig is read, and the message for a wrong one."""

import pytest

from scheduler.errors import SettingsError
from scheduler.kube.credentials import load_credentials
from scheduler.kube.kubeconfig import kubeconfig_paths, resolve_context
from tests.kube.kubeconfigs import GOOD, changed, written

TLS = {"server": "https://127.0.0.1:1"}
CERT = "users[u].user.client-certificate"
CASES = [
    pytest.param("a: [1", "line 1", "\"expected ',' or ']', but got '<stream end>'\"", "YAML", id="bad YAML"),
    pytest.param(
        "a: b\n\tc: d",
        "line 2",
        "\"character '\\t' that cannot start any token\"",
        "YAML",
        id="a tab in YAML",
    ),
    pytest.param("- 1", "", "array", "object", id="not a mapping"),
    pytest.param("", "current-context", "nothing", "the name of a context", id="empty file"),
    pytest.param(changed(clusters="x"), "clusters", "str", "array | null", id="clusters of the wrong type"),
    pytest.param(changed(users=[{"name": 7}]), "users[0].name", "int", "str", id="a name of the wrong type"),
    pytest.param(
        changed(current_context="prod"), "current-context", "'prod'", "one of dev", id="no such context"
    ),
    pytest.param(
        changed(contexts=[]),
        "current-context",
        "'dev'",
        "an entry of that name in the file",
        id="no contexts",
    ),
    pytest.param(
        changed(context={"cluster": "x", "user": "u"}),
        "contexts[dev].context.cluster",
        "'x'",
        "one of c",
        id="cluster",
    ),
    pytest.param(
        changed(context={"cluster": "c", "user": "x"}),
        "contexts[dev].context.user",
        "'x'",
        "one of u",
        id="user",
    ),
    pytest.param(changed(cluster={}), "clusters[c].cluster.server", "nothing", "a URL", id="no server"),
    pytest.param(
        changed(cluster={"server": "10.0.0.1:6443"}),
        "clusters[c].cluster.server",
        "'10.0.0.1:6443'",
        "a URL such as https://10.0.0.1:6443",
        id="server without a scheme",
    ),
    pytest.param(
        changed(cluster=TLS | {"certificate-authority": "no.crt"}),
        "clusters[c].cluster.certificate-authority",
        "no file {folder}/no.crt",
        "an existing file",
        id="missing CA file",
    ),
    pytest.param(
        changed(cluster=TLS | {"certificate-authority-data": "%%%"}),
        "clusters[c].cluster.certificate-authority-data",
        "3 characters",
        "base64",
        id="CA data not base64",
    ),
    pytest.param(
        changed(cluster=TLS | {"certificate-authority-data": "eA=="}),
        "clusters[c].cluster.certificate-authority-data",
        "",
        "certificates in PEM",
        id="CA data not PEM",
    ),
    pytest.param(
        changed(cluster=TLS | {"proxy-url": "socks5://h:1"}),
        "clusters[c].cluster.proxy-url",
        "'socks5://h:1'",
        "an http or https URL",
        id="a proxy of an unknown kind",
    ),
    pytest.param(
        changed(user={"client-certificate-data": "eA=="}),
        "users[u].user.client-key",
        "nothing",
        "both",
        id="no key",
    ),
    pytest.param(
        changed(user={"client-key": "k"}),
        CERT,
        "nothing",
        "both a client certificate and its key",
        id="no cert",
    ),
    pytest.param(
        changed(cluster=TLS, user={"client-certificate-data": "eA==", "client-key-data": "eA=="}),
        CERT,
        "PEM",
        "a certificate and its key in PEM",
        id="client certificate not PEM",
    ),
    pytest.param(
        changed(user={"tokenFile": "gone"}),
        "users[u].user.tokenFile",
        "no file",
        "existing",
        id="missing token file",
    ),
    pytest.param(
        changed(user={"tokenFile": "config"}),
        "users[u].user.tokenFile",
        "a token with characters that no header may have",
        "a file with a bearer token",
        id="token file without a token",
    ),
    pytest.param(
        changed(user={"token": "a\nb"}),
        "users[u].user",
        "characters that no header may have",
        "cred",
        id="token",
    ),
    pytest.param(
        changed(user={"exec": {"command": "./gone", "apiVersion": "v1"}}),
        "users[u].user.exec",
        "no command '{folder}/gone'",
        "an executable",
        id="missing exec command",
    ),
    pytest.param(
        changed(user={"exec": {"apiVersion": "v1"}}),
        "users[u].user.exec",
        "'command'",
        "credentials",
        id="no command",
    ),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("content", "field", "found", "expected"), CASES)
async def test_a_wrong_kubeconfig_is_one_line_with_file_and_field(tmp_path, content, field, found, expected):
    """Without a traceback or a secret."""
    path = written(tmp_path / "config", content)
    with pytest.raises(SettingsError) as caught:
        await load_credentials(kubeconfig=str(path), master=None, environ={})
    error = caught.value
    assert (error.source, error.field) == (str(path), field)
    assert found.format(folder=tmp_path) in error.found
    assert expected in error.expected
    assert "\n" not in str(error)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"kubeconfig": "{folder}/none"},
            "{folder}/none: found no such file, expected a kubeconfig file",
            id="missing",
        ),
        pytest.param({"kubeconfig": "{folder}"}, "{folder}: found Is a directory", id="a folder"),
        pytest.param({"master": "here"}, "--master: found 'here', expected a URL", id="--master is no URL"),
        pytest.param(
            {}, "cluster: found nothing that says where it is, expected --kubeconfig", id="nothing at all"
        ),
    ],
)
async def test_flags_without_a_target_are_one_line(tmp_path, options, message):
    """It names the flag or the file."""
    filled = {name: text.format(folder=tmp_path) for name, text in options.items()}
    with pytest.raises(SettingsError) as caught:
        await load_credentials(**{"kubeconfig": None, "master": None, "environ": {}} | filled)
    assert str(caught.value).startswith(message.format(folder=tmp_path))


def test_the_flag_has_precedence_over_the_variable_and_the_variable_over_the_home(tmp_path):
    """As in kubectl; files of the variable may be missing."""
    home = written(tmp_path / "home/.kube/config", GOOD)
    one, two = written(tmp_path / "one", GOOD), written(tmp_path / "two", GOOD)
    environ = {"HOME": str(tmp_path / "home"), "KUBECONFIG": f"{one}:{tmp_path}/none::{two}"}
    assert kubeconfig_paths(str(two), environ) == (two,)
    assert kubeconfig_paths(None, environ) == (one, two)
    assert kubeconfig_paths(None, {"HOME": environ["HOME"]}) == (home,)
    assert kubeconfig_paths(None, {"HOME": str(tmp_path)}) == ()
    assert kubeconfig_paths(None, {}) == ()


def test_of_several_files_the_first_entry_of_a_name_wins(tmp_path):
    """And the first current-context; entries may refer to other files."""
    first = {
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "first", "tokenFile": "beside"}}],
    }
    one = written(tmp_path / "a/one", first)
    written(tmp_path / "a/beside", "secret")
    two = written(tmp_path / "b/two", GOOD)
    three = written(tmp_path / "c/three", changed(current_context="prod", cluster={"server": "http://three"}))
    chosen = resolve_context([one, two, three])
    assert (chosen.user.token, chosen.cluster.server) == ("first", "http://127.0.0.1:8080")
    assert chosen.user.token_file == str(tmp_path / "a/beside")
    assert (chosen.user_file, chosen.cluster_file) == (str(one), str(two))


def test_a_huge_file_is_not_read(tmp_path):
    """A kubeconfig is small."""
    path = written(tmp_path / "config", "#" * (5 << 20))
    with pytest.raises(SettingsError, match="bytes"):
        resolve_context([path])
