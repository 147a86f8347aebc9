"""``tellapart claims``: what the four papers found, replayed in `scenes` under rules that were fixed beforehand.

`claim` has the nouns, `rule` when a finding holds, `catalogue` the arms, `paper1` to `paper4` the claims, `lab` trains
and hears an arm once, `crew` several at a time, `replay` puts it together, `page` and `table` show it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tellapart.claims.claim import Claim
    from tellapart.claims.replay import Outcome

FOLDER = Path("runs") / "claims"


def all_claims() -> tuple[Claim, ...]:
    """The 28 claims, in the order of the papers."""
    from tellapart.claims import paper1, paper2, paper3, paper4

    return (*paper1.CLAIMS, *paper2.CLAIMS, *paper3.CLAIMS, *paper4.CLAIMS)


def run_claims(ids: Sequence[str] = (), seeds: str = "verdict", folder: Path = FOLDER) -> list[Outcome]:
    """The outcomes of these claims (default: all), with ``seeds`` "verdict", "quick" or "dev"; the page is written.

    Arms are trained and heard once, under ``folder``; the page is there from the first outcome on. A run of some
    claims has a page of its own, and a page that holds more than there is yet stays until there is as much. Raises
    `UsageError` for an unknown id or unknown seeds, before anything is trained.
    """
    from tellapart.claims.catalogue import ARMS, DECODINGS, TESTS
    from tellapart.claims.lab import Lab
    from tellapart.claims.page import page_of, write_page
    from tellapart.claims.replay import SEEDS, chosen, replay
    from tellapart.errors import UsageError, nearest
    from tellapart.utils.messages import say

    if seeds not in SEEDS:
        raise UsageError(f"no seeds are called '{seeds}'{nearest(seeds, SEEDS)}")
    claims = chosen(ids, all_claims())
    asked = [claim.id for claim in claims] if len(claims) < len(all_claims()) else []
    page = page_of(folder, seeds, asked)
    done: list[Outcome] = []

    def tell(outcome: Outcome) -> None:
        done.append(outcome)
        written = write_page(done, seeds, page, len(all_claims()), asked)
        if len(done) == 1 and written != page:
            say(f"{page} holds more claims and stays until these are done; meanwhile: {written}")

    replay(claims, Lab(folder, ARMS, TESTS, DECODINGS), SEEDS[seeds], tell, cores())
    say(f"page: {page}")
    return done


def cores() -> int:
    """How many processes may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
