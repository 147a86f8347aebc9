"""Rewards for TRL's `GRPOTrainer` and `RLOOTrainer` (``pip install 'tellapart[trl]'``).

TRL calls a reward function on each rank with that rank's rows: ``completions`` and every column of the data set, with
each picture repeated once per generation. It gathers only the rewards afterwards. Rewards that compare pictures
therefore gather the pictures themselves, and count each picture once, however many captions it has.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import accelerate
import accelerate.utils
import torch
import transformers
from PIL import Image

from tellapart.captioners import load_captioner
from tellapart.captioners.captioner import Captioner
from tellapart.captioners.processors import whole_processor
from tellapart.data.pictures import load_rgb
from tellapart.data.records import id_text
from tellapart.errors import UsageError
from tellapart.integrations.trl_bags import bag_order
from tellapart.metrics.cider import CiderD
from tellapart.rewards.evidence import mutual_information
from tellapart.rewards.retrieval import Score, retrieval_reward
from tellapart.rewards.speaker import Speaker
from tellapart.scorers import load_scorer
from tellapart.scorers.base import Scorer
from tellapart.types import Rollout
from tellapart.utils.blocks import blocks_of

__all__ = ["bag_order", "cider", "pmi", "processing_class", "self_retrieval"]

Completion = str | Sequence[Mapping[str, Any]]  # a text, or the messages in a conversation
ENCODED_AT_ONCE = 64


def text_of(completion: Completion) -> str:
    """Returns the caption in a completion: the text itself, or the text of its last message.

    Raises `UsageError` if there is none; messages that contain only tool calls have no content.
    """
    if isinstance(completion, str):
        return completion.strip()
    content = completion[-1].get("content") if completion else None
    if content is None:
        shown = repr(completion)
        raise UsageError(
            f"a completion has no text ({shown if len(shown) < 80 else shown[:79] + '…'}); expected a text, or "
            "messages of which the last has content; remove tools from the trainer"
        )
    if isinstance(content, str):
        return content.strip()
    return "".join(part.get("text") or "" for part in content).strip()


def column(columns: Mapping[str, Any], name: str, what: str) -> Sequence[Any]:
    """Returns a data set column that TRL passes to rewards. Raises `UsageError` if it is missing."""
    if name not in columns:
        raise UsageError(f"the data set has no column '{name}'; expected a column with {what}")
    values: Sequence[Any] = columns[name]
    return values


def encode(scorer: Scorer, pictures: Sequence[Image.Image]) -> torch.Tensor:
    """Computes float32 features N×D for pictures, in batches."""
    parts = blocks_of(pictures, ENCODED_AT_ONCE)
    with torch.no_grad():
        return torch.cat([scorer.image_features(scorer.pixels(part).to(scorer.device)).float() for part in parts])


def digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def picture_key(picture: Image.Image) -> bytes:
    """Returns a digest of the pixels, by which pictures are identified across ranks."""
    return digest(repr(picture.size).encode() + picture.tobytes())


def as_numbers(digests: Sequence[bytes]) -> torch.Tensor:
    """Returns digests as an int64 tensor R×2, which ranks can exchange."""
    return torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.int64).view(-1, 2)


def gathered(rows: torch.Tensor) -> torch.Tensor:
    """Gathers the rows of all ranks, in rank order; the number of rows may differ between ranks."""
    if accelerate.PartialState().num_processes == 1:
        return rows
    count = accelerate.utils.gather(torch.tensor([len(rows)], device=rows.device))
    padded = accelerate.utils.gather(accelerate.utils.pad_across_processes(rows, dim=0)).view(
        len(count), -1, *rows.shape[1:]
    )
    return torch.cat([part[:number] for part, number in zip(padded, count.tolist(), strict=True)])


Candidates = Literal["batch", "bag", "bank"]
KEPT_FEATURES = 200_000  # maximum number of cached pictures; 400 MB with 512 features each


class RewardFunction(Protocol):
    """A TRL reward function: returns one number per completion, or None to abstain."""

    __name__: str

    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]: ...


@dataclass(frozen=True)
class Bank:
    """Pictures that are candidates in every step: their ids, and the scorer's features_ND. Raises `UsageError` if they
    do not match.
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
        """Encodes pictures, given by id, into a bank."""
        return cls(list(pictures), encode(scorer, [load_rgb(picture) for picture in pictures.values()]))


