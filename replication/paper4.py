"""Paper 4, Better Captioning with Sequence-Level Exploration (Chen and Jin 2020): its findings."""

from __future__ import annotations

from replication.claim import Claim, Control, Measurement, about_equal, greater


def sampled(arm: str, measure: str) -> Measurement:
    return Measurement(arm, measure, "cocolike", "samples")


def cider(arm: str) -> Measurement:
    return Measurement(arm, "cider", "cocolike")


def of_clips(arm: str, measure: str, decoding: str = "clip") -> Measurement:
    return Measurement(arm, measure, "clips", decoding)


CLAIMS = (
    Claim(
        "sll-precision",
        4,
        "Table 1",
        "CIDEr training raises CIDEr; in sampled captions it lowers Div-1 and Div-2 and raises mBLEU",
        "CIDEr 74.2 → 114.6 (sampled), 102.5 → 115.0 (beams), Div-1 0.57 → 0.25, Div-2 0.78 → 0.32, mBLEU 0.06 → 0.81",
        (
            greater("CIDEr gained, greedy", cider("sll"), cider("coco"), effect=4.0, paper=(115.0, 102.5)),
            greater(
                "CIDEr gained, sampled, 5 at least",
                sampled("sll", "sampled-cider"),
                sampled("coco", "sampled-cider"),
                margin=5.0,
                effect=20.0,
                paper=(114.6, 74.2),
            ),
            greater("Div-1 lost", sampled("coco", "div1"), sampled("sll", "div1"), effect=10.0, paper=(57.0, 25.0)),
            greater("Div-2 lost", sampled("coco", "div2"), sampled("sll", "div2"), effect=15.0, paper=(78.0, 32.0)),
            greater("mBLEU gained", sampled("sll", "mbleu"), sampled("coco", "mbleu"), effect=20.0, paper=(81.0, 6.0)),
        ),
        Control("CIDEr training replaced by more MLE", {"sll": "coco_more"}),
    ),
    Claim(
        "sle-both",
        4,
        "Tables 2-4",
        "exploration raises CIDEr over SLL at least as much as maximum entropy does, and raises diversity, which "
        "maximum entropy leaves near SLL's",
        "CIDEr, Div-1, mBLEU, sampled: SLL 114.6, 0.25, 0.81; SLL-ME 115.1, 0.25, 0.80; SLL-SLE 115.9, 0.29, 0.68",
        (
            greater("CIDEr, exploration over SLL", cider("sll_sle"), cider("sll"), effect=1.0, paper=(117.2, 115.0)),
            greater(
                "CIDEr, no more than 1 below maximum entropy",
                cider("sll_sle"),
                cider("sll_me"),
                tolerance=1.0,
                effect=1.0,
                paper=(117.2, 115.6),
            ),
            greater(
                "Div-1 gained by exploration",
                sampled("sll_sle", "div1"),
                sampled("sll", "div1"),
                effect=1.5,
                paper=(29.0, 25.0),
            ),
            greater(
                "mBLEU lost by exploration",
                sampled("sll", "mbleu"),
                sampled("sll_sle", "mbleu"),
                effect=6.0,
                paper=(81.0, 68.0),
            ),
            about_equal(
                "Div-1 changed by maximum entropy, within 2",
                sampled("sll_me", "div1"),
                sampled("sll", "div1"),
                2.0,
                paper=(25.0, 25.0),
            ),
        ),
        Control("exploration replaced by more MLE", {"sll_sle": "coco_more"}),
    ),
    Claim(
        "sle-video",
        4,
        "Table 3",
        "on clips, exploration keeps CIDEr within 1 point of SLL's or above, with more diverse captions",
        "TGIF CIDEr: SLL 45.9, SLL-ME 48.1, SLL-SLE 50.8",
        (
            greater("CIDEr gained by SLL", of_clips("clips_sll", "cider"), of_clips("clips", "cider"), effect=6.0),
            greater(
                "CIDEr, exploration no more than 1 below SLL",
                of_clips("clips_sll_sle", "cider"),
                of_clips("clips_sll", "cider"),
                tolerance=1.0,
                effect=0.3,
                paper=(50.8, 45.9),
            ),
            greater(
                "CIDEr, exploration no more than 1 below maximum entropy",
                of_clips("clips_sll_sle", "cider"),
                of_clips("clips_sll_me", "cider"),
                tolerance=1.0,
                effect=0.3,
                paper=(50.8, 48.1),
            ),
            greater(
                "Div-1 gained by exploration",
                of_clips("clips_sll_sle", "div1", "clip-samples"),
                of_clips("clips_sll", "div1", "clip-samples"),
                effect=4.0,
            ),
            greater(
                "mBLEU lost by exploration",
                of_clips("clips_sll", "mbleu", "clip-samples"),
                of_clips("clips_sll_sle", "mbleu", "clip-samples"),
                effect=10.0,
            ),
        ),
        Control("exploration replaced by more MLE", {"clips_sll_sle": "clips_more"}),
    ),
)
