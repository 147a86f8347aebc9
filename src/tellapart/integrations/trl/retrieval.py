"""The self-retrieval reward for TRL."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, get_args

import accelerate
import torch
from PIL import Image

from tellapart.data.pictures import load_rgb
from tellapart.data.records import id_text
from tellapart.errors import UsageError
from tellapart.integrations.trl.ranks import as_numbers, digest, gathered, picture_key
from tellapart.integrations.trl.rows import Completion, column, text_of
from tellapart.rewards.retrieval import Score, retrieval_reward
from tellapart.scorers import load_scorer
from tellapart.scorers.base import Scorer
from tellapart.utils.blocks import blocks_of

ENCODED_AT_ONCE = 64


def encode(scorer: Scorer, pictures: Sequence[Image.Image]) -> torch.Tensor:
    """Encodes N pictures in batches, and returns their features N×D, float32."""
    parts = blocks_of(pictures, ENCODED_AT_ONCE)
    with torch.no_grad():
        return torch.cat([scorer.image_features(scorer.pixels(part).to(scorer.device)).float() for part in parts])


Candidates = Literal["batch", "bag", "bank"]


KEPT_FEATURES = 200_000  # maximum number of cached pictures; 400 MB if each has 512 features


@dataclass(frozen=True)
class Bank:
    """Pictures that are candidates in every step, given by their ids and the scorer's features_ND. Raises `UsageError`
    if ids and features do not match.
    """

    ids: Sequence[str]
    features_ND: torch.Tensor

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.features_ND):
            raise UsageError(
                f"Bank: expected one row of features per id; got {len(self.ids)} ids and {len(self.features_ND)} rows"
            )
        if len(set(self.ids)) != len(self.ids):
            raise UsageError("Bank: expected distinct ids, one per picture; an id occurs twice")

    @classmethod
    def encode(cls, scorer: Scorer, pictures: Mapping[str, Image.Image]) -> Bank:
        """Creates a bank by encoding pictures, which are given by id."""
        return cls(list(pictures), encode(scorer, [load_rgb(picture) for picture in pictures.values()]))


@dataclass(eq=False)
class _SelfRetrieval:
    """Self-retrieval reward for TRL: how well a scorer can retrieve the picture given its caption.

    See paper 3, sec. 3, and paper 2, eq. 1.

    scorer: a scorer, or a name that `tellapart.scorers.load_scorer` accepts.
    candidates: which pictures a caption is compared with. "batch": all pictures in the generation batch. "bag": the
        pictures with the same value in ``bag_column`` (written by `bag_order`). "bank": the pictures in ``bank``;
        ``id_column`` then contains the id of each row's own picture.
    gather: whether to gather candidates from all ranks. Otherwise, each rank compares only its own pictures.
    score: "log_prob" (in nats, at most 0), "accuracy" (0 or 1) or "cosine" (−1 to 1; uses no candidates).

    Each picture counts once, however many captions it has. Pictures are identified by their pixels. The reward abstains
    (returns None) if a picture is alone in its bag. Features are cached, so that each picture is encoded only once.
    Rewards are computed in float32. Raises `UsageError` if the settings are inconsistent, and in the first step if the
    data set lacks a column.
    """

    scorer: str | Scorer
    candidates: Candidates = "batch"
    _: KW_ONLY
    gather: bool = True
    score: Score = "log_prob"
    bank: Bank | None = None
    image_column: str = "image"
    id_column: str = "id"
    bag_column: str = "bag"
    __name__ = "self_retrieval"  # the name in TRL's logs

    def __post_init__(self) -> None:
        if self.candidates not in get_args(Candidates):
            raise UsageError(f"candidates is '{self.candidates}'; expected one of {', '.join(get_args(Candidates))}")
        if self.score not in get_args(Score):
            raise UsageError(f"score is '{self.score}'; expected one of {', '.join(get_args(Score))}")
        if (self.candidates == "bank") != (self.bank is not None):
            raise UsageError(
                "candidates='bank' and bank=Bank(ids, features) must be used together; pass both or neither"
            )
        self._features: OrderedDict[bytes, torch.Tensor] = OrderedDict()
        self._row_of_id: dict[str, int] = {}

    @torch.no_grad()
    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        scorer = self._loaded()
        text_RD = scorer.text_features([text_of(completion) for completion in completions]).float()
        if self.bank is not None:
            images_ND = self.bank.features_ND.to(text_RD)
            target_R = torch.tensor(self._bank_rows(columns), device=text_RD.device)
            candidate_RN = torch.ones(len(text_RD), len(images_ND), dtype=torch.bool, device=text_RD.device)
        else:
            images_ND, target_R, candidate_RN = self._pictures(scorer, columns)
        reward_R = retrieval_reward(text_RD @ images_ND.T, target_R, candidate_RN, scorer.scale, self.score)
        if self.candidates == "bag" and self.score != "cosine":
            reward_R = reward_R.masked_fill(candidate_RN.sum(1) < 2, torch.nan)
        return [None if reward != reward else reward for reward in reward_R.tolist()]

    def _loaded(self) -> Scorer:
        """Loads the scorer. This happens in the first step, because the rank's device is not known earlier."""
        if isinstance(self.scorer, str):
            self.scorer = load_scorer(self.scorer, device=accelerate.PartialState().device)
        return self.scorer

    def _bank_rows(self, columns: Mapping[str, Any]) -> list[int]:
        assert self.bank is not None
        if not self._row_of_id:
            self._row_of_id = {id_text(id_): row for row, id_ in enumerate(self.bank.ids)}
        ids = [id_text(id_) for id_ in column(columns, self.id_column, "the id of each row's picture in the bank")]
        if missing := [id_ for id_ in ids if id_ not in self._row_of_id]:
            raise UsageError(
                f"the bank has no picture '{missing[0]}'; it must contain the '{self.id_column}' of every row"
            )
        return [self._row_of_id[id_] for id_ in ids]

    def _pictures(self, scorer: Scorer, columns: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns images_ND for the batch's N distinct pictures, as well as target_R and candidate_RN for this rank's
        rows.
        """
        pictures = [load_rgb(value) for value in column(columns, self.image_column, "each row's picture")]
        keys = [picture_key(picture) for picture in pictures]
        image_RD = self._encoded(scorer, keys, pictures)
        digests = [keys]
        if self.candidates == "bag":
            bags = column(
                columns,
                self.bag_column,
                "each row's bag, as written by tellapart.integrations.trl.bag_order",
            )
            digests.append([digest(str(bag).encode()) for bag in bags])
        key_RK = torch.cat([as_numbers(part) for part in digests], dim=1).to(image_RD.device)
        all_key, all_image = (gathered(key_RK), gathered(image_RD)) if self.gather else (key_RK, image_RD)
        key_NK, row_A = all_key.unique(dim=0, return_inverse=True)
        images_ND = torch.empty(len(key_NK), image_RD.shape[1], device=image_RD.device)
        images_ND[row_A] = all_image  # all rows with the same picture have the same features
        target_R = (key_RK[:, None] == key_NK[None]).all(2).int().argmax(1)
        bag_NK = key_NK[:, 2:]  # without bags, this is empty, so all pictures are candidates
        return images_ND, target_R, (bag_NK[target_R][:, None] == bag_NK[None]).all(2)

    def _encoded(self, scorer: Scorer, keys: Sequence[bytes], pictures: Sequence[Image.Image]) -> torch.Tensor:
        """Returns features R×D. Encodes pictures that are not cached, and evicts the least recently used pictures."""
        new = {key: picture for key, picture in zip(keys, pictures, strict=True) if key not in self._features}
        if new:
            for key, feature_D in zip(new, encode(scorer, list(new.values())), strict=True):
                self._features[key] = feature_D
        for key in keys:
            self._features.move_to_end(key)
        features_ND = torch.stack([self._features[key] for key in keys])
        while len(self._features) > KEPT_FEATURES:
            self._features.popitem(last=False)
        return features_ND


self_retrieval = _SelfRetrieval
