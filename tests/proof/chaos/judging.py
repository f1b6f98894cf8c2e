"""The judge of a run: what its journal shows of the promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.proof.chaos.binds import BindJudge
from tests.proof.chaos.claims import claims_kept, rooms_kept
from tests.proof.chaos.evictions import EvictionJudge
from tests.proof.chaos.groups import placed_in_part
from tests.proof.chaos.journal import Journal
from tests.proof.chaos.rebalancing import moves_kept
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.proof.history.checker import check


def history_kept(journal: Journal) -> Iterator[Wrong]:
    """Yield what the writes break of the statements about histories."""
    for text in check(journal.history_lines()):
        yield Wrong(Verdict.HISTORY, text)


#: Beside those about binds and evictions, which count too.
PROPERTIES: tuple[Callable[[Journal], Iterator[Wrong]], ...] = (
    history_kept, placed_in_part, claims_kept, rooms_kept, moves_kept,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judgement:
    """Broken promises, binds, those of them that are right only without the newest writes of others, and evictions."""

    wrongs: list[Wrong] = field(default_factory=list)
    n_binds: int = 0
    n_raced: int = 0
    #: The age of the oldest write by others that a decision did not know.
    window_s: float = 0.0
    n_evictions: int = 0


def judged(journal: Journal) -> Judgement:
    """Hold the journal against every promise."""
    binds, evictions = BindJudge(journal), EvictionJudge(journal)
    wrongs = [wrong for kept in PROPERTIES for wrong in kept(journal)]
    wrongs += [*binds.wrongs(), *evictions.wrongs()]
    return Judgement(wrongs, binds.n_binds, binds.n_raced, binds.window_s, evictions.n_evictions)
