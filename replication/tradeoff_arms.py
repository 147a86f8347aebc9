"""The measures, rule and arms of `replication.tradeoff`: self-distillation and its controls.

The rule was pre-registered before any verdict: each part's interval over seeds and pictures lies on the correct side.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from replication.arms import data, overlap, reward
from replication.bootstrap import Statistic, ratio_statistic
from replication.claim import Arm, Measurement, Part, greater
from replication.measures import measure
from replication.test_sets import ArmCaptions
from tellapart.models.decoding import Decoding
from tellapart.recipe.presets import PRESETS

STEPS = 70  # the demo's
PICTURES = 3000  # number of training pictures, without references; with fewer, each one is repeated too often
DETAIL_PICTURES = 6000  # steps of the captioner of all levels, as many as the captioners of one level take together
RETRIEVAL = {"kind": "self_retrieval"}
TOLERANCE = 2.0  # maximum loss of R@1 among look-alikes, in points
SHARE = 1 / 3  # fraction of self-retrieval's false claims that may remain
TEST_SET = "plain"
SPEAKERS = (
    0.002,
    0.005,
    0.010,
    0.015,
)  # weights on the start's likelihood of a caption, in addition to the recipe's own
# One captioner covers all levels, from 0 (says least) to 1, each with a prompt; the recipe's own level has none.
# After the last two prompts, the start says most (10 and 25 words, otherwise 3 to 6); other words would take more steps
# to distinguish.
LEVELS = (
    {"prompt": "little", "speaker": 0.02},
    {"prompt": "few", "speaker": 0.010},
    {"prompt": ""},
    {"prompt": "everything in this picture", "speaker": 0.005},
    {"prompt": "in this picture", "speaker": 0.002},
)
PLACES = tuple(place / (len(LEVELS) - 1) for place in range(len(LEVELS)))


@measure("bindings", "wrong bindings, % of bound claims", "lower")
def bindings(captions: ArmCaptions) -> Statistic:
    """Returns the percentage of claims about objects that are true only of another object."""
    counts = captions.claim_counts
    bound_N = np.array([float(c.bound) for c in counts])
    return ratio_statistic(captions.picture_key, 100.0 * np.array([c.binding_errors for c in counts]), bound_N)


@measure("repetitions", "captions with a repetition, %", "lower")
def repetitions(captions: ArmCaptions) -> Statistic:
    """Returns the percentage of captions with repetitions."""
    repeats_N = np.array([100.0 * (c.repetitions > 0) for c in captions.claim_counts])
    return ratio_statistic(captions.picture_key, repeats_N)


@measure("words", "words per caption")
def words_per_caption(captions: ArmCaptions) -> Statistic:
    """Returns the mean number of words per caption."""
    return ratio_statistic(captions.picture_key, np.array([float(len(t.split())) for t in captions.first_captions]))


MEASURED = ("hard", "listener", "hallucination", "bindings", "precision", "cider", "repetitions", "words")


DECODINGS = {
    "beams": Decoding(kind="beam", beams=3, max_tokens=40),
    "confident": Decoding(kind="beam", beams=3, max_tokens=40, confidence=0.4),
    "greedy": Decoding(kind="greedy", max_tokens=40),
    "best_of": Decoding(kind="sample", samples=10, max_tokens=40),  # reranked by the scorer
    "best_of3": Decoding(kind="sample", samples=3, max_tokens=40),
    "best_sure": Decoding(kind="sample", samples=24, temperature=0.35, max_tokens=40, confidence=0.75),
    "best_bold": Decoding(kind="sample", samples=24, temperature=0.5, max_tokens=40, confidence=0.4),
    "sure": Decoding(kind="beam", beams=3, max_tokens=40, confidence=0.7),
    "consensus": Decoding(kind="consensus", candidates=8, temperature=0.6, max_tokens=40),
}
# Additional rows of the table: an arm's captions with another arm's decoding.
DECODED_OTHERWISE = {
    "start_best_of": ("start", "best_of"),
    "sr_greedy": ("sr", "greedy"),
    "sr_confident": ("sr", "confident"),
    "truthful_beams": ("truthful", "beams"),
}
# Additional rows of `replication.front`, and self-retrieval decoded like our boldest row.
FRONT_DECODED = {
    "start_best_of3": ("start", "best_of3"),
    "start_consensus": ("start", "consensus"),
    "sr_best_of": ("sr", "best_bold"),
    **{f"detail{place:g}_sure": (f"detail{place:g}", "sure") for place in PLACES[:3]},
    **{f"detail{place:g}_best_of": (f"detail{place:g}", "best_sure") for place in PLACES[::2]},
    "detail1_bold": ("detail1", "best_bold"),
}
CURVE = tuple(f"speaker{factor}" for factor in SPEAKERS)
AT_PLACES = {f"detail{place:g}": f"detail={place:g}" for place in PLACES}  # rows of the captioner of all levels
CONFIDENT = ("truthful", "shuffled", "unselected", *CURVE, "detail", *AT_PLACES)
# The arms of the verdict on seeds 30 to 34. The others are settings that were tried, and curves of `replication.front`.
JUDGED = ["start", "sr", "truthful", "shuffled", "unselected", "length", "equal_kl", "sr_free", "sr_cider", "truth"]


def captions_of(row: str) -> tuple[str, str]:
    """Returns the arm and the decoding of a row."""
    otherwise = {**DECODED_OTHERWISE, **FRONT_DECODED}
    return otherwise.get(row, (row, "confident" if row in CONFIDENT else "beams"))


def of(row: str, name: str, factor: float = 1.0) -> Measurement:
    """Returns a measurement of a row's captions of the test pictures."""
    arm, decoding = captions_of(row)
    return Measurement(arm, name, TEST_SET, decoding, factor)


