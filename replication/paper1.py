"""Paper 1, SMILE (Yue et al. 2023): its findings."""

from __future__ import annotations

import math

from replication.claim import Claim, Control, Measurement, Part, about_equal, greater

MLE = Control("SMILE replaced by more MLE", {"smile": "mle_more"})


def length(arm: str) -> Measurement:
    return Measurement(arm, "length")


def recall(arm: str, test_set: str = "plain") -> Measurement:
    return Measurement(arm, "r1", test_set)


def minus(measurement: Measurement) -> Measurement:
    return Measurement(
        measurement.arm, measurement.measure, measurement.test_set, measurement.decoding, -measurement.factor
    )


def of_clips(arm: str, measure: str) -> Measurement:
    return Measurement(arm, measure, "clips", "clip")


CLAIMS = (
    Claim(
        "smile-length",
        1,
        "Table 1",
        "SMILE: captions at least 1.7 times as long, with more distinct words and higher R@1; precision falls slightly",
        "length 10.0 → 22.3 on COCO, 11.6 → 23.2 on Flickr30k; words 1.4k → 4.5k; R@1 6.7 → 10.0",
        (
            greater(
                "length over 1.7 times the start's",
                length("smile"),
                length("start"),
                factor=1.7,
                effect=1.5,
                paper=(22.3, 10.0),
            ),
            greater(
                "distinct words gained",
                Measurement("smile", "distinct"),
                Measurement("start", "distinct"),
                effect=20.0,
                paper=(4500.0, 1400.0),
            ),
            greater("R@1 gained", recall("smile"), recall("start"), effect=20.0, paper=(10.0, 6.7)),
            Part(
                "precision lost, between 0 and 15 points",
                (Measurement("start", "precision"), Measurement("smile", "precision", factor=-1.0)),
                0.0,
                15.0,
            ),
        ),
        MLE,
    ),
    Claim(
        "smile-init",
        1,
        "Table 3",
        "SMILE helps a trained captioner, not one from scratch; more MLE alone changes nothing",
        "R@1: fine-tuned 6.7 → 10.0 (more MLE 6.5); from scratch 1.9 → 0.7",
        (
            greater(
                "R@1 gained by a trained captioner",
                recall("smile"),
                recall("start"),
                margin=2.0,
                effect=20.0,
                paper=(10.0, 6.7),
            ),
            Part(
                "R@1 gained by one from scratch, below 2",
                (recall("smile_scratch"), minus(recall("scratch"))),
                -math.inf,
                2.0,
                effect=1.0,
                paper=(0.7, 1.9),
            ),
            about_equal(
                "length changed by more MLE, within 1 word",
                length("mle_more"),
                length("start"),
                1.0,
                paper=(10.0, 10.0),
            ),
            about_equal(
                "R@1 changed by more MLE, within 4 points", recall("mle_more"), recall("start"), 4.0, paper=(6.5, 6.7)
            ),
        ),
        Control(
            "SMILE replaced by more MLE, of both captioners", {"smile": "mle_more", "smile_scratch": "scratch_more"}
        ),
    ),
    Claim(
        "smile-first-token",
        1,
        "Table 4",
        "R@1 is lower where the first token is not restricted; shifting it, or MLE on it, restores R@1",
        "R@1: none 6.8, shifting 9.6, first-token MLE 10.0",
        (
            greater(
                "R@1, first-token MLE over none",
                recall("smile_long"),
                recall("smile_none"),
                effect=20.0,
                paper=(10.0, 6.8),
            ),
            greater(
                "R@1, shifting over none", recall("smile_shift"), recall("smile_none"), effect=8.0, paper=(9.6, 6.8)
            ),
        ),
        Control(
            "first-token MLE and shifting replaced by more MLE", {"smile_long": "mle_long", "smile_shift": "mle_long"}
        ),
    ),
    Claim(
        "smile-mix",
        1,
        "Table 5",
        "captions grow longer as λ falls; a small λ gives the best R@1",
        "λ 1, 0.5, 0.1, 0.05, 0.01, 0: length 10.0, 10.8, 12.6, 14.7, 19.8, 22.3; R@1 6.7, 6.7, 7.6, 8.7, 10.9, 10.0",
        (
            greater("length, λ 0.5 over 1", length("mix_half"), length("mix_one"), effect=2.0, paper=(10.8, 10.0)),
            greater("length, λ 0.1 over 0.5", length("mix_tenth"), length("mix_half"), effect=1.0, paper=(12.6, 10.8)),
            greater("length, λ 0.02 over 0.1", length("mix_fiftieth"), length("mix_tenth"), effect=1.5),
            greater("length, λ 0 over 0.02", length("mix_none"), length("mix_fiftieth"), effect=1.0),
            greater(
                "R@1, λ 0.1 over 0",
                recall("mix_tenth"),
                recall("mix_none"),
                effect=4.0,
                paper=(7.6, 10.0),
            ),
            greater(
                "R@1, λ 0.1 over 0.5",
                recall("mix_tenth"),
                recall("mix_half"),
                effect=5.0,
                paper=(7.6, 6.7),
            ),
        ),
        Control("the small λ replaced by 1, more MLE", {"mix_tenth": "mix_one"}),
    ),
    Claim(
        "smile-subsets",
        1,
        "Figure 4a",
        "captions keep their length with a random subset of words and shrink with the reverse one",
        "own: grows to 22; random: stays at 10; reverse: shorter and shorter",
        (
            greater(
                "words gained with the caption's own subset, over 0.5",
                length("smile_long"),
                length("start"),
                margin=0.5,
                effect=7.0,
                paper=(22.0, 10.0),
            ),
            about_equal(
                "words changed with a random one, within 1",
                length("smile_random"),
                length("start"),
                1.0,
                paper=(10.0, 10.0),
            ),
            greater(
                "words lost with the reverse, over 0.2",
                length("start"),
                length("smile_reverse"),
                margin=0.2,
                effect=1.5,
            ),
        ),
        Control(
            "all three replaced by more MLE", dict.fromkeys(("smile_long", "smile_random", "smile_reverse"), "mle_long")
        ),
    ),
    Claim(
        "smile-corpus",
        1,
        "Figure 4b",
        "captions do not grow on a corpus without details, and about double on one with few",
        "Simplest-COCO: stays at 2.0 words; Simpler-COCO: about twice its 2.5",
        (
            about_equal(
                "words gained without details, within 1", length("smile_bare"), length("bare"), 1.0, paper=(2.0, 2.0)
            ),
            greater(
                "length with few details over 1.5 times",
                length("smile_few"),
                length("few"),
                factor=1.5,
                effect=1.5,
                paper=(5.0, 2.5),
            ),
        ),
        Control("SMILE on few details replaced by more MLE on them", {"smile_few": "few_more"}),
    ),
    Claim(
        "smile-tokens",
        1,
        "Figure 5",
        "SMILE still penalizes a plain word where the label is rich, but not a rich word where the label is plain",
        "loss where the model says more than the label: MLE 4.51, SMILE 0.57; where it says less, both are large",
        (
            Part("loss of a rich label, over 0.5 nats", (Measurement("start", "smile-rich"),), 0.5, effect=0.5),
            Part(
                "loss of a plain label, less than half of MLE's",
                (Measurement("rich", "mle-plain", factor=0.5), Measurement("rich", "smile-plain", factor=-1.0)),
                effect=1.5,
                paper=(4.51, 0.57),
            ),
        ),
        Control("SMILE's loss replaced by MLE's", measures={"smile-rich": "mle-rich", "smile-plain": "mle-plain"}),
    ),
    Claim(
        "smile-paraphrase",
        1,
        "Table 10",
        "one reference of each picture is enough for captions to grow",
        "length 10.0 → 17.9 and R@1 6.7 → 8.9 with one reference (22.3 and 10.0 with all)",
        (
            greater(
                "length over 1.4 times the start's",
                length("smile_one"),
                length("start"),
                factor=1.4,
                effect=2.0,
                paper=(17.9, 10.0),
            ),
            greater("R@1 gained", recall("smile_one"), recall("start"), effect=20.0, paper=(8.9, 6.7)),
        ),
        Control("SMILE replaced by more MLE", {"smile_one": "mle_more"}),
    ),
    Claim(
        "smile-video",
        1,
        "Table 6",
        "SMILE on clips makes captions at least 1.4 times as long, with higher R@1",
        "length 8.1 → 20.6, R@1 19.0 → 27.3 on MSR-VTT",
        (
            greater(
                "length over 1.4 times the start's",
                of_clips("clips_smile", "length"),
                of_clips("clips", "length"),
                factor=1.4,
                effect=5.0,
                paper=(20.6, 8.1),
            ),
            greater(
                "distinct words gained",
                of_clips("clips_smile", "distinct"),
                of_clips("clips", "distinct"),
                effect=18.0,
                paper=(4500.0, 1100.0),
            ),
            greater(
                "R@1 gained", of_clips("clips_smile", "r1"), of_clips("clips", "r1"), effect=8.0, paper=(27.3, 19.0)
            ),
        ),
        Control("SMILE replaced by more MLE", {"clips_smile": "clips_more"}),
    ),
)
