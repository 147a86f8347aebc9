"""What is measured of an arm: one function a measure, from what it wrote to a `Sample`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tellapart.claims.rule import Sample, corpus, ratio
from tellapart.errors import UsageError, nearest
from tellapart.types import Item

NEAR_ZERO = 10.0  # CIDEr in percent: what a reader of a table takes for "this caption is wrong"


@dataclass(frozen=True)
class Heard:
    """What one arm wrote about some pictures: ``lists`` has the captions of each; ``lab`` scores them."""

    pictures: str
    items: Sequence[Item]
    lists: Sequence[Sequence[str]]
    lab: Any
    model: str | None
    test: str = ""
    seed: int = 0

    @property
    def firsts(self) -> list[str]:
        return [texts[0] for texts in self.lists]

    @property
    def references(self) -> list[list[str]]:
        return [list(item.references) for item in self.items]

    @cached_property
    def judgements(self) -> list[Any]:
        from tellapart.scenes.truth import count_claims

        return [count_claims(text, item.truth) for text, item in zip(self.firsts, self.items, strict=True)]

    @cached_property
    def text_features(self) -> np.ndarray:
        """The scorer's view of the first captions, float32 [n, dimensions]."""
        return np.asarray(self.lab.scorer.text_features(self.firsts).cpu().numpy())

    def mean(self, value_N: Any) -> Sample:
        return ratio(self.pictures, value_N)


def length(heard: Heard) -> Sample:
    """Words in a caption."""
    from tellapart.metrics.lexical import length

    return heard.mean(length(heard.firsts)[1])


def distinct(heard: Heard) -> Sample:
    """Distinct words over all captions."""
    from tellapart.metrics.lexical import lexical_diversity_statistic

    in_thousands = lexical_diversity_statistic(heard.firsts)
    return corpus(heard.pictures, len(heard.items), lambda weight_N: 1000 * in_thousands(weight_N))


def vocabulary(heard: Heard) -> Sample:
    """Distinct words used at least five times."""
    from tellapart.metrics.lexical import vocabulary_statistic

    return corpus(heard.pictures, len(heard.items), vocabulary_statistic(heard.firsts))


def recall(heard: Heard) -> Sample:
    """R@1 in percent among consecutive hundreds, by the scorer that gives rewards."""
    return recall_among(heard, "random")


def recall_among(heard: Heard, among: str) -> Sample:
    return replace(heard.mean(100 * heard.lab.hits(heard, among)), setting=heard.lab.setting(heard, among))


def hard_recall(heard: Heard) -> Sample:
    """R@1 in percent among the ten pictures that look most alike to the scorer."""
    return recall_among(heard, "lookalikes")


def frame_recall(heard: Heard) -> Sample:
    """R@1 in percent among the frames of one clip, of which each is a picture."""
    return recall_among(heard, "frames")


def listener(heard: Heard) -> Sample:
    """Percent that the exact listener, which knows the truth and not the scorer, tells from their look-alikes."""
    from tellapart.scenes.truth import listener_accuracy

    families: dict[str, list[Any]] = {}
    for item in heard.items:
        families.setdefault(item.truth.look_alikes, []).append(item.truth)
    sets = [families[item.truth.look_alikes] for item in heard.items]
    targets = [members.index(item.truth) for members, item in zip(sets, heard.items, strict=True)]
    sizes = [len(own) for own in sets]
    told = setting(len(sets), sizes, float(np.mean([1 / size for size in sizes])))
    return replace(heard.mean(100 * listener_accuracy(heard.firsts, sets, targets)[1]), setting=told)


def setting(n: int, sizes: Sequence[int], chance: float) -> str:
    """What stands beside a recall: pictures asked for, the size of their sets, and a guess (0 to 1) in percent."""
    size = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,}–{max(sizes):,}"
    return f"n = {n:,}, {size} candidates, chance {100 * chance:.1f}"


def cider(heard: Heard) -> Sample:
    """CIDEr-D, as the COCO tools print it, in percent."""
    return heard.mean(cider_of(heard))


def cider_of(heard: Heard) -> np.ndarray:
    from tellapart.metrics.cider import cider_d

    return 100 * cider_d(heard.firsts, heard.references)[1]


def sampled_cider(heard: Heard) -> Sample:
    """Mean CIDEr-D of all captions of a picture, in percent."""
    from tellapart.metrics.cider import cider_d

    flat = [text for texts in heard.lists for text in texts]
    held = [own for own, texts in zip(heard.references, heard.lists, strict=True) for _ in texts]
    # Document frequencies count a picture once for each caption then, and so do the pictures: the same idf.
    value_R = 100 * cider_d(flat, held)[1]
    ends = np.cumsum([len(texts) for texts in heard.lists])[:-1]
    return heard.mean([part.mean() for part in np.split(value_R, ends)])


