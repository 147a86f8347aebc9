"""The measures of an arm's captions, in one registry that serves the claims and paper 2's tables.

A measure is a function that maps `ArmCaptions` to a `Statistic`. Its entry has a name, a label for tables and pages,
and a direction. ``needs``: "model" (it runs the captioner and reads no captions) or "samples" (it reads several
captions per picture).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from replication.bootstrap import Statistic, ratio_statistic, weighted_statistic
from replication.test_sets import ArmCaptions, describe_setting
from tellapart.scenes.world import Scene
from tellapart.utils.registry import Direction, Entry, Registry

CIDER_NEAR_ZERO = 10.0  # CIDEr in percent below which readers of a table take a caption for wrong
BAG_SIZES = (3, 5, 7)

MeasureFunction = Callable[[ArmCaptions], Statistic]
MEASURES: Registry[Entry[MeasureFunction]] = Registry("measure", Entry)


def measure(
    name: str, label: str, direction: Direction | None = None, needs: tuple[str, ...] = ()
) -> Callable[[MeasureFunction], MeasureFunction]:
    """Registers a function as a measure."""

    def register(function: MeasureFunction) -> MeasureFunction:
        help = (function.__doc__ or label).partition("\n")[0]
        MEASURES.register(Entry(name=name, factory=function, help=help, label=label, direction=direction, needs=needs))
        return function

    return register


def _mean(captions: ArmCaptions, value_N: Sequence[float] | np.ndarray) -> Statistic:
    return ratio_statistic(captions.picture_key, value_N)


# Words


@measure("length", "words in a caption")
def length(captions: ArmCaptions) -> Statistic:
    """Number of words in a caption."""
    from tellapart.metrics.lexical import length

    return _mean(captions, length(captions.first_captions)[1])


@measure("distinct", "distinct words", "higher")
def distinct(captions: ArmCaptions) -> Statistic:
    """Number of distinct words over all captions."""
    from tellapart.metrics.lexical import words_used

    return weighted_statistic(captions.picture_key, len(captions.items), words_used(captions.first_captions))


@measure("vocabulary", "distinct words used at least 5 times", "higher")
def vocabulary(captions: ArmCaptions) -> Statistic:
    """Number of distinct words that are used at least five times."""
    from tellapart.metrics.lexical import FREQUENT, words_used

    used = words_used(captions.first_captions, FREQUENT, lower=True)
    return weighted_statistic(captions.picture_key, len(captions.items), used)


def share_of_words(captions: ArmCaptions, slot: str) -> Statistic:
    """The words of a group as a percentage of all words. An empty ``slot`` means generic nouns.

    A group's association with a system (local mutual information, table 7 of paper 3) is positive exactly if this share
    exceeds that of all systems together, so claims compare shares.
    """
    from tellapart.metrics.lexical import words
    from tellapart.scenes import vocabulary as v

    if slot:
        tables = (v.WORDS[slot], v.ALT_WORDS.get(slot, {}))
        group = {word for table in tables for synonyms in table.values() for word in synonyms}
    else:
        group = {*v.GENERIC, *v.ALT_GENERIC}
    group = {word.replace("-", "") for word in group}  # `words` strips punctuation
    tokens = [words(text, lower=True) for text in captions.first_captions]
    return ratio_statistic(
        captions.picture_key,
        np.array([100.0 * sum(word in group for word in row) for row in tokens]),
        np.array([float(len(row)) for row in tokens]),
    )


@measure("colours", "colour words, % of words")
def colours(captions: ArmCaptions) -> Statistic:
    """Colour words as a percentage of all words."""
    return share_of_words(captions, "colour")


@measure("textures", "texture words, % of words")
def textures(captions: ArmCaptions) -> Statistic:
    """Texture words as a percentage of all words."""
    return share_of_words(captions, "texture")


@measure("generic", "generic nouns, % of words")
def generic(captions: ArmCaptions) -> Statistic:
    """Nouns that fit any picture ("shape", "thing", "icon") as a percentage of all words."""
    return share_of_words(captions, "")


# Retrieval


def recall_at_1(captions: ArmCaptions, candidates: str) -> Statistic:
    """R@1 in percent by the reward scorer; see `TestSets.candidate_sets`."""
    test_sets = captions.test_sets
    statistic = _mean(captions, 100 * test_sets.hits_at_1(captions, candidates))
    return replace(statistic, setting=test_sets.recall_setting(captions, candidates))


@measure("r1", "RD100 R@1", "higher")
def recall(captions: ArmCaptions) -> Statistic:
    """R@1 in percent among consecutive blocks of 100."""
    return recall_at_1(captions, "random")


@measure("hard", "R@1 among look-alikes", "higher")
def hard_recall(captions: ArmCaptions) -> Statistic:
    """R@1 in percent among a picture and its nine nearest ones by the scorer's features."""
    return recall_at_1(captions, "lookalikes")


