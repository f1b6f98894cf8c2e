"""
kube-scheduler's flags that `run` does not need: accepted without effect, or refused by name.

Source: `kube-scheduler --help` (kubernetes 1.36).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Final, NoReturn

from scheduler.daemon.settings.feature_gates import BOOLEANS
from scheduler.errors import SettingsError

#: Why a boolean flag, which may stand without a value, has no effect.
_BOOLEAN_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "authentication-skip-lookup": "nothing is looked up in the cluster",
    "authentication-tolerate-lookup-failure": "nothing is looked up in the cluster",
    "contention-profiling": "/debug/pprof is not served",
    "disable-http2-serving": "HTTP/2 is not served",
    "permit-address-sharing": "SO_REUSEADDR is always set",
    "profiling": "/debug/pprof is not served",
}
#: Why a flag has no effect.
_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    **_BOOLEAN_WITHOUT_EFFECT,
    "http2-max-streams-per-connection": "HTTP/2 is not served",
    "kube-api-content-type": "requests and responses are JSON",
    "log-flush-frequency": "every line is written at once",
    "min-compatibility-version": "no feature gate here depends on it",
    "show-hidden-metrics-for-version": "no metric is hidden",
}
#: It says what to use instead of each of `_REFUSED`.
_PAGE: Final = "scheduler/cli/README.md#flags-of-kube-scheduler"
_REFUSED: Final = (
    "allow-metric-labels",
    "allow-metric-labels-manifest",
    "authentication-token-webhook-cache-ttl",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "cert-dir",
    "client-ca-file",
    "disabled-metrics",
    "log-json-info-buffer-size",
    "log-json-split-stream",
    "log-text-info-buffer-size",
    "log-text-split-stream",
    "permit-port-sharing",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "tls-curve-preferences",
    "tls-sni-cert-key",
    "unsupported-kube-api-over-localhost",
    "vmodule",
    "write-config-to",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """
    Add the flags, which `--help` leaves out. A refused flag raises SettingsError when it is parsed; a flag without
    effect is logged at the start.
    """
    for name in _WITHOUT_EFFECT:
        if name in _BOOLEAN_WITHOUT_EFFECT:
            add_boolean(parser, name, argparse.SUPPRESS)
        else:
            parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    for name in _REFUSED:
        refuse = partial(_refuse, name)
        parser.add_argument(f"--{name}", type=refuse, nargs="?", const="", help=argparse.SUPPRESS)


def notes(args: argparse.Namespace) -> tuple[str, ...]:
    """Return a line for each given flag without effect."""
    given = (name for name in _WITHOUT_EFFECT if getattr(args, name.replace("-", "_")) is not None)
    return tuple(f"--{name} has no effect: {_WITHOUT_EFFECT[name]}" for name in given)


def flag_values(args: argparse.Namespace) -> Mapping[str, str]:
    """Return the value of every flag by its name, as Go prints values."""
    hidden = {"command", "default_port", *(name.replace("-", "_") for name in _REFUSED)}
    named = {name: value for name, value in vars(args).items() if name not in hidden}
    named["v"] = named.pop("verbosity")
    return {name.replace("_", "-"): _as_go(value) for name, value in named.items()}


def _as_go(value: object) -> str:
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def add_boolean(container: argparse._ActionsContainer, name: str, text: str) -> None:
    """Add a flag that is `true` or `false`, as `--name`, `--name=false` and in every spelling that Go reads."""
    container.add_argument(
        f"--{name}", nargs="?", const="true", type=_boolean, metavar="true|false", help=text
    )


def _boolean(text: str) -> str:
    if text not in BOOLEANS:
        raise argparse.ArgumentTypeError(f"invalid value: {text!r} (true or false)")
    return "true" if BOOLEANS[text] else "false"


def _refuse(name: str, _value: str) -> NoReturn:
    found = "a flag of kube-scheduler that does not exist here"
    raise SettingsError(f"--{name}", "", found, f"what {_PAGE} says to use instead")
