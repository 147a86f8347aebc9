"""The one table of metrics: what each needs, how it is measured, and how its signature reads.

To add a text metric, write ``(captions, references) -> (corpus, per_caption_N)`` in `tellapart.metrics` and
one line in `METRICS`. Where the corpus number is not the mean of its captions, name a ``statistic`` too:
``(captions, references) -> (weights_N -> number)``, which the bootstrap and the permutation test call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.metrics.significance import Statistic

if TYPE_CHECKING:
    from tellapart.benchmarks.retrieval import CandidateSets, Retrieval
    from tellapart.scenes.truth import Judgement
    from tellapart.types import Item

POOL = 100  # pictures in a random pool (papers 2 and 3)
CLIPSCORE_PREFIX = "A photo depicts "
CLIPSCORE_WEIGHT = 2.5


@dataclass(eq=False)
class Slot:
    """One caption for each picture, in the order of the ids, and the references it is held against."""

    captions: list[str]
    references: list[list[str]] | None = None
    repeats: np.ndarray | None = None  # of a person's several captions: where this slot says one of them again


@dataclass(frozen=True)
class Corpus:
    """A number of all captions together: one row of material per picture, and what makes a statistic of rows."""

    rows: list[Any]
    build: Callable[[list[Any]], Statistic]


@dataclass(frozen=True)
class Measured:
    """One value per picture (NaN abstains), or a corpus statistic, or both; the corpus then is what is printed."""

    value_N: np.ndarray | None
    corpus: Corpus | None = None


@dataclass
class Context:
    """All that one evaluation was given, and what was computed from it once."""

    ids: list[str]
    items: Sequence[Item] | None = None
    references: list[list[str]] | None = None
    scorer: Any = None
    image_ND: np.ndarray | None = None
    lookalike: int = 10
    seed: int = 0
    sets_from: Context | None = None  # a second scorer judges the look-alike sets that the first one mined
    several: bool = False  # whether some system has several captions of a picture
    _kept: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` returned when first asked for ``key``."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def sets(self, pools: str) -> CandidateSets:
        """Candidate sets of a protocol: ``random100``, ``random100-shuffled`` or ``lookalike``."""
        if self.sets_from is not None:
            return self.sets_from.sets(pools)
        return self.once(("sets", pools), lambda: self._make_sets(pools))

    def _make_sets(self, pools: str) -> CandidateSets:
        from tellapart.benchmarks.retrieval import lookalike_sets, random_pools

        if pools != "lookalike":
            return random_pools(len(self.ids), POOL, shuffled=pools.endswith("-shuffled"), seed=self.seed)
        assert self.image_ND is not None
        return lookalike_sets(self.image_ND, self.lookalike)  # equal content has equal features: no keys needed

    def text_features(self, slot: Slot, prefix: str = "") -> np.ndarray:
        """Normalised features of a slot's captions, N×D."""
        return self.once(("text", id(slot), prefix), lambda: encode_texts(self.scorer, slot.captions, prefix))

    def retrieval(self, slot: Slot, pools: str) -> Retrieval:
        """The scorer's ranks for a slot's captions."""
        from tellapart.benchmarks.retrieval import retrieve

        assert self.image_ND is not None
        image_ND = self.image_ND
        return self.once(
            ("retrieval", id(slot), pools),
            lambda: retrieve(self.sets(pools), self.text_features(slot), image_ND),
        )

    def judgements(self, slot: Slot) -> list[Judgement]:
        """A slot's captions held against the truth of their scenes."""
        from tellapart.progress import track
        from tellapart.scenes.truth import judge

        assert self.items is not None
        pairs = list(zip(slot.captions, self.items, strict=True))
        return self.once(
            ("judgements", id(slot)),
            lambda: [judge(caption, item.truth) for caption, item in track(pairs, label="judging captions")],
        )

    def scorer_name(self) -> str:
        """Name and fingerprint, for signatures: where the scorer lies on this disk does not matter."""
        return f"{str(self.scorer.name).rstrip('/').split('/')[-1]}@{self.scorer.encoder.fingerprint[:8]}"


def encode_texts(scorer: Any, texts: Sequence[str], prefix: str = "") -> np.ndarray:
    """Normalised text features N×D float32, each distinct text encoded once, with progress."""
    from tellapart.progress import track

    block = 1024
    unique = list(dict.fromkeys(texts))
    blocks = [unique[start : start + block] for start in range(0, len(unique), block)]
    encoded = [
        scorer.text_features([prefix + text for text in part]).float().cpu().numpy()
        for part in track(blocks, len(blocks), "encoding captions (1,024 a step)")
    ]
    row = {text: index for index, text in enumerate(unique)}
    return np.concatenate(encoded)[[row[text] for text in texts]]