def self_retrieval(
    scorer: str | Scorer,
    candidates: Candidates = "batch",
    *,
    gather: bool = True,
    score: Score = "log_prob",
    bank: Bank | None = None,
    image_column: str = "image",
    id_column: str = "id",
    bag_column: str = "bag",
) -> RewardFunction:
    """Self-retrieval reward for TRL: how well a scorer retrieves the picture from its caption.

    See paper 3, sec. 3, and paper 2, eq. 1.

    scorer: a name that `tellapart.scorers.load_scorer` accepts, or a scorer.
    candidates: the pictures that a caption is compared with. "batch": all pictures in the generation batch; "bag":
        pictures with the same value in ``bag_column`` (written by `bag_order`); "bank": the pictures in ``bank``, where
        ``id_column`` contains the id of the row's own picture.
    gather: whether to gather candidates from all ranks; otherwise each rank compares only its own pictures.
    score: "log_prob" (nats, at most 0), "accuracy" (0 or 1) or "cosine" (−1 to 1; uses no candidates).

    Each picture counts once, however many captions it has; pictures are identified by their pixels. The reward abstains
    (None) if a picture is alone in its bag. Features are cached, so that each picture is encoded once. Rewards are
    computed in float32. Raises `UsageError` if the settings are inconsistent, and in the first step if the data set
    lacks a column.
    """
    if candidates not in get_args(Candidates):
        raise UsageError(f"candidates is '{candidates}'; expected one of {', '.join(get_args(Candidates))}")
    if score not in get_args(Score):
        raise UsageError(f"score is '{score}'; expected one of {', '.join(get_args(Score))}")
    if (candidates == "bank") != (bank is not None):
        raise UsageError("candidates='bank' and bank=Bank(ids, features) must be used together; pass both or neither")
    return _SelfRetrieval(scorer, candidates, gather, score, bank, image_column, id_column, bag_column)


class _SelfRetrieval:
    """Callable that implements `self_retrieval`."""

    __name__ = "self_retrieval"  # the name in TRL's logs

    def __init__(
        self,
        scorer: str | Scorer,
        candidates: Candidates,
        gather: bool,
        score: Score,
        bank: Bank | None,
        image_column: str,
        id_column: str,
        bag_column: str,
    ) -> None:
        self.scorer, self.candidates, self.gather, self.score, self.bank = scorer, candidates, gather, score, bank
        self.image_column, self.id_column, self.bag_column = image_column, id_column, bag_column
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
        """Loads the scorer in the first step, because the rank's device is not known before."""
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
        """Returns images_ND for the batch's N distinct pictures, and target_R and candidate_RN for this rank's rows."""
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
        images_ND[row_A] = all_image  # all rows of a picture have the same features
        target_R = (key_RK[:, None] == key_NK[None]).all(2).int().argmax(1)
        bag_NK = key_NK[:, 2:]  # empty if there are no bags, so that all pictures are candidates
        return images_ND, target_R, (bag_NK[target_R][:, None] == bag_NK[None]).all(2)

    def _encoded(self, scorer: Scorer, keys: Sequence[bytes], pictures: Sequence[Image.Image]) -> torch.Tensor:
        """Returns features R×D; encodes pictures that are not cached, and evicts the least recently used ones."""
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


def cider(references: Mapping[str, Sequence[str]], *, id_column: str = "id") -> RewardFunction:
    """CIDEr-D reward for TRL, from 0 to 10 (papers 2 and 4).

    references: the references of all training pictures by id; ``id_column`` contains each row's id. Document
    frequencies are computed from them, so the reward does not depend on the batch, and nothing needs to be gathered.
    """
    return _Cider(references, id_column)


class _Cider:
    """Callable that implements `cider`; picklable, so that spawned processes can load it."""

    __name__ = "cider"  # the name in TRL's logs

    def __init__(self, references: Mapping[str, Sequence[str]], id_column: str) -> None:
        self.row_of_id, self.id_column = {id_text(id_): row for row, id_ in enumerate(references)}, id_column
        self.score = CiderD([list(texts) for texts in references.values()])

    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        ids = [
            id_text(id_) for id_ in column(columns, self.id_column, "the id of each row's picture in the references")
        ]
        if missing := [id_ for id_ in ids if id_ not in self.row_of_id]:
            raise UsageError(
                f"no references for picture '{missing[0]}'; they must contain the '{self.id_column}' of every row"
            )
        rows = [self.row_of_id[id_] for id_ in ids]
        return [float(value) for value in self.score([text_of(completion) for completion in completions], rows)]


