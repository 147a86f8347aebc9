"""``replication claims``: replicates the findings of the four papers on `scenes`, under pre-registered rules.

`claim` contains the data classes, `arms` the recipes, `paper1` to `paper4` the claims, `measures` the measures,
`bootstrap` the decision rule, and `multiple` the correction for multiple comparisons. `seeds` assigns seeds to
purposes, and `power` computes how many are needed; `verdict` and `stamp` store the verdict. `lab` trains each arm and
writes its captions once, `worker_pool` does so in parallel, `replay` runs the claims, and `page` shows them. `ndlb` and
`tables` contain paper 2's tables (``tellapart tables``).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replication.claim import Claim
    from replication.lab import Lab
    from replication.power import ClaimPower
    from replication.replay import ClaimResult
    from replication.seeds import Seeds

FOLDER = Path("runs") / "claims"


def all_claims() -> tuple[Claim, ...]:
    """Returns the 28 claims, in the order of the papers."""
    from replication import paper1, paper2, paper3, paper4

    return (*paper1.CLAIMS, *paper2.CLAIMS, *paper3.CLAIMS, *paper4.CLAIMS)


def further_claims() -> tuple[Claim, ...]:
    """Returns the additional findings, which are not part of any verdict."""
    from replication.further import FURTHER

    return FURTHER


def find_claims(ids: Sequence[str] = (), further: bool = False) -> list[Claim]:
    """Returns the claims with these ids. Default: the 28 claims or, with ``further``, the additional findings.

    Raises `UsageError` if an id is unknown.
    """
    from replication.replay import select_claims

    if ids:
        return select_claims(ids, (*all_claims(), *further_claims()))
    return list(further_claims() if further else all_claims())


def run_claims(
    ids: Sequence[str] = (), seeds: str = "dev", folder: Path = FOLDER, settings: Sequence[str] = ()
) -> list[ClaimResult]:
    """Runs claims (default: the 28) on ``seeds`` (`replication.seeds`), writes the page, and returns the results.

    Each arm is trained once, under ``folder``. The page is updated after each result. A run of only some claims has its
    own page, and a page with more claims is replaced only once as many are done. ``settings`` apply to all recipes, as
    in ``--set``. Raises `UsageError` before training if an id or a seed is unknown, or if seeds are reserved for the
    verdict (see `run_verdict`).
    """
    from replication.seeds import parse_seeds
    from tellapart.errors import UsageError

    chosen = parse_seeds(seeds, "claims")
    if chosen.kind == "verdict":
        raise UsageError("the verdict is produced by run_verdict, or by: python -m replication claims --seeds verdict")
    return _run(find_claims(ids), make_lab(folder, settings), chosen)


def run_verdict(folder: Path = FOLDER, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the verdict on all claims. Each set of settings has only one verdict, see `replication.verdict`."""
    from replication.seeds import VERDICTS, Seeds
    from replication.verdict import claims_verdict, to_json

    claims, lab, seeds = all_claims(), make_lab(folder, settings), Seeds("verdict", VERDICTS["claims"])
    return claims_verdict(claims, lab, lambda: to_json(_run(claims, lab, seeds)))


def run_power(
    ids: Sequence[str] = (), seeds: str = "dev", folder: Path = FOLDER, settings: Sequence[str] = ()
) -> tuple[list[ClaimPower], dict[str, Any]]:
    """Computes the power of claims (default: all) and a record of it. Stores the record if it covers all claims on
    ``dev`` seeds.

    Raises `UsageError` if the arms have not been trained on these development seeds.
    """
    from replication.power import measure_power, power_record
    from replication.seeds import parse_seeds
    from replication.verdict import keep_power, settings_digest

    chosen, claims, lab = parse_seeds(seeds, "claims"), find_claims(ids), make_lab(folder, settings)
    found = measure_power(claims, lab, chosen.numbers)
    typed = shlex.join(["python", "-m", "replication", "claims", *ids, "--power", "--seeds", chosen.option])
    record = power_record(found, chosen.numbers, settings_digest(claims, lab), typed)
    if claims == list(all_claims()) and chosen.kind == "dev":
        keep_power(record)
    return found, record


def make_lab(folder: Path = FOLDER, settings: Sequence[str] = ()) -> Lab:
    """Creates the lab with all claims' arms, pictures and decodings."""
    from replication.arms import DECODINGS
    from replication.further import FURTHER_ARMS, FURTHER_SETS
    from replication.lab import Lab

    return Lab(folder, FURTHER_ARMS, FURTHER_SETS, DECODINGS, settings=settings)


def _run(claims: Sequence[Claim], lab: Lab, seeds: Seeds) -> list[ClaimResult]:
    from replication.page import page_path, write_page
    from replication.replay import replay
    from replication.verdict import power_of_claims
    from tellapart.utils.messages import say

    ids, known = [claim.id for claim in claims], [claim.id for claim in all_claims()]
    selected = ids if ids != known else []
    total = len(known) + (0 if set(ids) <= set(known) else len(further_claims()))
    page = page_path(lab.folder, seeds.label, selected)
    power = power_of_claims(all_claims(), lab)
    results: list[ClaimResult] = []

    def update_page(result: ClaimResult) -> None:
        results.append(result)
        written = write_page(results, seeds, page, total, selected, power)
        if len(results) == 1 and written != page:
            say(f"{page} contains more claims and is kept until these are done; meanwhile: {written}")

    replay(claims, lab, seeds.numbers, update_page, cores())
    say(f"page: {page}")
    return results


def cores() -> int:
    """Returns the number of processes that can run in parallel."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
