"""Metrics in words: what a key of ``results.json`` means, and which direction is better."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tellapart.metrics.results import GROUPS, ORACLE
from tellapart.report.folder import Candidates, Estimate, MetricInfo, Results

MINUS = "\u2212"


@dataclass(frozen=True)
class Metric:
    """A metric as reports show it.

    ``direction``: +1 where higher is better, -1 where lower is, 0 where neither is. ``scorer``: the held-out scorer
    that measured it; empty for the first scorer.
    """

    key: str
    name: str
    explain: str
    direction: int
    group: str
    scorer: str = ""
    candidates: Candidates | None = None

    @property
    def retrieval(self) -> bool:
        """Whether it is a retrieval metric, which is shown with the number of candidates and chance."""
        return self.candidates is not None or bool(_RETRIEVAL.match(self.key))

    def setting(self, *estimates: Estimate | None) -> str:
        """The setting of a recall, as far as the results have it: ``n = 500, 10 candidates, chance 10.0``."""
        if not self.retrieval:
            return ""
        counts = sorted({e.n for e in estimates if e is not None and e.n is not None})
        parts = [f"n = {' and '.join(f'{n:,}' for n in counts)}"] if counts else []
        if self.candidates is not None:
            parts += [f"{size_text(self.candidates)} candidates", f"chance {self.candidates.chance:.1f}"]
        return ", ".join(parts)

    @property
    def base(self) -> str:
        """The key without the suffix of a held-out scorer."""
        return self.key.removesuffix(f"@{self.scorer}") if self.scorer else self.key


_APART, _TRUTH, _CLOSE, _LANGUAGE, _OTHER = GROUPS
# key: name, what it says, the good direction, group
_KNOWN: dict[str, tuple[str, str, int, str]] = {
    "listener_accuracy": (
        "picked by an exact listener",
        "per cent of pictures that a listener who knows each exactly, and takes the caption at its word, would pick",
        1,
        _APART,
    ),
    "clipscore": ("CLIPScore", "likeness of caption and picture to the scorer: 250 · max(cosine, 0)", 1, _CLOSE),
    "refclipscore": ("RefCLIPScore", "CLIPScore and likeness to the nearest reference, harmonic mean", 1, _CLOSE),
    "clipsc": ("ClipSc", "likeness of caption and picture to the scorer: 100 · cosine", 1, _CLOSE),
    "emscore_p": ("EMScore, precision", "likeness of the caption's words to their nearest frames", 1, _CLOSE),
    "emscore_r": ("EMScore, recall", "likeness of the clip's frames to their nearest words", 1, _CLOSE),
    "emscore_f": ("EMScore, F", "harmonic mean of EMScore's two matchings of words and frames", 1, _CLOSE),
    "attribute_precision": (
        "attribute precision",
        "per cent of what captions claim that is true of the picture",
        1,
        _TRUTH,
    ),
    "attribute_recall": ("attribute recall", "per cent of what is to be seen that captions name", 1, _TRUTH),
    "hallucination_rate": ("hallucination", "per cent of what captions claim that is not in the picture", -1, _TRUTH),
    "binding_error_rate": (
        "wrong bindings",
        "per cent of attributes that are there, but on another object",
        -1,
        _TRUTH,
    ),
    "scene_graph_f": (
        "scene graph, F",
        "objects, attributes and relations that caption and picture share, out of 100",
        1,
        _TRUTH,
    ),
    "bleu1": ("BLEU-1", "words shared with the references", 1, _CLOSE),
    "bleu2": ("BLEU-2", "word sequences, up to two long, shared with the references", 1, _CLOSE),
    "bleu3": ("BLEU-3", "word sequences, up to three long, shared with the references", 1, _CLOSE),
    "bleu4": ("BLEU-4", "word sequences, up to four long, shared with the references", 1, _CLOSE),
    "cider": ("CIDEr", "agreement with the references (CIDEr-D), rare words weighing more", 1, _CLOSE),
    "cider_plain": ("CIDEr, plain", "as CIDEr, without clipping and length penalty", 1, _CLOSE),
    "meteor": ("METEOR", "words matched with the references, stems and synonyms included", 1, _CLOSE),
    "rouge_l": ("ROUGE-L", "longest common word sequence with the references", 1, _CLOSE),
    "spice": ("SPICE", "objects, attributes and relations shared with the references", 1, _CLOSE),
    "spider": ("SPIDEr", "mean of SPICE and CIDEr-D", 1, _CLOSE),
    "bertscore_p": ("BERTScore, precision", "likeness of the caption's tokens to the references' nearest", 1, _CLOSE),
    "bertscore_r": ("BERTScore, recall", "likeness of the references' tokens to the caption's nearest", 1, _CLOSE),
    "bertscore_f": ("BERTScore, F1", "harmonic mean of BERTScore's two matchings of tokens", 1, _CLOSE),
    "repetition_rate": ("repetition", "per cent of words that repeat earlier words of the caption", -1, _LANGUAGE),
    "length": ("length", "words per caption", 0, _LANGUAGE),
    "lexical_diversity": ("lexical diversity", "distinct words in all captions together, in thousands", 1, _LANGUAGE),
    "div1": ("Div-1", "distinct words over all words in the captions of a picture", 1, _LANGUAGE),
    "div2": ("Div-2", "distinct pairs of words over all words in the captions of a picture", 1, _LANGUAGE),
    "mbleu": ("mBLEU", "BLEU-4 of each caption of a picture against its others", -1, _LANGUAGE),
    "ppl": ("perplexity", "how little a language model expects the caption: mean over captions", 0, _LANGUAGE),
    "ppl_corpus": ("perplexity, corpus", "how little a language model expects the words of all captions", 0, _LANGUAGE),
    "vocabulary": ("vocabulary", "distinct words that are used at least five times", 0, _LANGUAGE),
}
# What a recall is among, with the number of candidates where it is known.
_POOLS = {
    "lookalike": "{} look-alikes",
    "lookalikes": "{} look-alikes",
    "truematch": "{} TrueMatch look-alikes",
    "emscore": "all {} clips by EMScore’s F",
    "hard": "the {} pictures of the hard pool",
    "imagecode": "ImageCoDe’s {} frames",
}
_RETRIEVAL = re.compile(r"recall@\d|mean_rank\b|listener_accuracy")
_NAMED_SIZE = re.compile(r"recall@(\d+)\.(?:random|bag)(\d+)\b")
_KEY = re.compile(r"(?P<base>(?:recall@\d+|[^@.]+)(?:\.[^@]+)?)(?:@(?P<scorer>.+))?")
_RECALL = re.compile(r"recall@(?P<k>\d+)(?:\.(?P<pool>.+))?")


def size_text(candidates: Candidates) -> str:
    """As in ``10``, or ``7–10`` where sets differ in size."""
    fewest, most = candidates.fewest, candidates.most
    return f"{fewest:,}" if fewest == most else f"{fewest:,}–{most:,}"


def describe(key: str, candidates: Candidates | None = None, info: MetricInfo | None = None) -> Metric:
    """The metric behind a key such as ``recall@1.random100@held-out``; an unknown key is its own name.

    ``info``: what the results say of it; the table in this module serves results without it (of 0.1) and log files.
    ``candidates``: by default the number that the key names.
    """
    if candidates is None and (named := _NAMED_SIZE.match(key)):
        k, size = int(named[1]), int(named[2])
        candidates = Candidates(fewest=size, most=size, chance=100 * min(1.0, k / size))
    found = _KEY.fullmatch(key)
    base, scorer = (found["base"], found["scorer"] or "") if found else (key, "")
    if info is not None:
        direction = {"higher": 1, "lower": -1}.get(info.direction or "", 0)
        group = info.group if info.group in GROUPS else _OTHER
        return Metric(key, info.label, info.help, direction, group, scorer, candidates)
    best, base = base.endswith(ORACLE), base.removesuffix(ORACLE)
    name, explain, direction, group = _base(base, size_text(candidates) if candidates else "")
    if best:
        name, explain = f"{name}, best caption", f"{explain}; of the best of each picture's captions by it"
    if scorer:
        name = f"{name}, scorer “{scorer}”"
        explain = f"{explain}, by the scorer “{scorer}”"
    return Metric(key, name, explain, direction, group, scorer, candidates)


def metric_of(results: Results, key: str) -> Metric:
    """The metric of a key of these results."""
    return describe(key, results.candidates.get(key), results.metrics.get(key))


def arrange(metrics: Iterable[Metric]) -> list[Metric]:
    """The metrics in the order of the tables: by group, then as given, a held-out scorer's after the first scorer's."""
    metrics = list({metric.key: metric for metric in metrics}.values())
    seen: dict[str, int] = {}
    for metric in metrics:
        seen.setdefault(metric.base, len(seen))
    return sorted(metrics, key=lambda m: (GROUPS.index(m.group), seen[m.base], m.scorer))


def _among(pool: str, size: str) -> str:
    if random := re.fullmatch(r"random(\d+)(-shuffled)?", pool):
        return f"{random[1]} random pictures{', shuffled' if random[2] else ''}"
    if bag := re.fullmatch(r"bag(\d+)", pool):
        return f"the {bag[1]} pictures of a bag"
    return " ".join(_POOLS.get(pool, pool.replace("_", " ") or "the pool").format(size).split())


def _base(base: str, size: str = "") -> tuple[str, str, int, str]:
    if base.partition(".")[0] == "mean_rank":
        among = _among(base.partition(".")[2], size)
        return f"mean rank among {among}", "mean place of the picture among the candidates, from 1", -1, _APART
    if recall := _RECALL.fullmatch(base):
        k, pool = recall["k"], recall["pool"] or ""
        among = _among(pool, size)
        first = "first" if k == "1" else f"among the first {k}"
        explain = f"per cent of captions by which the scorer ranks their own picture {first} among {among}"
        return f"R@{k} among {among}", explain, 1, _APART
    if base in _KNOWN:
        return _KNOWN[base]
    return base.replace("_", " "), "no explanation is on file for this one", 0, _OTHER


def decimals(estimates: Iterable[Estimate | None], difference: Iterable[float | None] = ()) -> int:
    """Decimals that suit one metric's row, so that no bound of a difference is shown as a zero that it is not."""
    values = [x for e in estimates if e for x in (e.value, e.low, e.high) if x is not None]
    values = values or [x for x in difference if x is not None]
    if not values or all(x == int(x) for x in values):
        places = 0
    else:
        largest = max(map(abs, values))
        places = 0 if largest >= 1000 else 1 if largest >= 1 else 3
    for x in difference:
        while x and places < 4 and round(x, places) == 0:
            places += 1
    return places


def number(x: float | None, places: int, *, signed: bool = False) -> str:
    """``x`` for reading: a true minus sign, thousands apart, an en dash where there is none."""
    if x is None or x != x:
        return "–"
    text = f"{abs(x):,.{places}f}"
    negative = x < 0 and float(text.replace(",", "")) != 0
    return (MINUS if negative else "+" if signed else "") + text