def near_zero(heard: Heard) -> Sample:
    """Percent of the captions without one false claim whose CIDEr is below ten."""
    right_N = np.array([j.claims > 0 and j.correct == j.claims for j in heard.judgements], dtype=float)
    return ratio(heard.pictures, 100 * right_N * (cider_of(heard) < NEAR_ZERO), right_N)


def precision(heard: Heard) -> Sample:
    """True claims of all claims, in percent."""
    return ratio(heard.pictures, *counts(heard, "correct"))


def hallucination(heard: Heard) -> Sample:
    """Claims about what is nowhere in the picture of all claims, in percent."""
    return ratio(heard.pictures, *counts(heard, "hallucinations"))


def counts(heard: Heard, what: str) -> tuple[np.ndarray, np.ndarray]:
    js = heard.judgements
    return np.array([100.0 * getattr(j, what) for j in js]), np.array([float(j.claims) for j in js])


def kept_out(heard: Heard) -> Sample:
    """Percent of the describer's errors that contradict references and are not in the caption (`tellapart.boost`)."""
    from tellapart.boost.faithful import describer_errors

    boosted = heard.lab.boosted(heard.test, heard.seed)
    found = [
        describer_errors({**texts, "holistic": caption}, item.references, item.truth)
        for texts, caption, item in zip(boosted, heard.firsts, heard.items, strict=True)
    ]
    kept_N, all_N = ([float(getattr(e, what)) for e in found] for what in ("kept_out", "contradicted"))
    return ratio(heard.pictures, 100 * np.array(kept_N), np.array(all_N))


def div1(heard: Heard) -> Sample:
    from tellapart.metrics.diversity import div1

    return heard.mean(100 * div1(heard.lists)[1])


def div2(heard: Heard) -> Sample:
    from tellapart.metrics.diversity import div2

    return heard.mean(100 * div2(heard.lists)[1])


def mbleu(heard: Heard) -> Sample:
    """Corpus mBLEU-4 in percent; higher is less diverse."""
    from tellapart.metrics.diversity import mbleu_counts, mbleu_of_counts

    share = mbleu_of_counts(list(mbleu_counts(heard.lists)))
    return corpus(heard.pictures, len(heard.items), lambda weight_N: 100 * share(weight_N))


def colours(heard: Heard) -> Sample:
    """Colour words of all words, in percent."""
    return share_of(heard, "colour")


def textures(heard: Heard) -> Sample:
    """Words for textures of all words, in percent."""
    return share_of(heard, "texture")


def generic(heard: Heard) -> Sample:
    """Nouns that fit any picture ("shape", "thing", "icon") of all words, in percent."""
    return share_of(heard, "")


def share_of(heard: Heard, slot: str) -> Sample:
    """A group's share of the words. Its association with a system (local mutual information, table 7 of paper 3) is
    positive exactly where this share is above that of all systems together, so shares are compared."""
    from tellapart.metrics.lexical import words
    from tellapart.scenes import vocabulary as v

    group = {word for row in (v.WORDS[slot], v.ALT_WORDS.get(slot, {})) for forms in row.values() for word in forms} \
        if slot else {*v.GENERIC, *v.ALT_GENERIC}  # fmt: skip
    group = {word.replace("-", "") for word in group}  # as `words` strips punctuation
    said = [words(text, lower=True) for text in heard.firsts]
    return ratio(
        heard.pictures,
        np.array([100.0 * sum(word in group for word in own) for own in said]),
        np.array([float(len(own)) for own in said]),
    )


def token_loss(objective: str, label: str) -> Callable[[Heard], Sample]:
    def measure(heard: Heard) -> Sample:
        from tellapart.claims.tokens import second_word_loss

        return heard.mean(second_word_loss(heard, objective, label))

    return measure


MEASURES: dict[str, Callable[[Heard], Sample]] = {
    "length": length,
    "distinct": distinct,
    "vocabulary": vocabulary,
    "r1": recall,
    "hard": hard_recall,
    "frames": frame_recall,
    "listener": listener,
    "cider": cider,
    "sampled-cider": sampled_cider,
    "near-zero": near_zero,
    "precision": precision,
    "hallucination": hallucination,
    "kept-out": kept_out,
    "div1": div1,
    "div2": div2,
    "mbleu": mbleu,
    "colours": colours,
    "textures": textures,
    "generic": generic,
    **{f"{o}-{label}": token_loss(o, label) for o in ("mle", "smile") for label in ("rich", "plain")},
}
OF_THE_MODEL = {"mle-rich", "mle-plain", "smile-rich", "smile-plain"}  # these read the model, and no captions


def measure(name: str, heard: Heard) -> Sample:
    if name not in MEASURES:
        raise UsageError(f"no measure is called '{name}'{nearest(name, MEASURES)}")
    return MEASURES[name](heard)
