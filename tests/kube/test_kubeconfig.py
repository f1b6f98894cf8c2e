"""Which kubeconfig is read, and the message for a wrong one."""

import pytest

from scheduler.errors import SettingsError
from scheduler.kube.credentials import load_credentials
from scheduler.kube.kubeconfig import kubeconfig_paths, resolve_context
from tests.kube.kubeconfigs import GOOD, changed, written

TLS = {"server": "https://127.0.0.1:1"}
PAIR_EXPECTED = "both a client certificate and its key"
FLOW = "\"expected ',' or ']', but got '<stream end>'\""
TAB = "\"character '\\t' that cannot start any token\""
NOT_A_HEADER = "a token with characters that no header may have"


def cluster(**parts):
    return changed(cluster=TLS | {name.replace("_", "-"): value for name, value in parts.items()})


def user(**parts):
    return changed(cluster=TLS, user={name.replace("_", "-"): value for name, value in parts.items()})


# The file's content, and of the error: field, found, expected.
FILES = {
    "bad YAML": ("a: [1", "line 1", FLOW, "YAML"),
    "a tab in YAML": ("a: b\n\tc: d", "line 2", TAB, "YAML"),
    "not a mapping": ("- 1", "", "array", "object"),
    "empty": ("", "current-context", "nothing", "the name of a context"),
    "type of clusters": (changed(clusters="x"), "clusters", "str", "array | null"),
    "type of a name": (changed(users=[{"name": 7}]), "users[0].name", "int", "str"),
    "current context": (changed(current_context="x"), "current-context", "'x'", "one of dev"),
    "no contexts": (changed(contexts=[]), "current-context", "'dev'", "an entry of that name in the file"),
}
CONTEXTS = {
    "cluster": ({"cluster": "x", "user": "u"}, ".cluster", "'x'", "one of c"),
    "user": ({"cluster": "c", "user": "x"}, ".user", "'x'", "one of u"),
}
CLUSTERS = {
    "no server": (changed(cluster={}), "server", "nothing", "a URL"),
    "no scheme": (cluster(server="h:1"), "server", "'h:1'", "a URL such as https://10.0.0.1:6443"),
    "CA file": (
        cluster(certificate_authority="no.crt"),
        "certificate-authority",
        "no file {folder}/no.crt",
        "an existing file",
    ),
    "CA data": (
        cluster(certificate_authority_data="%%%"),
        "certificate-authority-data",
        "3 characters",
        "base64",
    ),
    "CA not PEM": (
        cluster(certificate_authority_data="eA=="),
        "certificate-authority-data",
        "",
        "certificates in PEM",
    ),
    "proxy": (cluster(proxy_url="socks5://h:1"), "proxy-url", "'socks5://h:1'", "an http or https URL"),
}
USERS = {
    "no key": (user(client_certificate_data="eA=="), "client-key", "nothing", PAIR_EXPECTED),
    "no certificate": (user(client_key="k"), "client-certificate", "nothing", PAIR_EXPECTED),
    "certificate file": (
        user(client_certificate="c", client_key="k"),
        "client-certificate",
        "no file {folder}/c",
        "existing",
    ),
    "not PEM": (
        user(client_certificate_data="eA==", client_key_data="eA=="),
        "client-certificate",
        "PEM",
        "a certificate and its key in PEM",
    ),
    "no token file": (user(tokenFile="gone"), "tokenFile", "no file {folder}/gone", "an existing file"),
    "not a token": (user(tokenFile="config"), "tokenFile", NOT_A_HEADER, "a file with a bearer token"),
    "token": (user(token="a\nb"), "token", NOT_A_HEADER, "credentials"),
    "impersonation": (user(token="t", **{"as": "alice"}), "as", "'alice'", "no impersonation"),
    "exec command": (
        user(exec={"command": "./gone", "apiVersion": "v1"}),
        "exec",
        "no command '{folder}/gone'",
        "an executable",
    ),
    "no exec command": (user(exec={"apiVersion": "v1"}), "exec.command", "nothing", "a command"),
    "gcp": (user(auth_provider={"name": "gcp"}), "auth-provider.name", "'gcp'", "'oidc', or an exec plugin"),
    "no ID token": (
        user(auth_provider={"name": "oidc"}),
        "auth-provider.config.id-token",
        "no token",
        "credentials",
    ),
}
CASES = [
    *(pytest.param(*case, id=name) for name, case in FILES.items()),
    *(
        pytest.param(changed(context=context), f"contexts[dev].context{field}", *rest, id=f"context: {name}")
        for name, (context, field, *rest) in CONTEXTS.items()
    ),
    *(
        pytest.param(content, f"{prefix}.{field}", *rest, id=f"{prefix}: {name}")
        for prefix, cases in (("clusters[c].cluster", CLUSTERS), ("users[u].user", USERS))
        for name, (content, field, *rest) in cases.items()
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


FLAGS = {
    "missing": (
        {"kubeconfig": "{folder}/none"},
        "{folder}/none: found no such file, expected a kubeconfig file",
    ),
    "no home": (
        {"kubeconfig": "~no-such-user/config"},
        "~no-such-user/config: found no home directory, expected a path without ~",
    ),
    "a folder": ({"kubeconfig": "{folder}"}, "{folder}: found Is a directory"),
    "--master is no URL": ({"master": "here"}, "--master: found 'here', expected a URL"),
    "nothing at all": ({}, "cluster: found nothing that says where it is, expected --kubeconfig"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize(("options", "message"), FLAGS.values(), ids=FLAGS)
async def test_flags_without_a_target_are_one_line(tmp_path, options, message):
    """It names the flag or the file."""
    filled = {name: text.format(folder=tmp_path) for name, text in options.items()}
    with pytest.raises(SettingsError) as caught:
        await load_credentials(**{"kubeconfig": None, "master": None, "environ": {}} | filled)
    assert str(caught.value).startswith(message.format(folder=tmp_path))


def test_the_flag_has_precedence_over_the_variable_and_the_variable_over_the_home(tmp_path):
    """As in kubectl; files of the variable may be missing."""
    home = written(tmp_path / "home/.kube/config", GOOD)
    first, second = written(tmp_path / "first", GOOD), written(tmp_path / "second", GOOD)
    environ = {"HOME": str(tmp_path / "home"), "KUBECONFIG": f"{first}:{tmp_path}/none::{second}"}
    assert kubeconfig_paths(str(second), environ) == (second,)
    assert kubeconfig_paths(None, environ) == (first, second)
    assert kubeconfig_paths(None, {"HOME": environ["HOME"]}) == (home,)
    assert kubeconfig_paths(None, {"HOME": str(tmp_path)}) == ()
    assert kubeconfig_paths(None, {}) == ()


def test_of_several_files_the_first_entry_of_a_name_wins(tmp_path):
    """And the first current-context; entries may refer to other files."""
    first = {
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "first", "tokenFile": "beside"}}],
    }
    written(tmp_path / "a/beside", "secret")
    paths = [
        written(tmp_path / "a/one", first),
        written(tmp_path / "b/two", GOOD),
        written(tmp_path / "c/three", changed(current_context="prod", cluster={"server": "http://three"})),
    ]
    context = resolve_context(paths)
    assert (context.user.content.token, context.server) == ("first", "http://127.0.0.1:8080")
    assert context.token_file == tmp_path / "a/beside"
    assert [context.user.file, context.cluster.file] == paths[:2]


def test_a_huge_file_is_not_read(tmp_path):
    """A kubeconfig is small."""
    path = written(tmp_path / "config", "#" * (5 << 20))
    with pytest.raises(SettingsError, match="bytes"):
        resolve_context([path])
