"""
Loads Settings from a file: reads, decodes strictly, defaults, validates, and reports all problems at once.

Source: pkg/scheduler/apis/config/v1/defaults.go, apis/config/validation/validation.go and
component-base/config/validation (kubernetes 1.36).
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from scheduler.daemon.settings.decoding import ObjectReader
from scheduler.daemon.settings.documents import MAX_CHARS, read_document
from scheduler.daemon.settings.durations import format_duration
from scheduler.daemon.settings.extenders import refuse_extenders
from scheduler.daemon.settings.out_of_tree_files import NO_PLUGINS, LoadedPlugins
from scheduler.daemon.settings.plugin_lists import API_VERSION
from scheduler.daemon.settings.problems import Problems, described, shown
from scheduler.daemon.settings.profiles import read_percentage, read_profiles
from scheduler.daemon.settings.resolved import ClientConnection, LeaderElection, ProfileSettings, Settings
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics

KIND: Final = "KubeSchedulerConfiguration"
STANDARD_INPUT: Final = "-"
#: The only profile when no file is given: a second scheduler must not schedule the pods of the first.
_SCHEDULER_NAME: Final = "affinity-scheduler"
_EXPECTED_FILE: Final = f"a file with a {KIND}"
#: client-go's leaderelection.JitterFactor.
_JITTER_FACTOR: Final = 1.2
_T = TypeVar("_T")


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
    content = b""
    try:
        if file == STANDARD_INPUT:
            content = sys.stdin.buffer.read(MAX_CHARS + 1)
        else:
            with Path(file).open("rb") as stream:
                content = stream.read(MAX_CHARS + 1)
    except FileNotFoundError:
        problems.found("", "no such file", _EXPECTED_FILE)
    except (OSError, ValueError) as error:
        problems.found(
            "", f"a file that cannot be read ({getattr(error, 'strerror', None) or error})", _EXPECTED_FILE
        )
    if len(content) > MAX_CHARS:
        problems.found("", f"more than {MAX_CHARS} bytes", "fewer")
    if len(problems.lines) > len(plugins.problems):
        problems.raise_if_any()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.found("", f"no UTF-8 at byte {error.start}", "UTF-8 text")
        problems.raise_if_any()
        raise
    return parse_settings(text, source, semantics, plugins)


def parse_settings(
    text: str,
    source: str,
    semantics: Semantics = DEFAULT_SEMANTICS,
    plugins: LoadedPlugins = NO_PLUGINS,
) -> Settings:
    """
    Return the settings in `text`, YAML or JSON; messages call it `source`.

    Raises InvalidSettingsError with a line for every problem.
    """
    problems = Problems(source)
    problems.include(plugins.problems)
    document = read_document(text, problems)
    if not isinstance(document, dict):
        if len(problems.lines) == len(plugins.problems):
            problems.found("", described(document) if text.strip() else "nothing", f"a {KIND}")
        problems.raise_if_any()
    notes: list[str] = []
    settings = _read_configuration(ObjectReader(document, "", problems), semantics, plugins.by_name, notes)
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


def _read_configuration(
    reader: ObjectReader,
    semantics: Semantics,
    out_of_tree: Mapping[str, OutOfTreePlugin],
    notes: list[str],
) -> Settings:
    _check_type(reader)
    with reader:
        client_connection = _read_client_connection(reader.child("clientConnection"))
        leader_election = _read_leader_election(reader.child("leaderElection"))
        parallelism = _default(reader.integer("parallelism"), 16)
        if parallelism <= 0:
            path = reader.at("parallelism")
            reader.problems.invalid(path, parallelism, "should be an integer value greater than zero")
        profiles = read_profiles(reader, semantics, notes, out_of_tree)
        notes.extend(_notes_of_unused(out_of_tree, profiles))
        percentage = _default(read_percentage(reader), 0)
        initial_s, max_s = _read_backoff(reader)
        refuse_extenders(reader)
        profiling = _default(reader.boolean("enableProfiling"), True)
        contention = reader.boolean("enableContentionProfiling")
        return Settings(
            profiles=profiles,
            parallelism=parallelism,
            leader_election=leader_election,
            client_connection=client_connection,
            enable_profiling=profiling,
            enable_contention_profiling=profiling if contention is None else contention,
            percentage_of_nodes_to_score=percentage,
            pod_initial_backoff_s=initial_s,
            pod_max_backoff_s=max_s,
            delay_cache_until_active=_default(reader.boolean("delayCacheUntilActive"), False),
            semantics=semantics,
            notes=tuple(notes),
            out_of_tree={name: plugin for name, plugin in out_of_tree.items() if _is_used(name, profiles)},
        )


def _notes_of_unused(
    out_of_tree: Mapping[str, OutOfTreePlugin], profiles: Iterable[ProfileSettings]
) -> Iterable[str]:
    """Return a note for each plugin of a file that nothing switches on; an installed package may have many."""
    return (
        f"{plugin.source}: no profile switches plugin {name} on"
        for name, plugin in out_of_tree.items()
        if not plugin.is_installed and not _is_used(name, profiles)
    )


def _is_used(name: str, profiles: Iterable[ProfileSettings]) -> bool:
    return any(name in names for profile in profiles for names in profile.plugins_by_point.values())


def _check_type(reader: ObjectReader) -> None:
    # A document of another type has nothing but unknown fields, so that only its type is reported.
    wrong = False
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        value = reader.raw(name)
        if value != expected:
            found = "nothing" if value is None else described(value)
            reader.problems.found(reader.at(name), found, shown(expected))
            wrong = True
    if wrong:
        reader.problems.raise_if_any()


def _read_client_connection(reader: ObjectReader) -> ClientConnection:
    defaults = ClientConnection()
    with reader:
        burst = reader.integer("burst") or defaults.burst
        if burst < 0:
            reader.problems.invalid(reader.at("burst"), burst, "must be non-negative")
        return ClientConnection(
            kubeconfig=reader.text("kubeconfig") or "",
            accept_content_types=reader.text("acceptContentTypes") or "",
            content_type=reader.text("contentType") or defaults.content_type,
            qps=reader.number("qps") or defaults.qps,
            burst=burst,
        )


def _read_leader_election(reader: ObjectReader) -> LeaderElection:
    defaults = LeaderElection()
    with reader:
        election = LeaderElection(
            leader_elect=_default(reader.boolean("leaderElect"), True),
            lease_duration_s=reader.duration_s("leaseDuration") or defaults.lease_duration_s,
            renew_deadline_s=reader.duration_s("renewDeadline") or defaults.renew_deadline_s,
            retry_period_s=reader.duration_s("retryPeriod") or defaults.retry_period_s,
            resource_lock=reader.text("resourceLock") or defaults.resource_lock,
            resource_name=reader.text("resourceName") or defaults.resource_name,
            resource_namespace=reader.text("resourceNamespace") or defaults.resource_namespace,
        )
    if election.leader_elect:
        _check_leader_election(election, reader)
    return election


def _check_leader_election(election: LeaderElection, reader: ObjectReader) -> None:
    problems = reader.problems
    durations_s = {
        "leaseDuration": election.lease_duration_s,
        "renewDeadline": election.renew_deadline_s,
        "retryPeriod": election.retry_period_s,
    }
    for name, duration_s in durations_s.items():
        if duration_s <= 0:
            problems.invalid(reader.at(name), format_duration(duration_s), "must be greater than zero")
    renew_deadline = format_duration(election.renew_deadline_s)
    if election.lease_duration_s <= election.renew_deadline_s:
        # Upstream shows the renew deadline here too.
        problems.invalid(reader.at("leaseDuration"), renew_deadline, "must be greater than `RenewDeadline`")
    elif election.renew_deadline_s <= _JITTER_FACTOR * election.retry_period_s:
        detail = "must be greater than retryPeriod*JitterFactor"
        problems.invalid(reader.at("renewDeadline"), renew_deadline, detail)
    if election.resource_lock != "leases":
        detail = 'resourceLock value must be "leases"'
        problems.invalid(reader.at("resourceLock"), election.resource_lock, detail)


def _read_backoff(reader: ObjectReader) -> tuple[int, int]:
    """Return the initial and the maximum backoff in seconds."""
    initial_s = _default(reader.integer("podInitialBackoffSeconds", bits=64), 1)
    max_s = _default(reader.integer("podMaxBackoffSeconds", bits=64), 10)
    if initial_s <= 0:
        path = reader.at("podInitialBackoffSeconds")
        reader.problems.invalid(path, initial_s, "must be greater than 0")
    if max_s < initial_s:
        path = reader.at("podMaxBackoffSeconds")
        reader.problems.invalid(path, max_s, "must be greater than or equal to PodInitialBackoffSeconds")
    return initial_s, max_s


def _default(value: _T | None, default: _T) -> _T:
    return default if value is None else value
