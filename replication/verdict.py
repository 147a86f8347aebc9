"""The verdict on the claims. It is given once for the same settings, after the power is stored, and has a stamp.

Its record is in the repository, next to the claims. `settings_digest` defines "settings".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from replication.claim import Claim, outcome
from replication.lab import Lab, code_versions, digest
from replication.power import ClaimPower, measure_power, power_record
from replication.replay import ClaimResult
from replication.seeds import TYPED, VERDICTS, Seeds
from replication.stamp import commit, give_verdict, given_verdict, require_commit
from tellapart.errors import UsageError
from tellapart.metrics.draws import RESAMPLES
from tellapart.metrics.intervals import LEVEL
from tellapart.utils.atomic_writes import replace_text
from tellapart.utils.messages import say
from tellapart.utils.write_errors import write_errors

RECORDS = Path(__file__).parent / "records"
VERDICT_FILE, POWER_FILE = "verdicts.json", "power.json"


def settings_digest(claims: Sequence[Claim], lab: Lab, command: str = "claims") -> str:
    """Hashes everything that determines a verdict, except wordings and the paper's figures, to eight hex digits.

    These are: the measurements and bounds of each part and control, the fingerprint of every arm's recipe (with its
    initial arms and weights, its data and the versions of the code), the pictures, the decodings and the rule.
    command: the command that gives the verdict.
    """
    seed = VERDICTS[command][0]
    measurements = [one for claim in claims for one in claim.measurements()]
    arms = dict.fromkeys(arm for one in measurements for arm in lab.lineage(one.arm))
    test_sets = {one.test_set: lab.test_sets.specifications[one.test_set] for one in measurements}
    decodings = {one.decoding: lab.decodings[one.decoding].model_dump() for one in measurements}
    parts = [
        [
            claim.id,
            [repr(replace(part, statement="", paper=())) for part in claim.parts],
            [repr(replace(claim.control.apply(part), statement="", paper=())) for part in claim.parts if claim.control],
        ]
        for claim in claims
    ]
    folders = sorted(lab.arm_folder(arm, seed).name for arm in arms)
    code = f"{lab.caption_code} {code_versions('boost')}"
    rule = [LEVEL, RESAMPLES, lab.scorer_identity, list(lab.settings)]
    return digest(json.dumps([parts, folders, test_sets, decodings, code, rule], sort_keys=True))


def read_power(records: Path = RECORDS) -> dict[str, Any]:
    """Reads the stored record of `replication.power`. Returns an empty dict if there is none."""
    path = records / POWER_FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def power_of_claims(
    claims: Sequence[Claim], lab: Lab, records: Path = RECORDS, command: str = "claims"
) -> dict[str, float]:
    """Returns the stored power by claim id. The dict is empty if the power was computed for different settings."""
    kept = read_power(records)
    if not kept or kept["settings"] != settings_digest(claims, lab, command):
        return {}
    return {one["id"]: one["power"] for one in kept["power"]}


def keep_power(record: Mapping[str, Any], records: Path = RECORDS) -> None:
    """Stores the power in the repository, where a verdict looks for it. Does nothing outside a clone."""
    if not commit():
        return
    path = records / POWER_FILE
    with write_errors(path, "cannot save the power; make the folder writable"):
        records.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    say(f"saved for the verdict: {path}; commit it")


def claims_power(
    claims: Sequence[Claim], lab: Lab, seeds: Seeds, records: Path, command: str, *, keep: bool = True
) -> tuple[list[ClaimPower], dict[str, Any]]:
    """Computes the power of claims with the verdict's number of seeds, and its record, which is stored for the verdict.

    seeds: development seeds. command: the command that gives the verdict. keep: whether to store the record.

    Raises `UsageError` if an arm of these seeds is not trained.
    """
    each = measure_power(claims, lab, seeds.numbers, command)
    typed = f"python -m replication {TYPED[command]} --power --seeds {seeds.option}"
    settings, planned = settings_digest(claims, lab, command), len(VERDICTS[command])
    record = power_record(each, seeds.numbers, settings, typed, planned)
    if keep:
        keep_power(record, records)
    return each, record


def claims_verdict(
    claims: Sequence[Claim],
    lab: Lab,
    run: Callable[[], Mapping[str, Any]],
    records: Path = RECORDS,
    command: str = "claims",
) -> dict[str, Any]:
    """Returns ``{"claims": […], "stamp": {…}}`` from the record of these settings. Without a record, calls ``run`` and
    stores it.

    run: returns the result of `to_json` for these claims, and other values to store. command: the command that gives
    this verdict.

    Raises `UsageError` outside a clone of the project, because there is no commit to name, and if the power of these
    settings has not been stored.
    """
    path, settings = records / VERDICT_FILE, settings_digest(claims, lab, command)
    if given_verdict(path, settings) is None:
        require_commit(f"python -m replication {TYPED[command]}")
        if read_power(records).get("settings") != settings:
            raise UsageError(
                f"{records / POWER_FILE} does not contain the power of these settings ({settings}); before a "
                f"verdict, run: python -m replication {TYPED[command]} --seeds dev, then python -m replication "
                f"{TYPED[command]} --power --seeds dev"
            )
    return give_verdict(path, settings, run)


def outcomes(given: Mapping[str, Any], claims: Sequence[Claim]) -> dict[str, str]:
    """Returns the outcome of each claim in a stored verdict by claim id (see `replication.claim.outcome`).

    Applies the current rule to the stored figures, even if another rule applied when the verdict was given. Measures
    nothing.
    """
    declared = {claim.id: claim for claim in claims}
    return {
        one["id"]: outcome(
            declared[one["id"]],
            [(part["holds"], part["value"]) for part in one["parts"]],
            [part["holds"] for part in one["control"]],
        )
        for one in given["claims"]
    }


def to_json(results: Sequence[ClaimResult]) -> dict[str, Any]:
    """Returns ``{"claims": […], "held": n, "not_worse": n}``."""
    return {
        "claims": [result.to_json() for result in results],
        "held": sum(bool(result.holds) for result in results),
        "not_worse": sum(result.outcome == "not worse" for result in results),
    }


def history(given: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns one line per verdict, finished or not, oldest first: "verdict 1, …: 24 of 28 held"."""
    from replication.stamp import stamp_line

    lines = []
    for one in given:
        held = f": {one['held']} of {len(one['claims'])} held" if one["stamp"]["date"] else ""
        again = ", after a change" if one["stamp"]["number"] > 1 else ""
        lines.append(stamp_line(one["stamp"]) + again + held)
    return lines