# What a metric can need: whether a context has it, and what to type where it has not.
NEEDS: dict[str, tuple[Callable[[Context], bool], str]] = {
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
    "several": (
        lambda context: context.several,
        "several captions of a picture; give a caption file that has every id several times",
    ),
}


@dataclass(frozen=True)
class Metric:
    """One row of the table. ``signature`` gives what stands after the name, ``chance`` what a blind guess gets.

    A metric of one caption has ``measure``; where there are several captions of a picture, the mean counts. One
    that is about all captions of a picture at once has ``together`` (of a list for each picture) instead.
    """

    needs: tuple[str, ...]
    measure: Callable[[Context, Slot], Measured] | None
    signature: Callable[[Context], str]
    digits: int = 1
    chance: Callable[[Context], np.ndarray] | None = None
    short: str = ""  # how a signature calls it, where its other parts say the rest of the name
    together: Callable[[Context, list[list[str]]], Measured] | None = None

    @property
    def judged(self) -> bool:
        """Whether a second scorer has a say in it (the exact listener uses the first one's sets only)."""
        return "scorer" in self.needs and "truth" not in self.needs

    def missing(self, context: Context) -> str | None:
        """The first thing that it needs and the context lacks, with what to type; None where all is there."""
        return next((message for has, message in map(NEEDS.__getitem__, self.needs) if not has(context)), None)


def choose(names: Sequence[str] | None, context: Context) -> tuple[list[str], list[str]]:
    """The metrics to compute, and notes on those that the data are too few for.

    Without names: all that can be computed. `UsageError` for an unknown name (with the nearest) and for a
    metric that lacks something (with the option to add).
    """
    if names is None:
        chosen = [name for name, metric in METRICS.items() if metric.missing(context) is None]
        few = {"hundred": context.scorer is not None, "two": context.scorer is not None}
        notes = [
            f"{name} is left out: it needs {metric.missing(context)}"
            for name, metric in METRICS.items()
            if any(few.get(need) and not NEEDS[need][0](context) for need in metric.needs)
        ]
        return chosen, notes
    for name in names:
        if name not in METRICS:
            raise UsageError(f"no metric is called '{name}'{nearest(name, METRICS)}")
        missing = METRICS[name].missing(context)
        if missing is not None:
            raise UsageError(f"metric '{name}' needs {missing}")
    return list(dict.fromkeys(names)), []


def text_metric(
    where: str, variant: str, *, references: bool = False, statistic: str = "", scale: float = 1.0, digits: int = 1
) -> Metric:
    """A metric of texts alone. ``where`` and ``statistic`` are ``module:function``, imported on first use."""

    def measure(context: Context, slot: Slot) -> Measured:
        corpus, value_N = _function(where)(slot.captions, slot.references)
        if value_N is not None:
            value_N = scale * np.asarray(value_N, dtype=float)
        if statistic:
            held = slot.references or [[] for _ in slot.captions]
            rows = list(zip(slot.captions, held, strict=True))
            return Measured(value_N, Corpus(rows, partial(_text_statistic, statistic, scale)))
        kept_N = value_N[~np.isnan(value_N)] if value_N is not None else np.zeros(0)
        if len(kept_N) and not np.isclose(scale * corpus, kept_N.mean()):
            raise TellapartError(f"{where}: its corpus number is not the mean of its captions; register its statistic")
        return Measured(value_N)

    needs = ("references",) if references else ()
    return Metric(needs, measure, lambda context: variant, digits)


def _function(where: str) -> Callable[..., Any]:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def _text_statistic(where: str, scale: float, rows: list[tuple[str, list[str]]]) -> Statistic:
    statistic = _function(where)([caption for caption, _ in rows], [held for _, held in rows])
    return lambda weight_N: scale * statistic(weight_N)


def _recall(k: int, pools: str) -> Metric:
    def measure(context: Context, slot: Slot) -> Measured:
        return Measured(100 * context.retrieval(slot, pools).hit(k))

    def signature(context: Context) -> str:
        return f"{_pools_signature(context, pools)}|ties:hit|scorer:{context.scorer_name()}"

    few = "two" if pools == "lookalike" else "hundred"
    return Metric(("pictures", "scorer", few), measure, signature, 1, partial(_chance, k, pools), f"recall@{k}")


