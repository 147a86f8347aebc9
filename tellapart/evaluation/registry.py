"""The one table of metrics: what each needs, how it is measured, and how its signature reads.

To add a text metric, write ``(captions, references) -> (corpus, per_caption_N)`` in `tellapart.metrics` and
one line in `METRICS`. Where the corpus number is not the mean of its captions, name a ``statistic`` too:
``(captions, references) -> (weights_N -> number)``, which the bootstrap and the permutation test call.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tellapart.errors import TellapartError, UsageError
from tellapart.evaluation.context import ALL_CLIPS, POOL, Corpus, EvalContext, Measurement, Slot
from tellapart.evaluation.metric_names import resolve, spelt, suggestion
from tellapart.metrics.embedding import CLIPSCORE_PREFIX, clipsc, clipscore, refclipscore
from tellapart.metrics.perplexity import of_counts
from tellapart.metrics.results import ORACLE, Candidates
from tellapart.metrics.significance import MeanStatistic, Statistic, SummedStatistic

# What a metric can need: whether a context has it, and what to type where it has not.
NEEDS: dict[str, tuple[Callable[[EvalContext], bool], str]] = {
    "references": (
        lambda context: context.references is not None,
        "references; add --references FILE, or --data SPEC with references",
    ),
    "pictures": (
        lambda context: context.items is not None or context.image_ND is not None,
        "pictures; add --data SPEC",
    ),
    "scorer": (lambda context: context.scorer is not None, "a scorer; add --scorer MODEL"),
    "truth": (
        lambda context: context.items is not None and all(item.truth is not None for item in context.items),
        "pictures whose truth is known; add --data scenes:…",
    ),
    "hundred": (
        lambda context: len(context.ids) >= POOL,
        f"at least {POOL} pictures; use recall@1.lookalike, or give more captions",
    ),
    "two": (lambda context: len(context.ids) >= 2, "at least two pictures; give more captions"),
    "six": (
        lambda context: min(context.lookalike, len(context.ids)) > 5,
        "look-alike sets of more than 5 pictures; raise --lookalike, or give more captions",
    ),
    "six-clips": (lambda context: len(context.ids) > 5, "more than 5 clips; give more captions"),
    "clips": (
        lambda context: context.of_clips,
        "clips; add --data 'scenes:plain?frames=8'",
    ),
    "tokens": (
        # A scorer that is only named yet, before it is loaded, gets the benefit of the doubt.
        lambda context: bool(getattr(context.scorer, "has_token_features", True)),
        "a scorer with features of single tokens; add --scorer with a text tower such as CLIP's",
    ),
    "language_model": (
        lambda context: context.language_model is not None,
        "a language model; add --language-model gpt2, or a model's folder",
    ),
    "text_encoder": (
        lambda context: context.text_encoder is not None,
        "a text encoder; add --bertscore roberta-large, or a model's folder",
    ),
    "several": (
        lambda context: context.several,
        "several captions of a picture; give a caption file that has every id several times",
    ),
}


LOWER_IS_BETTER = ("ppl", "repetition_rate", "hallucination_rate", "binding_error_rate")
_OF_GIVEN_SETS = re.compile(r"(recall@\d+|mean_rank)\.(bag\d+|hard|imagecode)")


@dataclass(frozen=True)
class Metric:
    """One row of the table. ``signature`` gives what stands after the name, ``chance`` what a blind guess gets.

    ``pools`` names the candidate sets of a recall. A metric of one caption has ``measure``; where there are several
    captions of a picture, the mean counts. One that is about all captions of a picture at once has ``together`` (of a
    list for each picture) instead, one that chooses among their numbers has ``over_slots``. One with ``ready``, which
    raises where its tool is not there, is computed only when it is named.
    """

    needs: tuple[str, ...]
    measure: Callable[[EvalContext, Slot], Measurement] | None
    signature: Callable[[EvalContext], str]
    digits: int = 1
    chance: Callable[[EvalContext], np.ndarray] | None = None
    short: str = ""  # how a signature calls it, where its other parts say the rest of the name
    together: Callable[[EvalContext, list[list[str]]], Measurement] | None = None
    over_slots: Callable[[EvalContext, Sequence[Slot]], Measurement] | None = None
    ready: Callable[[], object] | None = None
    pools: str = ""  # the candidate sets that it is measured in

    @property
    def judged(self) -> bool:
        """Whether a second scorer has a say in it (the exact listener uses the first one's sets only)."""
        return "scorer" in self.needs and "truth" not in self.needs

    def candidates(self, context: EvalContext) -> Candidates | None:
        """The sets that it is measured in, and what a blind guess scores there; None where it has none."""
        if self.chance is None or not self.pools:
            return None
        sets = context.sets(self.pools)
        if not len(sets):
            return None
        chance_N = self.chance(context)
        known_N, asked_N = ~np.isnan(chance_N), sets.asked(len(chance_N))
        sizes = [len(members) for members in sets.sets]
        return Candidates(min(sizes), max(sizes), float(np.average(chance_N[known_N], weights=asked_N[known_N])))

    def missing(self, context: EvalContext) -> str | None:
        """The first thing that it needs and the context lacks, with what to type; None where all is there."""
        return next((message for has, message in map(NEEDS.__getitem__, self.needs) if not has(context)), None)


def metrics_of(context: EvalContext) -> dict[str, Metric]:
    """The table, and the metrics of the candidate sets that this evaluation was given."""
    given: dict[str, Metric] = {}
    for pools, sets in context.given.items():
        given[f"recall@1.{pools}"] = _recall(1, pools)
        if min(map(len, sets.sets)) > 5:  # five of five are always hits
            given[f"recall@5.{pools}"] = _recall(5, pools)
        given[f"mean_rank.{pools}"] = _mean_rank(pools)
    table = {**METRICS, **given}
    if context.several:
        table |= {f"{name}{ORACLE}": _oracle(name, metric) for name, metric in table.items() if metric.measure}
    return table


def choose(names: Sequence[str] | None, context: EvalContext) -> tuple[list[str], list[str]]:
    """The metrics to compute, and notes on those that the data are too few for.

    Without names: all that can be computed. Names are those that people use (`tellapart.evaluation.metric_names`).
    `UsageError` for an unknown name (with the nearest) and for a metric that lacks something (with the option to add).
    """
    table = metrics_of(context)
    if names is None:
        able = {name: own for name, own in table.items() if own.ready is None and not name.endswith(ORACLE)}
        chosen = [name for name, metric in able.items() if metric.missing(context) is None]
        few = dict.fromkeys(("hundred", "two", "six"), context.scorer is not None)
        notes = [
            f"{name} is left out: it needs {metric.missing(context)}"
            for name, metric in METRICS.items()
            if any(few.get(need) and not NEEDS[need][0](context) for need in metric.needs)
        ]
        return chosen, notes
    chosen = [key for name in names for key in _named(name, table, context)]
    for key in chosen:
        if (ready := table[key].ready) is not None:
            ready()
    return list(dict.fromkeys(chosen)), []


def _named(name: str, table: Mapping[str, Metric], context: EvalContext) -> list[str]:
    """The metrics that a name stands for: one, or of several those that can be had. Raises `UsageError`."""
    keys = resolve(name, table)
    if not keys:
        if _OF_GIVEN_SETS.fullmatch(name) or spelt(name) in ("truematch", "meanrank"):
            raise UsageError(f"metric '{name}' needs candidate sets of that name; add --bags FILE")
        if name.lower().endswith(ORACLE) and resolve(name[: -len(ORACLE)], table):
            raise UsageError(f"metric '{name}' needs {NEEDS['several'][1]}")
        raise UsageError(f"no metric is called '{name}'{suggestion(name, table)}")
    missing = {key: table[key].missing(context) for key in keys}
    able = [key for key in keys if missing[key] is None]
    if not able:
        raise UsageError(f"metric '{name}' needs {missing[keys[0]]}")
    return able


def text_metric(
    where: str, variant: str, *, references: bool = False, statistic: str = "", scale: float = 1.0, digits: int = 1
) -> Metric:
    """A metric of texts alone. ``where`` and ``statistic`` are ``module:function``, imported on first use."""

    def measure(context: EvalContext, slot: Slot) -> Measurement:
        corpus, value_N = _function(where)(slot.captions, slot.references)
        if value_N is not None:
            value_N = scale * np.asarray(value_N, dtype=float)
        if statistic:
            held = slot.references or [[] for _ in slot.captions]
            rows = list(zip(slot.captions, held, strict=True))
            return Measurement(value_N, Corpus(rows, partial(_text_statistic, statistic, scale)))
        kept_N = value_N[~np.isnan(value_N)] if value_N is not None else np.zeros(0)
        if len(kept_N) and not np.isclose(scale * corpus, kept_N.mean()):
            raise TellapartError(f"{where}: its corpus number is not the mean of its captions; register its statistic")
        return Measurement(value_N)

    needs = ("references",) if references else ()
    return Metric(needs, measure, lambda context: variant, digits)


def _function(where: str) -> Callable[..., Any]:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def _text_statistic(where: str, scale: float, rows: list[tuple[str, list[str]]]) -> Statistic:
    statistic = _function(where)([caption for caption, _ in rows], [held for _, held in rows])
    return MeanStatistic([statistic], scale)


def _recall(k: int, pools: str) -> Metric:
    def measure(context: EvalContext, slot: Slot) -> Measurement:
        found = context.retrieval(slot, pools)
        return Measurement(100 * found.hit(k), weight_N=found.asked_N)

    def signature(context: EvalContext) -> str:
        return f"{_pools_signature(context, pools)}|ties:hit|scorer:{context.scorer_name()}"

    few = ("hundred",) if pools.startswith("random") else ("two", "six") if (k, pools) == (5, "lookalike") else ("two",)
    needs = ("pictures", "scorer", *few)
    return Metric(needs, measure, signature, 1, partial(_chance, k, pools), f"recall@{k}", pools=pools)


def _clip_recall(k: int) -> Metric:
    """Clips retrieved by their captions among all clips, by EMScore's F (paper 1, Table 6)."""

    def measure(context: EvalContext, slot: Slot) -> Measurement:
        rank_N = context.emscore_ranks(slot)
        return Measurement(np.where(np.isnan(rank_N), np.nan, 100.0 * (rank_N < k)))

    def signature(context: EvalContext) -> str:
        return f"pool:all-clips|match:EMScore-F|{_emscore_variant(context)}|ties:hit|scorer:{context.scorer_name()}"

    needs = ("pictures", "clips", "scorer", "tokens", "two" if k == 1 else "six-clips")
    return Metric(needs, measure, signature, 1, partial(_chance, k, ALL_CLIPS), f"recall@{k}", pools=ALL_CLIPS)


def _chance(k: int, pools: str, context: EvalContext) -> np.ndarray:
    from tellapart.evaluation.retrieval import chance

    return 100 * chance(context.sets(pools), len(context.ids), k)


def _mean_rank(pools: str) -> Metric:
    """The place of the picture among its candidates, 1 where it is found at once."""

    def measure(context: EvalContext, slot: Slot) -> Measurement:
        found = context.retrieval(slot, pools)
        return Measurement(found.rank_N + 1, weight_N=found.asked_N)

    def signature(context: EvalContext) -> str:
        return f"{_pools_signature(context, pools)}|from:1|ties:best|scorer:{context.scorer_name()}"

    def blind(context: EvalContext) -> np.ndarray:
        from tellapart.evaluation.retrieval import over_questions

        sets = context.sets(pools)
        return over_questions(sets, (1 + sets.size_Q) / 2, len(context.ids))

    return Metric(("pictures", "scorer", "two"), measure, signature, 2, blind, "mean_rank", pools=pools)


def _pools_signature(context: EvalContext, pools: str) -> str:
    if pools in (given := (context.sets_from or context).origins):
        return f"pools:{pools}x{len(context.sets(pools).sets)}|{given[pools]}"
    more = f"|mined-by:{(context.sets_from or context).scorer_name()}" if pools == "lookalike" else ""
    if pools.startswith("random"):
        more = f"|order:{order_digest(context.ids)}"  # the reader's order decides who stands in a pool
    return f"pools:{context.sets(pools).name}{more}"


def order_digest(ids: Sequence[str]) -> str:
    """Eight hex digits of ids in their order."""
    text = json.dumps(list(ids)).encode()
    return hashlib.blake2b(text, digest_size=4).hexdigest()


def _clipscore(context: EvalContext, slot: Slot) -> Measurement:
    assert context.image_ND is not None
    return Measurement(100 * clipscore(context.text_features(slot, CLIPSCORE_PREFIX), context.image_ND)[1])


def _refclipscore(context: EvalContext, slot: Slot) -> Measurement:
    assert context.image_ND is not None
    text_ND = context.text_features(slot, CLIPSCORE_PREFIX)
    return Measurement(
        100 * refclipscore(text_ND, context.image_ND, context.reference_features(slot, CLIPSCORE_PREFIX))[1]
    )


def _clipsc(context: EvalContext, slot: Slot) -> Measurement:
    assert context.image_ND is not None
    return Measurement(clipsc(context.text_features(slot), context.image_ND)[1])


def _emscore(part: str) -> Metric:
    """EMScore against the frames of clips, ×100 as paper 1 prints it."""

    def measure(context: EvalContext, slot: Slot) -> Measurement:
        return Measurement(100 * getattr(context.emscore(slot), part)[1])

    def signature(context: EvalContext) -> str:
        return f"(coarse+fine)/2x100|{_emscore_variant(context)}|scorer:{context.scorer_name()}"

    return Metric(("pictures", "clips", "scorer", "tokens"), measure, signature)


def _emscore_variant(context: EvalContext) -> str:
    assert context.items is not None
    frames = ",".join(sorted({str(context.frames_of(item)) for item in context.items}))
    idf = f"{context.emscore_idf},padding-counted" if context.emscore_idf else "none"
    return f"idf:{idf}|frames:{frames}|tokens:with-start,end"


def _bertscore(part: str) -> Metric:
    """BERTScore against the references, ×100."""

    def measure(context: EvalContext, slot: Slot) -> Measurement:
        return Measurement(100 * getattr(context.bertscore(slot), part)[1])

    def signature(context: EvalContext) -> str:
        return f"best-reference|{context.text_encoder.signature}"

    return Metric(("references", "text_encoder"), measure, signature)


def _ppl(context: EvalContext, slot: Slot) -> Measurement:
    return Measurement(of_counts(context.token_losses(slot)))


def _ppl_corpus(context: EvalContext, slot: Slot) -> Measurement:
    return Measurement(None, Corpus(list(context.token_losses(slot)), _exp_ratio))


def _exp_ratio(rows: list[np.ndarray]) -> Statistic:
    return SummedStatistic(
        np.array(rows), lambda loss_R2: of_counts(loss_R2.reshape(-1, 2)).reshape(loss_R2.shape[:-1])
    )


def _rate(above: str, below: str) -> Metric:
    """Percent: one count of `scenes.truth.ClaimCounts` over another, both summed over captions before dividing."""

    def measure(context: EvalContext, slot: Slot) -> Measurement:
        counts_N2 = np.array([(getattr(j, above), getattr(j, below)) for j in context.claim_counts(slot)], dtype=float)
        with np.errstate(invalid="ignore"):
            value_N = 100 * counts_N2[:, 0] / counts_N2[:, 1]
        return Measurement(value_N, Corpus(list(counts_N2), _ratio))

    return Metric(("truth",), measure, lambda context: f"sum({above})/sum({below})|truth:scenes")


def _scene_graph_f(context: EvalContext, slot: Slot) -> Measurement:
    """F of scene-graph tuples × 100 in the manner of SPICE, with the scene's own truth for references."""
    from tellapart.scenes.truth import scene_graph_f

    assert context.items is not None
    pairs = zip(slot.captions, context.items, strict=True)
    return Measurement(np.array([100 * scene_graph_f(caption, item.truth).f for caption, item in pairs]))


def _ratio(rows: list[np.ndarray]) -> Statistic:
    return SummedStatistic(np.array(rows), _percent)


def _percent(counts_R2: np.ndarray) -> np.ndarray:
    above_R, below_R = counts_R2[..., 0], counts_R2[..., 1]
    return np.where(below_R > 0, 100 * above_R / np.where(below_R > 0, below_R, 1), np.nan)


def _listener_accuracy(context: EvalContext, slot: Slot) -> Measurement:
    """Percent: the probability with which an exact listener picks the target from its look-alike set."""
    from tellapart.progress import track
    from tellapart.scenes.truth import listener_probabilities

    items, sets = context.items, context.sets("lookalike")
    assert items is not None
    value_N = np.full(len(items), np.nan)
    for members, target in track(list(zip(sets.sets, sets.target_Q, strict=True)), label="listening"):
        place = int(np.flatnonzero(members == target)[0])
        candidates = [items[member].truth for member in members]
        value_N[target] = listener_probabilities(slot.captions[target], candidates)[place]
    return Measurement(100 * value_N)


def _oracle(name: str, metric: Metric) -> Metric:
    """The best of a picture's captions by the metric itself: what a perfect choice among them would score.

    The mean over pictures of the best caption's own number, also where the metric's corpus number is no mean.
    """
    measure = metric.measure
    assert measure is not None

    def over_slots(context: EvalContext, slots: Sequence[Slot]) -> Measurement:
        measured = [measure(context, slot) for slot in slots]
        values = [own.value_N for own in measured if own.value_N is not None]
        if not values:
            raise UsageError(f"{name} has no number for a single caption, so no caption is the best by it")
        best = np.fmin if name in LOWER_IS_BETTER or name.startswith("mean_rank") else np.fmax
        return Measurement(best.reduce(values), weight_N=measured[0].weight_N)

    def signature(context: EvalContext) -> str:
        return f"best-of-captions,mean-of-pictures|{metric.signature(context)}"

    return replace(
        metric, needs=(*metric.needs, "several"), measure=None, signature=signature, over_slots=over_slots, chance=None
    )


def _diversity(name: str) -> Metric:
    """Div-1, Div-2 or mBLEU of all captions of a picture, 0 to 1 as paper 4 prints them."""

    def together(context: EvalContext, caption_lists: list[list[str]]) -> Measurement:
        value_N = _function(_DIVERSITY + name)(caption_lists)[1]
        if name != "mbleu":
            return Measurement(value_N)
        rows = list(_function(_DIVERSITY + "mbleu_counts")(caption_lists))
        return Measurement(value_N, Corpus(rows, _function(_DIVERSITY + "mbleu_of_counts")))

    def signature(context: EvalContext) -> str:
        return str(_function(_DIVERSITY + ("MBLEU_SIGNATURE" if name == "mbleu" else "DIV_SIGNATURE")))

    return Metric(("several",), None, signature, 2, together=together)


_LEXICAL = "tellapart.metrics.lexical:"
_DIVERSITY = "tellapart.metrics.diversity:"
_OVERLAP = "tellapart.metrics.overlap:"
_CIDER = "tellapart.metrics.cider:"
_METEOR = "tellapart.metrics.meteor_score:"
_SPICE = "tellapart.metrics.spice_tool:"
_SPIDER = "tellapart.metrics.spider_score:"


def _overlap(where: str, name: str, *, statistic: str = "") -> Metric:
    """A metric against references, ×100 as the papers print it; its module has the signature."""

    def signature(context: EvalContext) -> str:
        return str(_function(where.partition(":")[0] + f":{name}_SIGNATURE"))

    return replace(text_metric(where, "", references=True, statistic=statistic, scale=100.0), signature=signature)


METRICS: dict[str, Metric] = {
    **{
        f"recall@{k}.{pools}": _recall(k, pools)
        for pools in ("random100", "random100-shuffled", "lookalike")
        for k in (1, 5)
    },
    "clipscore": Metric(
        ("pictures", "scorer"),
        _clipscore,
        lambda context: f"2.5max(cos,0)x100|prefix:{CLIPSCORE_PREFIX.strip()}|scorer:{context.scorer_name()}",
    ),
    "refclipscore": Metric(
        ("pictures", "scorer", "references"),
        _refclipscore,
        lambda context: (
            f"hmean(clipscore,max(cos(reference),0))x100|prefix:{CLIPSCORE_PREFIX.strip()}"
            f"|scorer:{context.scorer_name()}"
        ),
    ),
    "clipsc": Metric(
        ("pictures", "scorer"), _clipsc, lambda context: f"100cos|prefix:none|scorer:{context.scorer_name()}"
    ),
    "emscore_p": _emscore("precision"),
    "emscore_r": _emscore("recall"),
    "emscore_f": _emscore("f"),
    **{f"recall@{k}.{ALL_CLIPS}": _clip_recall(k) for k in (1, 5)},
    "bertscore_p": _bertscore("precision"),
    "bertscore_r": _bertscore("recall"),
    "bertscore_f": _bertscore("f"),
    "ppl": Metric(
        ("language_model",), _ppl, lambda context: f"mean(exp(nll/tokens))|{context.language_model.signature}"
    ),
    "ppl_corpus": Metric(
        ("language_model",),
        _ppl_corpus,
        lambda context: f"exp(sum(nll)/sum(tokens))|{context.language_model.signature}",
    ),
    **{
        f"bleu{n}": _overlap(f"{_OVERLAP}bleu{n}", "BLEU", statistic=f"{_OVERLAP}bleu{n}_statistic")
        for n in (1, 2, 3, 4)
    },
    "rouge_l": _overlap(_OVERLAP + "rouge_l", "ROUGE"),
    "cider": _overlap(_CIDER + "cider_d", "CIDER_D"),
    "cider_plain": _overlap(_CIDER + "cider_plain", "CIDER"),
    "meteor": replace(
        _overlap(_METEOR + "meteor", "METEOR", statistic=_METEOR + "meteor_statistic"),
        ready=lambda: _function(_METEOR + "find_tables")(),
    ),
    "spice": replace(
        _overlap(_SPICE + "spice", "SPICE", statistic=_SPICE + "spice_statistic"),
        ready=lambda: _function(_SPICE + "find_tool")(),
    ),
    "spider": replace(
        _overlap(_SPIDER + "spider", "SPIDER"),
        ready=lambda: _function(_SPICE + "find_tool")(),
    ),
    "length": text_metric(_LEXICAL + "length", "words:punctuation-stripped"),
    "lexical_diversity": text_metric(
        _LEXICAL + "lexical_diversity",
        "distinct/1000|words:punctuation-stripped,case-kept",
        statistic=_LEXICAL + "lexical_diversity_statistic",
        digits=2,
    ),
    "vocabulary": text_metric(
        _LEXICAL + "vocabulary",
        "frequency>=5|words:punctuation-stripped,lower-case",
        statistic=_LEXICAL + "vocabulary_statistic",
        digits=0,
    ),
    "repetition_rate": text_metric(
        _LEXICAL + "repetition_rate", "percent-of-words|runs:adjacent,6+,unseparated", digits=2
    ),
    **{name: _diversity(name) for name in ("div1", "div2", "mbleu")},
    "attribute_precision": _rate("correct", "claims"),
    "attribute_recall": _rate("recalled", "attributes"),
    "hallucination_rate": _rate("hallucinations", "claims"),
    "binding_error_rate": _rate("binding_errors", "bound"),
    "scene_graph_f": Metric(
        ("truth",), _scene_graph_f, lambda context: "f1|tuples:objects,attributes,relations,ground|truth:scenes"
    ),
    "listener_accuracy": Metric(
        ("truth", "pictures", "scorer", "two"),
        _listener_accuracy,
        lambda context: f"{_pools_signature(context, 'lookalike')}|listener:exact-truth",
        chance=partial(_chance, 1, "lookalike"),
        pools="lookalike",
    ),
}
