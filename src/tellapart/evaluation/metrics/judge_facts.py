"""Metrics in which a judge compares lists of facts: DCScore, and a checklist."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts import check_tagger
from tellapart.evaluation.facts.verdict import Verdict
from tellapart.evaluation.judges.answers import ANSWERS, answers_in, flags_in, places_in, strings_in
from tellapart.evaluation.judges.judge import Question
from tellapart.evaluation.metrics.fact_metric import extractor
from tellapart.evaluation.metrics.judge_metric import bullets, judge_metric
from tellapart.language.claim_tuples import claim_phrase, claims_in
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.slots import CaptionSlot


def dcscore_verdicts(context: EvalContext, slot: CaptionSlot) -> list[Verdict | None]:
    """Computes DCScore (Ye et al. 2025): splits the caption into information units, verifies them against the picture,
    and matches them with the references' units. The verdict is None if the judge abstains at any step.

    Precision is true units / units. Recall is (Q + T) / (O + T), with

    - O: the number of reference units,
    - Q: the number of reference units that a true unit states,
    - T: the number of true units that state no reference unit.
    """
    judge, items = context.loaded_judge, context.items or ()
    known_N = [bullets(texts) for texts in slot.references or []]
    texts = [text for text in dict.fromkeys([*slot.captions, *known_N]) if text.strip()]
    split = [Question(str(n), {"caption": text}, strings_in) for n, text in enumerate(texts)]
    units_of = dict(zip(texts, judge.ask("dcscore_units", split), strict=True))
    rows = {
        n: (units, facts)
        for n, (caption, known) in enumerate(zip(slot.captions, known_N, strict=True))
        if (units := units_of.get(caption, [])) is not None and (facts := units_of.get(known, [])) is not None
    }
    verify, match = [], []
    for n, (units, facts) in rows.items():
        if units:
            shown = {"units": _numbered(units), "references": known_N[n]}
            verify.append(Question(items[n].id, shown, partial(flags_in, count=len(units)), items[n].picture))
        if units and facts:
            shown = {"units": _numbered(units), "facts": _numbered(facts)}
            match.append(Question(items[n].id, shown, partial(places_in, count=len(facts), most=len(units))))
    true, stated = iter(judge.ask("dcscore_verify", verify)), iter(judge.ask("dcscore_match", match))
    found: list[Verdict | None] = [None] * len(slot.captions)
    for n, (units, facts) in rows.items():
        flags = next(true) if units else []
        places = next(stated) if units and facts else []
        if flags is not None and places is not None:
            found[n] = _verdict(flags, places, len(facts))
    judge.questions["dcscore"] += len(found)
    judge.abstained["dcscore"] += found.count(None)
    return found


def _verdict(true: Sequence[bool], places: Sequence[int], known: int) -> Verdict:
    """Returns the counts of one caption.

    true: whether each of its units is true.
    places: for each reference unit, the number of the unit that states it, or 0.
    known: the number of reference units.
    """
    matched = {place - 1 for place in places if place}
    stated = sum(1 for place in places if place and true[place - 1])
    beyond = sum(1 for number, flag in enumerate(true) if flag and number not in matched)
    return Verdict(len(true), sum(true), known + beyond, stated + beyond)


def dcscore(rate: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes a component of DCScore × 100, averaged over captions."""
    verdicts = context.once(("dcscore", id(slot)), lambda: dcscore_verdicts(context, slot))
    return Measurement(np.array([np.nan if verdict is None else 100 * getattr(verdict, rate) for verdict in verdicts]))


def checklist_counts(context: EvalContext, slot: CaptionSlot) -> np.ndarray:
    """Asks a judge how many of a picture's facts the caption states, how many it contradicts and how many it does not
    mention, N×3.

    As in CAPEval (2026), asks one question per caption, with all facts in its references as a checklist. A row is NaN
    if the judge abstains, and 0 for a picture without facts.
    """
    questions: dict[int, Question] = {}
    for n, (id_, caption, texts) in enumerate(zip(context.ids, slot.captions, slot.references or [], strict=True)):
        if facts := [claim_phrase(claim) for claim in claims_in(texts, context.inputs.synonyms)]:
            shown = {"caption": caption, "facts": _numbered(facts), "count": str(len(facts))}
            questions[n] = Question(id_, shown, partial(answers_in, count=len(facts)))
    count_N3 = np.zeros((len(context.ids), len(ANSWERS)))
    for n, said in zip(questions, context.loaded_judge.ask("checklist", [*questions.values()]), strict=True):
        count_N3[n] = np.nan if said is None else [said.count(answer) for answer in ANSWERS]
    return count_N3


def checklist(which: int, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes coverage (``which`` = 0) or precision (1) of a checklist, in percent.

    Pictures are weighted by the number of facts (coverage) or by the number of facts that the caption mentions
    (precision).
    """
    count_N3 = context.once(("checklist", id(slot)), lambda: checklist_counts(context, slot))
    mentioned_N = count_N3[:, 0] + count_N3[:, 1]
    above_N, below_N = (mentioned_N, count_N3.sum(1)) if which == 0 else (count_N3[:, 0], mentioned_N)
    known_N = np.nan_to_num(below_N) > 0
    value_N = np.where(known_N, 100 * above_N / np.where(known_N, below_N, 1), np.nan)
    return Measurement(value_N, weight_N=np.where(known_N, below_N, 0.0))


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))


for _rate, _help in {
    "precision": "% of a caption's information units that are true of the picture, according to a judge",
    "recall": "% of all true units (in the references and the caption) that the caption states, according to a judge",
    "f": "DCScore: F1 of the precision and recall of a caption's information units, according to a judge",
}.items():
    judge_metric(
        "dcscore" if _rate == "f" else f"dcscore_{_rate}",
        needs=("references", "pictures", "judge"),
        signature=f"{_rate},mean-of-captions|recall:(Q+T)/(O+T)",
        label="DCScore" if _rate == "f" else f"DCScore, {_rate}",
        help=_help,
        prompts=("dcscore_verify", "dcscore_units", "dcscore_match"),
    )(partial(dcscore, _rate))
checklist_metric = partial(
    judge_metric,
    needs=("references", "judge"),
    prompts=("checklist",),
    check=check_tagger,
    families=("checklist",),
)
checklist_metric(
    "checklist_coverage",
    signature=lambda context: f"(yes+no)/all|facts:references|{extractor(context)}",
    label="checklist, coverage",
    help="% of the references' facts that a caption mentions, checked one by one by a judge",
)(partial(checklist, 0))
checklist_metric(
    "checklist_precision",
    signature=lambda context: f"yes/(yes+no)|facts:references|{extractor(context)}",
    label="checklist, precision",
    help="of the reference facts that a caption mentions, the % that it gets right, according to a judge",
)(partial(checklist, 1))
