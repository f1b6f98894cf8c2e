"""
What a shape's constraints cost the whole path: its pods and plain ones are dealt out in turn, a block of each.

Within a minute a machine changes its speed by more than shapes differ, and a server that has listed 5,000 pods is
slower than one that has listed 1,000. Here both kinds meet the same second, the same server and the same running pods:
on the embedded cluster plain ones against plain ones give 1.00 to within 2 %, where two runs in a row gave 0.7 to 1.4.
A real server, which shares its cores, stalls for longer than a block now and then: one round there tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Final

from tests.bench import templates
from tests.bench.scene import Planned, Scene

#: Pods of a kind in a row, about 100 ms: long beside the few milliseconds in which bindings come in bursts, and beside
#: the first pod of each block, for which nothing is derived yet: a rollout pays for that once.
BLOCK: Final = 200
#: Blocks at either end that are left out: the first finds everything cold, behind the last nobody waits.
_LEFT_OUT: Final = 2
#: Fewest blocks of the shape, of which the first and the last are left out.
_FEWEST: Final = 4


def can_be_dealt(scene: Scene) -> bool:
    """Whether its measured pods differ from plain ones, and are enough."""
    return scene.shape.measured.name != templates.plain().name and len(scene.measured) >= _FEWEST


def dealt(scene: Scene) -> Scene:
    """
    The scene with plain pods between its measured ones: a block of plain ones first, and last.

    A scheduler takes the pods of a list in the order of their names.
    """
    n_block = _block(len(scene.measured))
    n_blocks = len(scene.measured) // n_block
    plain = templates.plain()
    measured = [
        Planned(template, scene.shape.measured_namespace, f"measured-{number:04}-{index:04}")
        for number, template in enumerate([plain, *([scene.shape.measured, plain] * n_blocks)])
        for index in range(n_block)
    ]
    return replace(scene, measured=measured)


def relative_speed(bound_s: Sequence[float], n_measured: int) -> float:
    """
    Pods/s of the shape to those of the plain pods right before and after.

    Args:
        bound_s: the second of every binding of a dealt scene, in order.
        n_measured: pods of the scene before plain ones were dealt in.
    """
    n_block = _block(n_measured)
    ends_s = bound_s[n_block - 1 :: n_block]
    took_s = [after - before for before, after in pairwise([bound_s[0], *ends_s])]
    shapes = range(_LEFT_OUT + 1, len(took_s) - _LEFT_OUT, 2)
    beside_s = fmean(took_s[at + side] for at in shapes for side in (-1, 1))
    return beside_s / fmean(took_s[at] for at in shapes)


def _block(n_measured: int) -> int:
    return max(1, min(BLOCK, n_measured // _FEWEST))
