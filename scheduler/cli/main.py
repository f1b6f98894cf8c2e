"""`affinity-scheduler`: the menu of commands. Bad input ends in one line and exit code 2, never in a traceback."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn, Protocol, cast

from scheduler.errors import SettingsError
from scheduler.kube.client import product_version

#: Command, the module that carries it out (imported only when asked for), and its line in the menu.
_COMMANDS: Final = (
    ("run", "scheduler.cli.run", "schedule the pods that name one of the configured profiles"),
    ("enforce", "scheduler.cli.enforce", "evict pods whose enforced affinity rules are broken"),
    (
        "check-config",
        "scheduler.cli.check_config",
        "print what a configuration file means, or all that is wrong with it",
    ),
    ("explain", "scheduler.cli.explain", "tell why a pod is pending, or where it is, and what would help"),
    ("simulate", "scheduler.cli.simulate", "place a manifest's replicas without touching the cluster"),
    ("snapshot", "scheduler.cli.snapshot", "save what scheduling reads of a cluster to a file"),
    (
        "webhook",
        "scheduler.cli.webhook",
        "merge label keys into new pods, and refuse those that would keep others away",
    ),
    ("demo", "scheduler.demo.command", "play the stories of the design documents on an embedded cluster"),
    ("devcluster", "scheduler.devcluster.command", "serve an embedded cluster that kubectl can talk to"),
)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, without the usage of all commands above it."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with exit code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class Command(Protocol):
    """What a command's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Makes the parser read the command's arguments."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Carries the command out; returns the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Exit codes: 0 done, 1 the work failed, 2 bad input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        command, args = _parsed(arguments)
        code = command.run(args)
        sys.stdout.flush()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read has had enough. The null device takes what is left, or Python complains as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def _parsed(arguments: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    parser = _Parser(
        prog="affinity-scheduler",
        description="A second Kubernetes scheduler for workloads that care which pods run beside which.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"affinity-scheduler {product_version()}")
    menu = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    loaded: dict[str, Command] = {}
    for name, module, summary in _COMMANDS:
        entry = menu.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
        )
        if name == chosen:
            # Only the chosen command is imported: some pull in packages that take half a second.
            loaded[name] = _loaded(name, module)
            loaded[name].add_arguments(entry)
    args = parser.parse_args(arguments)
    return loaded[args.command], args


def _loaded(name: str, module: str) -> Command:
    """The command's module. Raises SettingsError where the product image leaves it out."""
    try:
        return cast(Command, importlib.import_module(module))
    except ModuleNotFoundError as error:
        # The whole room is missing, or this is a bug of its own.
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise SettingsError(
            f"affinity-scheduler {name}",
            "",
            "an image without the embedded cluster",
            "the image of the Dockerfile's demo target",
        ) from error


if __name__ == "__main__":
    sys.exit(main())
