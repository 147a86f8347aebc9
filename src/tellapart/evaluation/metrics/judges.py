"""Metrics computed by an LLM judge. Their names contain the judge's name and the dates of its answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tellapart.data.readers import instructions
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts import check_tagger
from tellapart.evaluation.facts.by_references import claim_phrase
from tellapart.evaluation.judges import caption_qa, listed_facts, ratings
from tellapart.language.claim_tuples import claims_in
from tellapart.metrics.corpus_scores import PERCENT, UNBOUNDED, Measurement
from tellapart.metrics.metric import ContextMetric
from tellapart.metrics.metric_info import CLOSE, Candidates, MetricInfo
from tellapart.metrics.registry import metric
from tellapart.metrics.slots import CaptionSlot


@dataclass(frozen=True, kw_only=True)
class JudgeMetric(ContextMetric):
    """A per-caption metric computed by a judge. ``prompts``: the names of the metric's prompts, for the signature."""

    prompts: tuple[str, ...] = ()

    def tag(self, context: EvalContext) -> str:
        """Returns the judge's name and the dates of its answers."""
        return context.loaded_judge.tag()

    def variant(self, context: EvalContext) -> str:
        """Returns the method, its prompts, the judge's name and the dates of its answers."""
        judge = context.loaded_judge
        prompts = ",".join(judge.prompt(name).signature for name in self.prompts)
        return f"{super().variant(context)}|{prompts}|judge:{judge.tag()}|abstained:{judge.abstained[self.prompts[0]]}"

    def info(self, candidates: Candidates | None = None, scorer: str = "") -> MetricInfo:
        """Returns the metric's label and help. ``scorer``: the judge's tag."""
        own = super().info(candidates)
        return own if not scorer else replace(own, label=f"{own.label} ({scorer})", help=f"{own.help}, by {scorer}")


def _by_name() -> None:
    """Does nothing. Metrics with a check run only on request, which is right for judges because they cost money."""


judge_metric = partial(metric, kind=JudgeMetric, direction="higher", group=CLOSE, check=_by_name, bounds=PERCENT)