@measure("frames", "R@1 among frames", "higher")
def frame_recall(captions: ArmCaptions) -> Statistic:
    """R@1 in percent among the frames of one clip, each of which is a picture."""
    return recall_at_1(captions, "frames")


def _bag_recall(size: int) -> MeasureFunction:
    def bag_recall(captions: ArmCaptions) -> Statistic:
        return recall_at_1(captions, f"bag{size}")

    bag_recall.__doc__ = f"R@1 in percent in bags of {size} look-alikes by algorithms 1 and 2 of paper 2."
    return bag_recall


for _size in BAG_SIZES:
    measure(f"bag{_size}", "TrueMatch #3" if _size == 3 else f"#{_size}", "higher")(_bag_recall(_size))


@measure("clipscore", "ClipScore", "higher")
def clipscore(captions: ArmCaptions) -> Statistic:
    """100 · cosine, as in paper 2: without the factor of 2.5 and the prefix."""
    return _mean(captions, 100 * captions.test_sets.cosines(captions))


@measure("listener", "exact listener's accuracy", "higher")
def listener(captions: ArmCaptions) -> Statistic:
    """Percentage of pictures that an exact listener (it knows the ground truth) picks in their family."""
    from tellapart.scenes.listener import listener_accuracy

    families: dict[str, list[Scene]] = {}
    for item in captions.items:
        families.setdefault(item.truth.look_alikes, []).append(item.truth)
    sets = [families[item.truth.look_alikes] for item in captions.items]
    targets = [members.index(item.truth) for members, item in zip(sets, captions.items, strict=True)]
    sizes = [len(members) for members in sets]
    setting = describe_setting(len(sets), sizes, float(np.mean([1 / size for size in sizes])))
    accuracy_N = listener_accuracy(captions.first_captions, sets, targets)[1]
    return replace(_mean(captions, 100 * accuracy_N), setting=setting)


# Overlap with references


@measure("bleu4", "BLEU-4", "higher")
def bleu4(captions: ArmCaptions) -> Statistic:
    """Corpus BLEU-4 in percent."""
    from tellapart.metrics.bleu_score import bleu_of, bleu_stats
    from tellapart.metrics.corpus_scores import Sums

    bleu = Sums(bleu_stats(captions.first_captions, captions.references), bleu_of)
    return Statistic(captions.picture_key, len(captions.items), lambda weight_RN: 100 * bleu(weight_RN))


@measure("cider", "CIDEr", "higher")
def cider(captions: ArmCaptions) -> Statistic:
    """CIDEr-D in percent, as the COCO tools print it."""
    return _mean(captions, _cider_per_caption(captions))


def _cider_per_caption(captions: ArmCaptions) -> np.ndarray:
    from tellapart.metrics.cider import cider_d

    return 100 * cider_d(captions.first_captions, captions.references)[1]


@measure("sampled-cider", "mean CIDEr of samples", "higher", needs=("samples",))
def sampled_cider(captions: ArmCaptions) -> Statistic:
    """CIDEr-D in percent, averaged over all captions of a picture."""
    from tellapart.metrics.cider import cider_d

    texts = [text for row in captions.captions for text in row]
    references = [own for own, row in zip(captions.references, captions.captions, strict=True) for _ in row]
    # A picture counts once per caption both in document frequencies and in the number of documents, so idf is
    # unchanged.
    value_R = 100 * cider_d(texts, references)[1]
    ends = np.cumsum([len(row) for row in captions.captions])[:-1]
    return _mean(captions, [float(part.mean()) for part in np.split(value_R, ends)])


