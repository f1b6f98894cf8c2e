"""PartitionedDict behaves as a dict, and its parts are of similar size."""

from __future__ import annotations

import random
import subprocess
import sys
import uuid

import pytest

from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.partitioned_dict import PartitionedDict


def _uids(n: int) -> list[str]:
    chance = random.Random(n)
    return [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(n)]


@pytest.mark.parametrize("seed", range(5))
def test_it_has_the_items_of_a_dict(seed: int) -> None:
    chance = random.Random(seed)
    partitioned: PartitionedDict[int] = PartitionedDict()
    known: dict[str, int] = {}
    for number in range(2_000):
        key = f"uid-{chance.randrange(200)}"
        if chance.random() < 0.4 and key in known:
            del partitioned[key], known[key]
        else:
            partitioned[key] = known[key] = number
        assert (partitioned.get(key), key in partitioned, len(partitioned)) == (
            known.get(key),
            key in known,
            len(known),
        )
    assert dict(partitioned.items()) == known
    assert set(partitioned) == set(known)
    assert sorted(partitioned.values()) == sorted(known.values())
    assert [partitioned[key] for key in known] == list(known.values())
    with pytest.raises(KeyError):
        partitioned["another"]


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(_uids(10_000), id="as the API server makes them"),
        pytest.param([f"default/web-{number}" for number in range(10_000)], id="numbered"),
    ],
)
def test_its_parts_are_of_similar_size(keys: list[str]) -> None:
    """So that no resize takes long."""
    placed = ClusterState().placed
    for key in keys:
        placed[key] = None  # type: ignore[assignment]  # only the keys matter
    assert max(len(part) for part in placed._parts) < 400


def test_its_order_is_the_same_in_every_process() -> None:
    """It does not depend on PYTHONHASHSEED, so runs are repeatable."""
    code = (
        "from scheduler.engine.state.partitioned_dict import PartitionedDict\n"
        "p = PartitionedDict()\n"
        "for n in range(99): p[f'p{n}'] = n\n"
        "print([*p])"
    )
    orders = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(orders) == 1
