"""Scorer-based metrics: similarity of caption and picture or clip, and retrieval of the picture by its caption."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tellapart.evaluation.clip_inputs import frames_seen
from tellapart.evaluation.context import ALL_CLIPS, EvalContext, short_digest
from tellapart.evaluation.retrieval import chance, over_questions
from tellapart.metrics import clip_score
from tellapart.metrics.clip_score import CLIPSCORE_PREFIX
from tellapart.metrics.corpus_scores import PERCENT, Measurement
from tellapart.metrics.registry import METRICS, ContextMetric, Signature, context_metric
from tellapart.metrics.results import APART, CLOSE, LANGUAGE
from tellapart.metrics.slots import CaptionSlot
from tellapart.scenes.listener import listener_probabilities
from tellapart.utils.progress import track

# EMScore against the frames of clips (Shi et al. 2022), ×100 as in paper 1.

_PARTS = {
    "emscore_p": ("precision", "precision", "similarity of the caption's words to their nearest frames"),
    "emscore_r": ("recall", "recall", "similarity of the clip's frames to their nearest words"),
    "emscore_f": ("f", "F", "harmonic mean of EMScore's precision and recall"),
}


def emscore(part: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes EMScore's precision, recall or F (`tellapart.metrics.emscore`)."""
    return Measurement(said(slot) * 100 * getattr(context.clips.emscore(slot), part)[1])


def said(slot: CaptionSlot) -> np.ndarray:
    """Returns 1 for each non-empty caption and 0 for each empty one, to set the scores of empty captions to 0."""
    return np.array([float(bool(text.strip())) for text in slot.captions])


def emscore_variant(context: EvalContext) -> str:
    """Returns EMScore's settings for signatures."""
    assert context.items is not None
    frames = ",".join(sorted({str(frames_seen(item, context.loaded_scorer)) for item in context.items}))
    idf = f"{context.inputs.emscore_idf},padding-counted" if context.inputs.emscore_idf else "none"
    if context.inputs.emscore_idf == "references":
        idf += f"|references:{context.references_digest}"
    return f"idf:{idf}|frames:{frames}|tokens:with-start,end"


for _name, (_part, _label, _help) in _PARTS.items():
    context_metric(
        _name,
        needs=("pictures", "clips", "scorer", "tokens"),
        signature=lambda context: f"(coarse+fine)/2x100|{emscore_variant(context)}|scorer:{context.scorer_name()}",
        label=f"EMScore, {_label}",
        help=_help,
        direction="higher",
        group=CLOSE,
        families=("emscore",),
    )(partial(emscore, _part))


# Similarity of caption and picture by a scorer's features: CLIPScore, RefCLIPScore and ClipSc.

_PREFIX = f"prefix:{CLIPSCORE_PREFIX.strip()}"


