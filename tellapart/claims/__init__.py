"""``tellapart claims``: the findings of the four papers, replayed on `scenes` under rules that were fixed beforehand.

`claim` has the data classes, `arms` the recipes, `paper1` to `paper4` the claims, `measures` what is measured,
`bootstrap` the rule. `lab` trains each arm and writes its captions once, `worker_pool` several at a time; `replay` runs
the claims, `page` shows them. `ndlb` and `tables` are the tables of paper 2 (``tellapart tables``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tellapart.claims.claim import Claim
    from tellapart.claims.replay import ClaimResult

FOLDER = Path("runs") / "claims"


def all_claims() -> tuple[Claim, ...]:
    """The 28 claims, in the order of the papers."""
    from tellapart.claims import paper1, paper2, paper3, paper4

    return (*paper1.CLAIMS, *paper2.CLAIMS, *paper3.CLAIMS, *paper4.CLAIMS)


def run_claims(
    ids: Sequence[str] = (), seeds: str = "verdict", folder: Path = FOLDER, settings: Sequence[str] = ()
) -> list[ClaimResult]:
    """The results of these claims (default: all), with ``seeds`` "verdict", "quick" or "dev"; writes the page.

    Arms are trained once, under ``folder``. The page exists from the first result on. A run of some claims has a page
    of its own, and a page with more claims than are done yet is replaced only when as many are done. ``settings`` are
    keys of all recipes, as ``--set`` has them. Raises
    `UsageError` for an unknown id or unknown seeds, before anything is trained.
    """
    from tellapart.claims.arms import ARMS, DECODINGS, TEST_SETS
    from tellapart.claims.lab import Lab
    from tellapart.claims.page import page_path, write_page
    from tellapart.claims.replay import SEEDS, replay, select_claims
    from tellapart.errors import UsageError, nearest
    from tellapart.utils.messages import say

    if seeds not in SEEDS:
        raise UsageError(f"no seeds are called '{seeds}'{nearest(seeds, SEEDS)}")
    claims = select_claims(ids, all_claims())
    selected = [claim.id for claim in claims] if len(claims) < len(all_claims()) else []
    page = page_path(folder, seeds, selected)
    results: list[ClaimResult] = []

    def update_page(result: ClaimResult) -> None:
        results.append(result)
        written = write_page(results, seeds, page, len(all_claims()), selected)
        if len(results) == 1 and written != page:
            say(f"{page} has more claims and stays until these are done; meanwhile: {written}")

    replay(claims, Lab(folder, ARMS, TEST_SETS, DECODINGS, settings=settings), SEEDS[seeds], update_page, cores())
    say(f"page: {page}")
    return results


def cores() -> int:
    """Number of processes that may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