def pmi(captioner: str | Captioner, *, gather: bool = True, image_column: str = "image") -> RewardFunction:
    """Faithfulness reward for TRL: `MutualInformationReward` of caption and picture under a frozen captioner,
    in nats.
    """
    return MutualInformationReward(captioner, gather=gather, image_column=image_column)


def processing_class(name: str) -> Any:
    """Loads the processor of a vision-language model for TRL's ``processing_class``, without support for videos.

    In transformers, the processors of Qwen2-VL and related models also load a video processor, which needs torchvision.
    """

    return whole_processor(name, transformers.AutoConfig.from_pretrained(name, trust_remote_code=False))


class MutualInformationReward:
    """Pointwise mutual information of caption and picture under a frozen captioner, in nats (the ``pmi`` reward).

    Measures how much likelier the captioner finds the caption for its picture than for the average picture in the batch
    (over all ranks if ``gather`` is set). It may be negative; claims that are not true of the picture lower it.
    captioner: a name that `tellapart.captioners.load_captioner` accepts, or a captioner. Each picture counts once in
    the average. The reward abstains (None) if all rows of the batch have the same picture. Raises `UsageError` in the
    first step if the data set lacks the column, or if the features of pictures differ in shape.
    """

    __name__ = "pmi"  # the name in TRL's logs

    def __init__(self, captioner: str | Captioner, *, gather: bool = True, image_column: str = "image") -> None:
        self.captioner, self.gather, self.image_column = captioner, gather, image_column

    @torch.no_grad()
    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        captioner = self._loaded()
        pictures = [load_rgb(value) for value in column(columns, self.image_column, "each row's picture")]
        keys = [picture_key(picture) for picture in pictures]
        once = dict(zip(keys, pictures, strict=True))
        visual = captioner.encode(captioner.pixels(list(once.values())))
        place = {key: row for row, key in enumerate(once)}
        visual_of_keys = visual[torch.tensor([place[key] for key in keys], device=visual.device)]
        average, several = self._average(list(once), visual, captioner)
        if not several:
            return [None] * len(keys)
        tokens_RT, valid_RT = captioner.pad(captioner.tokenize([text_of(completion) for completion in completions]))
        rollout = Rollout(tokens_RT.to(visual.device), valid_RT.to(visual.device), [])
        speaker = Speaker(captioner)
        each = torch.stack(
            [speaker.score(seen, rollout) for seen in (visual_of_keys, average.expand_as(visual_of_keys).contiguous())]
        )
        return [float(value) for value in mutual_information(each.sum(2))]

    def _loaded(self) -> Captioner:
        """Loads the captioner in the first step, because the rank's device is not known before."""
        if isinstance(self.captioner, str):
            self.captioner = load_captioner(self.captioner, accelerate.PartialState().device, "fp32")
            self.captioner.model.requires_grad_(False).eval()
        return self.captioner

    def _average(self, keys: Sequence[bytes], visual: torch.Tensor, captioner: Captioner) -> tuple[torch.Tensor, bool]:
        """Returns the mean features 1×… over the batch's distinct pictures, and whether there are several.

        Rows of pictures at native resolution begin with three numbers for their shape, which must not be averaged.
        """
        key_PK, flat_PD = as_numbers(keys).to(visual.device), visual.flatten(1).float()
        if self.gather:
            key_PK, flat_PD = gathered(key_PK), gathered(flat_PD)
        key_NK, row_P = key_PK.unique(dim=0, return_inverse=True)
        flat_ND = flat_PD.new_empty(len(key_NK), flat_PD.shape[1])
        flat_ND[row_P] = flat_PD
        if captioner.lengths_differ and len(flat_ND[:, :3].unique(dim=0)) > 1:
            raise UsageError(
                f"pmi: the features that {captioner.name} computes differ in shape and cannot be averaged; resize the "
                "pictures to a common size"
            )
        return flat_ND.mean(0).view(1, *visual.shape[1:]).to(visual), len(key_NK) > 1
