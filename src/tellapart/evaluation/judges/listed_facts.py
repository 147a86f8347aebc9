"""Scores that a judge computes from lists of facts: DCScore, and a checklist."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tellapart.evaluation.facts.verdict import Verdict
from tellapart.evaluation.judges.answers import ANSWERS, answers_in, flags_in, places_in, strings_in
from tellapart.evaluation.judges.judge import Judge, Question
from tellapart.evaluation.judges.ratings import bullets
from tellapart.metrics.inputs import References
from tellapart.types import Picture


def dcscore(
    judge: Judge, ids: Sequence[str], captions: Sequence[str], references: References, pictures: Sequence[Picture]
) -> list[Verdict | None]:
    """Computes DCScore (Ye et al. 2025): splits the caption into information units, verifies them against the picture,
    and matches them with the references' units. The verdict is None if the judge abstains at any step.

    Precision is true units / units. Recall is (Q + T) / (O + T), with

    - O: the number of reference units,
    - Q: the number of reference units that a true unit states,
    - T: the number of true units that state no reference unit.
    """
    texts = [text for text in dict.fromkeys([*captions, *map(bullets, references)]) if text.strip()]
    answers = judge.ask(
        "dcscore_units", [Question(str(n), {"caption": own}, strings_in) for n, own in enumerate(texts)]
    )
    units_of: dict[str, list[str] | None] = dict(zip(texts, answers, strict=True))
    rows = [
        (n, units, known)
        for n, (caption, own) in enumerate(zip(captions, references, strict=True))
        if (units := units_of.get(caption, [])) is not None and (known := units_of.get(bullets(own), [])) is not None
    ]
    verify, match = [], []
    for n, units, known in rows:
        if units:
            shown = {"units": _numbered(units), "references": bullets(references[n])}
            verify.append(Question(ids[n], shown, partial(flags_in, count=len(units)), pictures[n]))
        if units and known:
            shown = {"units": _numbered(units), "facts": _numbered(known)}
            match.append(Question(ids[n], shown, partial(places_in, count=len(known), most=len(units))))
    true, stated = iter(judge.ask("dcscore_verify", verify)), iter(judge.ask("dcscore_match", match))
    found: list[Verdict | None] = [None] * len(captions)
    for n, units, known in rows:
        flags = next(true) if units else []
        places = next(stated) if units and known else []
        if flags is not None and places is not None:
            found[n] = _dcscore(flags, places, len(known))
    return found


def _dcscore(true: Sequence[bool], places: Sequence[int], known: int) -> Verdict:
    """``true``: whether each unit is true. ``places``: for each reference unit, the number of the unit that states it,
    or 0.
    """
    matched = {place - 1 for place in places if place}
    stated = sum(1 for place in places if place and true[place - 1])
    beyond = sum(1 for number, flag in enumerate(true) if flag and number not in matched)
    return Verdict(len(true), sum(true), known + beyond, stated + beyond)


def checklist(judge: Judge, ids: Sequence[str], captions: Sequence[str], facts: Sequence[Sequence[str]]) -> np.ndarray:
    """Asks a judge how many of a picture's facts the caption states, how many it contradicts and how many it does not
    mention, N×3.

    As in CAPEval (2026), asks one question per caption, with all facts about its picture as a checklist. A row is NaN
    if the judge abstains, and 0 for a picture without facts.
    """
    rows = [n for n, own in enumerate(facts) if own]
    questions = [
        Question(
            ids[n],
            {"caption": captions[n], "facts": _numbered(facts[n]), "count": str(len(facts[n]))},
            partial(answers_in, count=len(facts[n])),
        )
        for n in rows
    ]
    count_N3 = np.zeros((len(captions), len(ANSWERS)))
    for n, said in zip(rows, judge.ask("checklist", questions), strict=True):
        count_N3[n] = np.nan if said is None else [said.count(answer) for answer in ANSWERS]
    return count_N3


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
