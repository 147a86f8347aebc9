"""Tables of docs/research/claims-settings.md: what stands in for what, each part's size, each arm's settings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from replication.claim import Arm, Claim, Part
from replication.further import FURTHER_ARMS
from replication.stand_ins import STAND_INS

_DATA = re.compile(r"scenes:(?P<domain>\w+)\?split=\w+&n=(?P<n>\d+)&seed=\d+(?P<extra>.*)")
# Objective options with a special notation.
_UNSAID = {"kind", "decoding", "rewards"}


def markdown(claims: Sequence[Claim]) -> str:
    """Returns two tables: the claims, and the arms that they and their controls need."""
    lines = ["| claim | stands in | differs besides | arms; control | parts: bound, effect that matters, the paper |",
             "|---|---|---|---|---|"]  # fmt: skip
    for claim in claims:
        stand_in = STAND_INS[claim.id]
        lines.append(_row(f"`{claim.id}`", stand_in.here, stand_in.differs, arms_of(claim), parts_of(claim)))
    lines += ["", "| arm | starts from | trained by | on | steps × pictures, rate |", "|---|---|---|---|---|"]
    needed = {one.arm for claim in claims for one in claim.measurements()}
    while more := {str(FURTHER_ARMS[name].start) for name in needed if FURTHER_ARMS[name].start} - needed:
        needed |= more
    lines += [arm_row(arm) for name, arm in FURTHER_ARMS.items() if name in needed]
    return "\n".join(lines) + "\n"


def arms_of(claim: Claim) -> str:
    ours = dict.fromkeys(f"`{one.arm}`" for part in claim.parts for one in part.measurements)
    control = claim.control.description if claim.control else ""
    return f"{', '.join(ours)}; {control}"


def parts_of(claim: Claim) -> str:
    """Formats a claim's parts: "R@1 gained: over 0, 10, +3.3; …"."""
    texts = []
    for part in claim.parts:
        effect = "the middle" if part.equivalence else f"{part.effect:g}"
        paper = "–" if part.paper_value is None else f"{part.paper_value:+.3g}"
        texts.append(f"{part.statement}: {bound_text(part)}, {effect}, {paper}")
    return "; ".join(texts)


def bound_text(part: Part) -> str:
    """Formats bounds: "over 0", "below 2", "-1 to 1"."""
    if part.equivalence:
        return f"{part.lower:g} to {part.upper:g}"
    return f"over {part.lower:g}" if math.isfinite(part.lower) else f"below {part.upper:g}"


def arm_row(arm: Arm) -> str:
    """Returns an arm's row."""
    if arm.table is None:
        return _row(f"`{arm.name}`", "", _untrained_text(arm), "", "")
    training, objective = arm.table["training"], arm.table["objective"]
    steps = f"{training['steps']} × {training['batch_size']}, {training['learning_rate']:g}"
    if (goal := arm.table["validation"].get("until")) is not None:
        steps = f"until R@1 is {goal:g}, at most {steps}"
    extras = [_parts_text(arm.table.get("captioner", {})), _bags_text(arm.table.get("bags"))]
    trained = "; ".join(filter(None, (objective_text(objective), *extras)))
    return _row(f"`{arm.name}`", f"`{arm.start}`" if arm.start else "random weights", trained, data_text(arm), steps)


def _untrained_text(arm: Arm) -> str:
    if arm.model:
        return f"captioner `{arm.model}`"
    return f"boosted captions: {arm.boosted}" if arm.boosted else f"reference {arm.reference + 1} of each picture"


def objective_text(objective: Mapping[str, Any]) -> str:
    """Formats an objective: "reinforce, self_retrieval, 4 samples, baseline leave_one_out, kl 0.2"."""
    texts = [str(objective["kind"])]
    rewards = objective.get("rewards", [{"kind": "self_retrieval"}] if objective["kind"] == "reinforce" else [])
    texts += [_options(one["kind"], one) for one in rewards]
    if decoding := objective.get("decoding"):
        at = f" at temperature {decoding['temperature']:g}" if "temperature" in decoding else ""
        texts.append(f"{decoding.get('samples', 1)} samples{at}")
    texts += [f"{key} {_value(value)}" for key, value in objective.items() if key not in _UNSAID]
    return ", ".join(texts)


def _options(name: str, table: Mapping[str, Any]) -> str:
    options = [f"{key} {_value(value)}" for key, value in table.items() if key != "kind"]
    return f"{name} ({', '.join(options)})" if options else name


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_value(one)}" for key, one in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value).replace("'", "")


def _parts_text(captioner: Mapping[str, Any]) -> str:
    if "new" in captioner:
        return "a new captioner"
    texts = []
    if "train" in captioner:
        lora = f"LoRA rank {captioner['lora']['rank']} of " if "lora" in captioner else ""
        texts.append(lora + ", ".join(captioner["train"]))
    if "new_words" in captioner:
        texts.append(f"new words that occur {captioner['new_words']} times")
    return ", ".join(texts)


def _bags_text(bags: Mapping[str, Any] | None) -> str:
    if bags is None:
        return ""
    options = {"of": bags.get("kind", "look-alikes"), **{key: value for key, value in bags.items() if key != "kind"}}
    return _options("bags", options)


def data_text(arm: Arm) -> str:
    """Formats training data: "3,000 plain, detail=0.75", and the captions to learn if they are not the references."""
    assert arm.table is not None
    found = _DATA.fullmatch(str(arm.table["data"]["train"]))
    if found is None:
        return str(arm.table["data"]["train"])
    extra = ", ".join(filter(None, found["extra"].split("&")))
    instead = f"{arm.boosted} captions" if arm.boosted else ""
    return ", ".join(filter(None, (f"{int(found['n']):,} {found['domain']}", extra, instead)))


def _row(*cells: str) -> str:
    return "| " + " | ".join(_escaped(cells)) + " |"


def _escaped(cells: Iterable[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in cells]
