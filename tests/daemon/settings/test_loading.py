"""Complete files: upstream's defaults, valid files, and one line per mistake."""

from pathlib import Path

import pytest

from scheduler.daemon.settings.loading import default_settings, load_settings, parse_settings
from scheduler.daemon.settings.problems import MAX_LINES, InvalidSettingsError
from scheduler.daemon.settings.resolved import ClientConnection, Configuration, LeaderElection
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, Version, semantics_of
from tests.daemon.settings.configurations import (
    HEAD,
    in_upstreams_words,
    lines_of,
    one_profile,
    with_head,
)
from tests.support.case_blocks import case_blocks

DEFAULT_FILE = Path(__file__).parents[3] / "config" / "affinity-scheduler.yaml"


def test_an_empty_configuration_has_upstreams_defaults():
    settings = parse_settings(HEAD, "f")
    election = LeaderElection(True, 15.0, 10.0, 2.0, "leases", "affinity-scheduler", "kube-system")
    client = ClientConnection("", "", "application/vnd.kubernetes.protobuf", 50.0, 100)
    assert settings.configuration == Configuration(16, election, client, True, True, 0, 1, 10, False)
    assert settings.semantics == DEFAULT_SEMANTICS
    assert [profile.scheduler_name for profile in settings.profiles] == ["default-scheduler"]
    assert settings.notes == ()


def test_without_a_file_the_one_profile_is_our_own():
    settings = default_settings()
    (profile,) = settings.profiles
    assert profile.scheduler_name == "affinity-scheduler"
    (upstream,) = parse_settings(HEAD, "f").profiles
    assert profile.plugins_by_point == upstream.plugins_by_point


def test_every_field_of_a_whole_file_is_read():
    settings = parse_settings(
        with_head("""
        parallelism: 4
        leaderElection: {leaderElect: false, leaseDuration: 1m30s, renewDeadline: 500ms, retryPeriod: 1h,
                         resourceName: n, resourceNamespace: ns, resourceLock: endpoints}
        clientConnection: {kubeconfig: /k, acceptContentTypes: a, contentType: c, qps: 2.5, burst: 3}
        enableProfiling: false
        percentageOfNodesToScore: 50
        podInitialBackoffSeconds: 2
        podMaxBackoffSeconds: 2
        delayCacheUntilActive: true
        extenders: []
        profiles:
        - {schedulerName: a, percentageOfNodesToScore: 100}
        - {schedulerName: b}
        """),
        "f",
        semantics_of(Version(1, 34), {Gate.POD_LEVEL_RESOURCES: False}),
    )
    election = LeaderElection(False, 90.0, 0.5, 3600.0, "endpoints", "n", "ns")
    client = ClientConnection("/k", "a", "c", 2.5, 3)
    assert settings.configuration == Configuration(4, election, client, False, False, 50, 2, 2, True)
    assert not settings.semantics.enabled(Gate.POD_LEVEL_RESOURCES)
    assert [(p.scheduler_name, p.percentage_of_nodes_to_score) for p in settings.profiles] == [
        ("a", 100),
        ("b", None),
    ]


def test_zero_in_the_client_connection_and_the_lease_means_the_default():
    zeros = """
    clientConnection: {qps: 0, burst: 0, contentType: ''}
    leaderElection: {leaseDuration: 0s, resourceName: ''}
    """
    configuration = parse_settings(with_head(zeros), "f").configuration
    assert configuration.client_connection == ClientConnection()
    assert configuration.leader_election == LeaderElection()


def test_profiles_have_plugins_of_their_own():
    text = with_head("""
    profiles:
    - schedulerName: a
      plugins: {score: {disabled: [{name: '*'}]}}
    - schedulerName: b
      pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 5}}]
    """)
    first, second = parse_settings(text, "f").profiles
    assert first.plugins_by_point["score"] == ()
    assert len(second.plugins_by_point["score"]) == 9
    assert first.args_by_plugin["InterPodAffinity"] != second.args_by_plugin["InterPodAffinity"]


