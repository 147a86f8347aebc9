"""The arms' test sets. Items, features, candidate sets and boosted captions are computed only once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from replication.memo import Memo
from tellapart.models.devices import best_device
from tellapart.types import Encoder, Item

if TYPE_CHECKING:
    from tellapart.evaluation.candidate_sets import CandidateSets
    from tellapart.scenes.claims import ClaimCounts
    from tellapart.scorers import Scorer

DESCRIBER_ERROR_RATE = 0.2  # rate of wrong values by the scripted describer of `tellapart.boost`
LOOKALIKE_SET_SIZE = 10  # pictures in a set of look-alikes, including the target


class HasEncoder(Protocol):
    """An object with an encoder: a captioner or a scorer."""

    @property
    def encoder(self) -> Encoder: ...


@dataclass(frozen=True)
class ArmCaptions:
    """One arm's captions for the pictures in a test set.

    picture_key: identifies the pictures, independently of their references. captions: one list per item.
    model: the captioner's name; None if the captions are references. reference_stage: the boosting stage whose captions
    replace the references; "" for the items' own.
    """

    picture_key: str
    items: Sequence[Item]
    captions: Sequence[Sequence[str]]
    test_sets: TestSets
    model: str | None
    test_set: str = ""
    seed: int = 0
    reference_stage: str = ""

    @property
    def first_captions(self) -> list[str]:
        """Returns the first caption of each item."""
        return [texts[0] for texts in self.captions]

    @property
    def references(self) -> list[list[str]]:
        """Returns the references of each item: human references, or the boosted caption of ``reference_stage``."""
        if self.reference_stage:
            return [[texts[self.reference_stage]] for texts in self.test_sets.boosted(self.test_set, 0)]
        return [list(item.references) for item in self.items]

    @cached_property
    def claim_counts(self) -> list[ClaimCounts]:
        """Counts true and false claims of each first caption."""
        from tellapart.scenes.claims import count_claims

        return [count_claims(text, item.truth) for text, item in zip(self.first_captions, self.items, strict=True)]

    @cached_property
    def text_features(self) -> np.ndarray:
        """Returns the scorer's features of the first captions, N×D float32."""
        return np.asarray(self.test_sets.scorer.text_features(self.first_captions).cpu().numpy())


class TestSets:
    """Test sets by name, from their data specifications, and their evaluation scorer."""

    __test__ = False  # keeps pytest from collecting this class

    def __init__(self, specifications: Mapping[str, str], scorer: str = "scenes") -> None:
        self.specifications, self.scorer_name = specifications, scorer
        self._memo = Memo()

    def items(self, test_set: str) -> list[Item]:
        """Returns the items of a test set."""
        from tellapart.data import open_data

        return self._memo.get(("items", test_set), lambda: list(open_data(self.specifications[test_set])))

    def picture_key(self, test_set: str) -> str:
        """Hashes the ids to 16 hex digits. Test sets that differ only in references share captions and resamples."""
        ids = [item.id for item in self.items(test_set)]
        return self._memo.get(("pictures", test_set), lambda: hashlib.sha256(" ".join(ids).encode()).hexdigest()[:16])

    def boosted(self, test_set: str, seed: int) -> list[dict[str, str]]:
        """Returns each picture's boosted captions by stage. The scripted describer draws its errors from ``seed``."""
        from replication.boosted_scenes import boost_scenes

        return self._memo.get(
            ("boosted", test_set, seed), lambda: boost_scenes(self.items(test_set), DESCRIBER_ERROR_RATE, seed)
        )

    @cached_property
    def scorer(self) -> Scorer:
        """Loads the scorer on first use. Trains a recipe's scorer first if necessary."""
        from tellapart.scorers import load_scorer
        from tellapart.training.runs import upstream

        return load_scorer(upstream(self.scorer_name), best_device())

    def features(self, items: Sequence[Item], model: HasEncoder) -> np.ndarray:
        """Returns the model's features of the pictures, from the feature store."""
        from tellapart.features.store import FeatureStore

        return np.asarray(FeatureStore().features(list(items), model.encoder))

    def image_features(self, captions: ArmCaptions) -> np.ndarray:
        """Returns the scorer's features of the pictures, N×D float32."""
        return self._memo.get(("features", captions.picture_key), lambda: self.features(captions.items, self.scorer))

    def cosines(self, captions: ArmCaptions) -> np.ndarray:
        """Returns the cosine of each first caption and its picture, N values in −1..1."""
        return np.asarray((captions.text_features * self.image_features(captions)).sum(1))

    def candidate_sets(self, captions: ArmCaptions, candidates: str) -> CandidateSets:
        """Returns every picture's candidates, which are the same for all arms.

        candidates: "random" (consecutive hundreds), "lookalikes" (ten nearest), "frames" (the frames of one clip, ids
        are ``CLIP#FRAME``), or "bag3", "bag5", …: bags by algorithms 1 and 2 of paper 2, mined from the pictures and
        their holistic captions.
        """
        key = ("sets", captions.picture_key, candidates)
        return self._memo.get(key, lambda: self._make_candidate_sets(captions, candidates))

    def _make_candidate_sets(self, captions: ArmCaptions, candidates: str) -> CandidateSets:
        from tellapart.evaluation.candidate_sets import lookalike_sets, random_pools, whole_sets

        if candidates == "frames":
            clips: dict[str, list[int]] = {}
            for row, item in enumerate(captions.items):
                clips.setdefault(item.id.rpartition("#")[0], []).append(row)
            return whole_sets(list(clips.values()))
        image_ND = self.image_features(captions)
        if candidates == "lookalikes":
            return lookalike_sets(image_ND, LOOKALIKE_SET_SIZE)
        if candidates == "random":
            return random_pools(len(image_ND), min(100, len(image_ND)))
        return whole_sets(self._bags(captions, image_ND, int(candidates.removeprefix("bag"))))

    def _bags(self, captions: ArmCaptions, image_ND: np.ndarray, size: int) -> list[np.ndarray]:
        from tellapart.bags.mine import curate_bags, mine_bags

        holistic = [texts["holistic"] for texts in self.boosted(captions.test_set, 0)]
        text_ND = self.scorer.text_features(holistic).cpu().numpy()
        return [np.array(bag.rows) for bag in curate_bags(mine_bags(image_ND, size, texts_ND=text_ND))]

    def hits_at_1(self, captions: ArmCaptions, candidates: str) -> np.ndarray:
        """Returns 1 if the scorer ranks the caption's picture first, otherwise 0. NaN for pictures in no set."""
        from tellapart.evaluation.retrieval import retrieve

        sets = self.candidate_sets(captions, candidates)
        return retrieve(sets, captions.text_features, self.image_features(captions)).hit(1)

    def recall_setting(self, captions: ArmCaptions, candidates: str) -> str:
        """Returns a recall's setting for tables, e.g. ``n = 400, 100 candidates, chance 1.0``."""
        from tellapart.evaluation.candidate_sets import chance

        sets = self.candidate_sets(captions, candidates)
        chance_N = chance(sets, len(captions.items), 1)
        asked = int(np.count_nonzero(~np.isnan(chance_N)))
        return describe_setting(asked, [len(members) for members in sets.sets], float(np.nanmean(chance_N)))


def describe_setting(n: int, sizes: Sequence[int], chance: float) -> str:
    """Formats the number of queries, the sizes of their candidate sets, and chance (given as 0 to 1) in percent."""
    size = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,}–{max(sizes):,}"
    return f"n = {n:,}, {size} candidates, chance {100 * chance:.1f}"