@context_metric(
    "clipscore",
    needs=("pictures", "scorer"),
    signature=lambda context: f"2.5max(cos,0)x100|{_PREFIX}|scorer:{context.scorer_name()}",
    label="CLIPScore",
    help="similarity of caption and picture according to the scorer: 250 · max(cosine, 0)",
    direction="higher",
    group=CLOSE,
    aliases=("clips",),
)
def clipscore(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes CLIPScore ×100 (`tellapart.metrics.clipscore`)."""
    text_ND = context.text_features(slot, CLIPSCORE_PREFIX)
    return Measurement(said(slot) * 100 * clip_score.clipscore(text_ND, context.images)[1])


@context_metric(
    "refclipscore",
    needs=("pictures", "scorer", "references"),
    signature=lambda context: f"hmean(clipscore,max(cos(reference),0))x100|{_PREFIX}|scorer:{context.scorer_name()}",
    label="RefCLIPScore",
    help="harmonic mean of CLIPScore and the similarity to the nearest reference",
    direction="higher",
    group=CLOSE,
    aliases=("refclips",),
)
def refclipscore(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes RefCLIPScore ×100 (`tellapart.metrics.refclipscore`)."""
    text_ND = context.text_features(slot, CLIPSCORE_PREFIX)
    references = context.reference_features(slot, CLIPSCORE_PREFIX)
    return Measurement(said(slot) * 100 * clip_score.refclipscore(text_ND, context.images, references)[1])


@context_metric(
    "clipsc",
    needs=("pictures", "scorer"),
    signature=lambda context: f"100cos|prefix:none|scorer:{context.scorer_name()}",
    label="ClipSc",
    help="similarity of caption and picture according to the scorer: 100 · cosine",
    direction="higher",
    group=CLOSE,
)
def clipsc(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes 100 · cosine (`tellapart.metrics.clipsc`)."""
    return Measurement(said(slot) * clip_score.clipsc(context.text_features(slot), context.images)[1])


@context_metric(
    "tokens",
    needs=("pictures", "scorer"),
    signature=lambda context: f"tokens:with-start,end|scorer:{context.scorer_name()}",
    label="tokens",
    help="tokens per caption in the scorer's tokenizer, including start and end; computed only if requested by name",
    group=LANGUAGE,
    check=lambda: None,
)
def tokens(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the number of tokens per caption, without truncation (paper 2, Table 9)."""
    return Measurement(np.array(context.loaded_scorer.lengths(slot.captions), dtype=float))


Measure = Callable[[EvalContext, CaptionSlot], Measurement]

_AMONG = {
    "lookalike": "{size} look-alikes",
    "lookalikes": "{size} look-alikes",
    "truematch": "{size} TrueMatch look-alikes",
    ALL_CLIPS: "all {size} clips by EMScore’s F",
    "hard": "the {size} pictures in the hard pool",
    "imagecode": "ImageCoDe’s {size} frames",
}
_ALIASES = {
    "recall@1.random100": ("p@1",),  # paper 3: consecutive blocks of 100 in the test set
    "recall@1.random100-shuffled": ("rd100",),  # paper 2: blocks of 100 of a fixed random permutation
}


def recall(k: int, pools: str) -> ContextMetric:
    """Returns the recall@k metric: the percentage of captions whose own picture the scorer ranks among the first k."""

    def measure(context: EvalContext, slot: CaptionSlot) -> Measurement:
        found = context.retrieval(slot, pools)
        return Measurement(100 * found.hit(k), weight_N=found.questions_N)

    def signature(context: EvalContext) -> str:
        scorer = context.scorer_name()
        return f"{_pools_signature(context, pools, scorer)}|ties:hit|scorer:{scorer}"

    few = ("hundred",) if pools.startswith("random") else ("two", "six") if (k, pools) == (5, "lookalike") else ("two",)
    return _recall_entry(k, pools, measure, signature, ("pictures", "scorer", *few))


def clip_recall(k: int) -> ContextMetric:
    """Returns the recall@k metric for clips: how often a caption retrieves its clip from all clips, ranked by EMScore's
    F (paper 1, Table 6).
    """

    def measure(context: EvalContext, slot: CaptionSlot) -> Measurement:
        rank_N = context.clips.emscore_ranks(slot)
        return Measurement(np.where(np.isnan(rank_N), np.nan, said(slot) * 100.0 * (rank_N < k)))

    def signature(context: EvalContext) -> str:
        return f"pool:all-clips|match:EMScore-F|{emscore_variant(context)}|ties:hit|scorer:{context.scorer_name()}"

    needs = ("pictures", "clips", "scorer", "tokens", "two" if k == 1 else "six-clips")
    return _recall_entry(k, ALL_CLIPS, measure, signature, needs)


def mean_rank(pools: str) -> ContextMetric:
    """Returns the mean-rank metric: the picture's mean rank among its candidates, from 1 (best)."""

    def measure(context: EvalContext, slot: CaptionSlot) -> Measurement:
        found = context.retrieval(slot, pools)
        return Measurement(found.rank_N + 1, weight_N=found.questions_N)

    def signature(context: EvalContext) -> str:
        scorer = context.scorer_name()
        return f"{_pools_signature(context, pools, scorer)}|from:1|ties:best|scorer:{scorer}"

    def chance(context: EvalContext) -> np.ndarray:
        sets = context.sets(pools)
        return over_questions(sets, (1 + sets.size_Q) / 2, len(context.ids))

    return ContextMetric(
        name=f"mean_rank.{pools}",
        factory=measure,
        needs=("pictures", "scorer", "two"),
        signature=signature,
        digits=2,
        label=f"mean rank among {among(pools)}",
        help="mean rank of the picture among the candidates; 1 is best",
        direction="lower",
        group=APART,
        families=("meanrank", "truematch") if pools.startswith("bag") else ("meanrank",),
        short="mean_rank",
        bounds=lambda context: (1.0, float(max(map(len, context.sets(pools).sets), default=1))),
        pools=pools,
        chance=chance,
    )


def among(pools: str) -> str:
    """Describes the candidates of a recall. Contains ``{size}`` for their number if the metric's name lacks it."""
    if random := re.fullmatch(r"random(\d+)(-shuffled)?", pools):
        return f"{random[1]} {'random' if random[2] else 'consecutive'} pictures"
    if bag := re.fullmatch(r"bag(\d+)", pools):
        return f"the {bag[1]} pictures in a bag"
    return _AMONG.get(pools, pools.replace("_", " ") or "the pool")


def order_digest(ids: Sequence[str]) -> str:
    """Returns an eight-digit hex hash of the ids in their order."""
    return short_digest(list(ids))


def _recall_entry(k: int, pools: str, measure: Measure, signature: Signature, needs: tuple[str, ...]) -> ContextMetric:
    name, where = f"recall@{k}.{pools}", among(pools)
    first = "first" if k == 1 else f"among the first {k}"
    return ContextMetric(
        name=name,
        factory=measure,
        needs=needs,
        signature=signature,
        label=f"R@{k} among {where}",
        help=f"% of captions for which the scorer ranks the right picture {first} among {where}",
        direction="higher",
        group=APART,
        aliases=_ALIASES.get(name, ()),
        check=(lambda: None) if pools.endswith("-shuffled") else None,  # computed only if requested by name
        families=("recall", f"recall@{k}", f"r@{k}", *(("truematch",) if k == 1 and pools.startswith("bag") else ())),
        short=f"recall@{k}",
        bounds=PERCENT,
        pools=pools,
        chance=partial(_chance, k, pools),
    )


def _chance(k: int, pools: str, context: EvalContext) -> np.ndarray:

    return 100 * chance(context.sets(pools), len(context.ids), k)


def _pools_signature(context: EvalContext, pools: str, scorer: str = "") -> str:
    """Describes the candidates of a metric. scorer: the scorer that ranks; "" if it also mined the look-alikes."""
    for own in context.inputs.candidates.sets:
        if own.name == pools:
            return f"pools:{pools}x{len(own.sets)}|{own.origin}"
    miner = (context.primary or context).scorer_name()
    more = f"|mined-by:{miner}" if pools == "lookalike" and miner != scorer else ""
    if pools.startswith("random"):
        more = f"|order:{order_digest(context.ids)}"  # the order of the data determines the pools
    return f"pools:{context.sets(pools).name}{more}"


for _pools in ("random100", "random100-shuffled", "lookalike"):
    for _k in (1, 5):
        METRICS.register(recall(_k, _pools))
for _k in (1, 5):
    METRICS.register(clip_recall(_k))


@context_metric(
    "listener_accuracy",
    needs=("truth", "pictures", "scorer", "two"),
    signature=lambda context: f"{_pools_signature(context, 'lookalike')}|listener:exact-truth",
    label="picked by an exact listener",
    help="% of pictures that an exact listener, which knows every scene and believes the caption, would pick",
    direction="higher",
    group=APART,
    bounds=PERCENT,
    pools="lookalike",
    chance=partial(_chance, 1, "lookalike"),
)
def listener_accuracy(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the probability, in percent, that an exact listener picks the target from the look-alike set."""

    items, sets = context.items, context.sets("lookalike")
    assert items is not None
    value_N = np.full(len(items), np.nan)
    for members, target in track(list(zip(sets.sets, sets.target_Q, strict=True)), label="listening"):
        place = int(np.flatnonzero(members == target)[0])
        candidates = [items[member].truth for member in members]
        value_N[target] = listener_probabilities(slot.captions[target], candidates)[place]
    return Measurement(100 * value_N)
