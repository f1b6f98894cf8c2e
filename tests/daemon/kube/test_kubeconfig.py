"""Which kubeconfig is read, and the message for a wrong one."""

import re

import pytest

from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.kube.kubeconfig import kubeconfig_paths, resolve_context
from scheduler.errors import SettingsError
from tests.daemon.kube.kubeconfigs import GOOD, changed, written

TLS = {"server": "https://h"}
WRONG = {
    "a current context without an entry": changed(current_context="prod"),
    "no contexts": changed(contexts=[]),
    "clusters of the wrong type": changed(clusters="x"),
    "a name of the wrong type": changed(users=[{"name": 7}]),
    "a cluster without an entry": changed(context={"cluster": "x", "user": "u"}),
    "a user without an entry": changed(context={"cluster": "c", "user": "x"}),
    "no server": changed(cluster={}),
    "a server without a scheme": changed(cluster={"server": "10.0.0.1:6443"}),
    "no CA file": changed(cluster=TLS | {"certificate-authority": "no.crt"}),
    "a CA in the place of its file": changed(cluster=TLS | {"certificate-authority": "x" * 300}),
    "a proxy of an unknown kind": changed(cluster=TLS | {"proxy-url": "socks5://h:1"}),
    "a proxy without a host": changed(cluster=TLS | {"proxy-url": "http://:3128"}),
    "a certificate without its key": changed(user={"client-certificate-data": "eA=="}),
    "a key without its certificate": changed(user={"client-key": "k"}),
    "no certificate file": changed(user={"client-certificate": "c", "client-key": "k"}),
    "no token file": changed(user={"tokenFile": "gone"}),
    "a token file without a token": changed(user={"tokenFile": "config"}),
    "a token of two lines": changed(user={"token": "a\nb"}),
    "impersonation": changed(user={"token": "t", "as": "alice"}),
    "no exec plugin": changed(user={"exec": {"command": "./gone", "apiVersion": "v1"}}),
    "an exec plugin without a command": changed(user={"exec": {"apiVersion": "v1"}}),
    "a provider that kubectl does not know either": changed(user={"auth-provider": {"name": "gcp"}}),
    "a provider without a token": changed(user={"auth-provider": {"name": "oidc"}}),
    "YAML that ends early": "a: [1",
    "a tab in YAML": "a: b\n\tc: d",
    "a time that is none": "a: !!timestamp x",
    "an answer that is none": "a: !!bool x",
    "a number that is none": 'a: !!int ""',
    "not a mapping": "- 1",
    "a text": "clusters",
    "empty": "",
}
#: Files, and what is told beside the words of a library, which differ by its version.
IN_A_LIBRARYS_WORDS = {
    "CA data that is not base64": (
        changed(cluster=TLS | {"certificate-authority-data": "%%%"}),
        "clusters[c].cluster.certificate-authority-data: found 3 characters (...), expected base64",
    ),
    "CA data that is not ASCII": (
        changed(cluster=TLS | {"certificate-authority-data": "é"}),
        "clusters[c].cluster.certificate-authority-data: found 1 characters (...), expected base64",
    ),
    "CA data that is not PEM": (
        changed(cluster=TLS | {"certificate-authority-data": "eA=="}),
        "clusters[c].cluster.certificate-authority-data: found ..., expected certificates in PEM",
    ),
    "a client certificate that is not PEM": (
        changed(cluster=TLS, user={"client-certificate-data": "eA==", "client-key-data": "eA=="}),
        "users[u].user.client-certificate: found ...PEM..., expected a certificate and its key in PEM",
    ),
}


async def refusal(**options):
    with pytest.raises(SettingsError) as caught:
        await load_credentials(**{"kubeconfig": None, "master": None, "environ": {}} | options)
    line = str(caught.value)
    assert re.fullmatch(r".+: found .+, expected .+", line), line
    return line


async def refusal_of(folder, content):
    path = written(folder / "config", content)
    line = (await refusal(kubeconfig=str(path))).replace(str(folder), "FOLDER")
    assert line.startswith("FOLDER/config: ")
    return line


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
async def test_a_wrong_kubeconfig_is_one_line_with_file_and_field(tmp_path, content, snapshot):
    assert await refusal_of(tmp_path, content) == snapshot


@pytest.mark.parametrize(("content", "expected"), IN_A_LIBRARYS_WORDS.values(), ids=IN_A_LIBRARYS_WORDS)
async def test_what_a_library_refuses_is_one_line_with_file_and_field(tmp_path, content, expected):
    line = await refusal_of(tmp_path, content)
    assert re.fullmatch(re.escape(f"FOLDER/config: {expected}").replace(r"\.\.\.", ".*"), line), line


FLAGS = {
    "missing": {"kubeconfig": "none"},
    "no home": {"kubeconfig": "~no-such-user/c"},
    "a folder": {"kubeconfig": "/"},
    "a name that is too long": {"kubeconfig": "x" * 300},
    "--master": {"master": "here"},
    "--context": {"context": "a"},
    "nothing": {},
}


@pytest.mark.parametrize("options", FLAGS.values(), ids=FLAGS)
async def test_flags_without_a_target_are_one_line(options, snapshot):
    assert await refusal(**options) == snapshot


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
    assert (context.user.content.token, context.cluster.content.server) == ("first", "http://127.0.0.1:8080")
    assert context.user.path("tokenFile", context.user.content.token_file) == tmp_path / "a/beside"
    assert [context.user.file, context.cluster.file] == paths[:2]


def test_a_huge_file_is_not_read(tmp_path):
    path = written(tmp_path / "config", "#" * (5 << 20))
    with pytest.raises(SettingsError, match="bytes"):
        resolve_context([path])