PARTS = (
    greater(
        "R@1 among look-alikes is no lower", of("truthful", "hard"), of("sr", "hard"),
        tolerance=TOLERANCE,
    ),
    greater(
        "at most a third of its hallucinations", of("sr", "hallucination", factor=SHARE),
        of("truthful", "hallucination"),
    ),
    greater(
        "at most a third of its wrong bindings", of("sr", "bindings", factor=SHARE),
        of("truthful", "bindings"),
    ),
    greater("higher CIDEr", of("truthful", "cider"), of("sr", "cider")),
    greater("higher exact listener's accuracy", of("truthful", "listener"), of("sr", "listener")),
    Part(
        "no more repetitions than the start",
        (of("truthful", "repetitions"), of("start", "repetitions", factor=-1.0)),
        lower=-math.inf, upper=0.1,
    ),
)  # fmt: skip
FURTHER_KL = (1.0, 0.1, 0.05)  # KL weights, in addition to 0.5 (equal_kl), 0.2 (sr) and 0 (sr_free)
RENTS = (0.1,)  # cost of each content word, in nats, without KL; `length` has 0.3 with KL
OVERLAPS = (1.0, 2.0)  # weights of CIDEr relative to self-retrieval, without KL
AGREEMENTS = (0.5, 2.0)  # weights of consensus relative to self-retrieval, without KL
UTILITIES = (4.0, 16.0)  # BalCapRL: the weight of utility relative to coverage and fluency
FIDELITIES = (0.5,)  # MOCHa: the share of fidelity in the reward


def agreement(weight: float) -> dict[str, Any]:
    """Returns a reward for words that the start's own samples agree on."""
    return {"kind": "consensus", "weight": weight, "decoding": {"kind": "sample", "samples": 8, "temperature": 0.6}}


def balanced(weight: float) -> dict[str, Any]:
    """Returns an arm after BalCapRL (Ye et al. 2026) with our parts: utility, coverage and fluency, each normalized
    (GDPO).

    Utility is self-retrieval (theirs: the number of correct statements according to a language model). Coverage is
    CIDEr. Fluency is the consensus of the start's samples; only captions with at most twice as many words as the
    references receive it (length-conditional masking). KL is as in ``sr``.
    """
    rewards = [{**RETRIEVAL, "weight": weight}, overlap(), {**agreement(1.0), "within": 2.0}]
    return {"rewards": rewards, "group_normalization": True, "baseline": "group_mean"}


