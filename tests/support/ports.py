"""
Ports of the loopback interface for servers that need a port number before they listen.

Below those that systems give to outgoing connections (32768 and up), and of each worker of a run its own, so that
no other process takes a port between its choice and its use. Runs beside each other take theirs by process ID.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

_FIRST, _N_WORKERS, _N_EACH = 20_000, 12, 1_000


def _numbers() -> itertools.cycle[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", f"gw{os.getpid()}").removeprefix("gw")) % _N_WORKERS
    first, begin = _FIRST + worker * _N_EACH, random.SystemRandom().randrange(_N_EACH)
    return itertools.cycle([first + (begin + number) % _N_EACH for number in range(_N_EACH)])


_NUMBERS = _numbers()


def free_port() -> int:
    """Return a port on which no process listens."""
    for port in itertools.islice(_NUMBERS, _N_EACH):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"found none of {_N_EACH} ports free, expected one")