# Below the head of a file, or after WHOLE the file; of the problems those that are told in upstream's words.
PROBLEMS = """
# empty file
WHOLE
# a list
WHOLE
[]
# a word
WHOLE
hello
# no type
WHOLE
{}
# another type: its fields are not worth a line
WHOLE
apiVersion: kubescheduler.config.k8s.io/v1beta3
kind: Pod
spec: {}
# unknown field
foo: 1
# field names are case-sensitive
Parallelism: 1
# field twice
parallelism: 1
parallelism: 2
# wrong types
parallelism: '16'
enableProfiling: 1
profiles: {}
clientConnection: []
podMaxBackoffSeconds: 1.5
# out of the type's range
parallelism: 2147483648
clientConnection: {qps: .inf, burst: true, kubeconfig: 1}
# profiles of the wrong type
profiles: [null, 1]
=> profiles[0].schedulerName: Required value
=> profiles[1].schedulerName: Required value
# parallelism
parallelism: 0
=> parallelism: Invalid value: 0: should be an integer value greater than zero
# percentages
percentageOfNodesToScore: 101
profiles: [{percentageOfNodesToScore: -1}]
=> profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]
=> percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]
# backoff
podInitialBackoffSeconds: 0
podMaxBackoffSeconds: -1
=> podInitialBackoffSeconds: Invalid value: 0: must be greater than 0
=> podMaxBackoffSeconds: Invalid value: -1: must be greater than or equal to PodInitialBackoffSeconds
# burst
clientConnection: {burst: -1}
=> clientConnection.burst: Invalid value: -1: must be non-negative
# leader election
leaderElection: {leaseDuration: -1s, renewDeadline: -2s, retryPeriod: -3s, resourceLock: x}
=> leaderElection.leaseDuration: Invalid value: "-1s": must be greater than zero
=> leaderElection.renewDeadline: Invalid value: "-2s": must be greater than zero
=> leaderElection.retryPeriod: Invalid value: "-3s": must be greater than zero
=> leaderElection.resourceLock: Invalid value: "x": resourceLock value must be "leases"
# lease no longer than the renew deadline
leaderElection: {leaseDuration: 10s}
=> leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`
# renew deadline no longer than a jittered retry
leaderElection: {renewDeadline: 2400ms}
=> leaderElection.renewDeadline: Invalid value: "2.4s": must be greater than retryPeriod*JitterFactor
# duration without a unit
leaderElection: {leaseDuration: 15}
# names of several profiles
profiles: [{schedulerName: a}, {schedulerName: a}, {}]
=> profiles[2].schedulerName: Required value
=> profiles[1].schedulerName: Duplicate value: "profiles[0].schedulerName"
# empty name
profiles: [{schedulerName: ''}]
=> profiles[0].schedulerName: Required value
# queue sort differs
profiles: [{schedulerName: a, plugins: {queueSort: {enabled: [{name: PrioritySort}]}}}, {schedulerName: b}]
=> profiles[1].plugins.queueSort: Invalid value: {"enabled": [], "disabled": []}: must be the same for all profiles
# annotation namespaces differ
profiles: [{schedulerName: a}, {schedulerName: b, pluginConfig: [{name: InterPodAffinity,
  args: {annotationNamespaces: {names: [one]}}}]}]
=> profiles[1].pluginConfig[InterPodAffinity].args.annotationNamespaces: Invalid value: ["one"]: must be the same
   for all profiles
# plugins of another shape
profiles:
- schedulerName: p
  plugins: {filter: {enabled: [NodeName], foo: 1}, bar: {}}
=> profiles[0].plugins.filter.enabled[0].name: FilterPlugin "" does not exist
# extenders
extenders: [{urlPrefix: 'http://a', prioritizeVerb: p}, {urlPrefix: 'http://b', bindVerb: b}]
"""


@pytest.mark.parametrize(("text", "upstreams"), case_blocks(PROBLEMS))
def test_every_problem_has_a_line(text, upstreams, snapshot):
    lines = lines_of((HEAD + text).rpartition("WHOLE")[2])
    assert lines == snapshot
    assert in_upstreams_words(lines) == upstreams


def test_the_error_prints_every_line_up_to_a_limit():
    names = ", ".join(f"{{name: X{index}}}" for index in range(MAX_LINES + 5))
    with pytest.raises(InvalidSettingsError) as caught:
        parse_settings(one_profile(f"plugins: {{filter: {{enabled: [{names}]}}}}"), "f")
    lines = str(caught.value).splitlines()
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == "f: and 5 more problems"


def test_a_value_cannot_break_its_line_or_the_terminal():
    (line,) = lines_of(HEAD + r'parallelism: "\n\e[31m\u202e"')
    assert line == r'parallelism: found "\n\u001b[31m\u202e", expected an integer'


UNREADABLE_FILES = {
    "absent": lambda _: None,
    "directory": Path.mkdir,
    "bytes": lambda path: path.write_bytes(b"a: \xff"),
    "huge": lambda path: path.write_bytes(b" " * (1 << 21)),
}


@pytest.mark.parametrize("make", UNREADABLE_FILES.values(), ids=UNREADABLE_FILES)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, make, snapshot):
    path = tmp_path / "c.yaml"
    make(path)
    with pytest.raises(InvalidSettingsError) as caught:
        load_settings(str(path))
    (line,) = caught.value.lines
    assert line.removeprefix(f"{path}: ") == snapshot


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    assert load_settings(str(path)).configuration.parallelism == 16


def test_our_default_file_has_the_defaults_except_for_the_lease():
    settings = load_settings(str(DEFAULT_FILE))
    assert settings.configuration.leader_election == LeaderElection(resource_name="affinity-scheduler")
    defaults = default_settings()
    assert settings.profiles == defaults.profiles
    assert settings.configuration.client_connection == defaults.configuration.client_connection
    assert settings.notes == ()