@judge_metric(
    "clair",
    needs=("references", "judge"),
    signature="0-100",
    label="CLAIR",
    help="probability, in %, that the caption and the references describe the same picture, according to a judge",
    prompts=("clair",),
)
def clair(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes CLAIR × 100."""
    return Measurement(100 * ratings.clair(context.loaded_judge, context.ids, slot.captions, slot.references or []))


def _first_references(method: str, context: EvalContext) -> str:
    """Returns the signature of a metric that reads only each picture's first reference."""
    return f"{method}|first-references:{context.first_references_digest}"


@judge_metric(
    "smile_rating",
    needs=("references", "judge"),
    signature=partial(_first_references, "1-10|against:first-reference|helpfulness,relevance,accuracy,detail"),
    label="rating",
    help="a judge's rating, from 1 to 10, of helpfulness, relevance, accuracy and detail, given the first reference "
    "for comparison (paper 1)",
    prompts=("rating",),
    digits=2,
    bounds=(1.0, 10.0),
)
def rating(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes paper 1's rating, 1 to 10."""
    judge, requests = context.loaded_judge, requests_of(context)
    return Measurement(ratings.rating(judge, context.ids, slot.captions, slot.references or [], requests))


def requests_of(context: EvalContext) -> list[str] | None:
    """Returns the instructions that the captions answer, or None for ordinary captions."""
    pictures = [item.picture for item in context.items or ()]
    texts = [picture.asked for picture in pictures if isinstance(picture, instructions.TextPicture)]
    return texts if texts and len(texts) == len(pictures) else None


CATEGORIES = ("generic", "knowledge", "roleplay", "common-sense", "fermi", "counterfactual", "writing")
"""Categories of Vicuna's questions in paper 1's table 7. Coding and math are excluded, even from the total."""


def relative_rating(category: str | None, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes 100 × summed ratings of the captions / summed ratings of the references."""

    def rate() -> np.ndarray:
        judge, requests = context.loaded_judge, requests_of(context)
        return ratings.ratings(judge, context.ids, slot.captions, slot.references or [], requests)

    rating_N2 = context.once(("smile_relative", id(slot)), rate)
    kinds = [getattr(item.picture, "category", "") for item in context.items or ()] or [""] * len(context.ids)
    counted_N = np.array([kind == category if category else kind not in ("coding", "math") for kind in kinds])
    value_N = np.where(counted_N, 100 * rating_N2[:, 0] / rating_N2[:, 1], np.nan)
    return Measurement(value_N, weight_N=np.where(np.isnan(value_N), 0.0, rating_N2[:, 1]))


for _category in (None, *CATEGORIES):
    judge_metric(
        f"smile_relative.{_category}" if _category else "smile_relative",
        needs=("references", "judge"),
        signature=partial(_first_references, f"candidate/reference|{_category or 'without:coding,math'}"),
        label=f"relative rating, {_category}" if _category else "relative rating",
        help="a judge's ratings of captions or answers, as a percentage of its ratings of the first references "
        f"(paper 1, table 7){f'; only questions in the category {_category}' if _category else ''}",
        prompts=("ratings",),
        bounds=UNBOUNDED,
    )(partial(relative_rating, _category))


def dcscore(rate: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes a component of DCScore × 100, averaged over captions."""
    pictures = [item.picture for item in context.items or ()]
    verdicts = context.once(
        ("dcscore", id(slot)),
        lambda: listed_facts.dcscore(context.loaded_judge, context.ids, slot.captions, slot.references or [], pictures),
    )
    return Measurement(np.array([np.nan if verdict is None else 100 * getattr(verdict, rate) for verdict in verdicts]))


def _with_questions(method: str, context: EvalContext) -> str:
    """Returns the signature of a metric that asks the questions of the setting ``questions``."""
    return f"{method}|questions:{context.questions_digest}"


def captionqa(which: int, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes CaptionQA's score (``which`` = 0) or accuracy (1) × 100, averaged over pictures. Pictures are weighted
    by their number of questions.
    """
    questions, judge = context.inputs.questions, context.loaded_judge
    found = context.once(
        ("captionqa", id(slot)),
        lambda: caption_qa.captionqa(judge, context.ids, slot.captions, questions, context.inputs.seed),
    )
    weight_N = np.array([len(questions.get(id_, ())) for id_ in context.ids])
    return Measurement(100 * found[which], weight_N=weight_N)


def checklist(which: int, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Checks captions against a list of the references' facts, and computes coverage (``which`` = 0) or precision (1),
    in percent.

    Pictures are weighted by the number of facts (coverage) or by the number of facts that the caption mentions
    (precision).
    """
    facts = [
        [claim_phrase(claim) for claim in claims_in(texts, context.inputs.synonyms)] for texts in slot.references or []
    ]
    count_N3 = context.once(
        ("checklist", id(slot)), lambda: listed_facts.checklist(context.loaded_judge, context.ids, slot.captions, facts)
    )
    mentioned_N = count_N3[:, 0] + count_N3[:, 1]
    above_N, below_N = (mentioned_N, count_N3.sum(1)) if which == 0 else (count_N3[:, 0], mentioned_N)
    known_N = np.nan_to_num(below_N) > 0
    value_N = np.where(known_N, 100 * above_N / np.where(known_N, below_N, 1), np.nan)
    return Measurement(value_N, weight_N=np.where(known_N, below_N, 0.0))


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
captionqa_metric = partial(judge_metric, needs=("questions", "judge"), prompts=("captionqa",))
captionqa_metric(
    "captionqa",
    signature=partial(_with_questions, "score|cannot-answer:1/choices+0.05|choices:shuffled"),
    label="CaptionQA, score",
    help="score, in %, of a judge that answers questions about the picture from the caption alone",
)(partial(captionqa, 0))
captionqa_metric(
    "captionqa_accuracy",
    signature=partial(_with_questions, "accuracy|cannot-answer:0|choices:shuffled"),
    label="CaptionQA, accuracy",
    help="accuracy, in %, of a judge that answers questions about the picture from the caption alone",
)(partial(captionqa, 1))
checklist_metric = partial(
    judge_metric,
    needs=("references", "judge"),
    prompts=("checklist",),
    check=check_tagger,
    families=("checklist",),
)
checklist_metric(
    "checklist_coverage",
    signature="(yes+no)/all|facts:references,rules-1",
    label="checklist, coverage",
    help="% of the references' facts that a caption mentions, checked one by one by a judge",
)(partial(checklist, 0))
checklist_metric(
    "checklist_precision",
    signature="yes/(yes+no)|facts:references,rules-1",
    label="checklist, precision",
    help="of the reference facts that a caption mentions, the % that it gets right, according to a judge",
)(partial(checklist, 1))
