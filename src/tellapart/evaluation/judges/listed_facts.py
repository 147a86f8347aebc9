"""Scores that a judge computes from lists of facts: DCScore, and a checklist."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.evaluation.facts.verdict import Verdict
from tellapart.evaluation.judges.answers import ANSWERS, answers_in, flags_in, json_in, places_in, strings_in
from tellapart.evaluation.judges.judge import Judge, Question
from tellapart.evaluation.judges.prompts import read_prompt
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
    prompt = read_prompt("dcscore_units", judge.prompts)
    texts = [text for text in dict.fromkeys([*captions, *map(bullets, references)]) if text.strip()]
    answers = judge.ask(prompt, [Question(str(n), {"caption": text}) for n, text in enumerate(texts)], _is_list)
    units_of: dict[str, list[str] | None] = {text: [] for text in captions if not text.strip()}
    units_of |= {
        text: None if answer is None else strings_in(answer) for text, answer in zip(texts, answers, strict=True)
    }
    rows = [
        (number, units, known)
        for number, (caption, own) in enumerate(zip(captions, references, strict=True))
        if (units := units_of[caption]) is not None and (known := units_of[bullets(own)]) is not None
    ]
    asked = [row for row in rows if row[1]]
    verify = [
        Question(ids[n], {"units": _numbered(units), "references": bullets(references[n])}, pictures[n])
        for n, units, _ in asked
    ]
    match = [
        Question(ids[n], {"units": _numbered(units), "facts": _numbered(known)}) for n, units, known in asked if known
    ]
    true = iter(judge.ask(read_prompt("dcscore_verify", judge.prompts), verify, _is_list))
    marked = iter(judge.ask(read_prompt("dcscore_match", judge.prompts), match, _is_list))
    found: list[Verdict | None] = [None] * len(captions)
    for number, units, known in rows:
        if not units:
            found[number] = Verdict(0, 0, len(known), 0)
            continue
        flags = flags_in(next(true) or "", len(units))
        places = places_in(next(marked) or "", len(known), len(units)) if known else []
        if flags is not None and places is not None:
            found[number] = _dcscore(flags, places)
    judge.abstained["dcscore"] += sum(verdict is None for verdict in found)
    judge.questions["dcscore"] += len(found)
    return found


def _dcscore(true: Sequence[bool], places: Sequence[int]) -> Verdict:
    matched = {place - 1 for place in places if place}
    stated = sum(1 for place in places if place and true[place - 1])
    beyond = sum(1 for number, flag in enumerate(true) if flag and number not in matched)
    return Verdict(len(true), sum(true), len(places) + beyond, stated + beyond)


def checklist(judge: Judge, ids: Sequence[str], captions: Sequence[str], facts: Sequence[Sequence[str]]) -> np.ndarray:
    """Asks a judge how many of a picture's facts the caption states, how many it contradicts and how many it does not
    mention, N×3.

    As in CAPEval (2026), asks one question per caption, with all facts about its picture as a checklist. A row is NaN
    if the judge abstains, and 0 for a picture without facts.
    """
    prompt = read_prompt("checklist", judge.prompts)
    rows = [number for number, own in enumerate(facts) if own]
    questions = [
        Question(ids[n], {"caption": captions[n], "facts": _numbered(facts[n]), "count": str(len(facts[n]))})
        for n in rows
    ]
    answers = judge.ask(prompt, questions, _is_list)
    count_N3 = np.zeros((len(captions), len(ANSWERS)))
    unread = 0
    for number, text in zip(rows, answers, strict=True):
        said = None if text is None else answers_in(text, len(facts[number]))
        unread += text is not None and said is None
        count_N3[number] = np.nan if said is None else [said.count(answer) for answer in ANSWERS]
    judge.abstained[prompt.name] += unread
    return count_N3


def _is_list(text: str) -> bool:

    return isinstance(json_in(text), list)


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
