"""
Loads Settings from a file: reads, decodes strictly, defaults, validates, and reports all problems at once.

Source: pkg/scheduler/apis/config/v1/defaults.go, apis/config/validation/validation.go and
component-base/config/validation (kubernetes 1.36).
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from scheduler.daemon.settings.decoding import checked_fields
from scheduler.daemon.settings.documents import MAX_CHARS, read_document
from scheduler.daemon.settings.out_of_tree_files import NO_PLUGINS, LoadedPlugins
from scheduler.daemon.settings.plugin_lists import API_VERSION
from scheduler.daemon.settings.problems import Problems, described, shown
from scheduler.daemon.settings.profiles import ProfileFields, ProfileReader, check_percentage
from scheduler.daemon.settings.resolved import Configuration, LeaderElection, Settings
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.model.wire import Wire
from scheduler.engine.syntax.durations import format_duration

KIND: Final = "KubeSchedulerConfiguration"
STANDARD_INPUT: Final = "-"
#: The only profile when no file is given: a second scheduler must not schedule the pods of the first.
_SCHEDULER_NAME: Final = "affinity-scheduler"
_EXPECTED_FILE: Final = f"a file with a {KIND}"
#: client-go's leaderelection.JitterFactor.
_JITTER_FACTOR: Final = 1.2
_Section = TypeVar("_Section", bound=Wire)


class _File(Configuration, frozen=True):
    """The fields of a file."""

    api_version: str = ""
    kind: str = ""
    profiles: tuple[ProfileFields, ...] = ()
    extenders: tuple[dict[str, object], ...] = ()


def load_settings(
    file: str,
    semantics: Semantics = DEFAULT_SEMANTICS,
    plugins: LoadedPlugins = NO_PLUGINS,
) -> Settings:
    """
    Return the settings in `file` ("-" reads standard input), whose profiles may run the `plugins`.

    Raises InvalidSettingsError with a line for every problem, those of the plugins first: file, field path, found,
    expected.
    """
    source = "standard input" if file == STANDARD_INPUT else file
    problems = Problems(source)
    problems.include(plugins.problems)
    try:
        if file == STANDARD_INPUT:
            content = sys.stdin.buffer.read(MAX_CHARS + 1)
        else:
            with Path(file).open("rb") as stream:
                content = stream.read(MAX_CHARS + 1)
    except FileNotFoundError:
        problems.stop("", "no such file", _EXPECTED_FILE)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        problems.stop("", f"a file that cannot be read ({why})", _EXPECTED_FILE)
    if len(content) > MAX_CHARS:
        problems.stop("", f"more than {MAX_CHARS} bytes", "fewer")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.stop("", f"no UTF-8 at byte {error.start}", "UTF-8 text")
    return parse_settings(text, source, semantics, plugins)


def parse_settings(
    text: str,
    source: str,
    semantics: Semantics = DEFAULT_SEMANTICS,
    plugins: LoadedPlugins = NO_PLUGINS,
) -> Settings:
    """Return the settings in `text`, YAML or JSON, which messages call `source`; raise InvalidSettingsError."""
    problems = Problems(source)
    problems.include(plugins.problems)
    document = read_document(text, problems)
    if not isinstance(document, dict):
        if len(problems.lines) > len(plugins.problems):
            problems.raise_if_any()
        problems.stop("", described(document) if text.strip() else "nothing", f"a {KIND}")
    _check_type(document, problems)
    fields = checked_fields(document, _File, problems)
    settings = _settings(fields, semantics, plugins.by_name, problems)
    problems.raise_if_any()
    return settings


def default_settings(
    semantics: Semantics = DEFAULT_SEMANTICS, plugins: LoadedPlugins = NO_PLUGINS
) -> Settings:
    """
    Return the settings without a file: upstream's defaults for one profile named `affinity-scheduler`.

    Differs from upstream in `qps`: there 50 requests a second limit the throughput; here the API server's priority and
    fairness limits it.
    """
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "clientConnection": {"qps": -1},
        "profiles": [{"schedulerName": _SCHEDULER_NAME}],
    }
    return parse_settings(json.dumps(document), "built-in defaults", semantics, plugins)


def _settings(
    fields: Mapping[str, object],
    semantics: Semantics,
    out_of_tree: Mapping[str, OutOfTreePlugin],
    problems: Problems,
) -> Settings:
    given = msgspec.convert(fields, _File)
    client_connection, leader_election = (
        _completed(given.client_connection),
        _completed(given.leader_election),
    )
    if client_connection.burst < 0:
        problems.invalid("clientConnection.burst", client_connection.burst, "must be non-negative")
    if leader_election.leader_elect:
        _check_leader_election(leader_election, problems)
    if given.parallelism <= 0:
        problems.invalid("parallelism", given.parallelism, "should be an integer value greater than zero")
    notes: list[str] = []
    profiles = ProfileReader(semantics, notes, problems, out_of_tree).read(given.profiles)
    used = {name for profile in profiles for names in profile.plugins_by_point.values() for name in names}
    # An installed package may have many plugins.
    notes += (
        f"{plugin.source}: no profile switches plugin {name} on"
        for name, plugin in out_of_tree.items()
        if not plugin.is_installed and name not in used
    )
    check_percentage(given.percentage_of_nodes_to_score, problems)
    initial_s, max_s = given.pod_initial_backoff_s, given.pod_max_backoff_s
    if initial_s <= 0:
        problems.invalid("podInitialBackoffSeconds", initial_s, "must be greater than 0")
    if max_s < initial_s:
        detail = "must be greater than or equal to PodInitialBackoffSeconds"
        problems.invalid("podMaxBackoffSeconds", max_s, detail)
    for index, extender in enumerate(given.extenders):
        found = f"an extender at {described(extender.get('urlPrefix'))}"
        problems.found(f"extenders[{index}]", found, "none (extenders are not supported yet)")
    contention = given.enable_contention_profiling
    configuration = msgspec.structs.replace(
        msgspec.convert(fields, Configuration),
        client_connection=client_connection,
        leader_election=leader_election,
        enable_contention_profiling=given.enable_profiling if contention is None else contention,
    )
    return Settings(
        profiles=profiles,
        configuration=configuration,
        semantics=semantics,
        notes=tuple(notes),
        out_of_tree={name: plugin for name, plugin in out_of_tree.items() if name in used},
    )


def _completed(section: _Section) -> _Section:
    """Return the section with its defaults for the fields that are empty or zero, as upstream."""
    fields = msgspec.structs.fields(type(section))
    unset = {field.name: field.default for field in fields if getattr(section, field.name) in ("", 0)}
    unset.pop("leader_elect", None)
    return msgspec.structs.replace(section, **unset)


def _check_type(document: Mapping[str, object], problems: Problems) -> None:
    # A document of another type has nothing but unknown fields, so that only its type is reported.
    wrong = [
        (name, expected)
        for name, expected in (("apiVersion", API_VERSION), ("kind", KIND))
        if document.get(name) != expected
    ]
    for name, expected in wrong:
        found = "nothing" if document.get(name) is None else described(document[name])
        problems.found(name, found, shown(expected))
    if wrong:
        problems.raise_if_any()


def checked_election(election: LeaderElection) -> LeaderElection:
    """Return what flags made of the settings; raise InvalidSettingsError if it cannot work."""
    problems = Problems("")
    _check_leader_election(election, problems)
    problems.raise_if_any()
    return election


def _check_leader_election(election: LeaderElection, problems: Problems) -> None:
    path = "leaderElection"
    durations_s = {
        "leaseDuration": election.lease_duration_s,
        "renewDeadline": election.renew_deadline_s,
        "retryPeriod": election.retry_period_s,
    }
    for name, duration_s in durations_s.items():
        if duration_s <= 0:
            problems.invalid(f"{path}.{name}", format_duration(duration_s), "must be greater than zero")
    renew_deadline = format_duration(election.renew_deadline_s)
    if election.lease_duration_s <= election.renew_deadline_s:
        # Upstream shows the renew deadline here too.
        problems.invalid(f"{path}.leaseDuration", renew_deadline, "must be greater than `RenewDeadline`")
    elif election.renew_deadline_s <= _JITTER_FACTOR * election.retry_period_s:
        detail = "must be greater than retryPeriod*JitterFactor"
        problems.invalid(f"{path}.renewDeadline", renew_deadline, detail)
    if election.resource_lock != "leases":
        detail = 'resourceLock value must be "leases"'
        problems.invalid(f"{path}.resourceLock", election.resource_lock, detail)
