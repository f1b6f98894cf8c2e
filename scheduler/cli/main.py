"""`affinity-scheduler COMMAND`: runs a command. Bad input is one line and exit code 2, never a traceback."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final, NoReturn

from scheduler.errors import SettingsError

#: The line in `--help` and examples of each command.
_COMMANDS: Final = {
    "run": (
        "schedule the pods that name one of the configured profiles",
        ("--kubeconfig ~/.kube/config", "--config scheduler.yaml --leader-elect=false -v 4"),
    ),
    "enforce": (
        "evict pods whose enforced affinity rules are broken",
        ("--once", "--dry-run --rebalance"),
    ),
    "check-config": (
        "print a configuration with the defaults that are not empty, or all of its problems",
        ("scheduler.yaml",),
    ),
    "explain": (
        "say why a pod is pending, or why it is on its node, and what would help",
        ("-A", "-n shop deploy/web", "-f deployment.yaml", "-n shop web-0 --on cluster.json.gz -o yaml"),
    ),
    "simulate": (
        "place a manifest's replicas, or the pods of drained nodes, on a copy of the cluster",
        ("-f deployment.yaml --replicas 20", "--drain node-1,node-2", "--without-zone zone-a -o json"),
    ),
    "shadow": (
        "watch what another scheduler decides, and report what would be otherwise here",
        ("--of default-scheduler --for 10m", "--recording day.jsonl.gz -o json"),
    ),
    "record": (
        "save what a watch of a cluster shows, for `shadow --recording`",
        ("-o day.jsonl.gz --for 24h",),
    ),
    "ui": (
        "open the page of the scheduler that runs in the cluster",
        ("", "-n team-b --scheduler deployment/team-b-scheduler"),
    ),
    "snapshot": ("save what the scheduler reads of a cluster to a file", ("-o cluster.json.gz",)),
    "bundle": (
        "save what a bug report needs, without secrets, to a file",
        ("-o bundle.tar.gz", "-o bundle.tar.gz --url http://127.0.0.1:10259"),
    ),
    "webhook": (
        "serve the admission webhook: merge label keys into new pods, refuse harmful ones",
        ("--report-only --schedulers affinity-scheduler",),
    ),
    "plugins": (
        "list the plugins that a configuration can name, or write a rule of your own",
        ("", "new TeamPerRack", "--plugins team_per_rack.py -o yaml"),
    ),
    "demo": (
        "play common affinity problems and their fixes on an embedded cluster",
        ("", "--story 1 --serve"),
    ),
    "devcluster": ("run an embedded cluster for kubectl", ("--ui", "--nodes 30 --zones 3 --gpus 8")),
    "completion": (
        "print what bash, zsh or fish needs to complete commands",
        ("bash", "zsh", "fish"),
    ),
}
#: Not in the image of the product.
_SANDBOX: Final = ("demo", "devcluster")
_PROGRAM: Final = "affinity-scheduler"


def module_of(command: str) -> str:
    """Return the name of the module with the command's `add_arguments` and `run`."""
    if command in _SANDBOX:
        return f"scheduler.sandbox.{command}.command"
    return f"scheduler.cli.{command.replace('-', '_')}"


class _Formatter(argparse.HelpFormatter):
    """Keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class _ArgumentParser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _examples(*lines: str) -> str:
    return "\n".join(("examples:", *(f"  {_PROGRAM} {line}" for line in lines)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 for success, 1 for a negative answer, 2 for bad input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _end_at_sigterm()
    try:
        command, args = _parse(arguments)
        code: int = command.run(args)
        sys.stdout.flush()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader closed the pipe.
        _discard_output()
        return 141
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _discard_output()
        print(
            "standard output: found no space left on its device, expected room for the answer",
            file=sys.stderr,
        )
        return 1
    return code


def _discard_output() -> None:
    """Let the null device take what is still to be written, or Python would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_at_sigterm() -> None:
    """Make SIGTERM end the process until a daemon handles it: without a handler the kernel drops it for PID 1."""
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    # The image's entry point blocks SIGTERM, so that it is delivered only now and not while Python starts.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _parse(arguments: Sequence[str]) -> tuple[ModuleType, argparse.Namespace]:
    """Return the command's module and its arguments."""
    parser = _ArgumentParser(
        prog=_PROGRAM,
        description="A second Kubernetes scheduler for workloads that care which pods run beside which.",
        epilog=_examples("explain -n shop web-0", "simulate -f deployment.yaml", "explain --help"),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    version = ""
    if arguments[:1] == ["--version"]:
        # Looked up only here, since the lookup imports a parser of e-mail.
        from scheduler.version import product_version

        version = product_version()
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {version}")
    menu = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    is_completing = "_ARGCOMPLETE" in os.environ
    if is_completing:
        arguments = _words(os.environ.get("COMP_LINE", ""))
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (summary, examples) in _COMMANDS.items():
        entry = menu.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_examples(*(f"{name} {each}".rstrip() for each in examples)),
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        if name == chosen:
            # Only the chosen command is imported: some imports take half a second.
            _load(name).add_arguments(entry)
    if is_completing:
        from scheduler.cli.completion import complete

        complete(parser)
    asks_for_help = not set(arguments).isdisjoint(("-h", "--help", "--version"))
    if chosen is not None and chosen not in _COMMANDS and not asks_for_help:
        from scheduler.engine.syntax.words import did_you_mean  # the menu imports no room

        parser.error(f"there is no command {chosen!r}{did_you_mean(chosen, _COMMANDS)}")
    args, unknown = parser.parse_known_args(arguments or ["--help"])
    if unknown:
        from scheduler.engine.syntax.words import did_you_mean

        asked: argparse.ArgumentParser = menu.choices[args.command]
        meant = did_you_mean(unknown[0].partition("=")[0], asked._option_string_actions)
        asked.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
    return _load(args.command), args


def _words(line: str) -> list[str]:
    """Return the words of a command line after the program's; what follows an open quote is one word."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words[1:]


def _load(name: str) -> ModuleType:
    """Import the command's module. Raises SettingsError if the image does not contain it."""
    module = module_of(name)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Anything but the missing command itself is a bug.
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