def _chance(k: int, pools: str, context: Context) -> np.ndarray:
    from tellapart.benchmarks.retrieval import chance

    return 100 * chance(context.sets(pools), len(context.ids), k)


def _pools_signature(context: Context, pools: str) -> str:
    mined = f"|mined-by:{(context.sets_from or context).scorer_name()}" if pools == "lookalike" else ""
    return f"pools:{context.sets(pools).name}{mined}"


def _clipscore(context: Context, slot: Slot) -> Measured:
    """2.5·max(cos, 0) × 100 of "A photo depicts …" with its own picture (CLIPScore)."""
    assert context.image_ND is not None
    cosine_N = np.einsum("nd,nd->n", context.text_features(slot, CLIPSCORE_PREFIX), context.image_ND)
    return Measured(100 * CLIPSCORE_WEIGHT * np.maximum(cosine_N, 0))


def _rate(above: str, below: str) -> Metric:
    """Percent: one count of `scenes.truth.Judgement` over another, both summed over captions before dividing."""

    def measure(context: Context, slot: Slot) -> Measured:
        counts_N2 = np.array([(getattr(j, above), getattr(j, below)) for j in context.judgements(slot)], dtype=float)
        with np.errstate(invalid="ignore"):
            value_N = 100 * counts_N2[:, 0] / counts_N2[:, 1]
        return Measured(value_N, Corpus(list(counts_N2), _ratio))

    return Metric(("truth",), measure, lambda context: f"sum({above})/sum({below})|truth:scenes")


def _ratio(rows: list[np.ndarray]) -> Statistic:
    counts_N2 = np.array(rows)

    def statistic(weight_N: np.ndarray) -> float:
        above, below = weight_N @ counts_N2
        return float(100 * above / below) if below > 0 else float("nan")

    return statistic


def _listener_accuracy(context: Context, slot: Slot) -> Measured:
    """Percent: the probability with which an exact listener picks the target from its look-alike set."""
    from tellapart.progress import track
    from tellapart.scenes.truth import listen

    items, sets = context.items, context.sets("lookalike")
    assert items is not None
    value_N = np.full(len(items), np.nan)
    for members, target in track(list(zip(sets.sets, sets.target_Q, strict=True)), label="listening"):
        place = int(np.flatnonzero(members == target)[0])
        value_N[target] = listen(slot.captions[target], [items[member].truth for member in members])[place]
    return Measured(100 * value_N)


def _diversity(name: str) -> Metric:
    """Div-1, Div-2 or mBLEU of all captions of a picture, 0 to 1 as paper 4 prints them."""

    def together(context: Context, caption_lists: list[list[str]]) -> Measured:
        value_N = _function(_DIVERSITY + name)(caption_lists)[1]
        if name != "mbleu":
            return Measured(value_N)
        rows = list(_function(_DIVERSITY + "mbleu_counts")(caption_lists))
        return Measured(value_N, Corpus(rows, _function(_DIVERSITY + "mbleu_of_counts")))

    def signature(context: Context) -> str:
        return str(_function(_DIVERSITY + ("MBLEU_SIGNATURE" if name == "mbleu" else "DIV_SIGNATURE")))

    return Metric(("several",), None, signature, 2, together=together)


_LEXICAL = "tellapart.metrics.lexical:"
_DIVERSITY = "tellapart.metrics.diversity:"
_OVERLAP = "tellapart.metrics.overlap:"
_CIDER = "tellapart.metrics.cider:"


def _overlap(where: str, name: str, *, statistic: str = "") -> Metric:
    """A metric against references, ×100 as the papers print it; its module has the signature."""

    def signature(context: Context) -> str:
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
    **{
        f"bleu{n}": _overlap(f"{_OVERLAP}bleu{n}", "BLEU", statistic=f"{_OVERLAP}bleu{n}_statistic")
        for n in (1, 2, 3, 4)
    },
    "rouge_l": _overlap(_OVERLAP + "rouge_l", "ROUGE"),
    "cider": _overlap(_CIDER + "cider_d", "CIDER_D"),
    "cider_plain": _overlap(_CIDER + "cider_plain", "CIDER"),
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
    "listener_accuracy": Metric(
        ("truth", "pictures", "scorer", "two"),
        _listener_accuracy,
        lambda context: f"{_pools_signature(context, 'lookalike')}|listener:exact-truth",
        chance=partial(_chance, 1, "lookalike"),
    ),
}
