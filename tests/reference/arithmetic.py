"""
Go's integer arithmetic, and the two score curves that several plugins share.

Source: pkg/scheduler/framework/plugins/helper/{normalize_score,shape_score}.go (kubernetes 1.36).
"""

from collections.abc import Sequence
from fractions import Fraction
from math import floor


def truncated(numerator: int, denominator: int) -> int:
    """Return the quotient cut off towards zero, as Go divides integers."""
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


def rounded(number: float | Fraction) -> int:
    """Return the nearest integer, halves away from zero; `number` is not negative."""
    below = floor(number)
    return below + 1 if number - below >= 0.5 else below


def normalised(raw: dict[str, int], *, reverse: bool) -> dict[str, int]:
    """Return raw scores by node, scaled so that the highest is 100, and inverted if `reverse`."""
    top = max([0, *raw.values()])
    if top == 0:
        return dict.fromkeys(raw, 100) if reverse else dict(raw)
    stretched = {node: truncated(100 * score, top) for node, score in raw.items()}
    return {node: 100 - score for node, score in stretched.items()} if reverse else stretched


def broken_linear(points: Sequence[tuple[int, int]], at: int) -> int:
    """Return the height at `at` of the line through `points` (utilisation, score), flat outside them."""
    for i, (x, y) in enumerate(points):
        if at <= x:
            if i == 0:
                return y
            before_x, before_y = points[i - 1]
            return before_y + truncated((y - before_y) * (at - before_x), x - before_x)
    return points[-1][1]
