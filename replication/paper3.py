"""Paper 3, DiscriTune (Dessì et al. 2023): its findings."""

from __future__ import annotations

import math

from replication.claim import Claim, Control, Measurement, Part, about_equal, greater


def recall(arm: str, test_set: str = "plain") -> Measurement:
    return Measurement(arm, "r1", test_set)


def cider(arm: str, test_set: str = "plain", factor: float = 1.0) -> Measurement:
    return Measurement(arm, "cider", test_set, factor=factor)


MLE = Control("self-retrieval replaced by more MLE", {"sr": "mle_more", "sr_alt": "alt_more", "sr_coco": "coco_more"})

CLAIMS = (
    Claim(
        "discri-retrieval",
        3,
        "Table 1",
        "self-retrieval improves retrieval in and out of domain, often beyond the references",
        "P@1 74.2 → 84.8 on COCO (references 76.3), 65.9 → 79.4 on Flickr; alt-text 82.5 → 94.4 (81.6)",
        (
            greater(
                "P@1 gained in domain, 5 at least",
                recall("sr"),
                recall("start"),
                margin=5.0,
                effect=20.0,
                paper=(84.8, 74.2),
            ),
            greater(
                "P@1 gained on alt-text pictures, 5 at least",
                recall("sr", "alt"),
                recall("start", "alt"),
                margin=5.0,
                effect=20.0,
                paper=(83.6, 73.0),
            ),
            greater(
                "P@1 gained on unseen shapes, 5 at least",
                recall("sr", "unseen"),
                recall("start", "unseen"),
                margin=5.0,
                effect=18.0,
                paper=(79.4, 65.9),
            ),
            greater(
                "P@1 gained by the alt-text captioner, 4 at least",
                recall("sr_alt", "alt"),
                recall("alt", "alt"),
                margin=4.0,
                effect=12.0,
                paper=(94.4, 82.5),
            ),
            greater("P@1 over the references", recall("sr"), recall("references"), effect=20.0, paper=(84.8, 76.3)),
        ),
        MLE,
    ),
    Claim(
        "discri-transfer",
        3,
        "Tables 2-3",
        "CIDEr falls in domain, little with references like COCO's and much with alt-text, and rises out of domain",
        "in domain 108.6 → 105.4, 87.2 → 55.3; alt-text captioner on COCO 37.0 → 53.2, COCO's on alt-text 23.7 → 28.0",
        (
            greater(
                "CIDEr lost by the alt-text captioner",
                cider("alt", "alt"),
                cider("sr_alt", "alt"),
                effect=10.0,
                paper=(87.22, 55.26),
            ),
            Part(
                "more CIDEr lost by it than by the captioner of COCO's kind",
                (
                    cider("alt", "alt"),
                    cider("sr_alt", "alt", -1),
                    cider("coco", "cocolike", -1),
                    cider("sr_coco", "cocolike"),
                ),
                effect=5.0,
                paper=(87.22, 55.26, 108.55, 105.4),
            ),
            greater(
                "CIDEr the alt-text captioner gains on COCO's kind",
                cider("sr_alt", "cocolike"),
                cider("alt", "cocolike"),
                effect=8.0,
                paper=(53.2, 37.0),
            ),
            greater(
                "CIDEr the captioner of COCO's kind gains on alt-text",
                cider("sr_coco", "alt"),
                cider("coco", "alt"),
                effect=2.0,
                paper=(28.0, 23.7),
            ),
        ),
        MLE,
    ),
    Claim(
        "discri-baseline",
        3,
        "Table 8",
        "training without a baseline is far behind; a running mean is about as good as the greedy caption",
        "P@1: none 34.3, greedy 97.4, running mean 97.8",
        (
            greater(
                "P@1, running mean over none, 5 at least",
                recall("sr_running"),
                recall("sr_unbased"),
                margin=5.0,
                effect=18.0,
                paper=(97.8, 34.3),
            ),
            greater(
                "P@1, greedy over none, 5 at least",
                recall("sr_greedy"),
                recall("sr_unbased"),
                margin=5.0,
                effect=18.0,
                paper=(97.4, 34.3),
            ),
            about_equal(
                "P@1, running mean and greedy within 5",
                recall("sr_running"),
                recall("sr_greedy"),
                5.0,
                paper=(97.8, 97.4),
            ),
        ),
        Control("the running mean replaced by more MLE", {"sr_running": "rich_more"}),
    ),
    Claim(
        "discri-reward",
        3,
        "Table 9",
        "log-probability is at least as good a reward as accuracy and cosine",
        "P@1: log-probability 86.2, accuracy 85.3, cosine 85.2",
        (
            greater("P@1 gained", recall("sr"), recall("start"), effect=20.0),
            greater(
                "P@1, no more than 2 below accuracy",
                recall("sr"),
                recall("sr_accuracy"),
                tolerance=2.0,
                effect=8.0,
                paper=(86.2, 85.3),
            ),
            greater(
                "P@1, no more than 2 below cosine",
                recall("sr"),
                recall("sr_cosine"),
                tolerance=2.0,
                effect=20.0,
                paper=(86.2, 85.2),
            ),
        ),
        MLE,
    ),
    Claim(
        "discri-hard",
        3,
        "Tables 12-13",
        "hard distractors cost CIDEr in domain, with a mixed effect on retrieval",
        "5 hard ones: CIDEr 105.4 → 100.3; P@1 84.8 → 84.9 in domain, 83.6 → 82.3 and 79.4 → 79.8 out of domain",
        (
            greater("CIDEr lost in domain", cider("sr"), cider("sr_hard"), effect=2.0, paper=(105.4, 100.3)),
            Part(
                "P@1 gained in domain, below 5",
                (recall("sr_hard"), Measurement("sr", "r1", factor=-1)),
                -math.inf,
                5,
                effect=3.0,
                paper=(84.9, 84.8),
            ),
            about_equal(
                "P@1 on unseen shapes within 8",
                recall("sr_hard", "unseen"),
                recall("sr", "unseen"),
                8.0,
                paper=(79.8, 79.4),
            ),
        ),
        Control("hard distractors replaced by more MLE", {"sr_hard": "mle_more"}),
    ),
    Claim(
        "discri-words",
        3,
        "Tables 7, 14",
        "colours and other visual words become the most associated words",
        "adjectives of DiscriTune: red, green, blue, black; of ClipCap: young, old, biological; of people: new, other",
        (
            greater(
                "colours' share of words over the start's",
                Measurement("sr", "colours"),
                Measurement("start", "colours"),
                effect=6.0,
            ),
            greater(
                "colours' share over the references'",
                Measurement("sr", "colours"),
                Measurement("references", "colours"),
                effect=4.0,
            ),
            greater(
                "textures' share over the start's",
                Measurement("sr", "textures"),
                Measurement("start", "textures"),
                effect=2.0,
            ),
            greater(
                "generic nouns' share below the start's",
                Measurement("start", "generic"),
                Measurement("sr", "generic"),
                effect=6.0,
            ),
        ),
        MLE,
    ),
    Claim(
        "discri-listener",
        3,
        "Table 6",
        "an independent listener that knows the ground truth picks the target more often",
        "people pick the target with the alt-text captioner's captions in 36.2%, DiscriTune's 47.6%, people's 42.8%",
        (
            greater(
                "listener, over the start, 2 at least",
                Measurement("sr", "listener"),
                Measurement("start", "listener"),
                margin=2.0,
                effect=9.0,
            ),
            greater(
                "listener, alt-text captioner, 2 at least",
                Measurement("sr_alt", "listener", "alt"),
                Measurement("alt", "listener", "alt"),
                margin=2.0,
                effect=5.0,
                paper=(47.6, 36.2),
            ),
        ),
        MLE,
    ),
)
