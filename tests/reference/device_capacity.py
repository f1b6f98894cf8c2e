"""
What a request takes of a device's capacities.

Source: structured/internal/incubating/consumable_capacity.go (kubernetes 1.36).
"""

from fractions import Fraction
from math import ceil

from tests.reference.quantity import parse, whole_units
from tests.reference.question import Object

Amounts = dict[str, Fraction]


def wanted(requested: Object, device: Object) -> Amounts | None:
    """Return how much of each capacity a request takes; None if the device or its policy does not allow it."""
    capacity: Object = device.get("capacity") or {}
    if set(requested) - set(capacity):
        return None
    amounts: Amounts = {}
    for name, each in capacity.items():
        policy: Object = each.get("requestPolicy") or {}
        amount = _rounded(requested.get(name), each["value"], policy)
        if policy and amount != parse(policy.get("default", "-1")) and not _is_allowed(amount, policy):
            return None
        amounts[name] = amount
    return amounts


def _rounded(requested: str | None, whole: str, policy: Object) -> Fraction:
    if requested is None:
        return parse(policy.get("default") or whole)
    amount = parse(requested)
    valid = policy.get("validRange")
    if valid:
        least = parse(valid["min"])
        if amount < least:
            return least
        if "step" in valid:
            step = whole_units(parse(valid["step"]))
            steps = ceil(Fraction(whole_units(amount) - whole_units(least), step))
            return Fraction(whole_units(least) + steps * step)
        return amount
    return next((parse(each) for each in policy.get("validValues") or [] if amount <= parse(each)), amount)


def _is_allowed(amount: Fraction, policy: Object) -> bool:
    valid = policy.get("validRange")
    if valid:
        if "max" in valid and amount > parse(valid["max"]):
            return False
        if "step" in valid:
            return (whole_units(amount) - whole_units(parse(valid["min"]))) % whole_units(
                parse(valid["step"])
            ) == 0
        return True
    values = policy.get("validValues")
    return not values or any(amount == parse(each) for each in values)
