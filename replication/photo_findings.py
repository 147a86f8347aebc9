"""``replication photos --findings``: the papers' central findings on Flickr8k photos, with pretrained encoders.

All arms with the same seed start from one captioner that was trained by maximum likelihood. The reward scorer and the
held-out evaluation scorer are shared with `replication.photos` and are the same for all seeds. Claims, rule, power and
verdict follow `replication.claim` and the related modules. Settings were chosen on seeds 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from replication import cores
from replication.claim import Arm, Claim, Control, Measurement, Part, about_equal, greater
from replication.lab import JOINED, Lab
from replication.photos import Job, train_jobs
from replication.power import ClaimPower
from replication.replay import ClaimResult, replay, select_claims
from replication.seeds import VERDICTS, Seeds
from replication.verdict import RECORDS as CLAIMS_RECORDS
from replication.verdict import claims_power, claims_verdict, to_json
from tellapart.models.decoding import Decoding
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.utils.recipe_names import fill_in

COMMAND = "photos"  # command whose seeds the verdict uses
LISTED_BY = "photos --findings"
SCORER, JUDGE = "photos_scorer", "photos_judge"  # reward scorer; held-out scorer
FOLDER, RECORDS = Path("runs") / "photo-findings", CLAIMS_RECORDS / "photos"
PHOTOS = "flickr8k:$TELLAPART_DATA/flickr8k?split="
DECODINGS = {
    "beams": Decoding(kind="beam", beams=3, max_tokens=25),
    "long": Decoding(kind="beam", beams=3, max_tokens=40),  # for longer captions
    "samples": Decoding(kind="sample", samples=5, max_tokens=25),
}
UNSEEN, ALL = "train&part=6/6", "train"  # the reward scorer has never seen the photos of UNSEEN
NEW = {
    "kind": "clipcap", "vision": "efficientnet-lite0", "visual": "cells", "mapper": "linear", "width": 256,
    "layers": 3, "heads": 4, "dropout": 0.2, "min_count": 4,
}  # fmt: skip
SAMPLES = {"kind": "sample", "temperature": 0.5, "samples": 4, "max_tokens": 25}
RETRIEVAL = {"kind": "self_retrieval"}


def arm(name: str, objective: Mapping[str, Any], start: str | None = "start", data: str = ALL, **training: Any) -> Arm:
    """Returns an arm on photos. Validation uses few photos, because it selects nothing. The last weights count."""
    captioner = training.pop("captioner", {})
    bags = training.pop("bags", None)
    table = {
        "data": {"train": fill_in(PHOTOS + data), "validation": fill_in(f"{PHOTOS}validation")},
        "captioner": dict(captioner),
        "objective": dict(objective),
        "training": {"checkpoint_every": max(20, training["steps"]), **training},
        "validation": {
            "every": training["steps"], "limit": 100, "select": "step", "decoding": {"kind": "greedy", "max_tokens": 25}
        },
    }  # fmt: skip
    if objective["kind"] == "reinforce":
        table["scorer"] = {"name": str(find_recipe(SCORER))}
    if bags is not None:
        table |= {"bags": dict(bags)}
        table["training"]["batches"] = "bags"
    return Arm(name, table, start)


def supervised(name: str, objective: Mapping[str, Any], start: str | None = "start", **settings: Any) -> Arm:
    """Returns an arm trained with MLE or SMILE."""
    usual = {"batch_size": 32, "captions_per_picture": 3, "schedule": "cosine", "weight_decay": 0.05}
    usual["precision"] = "auto"
    return arm(name, objective, start, **{**usual, **settings})


def reward(name: str, start: str = "start", *, steps: int = 160, rate: float = 2e-4, data: str = UNSEEN,
           bags: Mapping[str, Any] | None = None, batch: int = 48, **objective: Any) -> Arm:  # fmt: skip
    """Returns a policy-gradient arm: self-retrieval on photos that the scorer has never seen, plus overrides."""
    defaults = {
        "kind": "reinforce", "decoding": SAMPLES, "baseline": "leave_one_out", "length_normalization": "length",
        "kl": 0.05, "kl_temperature": 1.0,
    }  # fmt: skip
    settings = {"batch_size": batch, "optimizer": "adam", "schedule": "linear", "warmup": 5, "precision": "auto"}
    table = {**defaults, **objective}
    if not table["kl"]:
        del table["kl_temperature"]
    return arm(name, table, start, data, captioner={"dropout": 0.0}, bags=bags, steps=steps, learning_rate=rate,
               **settings)  # fmt: skip


MLE = {"kind": "mle", "label_smoothing": 0.1}

START: dict[str, Any] = {"batch_size": 64, "captions_per_picture": 2, "learning_rate": 1e-3, "captioner": {"new": NEW}}
SMILE = {"kind": "smile", "mle_weight": 0.2}
SHORT: dict[str, Any] = {"steps": 80, "learning_rate": 1e-4}
FROM_WEAK: dict[str, Any] = {"steps": 200, "learning_rate": 5e-4}
BASELINE: dict[str, Any] = {"rate": 3e-5, "kl": 0.0}  # one caption per photo, as in paper 3's comparison of baselines
GREEDY, BEAM = {"kind": "greedy", "max_tokens": 25}, {"kind": "beam", "beams": 3, "max_tokens": 25}
SELF_CRITICAL: dict[str, Any] = {  # with a higher rate or lower temperature, the reward falls after 60 steps
    "decoding": {"kind": "sample", "samples": 5, "temperature": 1.0, "max_tokens": 25}, "baseline": "leave_one_out",
    "length_normalization": "none", "kl": 0.0, "rewards": [{"kind": "cider"}], "data": ALL, "steps": 240, "rate": 4e-5,
}  # fmt: skip
EXPLORATION: dict[str, Any] = {"exploration": {"alpha": 0.85, "distance": "bleu", "baseline": "matching"}}
ALIKE: dict[str, Any] = {"kind": "hard", "hard": 32, "neighbours": 200}  # adds each photo's own look-alikes


def arms() -> dict[str, Arm]:
    """Returns every arm by name. An arm that starts from another one is trained after it."""
    every = (
        *(Arm(f"person{n}", reference=n) for n in range(5)),
        supervised("start", MLE, None, steps=1200, warmup=100, **START),
        supervised("more", MLE, **SHORT),
        supervised("weak", MLE, None, steps=30, warmup=10, **START),
        supervised("weak_more", MLE, "weak", **FROM_WEAK),
        # Paper 1
        supervised("smile", SMILE, **SHORT),
        supervised("smile_weak", SMILE, "weak", **FROM_WEAK),
        # Paper 2
        replace(supervised("rich", MLE, steps=200, learning_rate=3e-4), boosted=JOINED),
        reward("sr_rich", "rich"),
        reward("sr_bags", bags=ALIKE),
        reward("sr_cider", rewards=[RETRIEVAL, {"kind": "cider", "weight": 1.0}]),
        # Paper 3
        reward("sr"),
        reward("sr_greedy", baseline="greedy", decoding=BEAM, **BASELINE),
        reward("sr_running", baseline="running_mean", decoding=GREEDY, **BASELINE),
        reward("sr_unbased", baseline="none", decoding=GREEDY, **BASELINE),
        # Paper 4
        reward("sll", **SELF_CRITICAL),
        reward("sll_sle", **SELF_CRITICAL, **EXPLORATION),
    )  # fmt: skip
    return {one.name: one for one in every}


def of(arm: str, measure: str, decoding: str = "beams", factor: float = 1.0) -> Measurement:
    return Measurement(arm, measure, "photos", decoding, factor)


def recall(arm: str, decoding: str = "beams", factor: float = 1.0) -> Measurement:
    return of(arm, "r1", decoding, factor)


def cider(arm: str, decoding: str = "beams") -> Measurement:
    return of(arm, "cider", decoding)


def sampled(arm: str, measure: str) -> Measurement:
    """Returns a measurement of five sampled captions, as in paper 4, table 4."""
    return of(arm, measure, "samples")


PEOPLE = tuple(recall(f"person{n}", factor=-0.2) for n in range(5))  # the mean of the five references
MORE = "replaced by more MLE"
CLAIMS = (
    Claim(
        "photo-smile-length", 1, "Table 1", "SMILE's captions are longer than its start's, with more distinct words",
        "words 10.0 → 22.3 on COCO, 11.6 → 23.2 on Flickr30k; distinct words 1.4k → 4.5k",
        (
            greater("words over 1.1 times the start's", of("smile", "length", "long"), of("start", "length"),
                    factor=1.1, effect=0.5, paper=(22.3, 10.0)),
            greater("distinct words gained", of("smile", "distinct", "long"), of("start", "distinct"), effect=20.0,
                    paper=(4500.0, 1400.0)),
        ),
        Control(f"SMILE {MORE}", {"smile": "more"}),
    ),
    Claim(
        "photo-smile-recall", 1, "Table 1", "SMILE's captions find their photo more often than those of its start",
        "R@1 6.7 → 10.0 on COCO",
        (greater("R@1 gained", recall("smile", "long"), recall("start"), effect=3.0, paper=(10.0, 6.7)),),
        Control(f"SMILE {MORE}", {"smile": "more"}),
    ),
    Claim(
        "photo-smile-init", 1, "Table 3", "SMILE does nothing good for a captioner that cannot caption",
        "R@1 from scratch 1.9 → 0.7, where MLE then has 6.5",
        (
            greater("R@1, more MLE over SMILE from a weak start", recall("weak_more"), recall("smile_weak", "long"),
                    effect=5.0, paper=(6.5, 0.7)),
        ),
        Control("more MLE replaced by none", {"weak_more": "weak"}),
    ),
    Claim(
        "photo-sr-rich", 2, "Table 3", "the richer the captions that MLE learned, the better self-retrieval from there",
        "after SR-L, TrueMatch #7 R@1: plain 38.4, holistic 46.5",
        (greater("R@1 among look-alikes, rich start over plain", of("sr_rich", "hard", "long"), of("sr", "hard"),
                 effect=3.0, paper=(46.5, 38.4)),),
        Control(f"self-retrieval from the rich start {MORE}", {"sr_rich": "more"}),
    ),
    Claim(
        "photo-bags", 2, "Tables 5, 10", "look-alikes as distractors beat random ones on look-alikes",
        "TrueMatch #7 51.2 → 57.1 from the rich start",
        (greater("R@1 among look-alikes, look-alikes over random", of("sr_bags", "hard"), of("sr", "hard"), effect=2.0,
                 paper=(57.1, 51.2)),),
        Control(f"self-retrieval among look-alikes {MORE}", {"sr_bags": "more"}),
    ),
    Claim(
        "photo-cider", 2, "Table 7", "CIDEr beside self-retrieval keeps CIDEr, and R@1 still rises",
        "CIDEr / RD100: MLE 26.6 / 84.7, SR 29.7 / 91.3, both 38.0 / 92.6",
        (
            greater("CIDEr, both over self-retrieval alone", cider("sr_cider"), cider("sr"), effect=3.0,
                    paper=(38.0, 29.7)),
            greater("R@1, both over the start", recall("sr_cider"), recall("start"), effect=3.0, paper=(92.6, 84.7)),
        ),
        Control(f"both {MORE}", {"sr_cider": "more"}),
    ),
    Claim(
        "photo-sr-gain", 3, "Table 1", "discriminative fine-tuning finds the photo more often than its start",
        "P@1 65.9 → 79.4 on Flickr30k, 74.2 → 84.8 on COCO",
        (greater("R@1 gained", recall("sr"), recall("start"), effect=5.0, paper=(79.4, 65.9)),),
        Control(f"self-retrieval {MORE}", {"sr": "more"}),
    ),
    Claim(
        "photo-sr-people", 3, "Table 1", "and more often than people's captions, by a scorer that gave no reward",
        "P@1 on COCO 84.8, references 76.3",
        (
            Part("R@1 over people's", (recall("sr"), *PEOPLE), effect=3.0),
        ),
        Control(f"self-retrieval {MORE}", {"sr": "more"}),
    ),
    Claim(
        "photo-baseline", 3, "Table 8", "without a baseline self-retrieval is worse",
        "P@1: none 34.3, greedy 97.4, running mean 97.8",
        (
            greater("R@1, greedy over none", recall("sr_greedy"), recall("sr_unbased"), effect=5.0,
                    paper=(97.4, 34.3)),
            greater("R@1, running mean over none", recall("sr_running"), recall("sr_unbased"), effect=5.0,
                    paper=(97.8, 34.3)),
        ),
        Control(f"self-retrieval without a baseline {MORE}", {"sr_unbased": "sr"}),
    ),
    Claim(
        "photo-exploration", 4, "Table 4", "exploration keeps samples diverse at the CIDEr of plain CIDEr training",
        "CIDEr, Div-1, mBLEU: SLL 114.6, 0.25, 0.81; SLL-SLE 115.9, 0.29, 0.68",
        (
            about_equal("CIDEr of samples changed by exploration, within 3", sampled("sll_sle", "sampled-cider"),
                        sampled("sll", "sampled-cider"), 3.0, paper=(115.9, 114.6)),
            greater("Div-1 gained by exploration", sampled("sll_sle", "div1"), sampled("sll", "div1"), effect=1.5,
                    paper=(29.0, 25.0)),
            greater("mBLEU lost by exploration", sampled("sll", "mbleu"), sampled("sll_sle", "mbleu"), effect=2.0,
                    paper=(81.0, 68.0)),
        ),
        Control(f"exploration {MORE}", {"sll_sle": "more"}),
    ),
)  # fmt: skip


def make_lab(settings: Sequence[str] = ()) -> Lab:
    """Creates the lab of these arms. The held-out scorer evaluates on all photos that no arm was trained on.

    settings: recipe keys for all arms, in the format of ``--set``.
    """
    held_out = {"photos": fill_in(f"{PHOTOS}test,validation")}
    return Lab(FOLDER, arms(), held_out, DECODINGS, str(find_recipe(JUDGE)), settings)


def run_findings(ids: Sequence[str], seeds: Sequence[int], settings: Sequence[str] = ()) -> list[ClaimResult]:
    """Runs the findings with these ids (default: all) on these seeds. Trains scorers first, then arms, on all cores.

    Raises `UsageError` if an id is unknown. Trained models are reused.
    """
    claims, workers = select_claims(ids, CLAIMS, LISTED_BY), cores()
    train_jobs([Job(name, evaluate=False) for name in (SCORER, JUDGE)], workers)
    return replay(claims, make_lab(settings), seeds, workers=workers)


def findings_power(
    ids: Sequence[str], seeds: Seeds, settings: Sequence[str] = ()
) -> tuple[list[ClaimPower], dict[str, Any]]:
    """Computes the power of these findings (default: all) with the verdict's number of seeds, and the record of it.

    Stores the record for the verdict if it covers all rows. Raises `UsageError` if an arm of these seeds is not
    trained.
    """
    claims = select_claims(ids, CLAIMS, LISTED_BY)
    return claims_power(claims, make_lab(settings), seeds, RECORDS, COMMAND, keep=len(claims) == len(CLAIMS))


def findings_verdict(settings: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the verdict on all findings, given once per settings after the power is stored (see `claims_verdict`)."""

    def run() -> dict[str, Any]:
        return to_json(run_findings((), VERDICTS[COMMAND], settings))

    return claims_verdict(CLAIMS, make_lab(settings), run, RECORDS, COMMAND)
