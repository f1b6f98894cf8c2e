"""Which kubeconfig is read, and the message for a wrong one."""

import re

import pytest
import yaml

from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.kube.kubeconfig import kubeconfig_paths, resolve_context
from scheduler.errors import SettingsError
from tests.daemon.kube.kubeconfigs import GOOD, changed, written
from tests.support.case_blocks import case_blocks

# Of each file what differs from `GOOD`, or after WHOLE the file, and the line without the file's name; `...` stands for
# any text.
WRONG = """
# a current context without an entry
current-context: prod
=> current-context: found 'prod', expected one of dev
# no contexts
contexts: []
=> current-context: found 'dev', expected an entry of that name in the file
# clusters of the wrong type
clusters: x
=> clusters: found a text, expected a list or nothing
# a name of the wrong type
users: [{name: 7}]
=> users[0].name: found a number, expected a text
# a cluster without an entry
context: {cluster: x, user: u}
=> contexts[dev].context.cluster: found 'x', expected one of c
# a user without an entry
context: {cluster: c, user: x}
=> contexts[dev].context.user: found 'x', expected one of u
# no server
cluster: {}
=> clusters[c].cluster.server: found nothing, expected a URL such as https://10.0.0.1:6443
# a server without a scheme
cluster: {server: '10.0.0.1:6443'}
=> clusters[c].cluster.server: found '10.0.0.1:6443', expected a URL such as https://10.0.0.1:6443
# no CA file
cluster: {server: 'https://h', certificate-authority: no.crt}
=> clusters[c].cluster.certificate-authority: found no file FOLDER/no.crt, expected an existing file
# CA data that is not base64
cluster: {server: 'https://h', certificate-authority-data: '%%%'}
=> clusters[c].cluster.certificate-authority-data: found 3 characters (...), expected base64
# CA data that is not PEM
cluster: {server: 'https://h', certificate-authority-data: eA==}
=> clusters[c].cluster.certificate-authority-data: found ..., expected certificates in PEM
# a proxy of an unknown kind
cluster: {server: 'https://h', proxy-url: 'socks5://h:1'}
=> clusters[c].cluster.proxy-url: found 'socks5://h:1', expected an http or https URL
# a proxy without a host
cluster: {server: 'https://h', proxy-url: 'http://:3128'}
=> clusters[c].cluster.proxy-url: found 'http://:3128', expected an http or https URL
# a certificate without its key
user: {client-certificate-data: eA==}
=> users[u].user.client-key: found nothing, expected both a client certificate and its key
# a key without its certificate
user: {client-key: k}
=> users[u].user.client-certificate: found nothing, expected both a client certificate and its key
# no certificate file
user: {client-certificate: c, client-key: k}
=> users[u].user.client-certificate: found no file FOLDER/c, expected an existing file
# a client certificate that is not PEM
cluster: {server: 'https://h'}
user: {client-certificate-data: eA==, client-key-data: eA==}
=> users[u].user.client-certificate: found ...PEM..., expected a certificate and its key in PEM
# no token file
user: {tokenFile: gone}
=> users[u].user.tokenFile: found no file FOLDER/gone, expected an existing file
# a token file without a token
user: {tokenFile: config}
=> users[u].user.tokenFile: found a token with characters that no header may have, expected a file with a bearer token
# a token of two lines
user: {token: "a\\nb"}
=> users[u].user.token: found a token with characters that no header may have, expected credentials
# impersonation
user: {token: t, as: alice}
=> users[u].user.as: found 'alice', expected no impersonation
# no exec plugin
user: {exec: {command: ./gone, apiVersion: v1}}
=> users[u].user.exec: found no command 'FOLDER/gone', expected an executable
# an exec plugin without a command
user: {exec: {apiVersion: v1}}
=> users[u].user.exec.command: found nothing, expected a command
# a provider that kubectl does not know either
user: {auth-provider: {name: gcp}}
=> users[u].user.auth-provider.name: found 'gcp', expected 'oidc', or an exec plugin such as gke-gcloud-auth-plugin
# a provider without a token
user: {auth-provider: {name: oidc}}
=> users[u].user.auth-provider.config: found no refresh-token for an ID token that is missing, expired or refused,
   expected credentials
# YAML that ends early
WHOLE
a: [1
=> line 1: found "expected ',' or ']', but got '<stream end>'", expected YAML
# a tab in YAML
WHOLE
a: b
\tc: d
=> line 2: found "character '\\t' that cannot start any token", expected YAML
# not a mapping
WHOLE
- 1
=> found a list, expected a kubeconfig, such as kubectl's
# a text
WHOLE
clusters
=> found a text, expected a kubeconfig, such as kubectl's
# empty
WHOLE
=> current-context: found nothing, expected the name of a context
"""


def matches(line, expected):
    return re.fullmatch(re.escape(expected).replace(r"\.\.\.", ".*"), line)


async def refusal(**options):
    with pytest.raises(SettingsError) as caught:
        await load_credentials(**{"kubeconfig": None, "master": None, "environ": {}} | options)
    return str(caught.value)


@pytest.mark.parametrize(("text", "expected"), case_blocks(WRONG))
async def test_a_wrong_kubeconfig_is_one_line_with_file_and_field(tmp_path, text, expected):
    is_whole = text.startswith("WHOLE")
    content = text.removeprefix("WHOLE").lstrip("\n") if is_whole else changed(**yaml.safe_load(text))
    path = written(tmp_path / "config", content)
    line = (await refusal(kubeconfig=str(path))).replace(str(tmp_path), "FOLDER")
    assert matches(line, f"FOLDER/config: {expected[0]}"), line


FLAGS = {
    "missing": ({"kubeconfig": "none"}, "none: found no such file, expected a kubeconfig file"),
    "no home": (
        {"kubeconfig": "~no-such-user/c"},
        "~no-such-user/c: found no home directory, expected a path without ~",
    ),
    "a folder": ({"kubeconfig": "/"}, "/: found Is a directory, expected a readable kubeconfig file"),
    "--master": ({"master": "here"}, "--master: found 'here', expected a URL such as https://10.0.0.1:6443"),
    "--context": (
        {"context": "a"},
        "--context: found 'a', expected a kubeconfig file that has it, and there is none",
    ),
    "nothing": ({}, "cluster: found nothing that says where it is, expected --kubeconfig, --master, ..."),
}


@pytest.mark.parametrize(("options", "expected"), FLAGS.values(), ids=FLAGS)
async def test_flags_without_a_target_are_one_line(options, expected):
    line = await refusal(**options)
    assert matches(line, expected), line


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
