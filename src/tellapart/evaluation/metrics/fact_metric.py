"""The base of metrics on claims: converts the verdicts of a verifier to percentages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts import check_tagger, claim_extractor
from tellapart.evaluation.facts.by_references import verify_references
from tellapart.evaluation.facts.verdict import Verdict, rate_statistic, rates
from tellapart.language.claim_tuples import CLAIM_KINDS
from tellapart.metrics.corpus_scores import PERCENT, Measurement
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.registry import context_metric
from tellapart.metrics.slots import CaptionSlot
from tellapart.utils.progress import track

Verify = Callable[[EvalContext, CaptionSlot], "list[Verdict]"]


def by_references(kind: str, context: EvalContext, slot: CaptionSlot) -> list[Verdict]:
    """Verifies claims of one kind ("": all kinds) against references: a claim is true if a reference makes it."""
    kinds = (kind,) if kind else CLAIM_KINDS
    verify = partial(verify_references, synonyms=context.inputs.synonyms, kinds=kinds)
    return each_verdict(context, slot, f"facts:{kind}" if kind else "facts", verify)


def each_verdict(
    context: EvalContext, slot: CaptionSlot, name: str, verify: Callable[[str, Sequence[str]], Verdict]
) -> list[Verdict]:
    """Verifies every caption of a system against its references. The verdicts are cached under ``name``."""
    pairs = list(zip(slot.captions, slot.references or [], strict=True))
    return context.once(
        ("verdicts", name, id(slot)),
        lambda: [verify(caption, references) for caption, references in track(pairs, label="extracting claims")],
    )


def rate(verify: Verify, which: int, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes precision, recall or F, × 100. For the corpus value, counts are summed over captions before dividing."""
    verdicts = verify(context, slot)
    counts_N4 = np.array([verdict.counts() for verdict in verdicts])
    return Measurement(100 * rates(verdicts)[:, which], rate_statistic(counts_N4, which))


def extractor(context: EvalContext) -> str:
    """Identifies how claims are extracted, as part of a metric's signature."""
    named = f"|synonyms:{context.inputs.synonyms.name}" if context.inputs.synonyms else "|synonyms:none"
    return f"claims:objects,attributes,relations|extractor:{claim_extractor()}{named}"


fact_metric = partial(context_metric, direction="higher", group=CLOSE, check=check_tagger, bounds=PERCENT)