def faithful(share: float) -> list[dict[str, Any]]:
    """Returns an arm after MOCHa (Ben-Kish et al. 2024) with our parts: fidelity and adequacy, with KL as in ``sr``.

    Fidelity is the consensus of the start's samples (theirs: an entailment model on the references). Adequacy is CIDEr.
    """
    return [agreement(share), overlap(1 - share)]


CONTROLS = {
    "shuffled": "self-distillation with believed words shuffled among words of the same kind",
    "unselected": "self-distillation with a random candidate instead of the scorer's choice",
    "length": "self-retrieval with a cost for each content word",
    "equal_kl": "self-retrieval with a stronger KL to its start",
}


def arms(start: str = "scenes", steps: int = STEPS) -> dict[str, Arm]:
    """Returns every arm by name. ``start``: the captioner that all arms start from."""

    def arm(name: str, *, turns: int = 1, pictures: int = PICTURES, **settings: Any) -> Arm:
        made = reward(name, steps=turns * steps, precision=None, pictures=data(n=pictures), **settings)
        return replace(made, table={key: part for key, part in (made.table or {}).items() if key != "captioner"})

    def truthful(name: str, *, turns: int = 1, pictures: int = PICTURES, **changes: Any) -> Arm:
        """Returns the preset's arm with more pictures per step, so that it reads as many captions as self-retrieval
        samples.
        """
        plain = arm(name, turns=turns, pictures=pictures)
        table: dict[str, Any] = {**(plain.table or {})}
        captions = table["training"]["batch_size"] * table["objective"]["decoding"]["samples"]
        table["objective"] = {**PRESETS["self-distillation"], **changes}
        table["training"] = {**table["training"], "batch_size": captions}
        return Arm(name, table, plain.start)

    def paid(**settings: Any) -> list[dict[str, Any]]:
        return [RETRIEVAL, {"kind": "paid_words", "worth": 0.0, **settings}]

    def truth(name: str, weight: float) -> Arm:
        return arm(name, rewards=[RETRIEVAL, {"kind": "exact_truth", "weight": weight}])

    every = [
        Arm("start", model=start),
        arm("sr"),
        truthful("truthful"),
        truthful("shuffled", shuffled_beliefs=True),
        truthful("unselected", select="random"),
        arm("length", rewards=paid(penalty=0.0, rent=0.3, baseline="none")),
        arm("equal_kl", kl=0.5),
        arm("sr_free", kl=0.0),
        arm("sr_cider", rewards=[RETRIEVAL, overlap(0.5)]),
        truth("truth", 0.5),
        truth("truth2", 2.0),
        arm("paid", rewards=paid(per="caption", penalty=0.3)),
        *(truthful(f"speaker{factor}", speaker=factor) for factor in SPEAKERS),
        truthful("detail", turns=len(LEVELS), pictures=DETAIL_PICTURES, detail=LEVELS),
        *(Arm(name, start="detail", options=options) for name, options in AT_PLACES.items()),
        *(arm(f"kl{weight:g}", kl=weight) for weight in FURTHER_KL),
        *(arm(f"length{cost:g}", kl=0.0, rewards=paid(penalty=0.0, rent=cost, baseline="none")) for cost in RENTS),
        *(arm(f"cider{weight:g}", kl=0.0, rewards=[RETRIEVAL, overlap(weight)]) for weight in OVERLAPS),
        *(arm(f"consensus{weight:g}", rewards=[RETRIEVAL, agreement(weight)], kl=0.0) for weight in AGREEMENTS),
        *(arm(f"balcap{weight:g}", **balanced(weight)) for weight in UTILITIES),
        *(arm(f"mocha{share:g}", rewards=faithful(share)) for share in FIDELITIES),
    ]
    return {one.name: one for one in every}