@measure("near-zero", "correct captions with CIDEr below 10, %", "lower")
def near_zero(captions: ArmCaptions) -> Statistic:
    """Percentage of captions without a false claim whose CIDEr is below ten."""
    correct_N = np.array([c.claims > 0 and c.correct == c.claims for c in captions.claim_counts], dtype=float)
    near_zero_N = _cider_per_caption(captions) < CIDER_NEAR_ZERO
    return ratio_statistic(captions.picture_key, 100 * correct_N * near_zero_N, correct_N)


# Truth


@measure("precision", "true claims, %", "higher")
def precision(captions: ArmCaptions) -> Statistic:
    """True claims as a percentage of all claims."""
    return _share_of_claims(captions, [c.correct for c in captions.claim_counts])


@measure("hallucination", "hallucinations, % of claims", "lower")
def hallucination(captions: ArmCaptions) -> Statistic:
    """Claims whose value is nowhere in the picture, as a percentage of all claims."""
    return _share_of_claims(captions, [c.hallucinations for c in captions.claim_counts])


def _share_of_claims(captions: ArmCaptions, count_N: Sequence[int]) -> Statistic:
    claims_N = np.array([float(c.claims) for c in captions.claim_counts])
    return ratio_statistic(captions.picture_key, 100.0 * np.array(count_N), claims_N)


@measure("facts", "claims that a reference makes, %", "higher")
def facts(captions: ArmCaptions) -> Statistic:
    """Claims that a reference of the picture makes, as a percentage of all claims (``facts_precision``)."""
    from tellapart.evaluation.facts.by_references import verify_references

    pairs = zip(captions.first_captions, captions.references, strict=True)
    counts_N4 = np.array([verify_references(caption, references).counts() for caption, references in pairs], float)
    return ratio_statistic(captions.picture_key, 100 * counts_N4[:, 0], counts_N4[:, 1])


@measure("kept-out", "describer's errors kept out, %", "higher")
def kept_out(captions: ArmCaptions) -> Statistic:
    """Percentage of the describer's errors that contradict references and are not in the caption."""
    from tellapart.boost.describer_errors import describer_errors

    boosted = captions.test_sets.boosted(captions.test_set, captions.seed)
    errors = [
        describer_errors({**texts, "holistic": caption}, item.references, item.truth)
        for texts, caption, item in zip(boosted, captions.first_captions, captions.items, strict=True)
    ]
    kept_N = np.array([float(e.kept_out) for e in errors])
    return ratio_statistic(captions.picture_key, 100 * kept_N, [float(e.contradicted) for e in errors])


# Diversity of samples


@measure("div1", "Div-1", "higher", needs=("samples",))
def div1(captions: ArmCaptions) -> Statistic:
    """Distinct words / all words of a picture's captions, in percent."""
    from tellapart.metrics.diversity import div1

    return _mean(captions, 100 * div1(captions.captions)[1])


@measure("div2", "Div-2", "higher", needs=("samples",))
def div2(captions: ArmCaptions) -> Statistic:
    """Distinct bigrams / all words of a picture's captions, in percent."""
    from tellapart.metrics.diversity import div2

    return _mean(captions, 100 * div2(captions.captions)[1])


@measure("mbleu", "mBLEU-4", "lower", needs=("samples",))
def mbleu(captions: ArmCaptions) -> Statistic:
    """Corpus mBLEU-4 in percent; higher is less diverse."""
    from tellapart.metrics.corpus_scores import Sums
    from tellapart.metrics.diversity import mbleu_of, mbleu_stats

    share = Sums(mbleu_stats(captions.captions), mbleu_of)
    return weighted_statistic(captions.picture_key, len(captions.items), lambda weight_N: 100 * float(share(weight_N)))


# The captioner's own losses


def _token_loss(objective: str, label: str) -> MeasureFunction:
    def token_loss(captions: ArmCaptions) -> Statistic:
        from replication.tokens import second_word_loss

        return _mean(captions, second_word_loss(captions, objective, label))

    token_loss.__doc__ = f"{objective.upper()} loss in nats of the word that differs, where the label is {label}."
    return token_loss


for _objective in ("mle", "smile"):
    for _label in ("rich", "plain"):
        measure(
            f"{_objective}-{_label}", f"{_objective.upper()} loss of a {_label} label, nats", "lower", needs=("model",)
        )(_token_loss(_objective, _label))
