"""
`affinity-scheduler shadow`: decide what another scheduler decides, and report what would be otherwise, writing nothing.

The JSON is a `scheduler.tools.shadow.report.ShadowReport`.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from scheduler.cli import server_flags, serving_flags, settings_flags
from scheduler.cli.flag_kinds import add, add_output, duration_s, number
from scheduler.daemon.settings.feature_gates import DEFAULT_VERSION
from scheduler.errors import SettingsError
from scheduler.tools.shadow.orders import RACE_S

if TYPE_CHECKING:
    from scheduler.tools.explain.formats.terminal import LiveLines
    from scheduler.tools.shadow.loop import Options

_NO_PORT: Final = 0
_PERCENTAGE: Final = partial(number, allowed=range(101), expected="a number from 0 to 100")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    add(parser, "--of", "NAME", "default-scheduler", "schedulerName of the pods to compare")
    recording = "compare what the command record saw, instead of watching a cluster"
    add(parser, "--recording", "FILE", None, recording)
    settings_flags.add_config(
        parser, "decide with a profile of this KubeSchedulerConfiguration; default: all defaults"
    )
    profile = "schedulerName of the profile that decides; default: the configuration's first"
    add(parser, "--profile", "NAME", None, profile)
    settings_flags.add_plugins(parser)
    settings_flags.add_semantics(parser, f"that of the API server; of a recording {DEFAULT_VERSION}")
    parser.add_argument(
        "--for",
        dest="duration",
        type=partial(duration_s, "--for", such_as="10m"),
        metavar="DURATION",
        help="stop after this time, such as 10m; default: at SIGINT or SIGTERM, or at the recording's end",
    )
    parser.add_argument(
        "--percentage-of-nodes-to-score",
        type=partial(_PERCENTAGE, "--percentage-of-nodes-to-score"),
        default=0,
        metavar="N",
        help="this field of the other scheduler's configuration, 0 to 100 (default %(default)s, its default): "
        "tells what its sample of the nodes explains",
    )
    window = "changes this close to a decision may have been in another order for the other scheduler"
    add(parser, "--race-window", "DURATION", f"{RACE_S:g}s", window, partial(duration_s, such_as="2s"))
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="seed for the choice between nodes with equal scores (default %(default)s): two runs on one recording are "
        "equal",
    )
    add_output(parser, ("text", "json"), "form of the report")
    server_flags.add_server(parser)
    server_flags.add_logging(parser)
    serving_flags.add_arguments(parser, port=_NO_PORT, hides_tls=True)
    parser.set_defaults(verbosity=0)


def run(args: argparse.Namespace) -> int:
    """
    Compare, and print the report. Raises SettingsError.

    Return 1 if a difference by rule or score is left that no order of the changes around it explains, else 0.
    """
    import asyncio

    from scheduler.cli.query.shadow_report import is_explained, text
    from scheduler.tools.explain.formats.terminal import LiveLines
    from scheduler.tools.explain.recordings import recorded_events
    from scheduler.tools.explain.report import print_answer
    from scheduler.tools.shadow.loop import replay, watch

    live = LiveLines(sys.stderr, os.environ)
    options = _options(args, live)
    try:
        if args.recording is not None:
            options = options.at(options.settings.requested.at(None))
            report = replay(options, recorded_events(args.recording, options.settings))
        else:
            report = asyncio.run(watch(options, os.environ))
    finally:
        live.clear()
    print_answer(report, args.output, partial(text, report))
    return 0 if is_explained(report) else 1


def _options(args: argparse.Namespace, live: LiveLines) -> Options:
    from scheduler.cli.query.shadow_report import live_lines
    from scheduler.tools.shadow.loop import Options

    if not args.of:
        raise SettingsError("--of", "", repr(args.of), "the schedulerName of the pods to compare")
    if args.recording == "":
        raise SettingsError("--recording", "", "''", "a file made by the command record")
    for flag, value in (("--kubeconfig", args.kubeconfig), ("--master", args.master)):
        if args.recording is not None and value is not None:
            raise SettingsError("--recording", "", f"{flag} as well", "one of them")
    settings = settings_flags.settings(args)
    names = [profile.scheduler_name for profile in settings.profiles]
    if args.profile is not None and args.profile not in names:
        raise SettingsError("--profile", "", args.profile, f"one of {', '.join(names)}")
    return Options(
        settings=server_flags.with_kubeconfig(settings, args.kubeconfig),
        profile=names[0] if args.profile is None else args.profile,
        of=args.of,
        percentage=args.percentage_of_nodes_to_score,
        duration_s=args.duration,
        seed=args.seed,
        race_s=args.race_window,
        master=args.master,
        serving=serving_flags.listening(args),
        verbosity=args.verbosity,
        log_format=args.log_format,
        log_to=live,
        on_progress=lambda report: live.show(lambda columns: live_lines(report, columns)),
    )
