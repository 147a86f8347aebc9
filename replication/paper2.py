"""Paper 2, No Detail Left Behind (Gaur et al. 2024): its findings."""

from __future__ import annotations

from replication.claim import Claim, Control, Measurement, Part, about_equal, greater


def recall(arm: str, test_set: str = "plain") -> Measurement:
    return Measurement(arm, "r1", test_set)


def hard(arm: str) -> Measurement:
    return Measurement(arm, "hard")


def frames(arm: str) -> Measurement:
    return Measurement(arm, "frames", "stills")


def cider(arm: str, test_set: str = "plain") -> Measurement:
    return Measurement(arm, "cider", test_set)


def words(arm: str) -> Measurement:
    return Measurement(arm, "vocabulary")


CLAIMS = (
    Claim(
        "vcb-captions",
        2,
        "Table 2",
        "the captions themselves rank plain < blended < holistic in R@1, on random and on hard sets",
        "RD100 80.9, 88.9, 91.3; TrueMatch #3 51.1, 53.6, 57.5",
        (
            greater(
                "R@1, blended over plain", recall("vcb_blend"), recall("references"), effect=12.0, paper=(88.9, 80.9)
            ),
            greater(
                "R@1, holistic over blended",
                recall("vcb_holistic"),
                recall("vcb_blend"),
                effect=15.0,
                paper=(91.3, 88.9),
            ),
            greater(
                "hard R@1, blended over plain", hard("vcb_blend"), hard("references"), effect=4.0, paper=(53.6, 51.1)
            ),
            greater(
                "hard R@1, holistic over blended",
                hard("vcb_holistic"),
                hard("vcb_blend"),
                effect=12.0,
                paper=(57.5, 53.6),
            ),
            Part(
                "percent kept out of the describer's errors that contradict references, over 75",
                (Measurement("vcb_holistic", "kept-out"),),
                75.0,
                effect=4.0,
            ),
        ),
        Control(
            "blended replaced by another reference, holistic by the bare description",
            {"vcb_blend": "second", "vcb_holistic": "vcb_describe"},
        ),
    ),
    Claim(
        "sr-init",
        2,
        "Table 3",
        "the richer the captions that MLE trains on, the better the result of self-retrieval",
        "after SR-L: RD100 83.7, 87.5, 87.6; TrueMatch #3 53.3, 54.7, 59.1 for plain, blended, holistic",
        (
            greater("R@1, blended start over plain", recall("sr_blend"), recall("sr"), effect=4.0, paper=(87.5, 83.7)),
            greater("hard R@1, rich start over plain", hard("sr_rich"), hard("sr"), effect=10.0, paper=(59.1, 53.3)),
            greater(
                "hard R@1, rich start over blended", hard("sr_rich"), hard("sr_blend"), effect=6.0, paper=(59.1, 54.7)
            ),
        ),
        Control("rich captions replaced by more MLE on plain ones", {"sr_rich": "sr_more"}),
    ),
    Claim(
        "sr-tradeoff",
        2,
        "Figure 3",
        "with longer self-retrieval R@1 keeps rising while CIDEr falls and hallucination rises",
        "over 100 epochs RD100 +7.9, CIDEr −15.4",
        (
            greater("R@1 gained at first", recall("sr_free"), recall("start"), effect=18.0, paper=(83.7, 76.5)),
            greater("R@1 gained later", recall("sr_long"), recall("sr_free"), effect=15.0),
            greater("CIDEr lost later", cider("sr_free"), cider("sr_long"), effect=25.0),
            greater(
                "hallucination gained later",
                Measurement("sr_long", "hallucination"),
                Measurement("sr_free", "hallucination"),
                effect=6.0,
            ),
        ),
        Control("longer self-retrieval replaced by more MLE", {"sr_long": "mle_more"}),
    ),
    Claim(
        "sr-modules",
        2,
        "Tables 4, 14",
        "SR-V beats SR-L on hard sets at the cost of CIDEr; SR-LV is about as good as SR-V with slightly more CIDEr; "
        "at equal R@1 SR-L keeps more CIDEr",
        "TrueMatch #3 / CIDEr, blended: SR-L 54.7 / 80.1, SR-V 61.3 / 72.4, SR-LV 61.3 / 72.7; at equal R@1 CIDEr 77.3 "
        "of SR-L, 72.4 of SR-V",
        (
            greater("hard R@1, SR-V over SR-L", hard("sr_v"), hard("sr_l"), effect=4.0, paper=(61.3, 54.7)),
            greater("CIDEr, SR-L over SR-V", cider("sr_l"), cider("sr_v"), effect=3.0, paper=(80.1, 72.4)),
            about_equal(
                "hard R@1, SR-LV and SR-V within 6 points", hard("sr_lv"), hard("sr_v"), 6.0, paper=(61.3, 61.3)
            ),
            greater("CIDEr, SR-LV over SR-V", cider("sr_lv"), cider("sr_v"), effect=1.0, paper=(72.7, 72.4)),
            greater(
                "R@1, short SR-L no more than 2 below SR-V",
                recall("sr_l_short"),
                recall("sr_v"),
                tolerance=2.0,
                effect=8.0,
            ),
            greater("CIDEr, short SR-L over SR-V", cider("sr_l_short"), cider("sr_v"), effect=3.0, paper=(77.3, 72.4)),
        ),
        Control("SR-V replaced by more MLE", {"sr_v": "mle_more"}),
    ),
    Claim(
        "bagcurri",
        2,
        "Tables 5, 10",
        "from the rich start, bags beat random distractors on hard sets, and the curriculum keeps CIDEr where fixed "
        "bags lose it; the plain start loses CIDEr",
        "rich: TrueMatch #7 51.2 → 57.1, CIDEr 29.7 (fixed bags of 20: 24.8); plain: CIDEr 96.6 → 84.2",
        (
            greater(
                "hard R@1, curriculum over random",
                hard("rich_bags"),
                hard("rich_random"),
                effect=3.0,
                paper=(57.1, 51.2),
            ),
            greater(
                "CIDEr, curriculum over bags of 50",
                cider("rich_bags", "rich"),
                cider("rich_fixed", "rich"),
                effect=0.5,
                paper=(29.7, 24.8),
            ),
            greater(
                "CIDEr that the plain start loses",
                cider("plain_random"),
                cider("plain_bags"),
                effect=4.0,
                paper=(96.6, 84.2),
            ),
        ),
        Control("bags replaced by more MLE", {"rich_bags": "rich_more", "plain_bags": "mle_more"}),
    ),
    Claim(
        "sr-diversity",
        2,
        "Table 6",
        "the vocabulary grows in the order MLE < SR-L < SR-V < SR-LV < SR-LV with bags",
        "words used at least 5 times, plain: 428, 689, 719, 762, 770",
        (
            greater("words, SR-L over MLE", words("sr_l"), words("start"), effect=8.0, paper=(689.0, 428.0)),
            greater("words, SR-V over SR-L", words("sr_v"), words("sr_l"), effect=2.0, paper=(719.0, 689.0)),
            greater("words, SR-LV over SR-V", words("sr_lv"), words("sr_v"), effect=2.5, paper=(762.0, 719.0)),
            greater("words, bags over SR-LV", words("sr_lv_bags"), words("sr_lv"), effect=1.0, paper=(770.0, 762.0)),
        ),
        Control("SR-V and bags replaced by more MLE", {"sr_v": "mle_more", "sr_lv_bags": "mle_more"}),
    ),
    Claim(
        "sr-cider",
        2,
        "Tables 7, 13",
        "from the rich start, CIDEr + SR improves both; λ trades one for the other",
        "CIDEr / RD100: MLE 26.6 / 84.7, SR 29.7 / 91.3, λ 0.5 38.0 / 92.6, λ 1 45.4 / 92.5",
        (
            greater(
                "CIDEr, small λ over SR alone",
                cider("rich_both", "rich"),
                cider("rich_sr", "rich"),
                effect=2.5,
                paper=(38.0, 29.7),
            ),
            greater(
                "R@1, small λ no more than 2 below SR alone",
                recall("rich_both"),
                recall("rich_sr"),
                tolerance=2.0,
                effect=0.7,
                paper=(92.6, 91.3),
            ),
            greater(
                "R@1, small λ over the start",
                recall("rich_both"),
                recall("rich"),
                effect=5.0,
                paper=(92.6, 84.7),
            ),
            greater(
                "CIDEr, large λ over small",
                cider("rich_both_more", "rich"),
                cider("rich_both", "rich"),
                effect=6.0,
                paper=(45.4, 38.0),
            ),
        ),
        Control("the small λ replaced by more MLE", {"rich_both": "rich_more"}),
    ),
    Claim(
        "cider-long",
        2,
        "C.6, Figure 6",
        "against long references CIDEr scores correct captions near zero; its scale falls as references grow",
        "MLE on plain, blended, holistic captions: CIDEr 107.8, 80.2, 26.6 against their own references",
        (
            greater(
                "CIDEr, plain over a little richer",
                cider("start"),
                cider("middle", "middle"),
                effect=9.0,
                paper=(107.8, 80.2),
            ),
            greater(
                "CIDEr, a little richer over rich",
                cider("middle", "middle"),
                cider("rich", "rich"),
                effect=8.0,
                paper=(80.2, 26.6),
            ),
            Part(
                "percent of correct captions below 10, over 5",
                (Measurement("start", "near-zero", "rich"),),
                5.0,
                effect=20.0,
            ),
        ),
        Control(
            "rich references replaced by more MLE on plain ones", {"rich": "mle_more"}, test_sets={"rich": "plain"}
        ),
    ),
    Claim(
        "sr-transfer",
        2,
        "Table 8",
        "gains transfer to sets of consecutive frames that were never trained on",
        "ImageCoDe R@1, SR-L: COCO 28.8 → 30.3, HolisticCap 31.9 → 33.0 (with SR-LV and bags 37.9)",
        (
            greater(
                "R@1 among frames gained, plain start, 2 at least",
                frames("sr"),
                frames("start"),
                margin=2.0,
                effect=3.0,
                paper=(30.3, 28.8),
            ),
            greater(
                "R@1 among frames gained, blended start, 2 at least",
                frames("sr_blend"),
                frames("blend"),
                margin=2.0,
                effect=1.0,
                paper=(33.0, 31.9),
            ),
        ),
        Control("self-retrieval replaced by more MLE", {"sr": "mle_more", "sr_blend": "blend_more"}),
    ),
)
