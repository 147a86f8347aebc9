"""Rewards from the initial model's likelihoods: how much likelier a caption is for its own picture than for others.

A scorer's cosine averages over the claims of a caption. A likelihood multiplies them: one false claim makes the whole
caption unlikely. Pointwise mutual information compares the likelihood with that for other pictures, so that rare
synonyms cost nothing (Rational Speech Acts: Frank and Goodman 2012; for captions: Cohn-Gordon et al. 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator

from tellapart.language.token_spans import NO_WORD, words_of_tokens
from tellapart.language.words import WORD_FINDERS, FindWords, Word, check_words, content_words
from tellapart.models import ranks
from tellapart.models.protocols import CaptionerLike
from tellapart.rewards.base import Reward, RewardOptions, RunParts, reward
from tellapart.types import Batch, Rollout

OTHERS = 4  # number of pictures that stand for all others if there is no average picture
SCORES_AT_ONCE = 1 << 26  # tokens × vocabulary per pass, in float32 values


class Speaker:
    """Computes log-probabilities of captions under a frozen captioner, for their own and other pictures in the batch.

    ``others``: the number of other pictures, at most all. They are spread over the batch to avoid neighbours from the
    same bag. 0 uses the average picture, the mean of the batch's features, instead of other pictures; this costs one
    extra pass and predicts which words are true almost as well as eight pictures (docs/research). Features of different
    shapes cannot be averaged, so four other pictures are used in that case. ``pixels``: whether ``batch.visual``
    contains pixels because the vision encoder is trained. Each rank scores the captions of its share of the pictures.
    """

    def __init__(self, start: CaptionerLike, others: int = 0, *, pixels: bool = False) -> None:
        keeps_shapes = getattr(start, "lengths_differ", False)
        self.start, self.others, self.pixels = start, others or (OTHERS if keeps_shapes else 0), pixels

    def log_probs(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        """Computes log_p_ORT of each token given the previous ones, first for its own picture, then for O − 1 others.

        In nats, 0 on padding. Each picture is encoded once for all of its captions. Raises ValueError if the batch
        contains only one picture.
        """
        if len(batch.rows_B) < 2:
            raise ValueError("mutual information compares the pictures in a batch; expected at least 2 pictures, got 1")
        if self.others:
            return self._among_pictures(rollout, batch)
        share = ranks.share(len(batch.rows_B))
        with torch.no_grad():
            visual = self.visual(batch, share)
            everything = ranks.gather_rows(visual) if self.pixels else batch.visual
            average = everything.mean(0, keepdim=True).expand_as(visual).contiguous()
            each = [ranks.gather_rows(self.score(seen, rollout[share])) for seen in (visual, average)]
        return torch.stack(each)

    def own_log_probs(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        """Computes log_p_RT of each token for the caption's own picture, in nats; 0 on padding."""
        share = ranks.share(len(batch.rows_B))
        with torch.no_grad():
            return ranks.gather_rows(self.score(self.visual(batch, share), rollout[share]))

    def visual(self, batch: Batch, part: slice) -> torch.Tensor:
        """Returns the initial model's input for these pictures."""
        return self.start.encode(batch[part].visual) if self.pixels else batch.visual[part]

    def score(self, visual: torch.Tensor, rollout: Rollout) -> torch.Tensor:
        """Computes log_p_RT of each token for these B pictures, in nats, in chunks that fit into memory; 0 on
        padding.
        """
        at_once = self._at_once(rollout.samples * rollout.tokens_RT.shape[1])
        scored = []
        for first in range(0, len(visual), at_once):
            part = rollout[first : min(first + at_once, len(visual))]
            scored.append(self._score(visual[first : first + at_once], part.tokens_RT, part.valid_RT))
        return torch.cat(scored)

    def _at_once(self, tokens: int) -> int:
        """Returns the number of pictures per pass if each has ``tokens`` tokens."""
        return max(1, SCORES_AT_ONCE // (tokens * self._vocabulary))

    def _among_pictures(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        B, S = len(batch.rows_B), rollout.samples
        offsets = self._offsets(B)
        T = rollout.tokens_RT.shape[1]
        tokens_BOST, valid_BOST = (
            torch.stack([rows_RT.view(B, S, T).roll(offset, 0) for offset in offsets], dim=1)
            for rows_RT in (rollout.tokens_RT, rollout.valid_RT)
        )
        log_p_BOST = torch.zeros(tokens_BOST.shape, device=rollout.tokens_RT.device)
        at_once = self._at_once(len(offsets) * S * T)
        share = ranks.share(B)
        with torch.no_grad():
            for first in range(share.start, share.stop, at_once):
                part = slice(first, min(first + at_once, share.stop))
                rows = tokens_BOST[part].flatten(0, 2), valid_BOST[part].flatten(0, 2)
                log_p_BOST[part] = self._score(self.visual(batch, part), *rows).view(tokens_BOST[part].shape)
        log_p_BOST = ranks.gather_rows(log_p_BOST[share])
        own_first = [log_p_BOST[:, k].roll(-offset, 0) for k, offset in enumerate(offsets)]
        return torch.stack(own_first).reshape(len(offsets), B * S, T)

    def _offsets(self, B: int) -> list[int]:
        count = min(self.others, B - 1)
        return [B // (count + 1) * k for k in range(count + 1)]

    @property
    def _vocabulary(self) -> int:
        head = self.start.head()
        return len(self.start.tokenizer) if head is None else len(head[0])

    def _score(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        states = self.start.hidden(visual, tokens_RT, valid_RT)[valid_RT]  # skip padding
        head = self.start.head()
        scores_NV = (states if head is None else F.linear(states, *head)).float()
        log_p_RT = scores_NV.new_zeros(tokens_RT.shape)
        log_p_RT[valid_RT] = scores_NV.gather(1, tokens_RT[valid_RT][:, None])[:, 0] - scores_NV.logsumexp(1)
        return log_p_RT


def mutual_information(log_p_OR: torch.Tensor) -> torch.Tensor:
    """Computes log p(text | its picture) − log of the mean of p(text | picture) over the other pictures, in nats.

    log_p_OR: log-probabilities for O pictures, the text's own picture first; trailing dimensions are kept.
    """
    return log_p_OR[0] - log_p_OR[1:].logsumexp(0) + math.log(len(log_p_OR) - 1)


def word_log_probs(log_p_ORT: torch.Tensor, word_RT: torch.Tensor, words: int) -> torch.Tensor:
    """Computes log_p_ORW, the sum over the tokens of each word; 0 for padding. ``words``: W, the maximum number of
    words per caption.
    """
    belongs_RTW = word_RT[..., None] == torch.arange(words)
    return torch.einsum("ort,rtw->orw", log_p_ORT, belongs_RTW.to(log_p_ORT))


@dataclass(frozen=True)
class WordEvidence:
    """The content words of R captions and the captioner's evidence for them.

    words_R: the words of each caption. word_RT: the index of the word that each token belongs to. log_p_RW: the
    log-probability of each word. evidence_RW: its mutual information with the picture. Both in nats, 0 for missing
    words.
    """

    words_R: list[list[Word]]
    word_RT: torch.Tensor
    log_p_RW: torch.Tensor
    evidence_RW: torch.Tensor

    def written(self, r: int) -> list[tuple[int, Word]]:
        """Returns the words of a caption, with their indices, that the captioner's tokenizer can encode; there is
        no evidence for other words.
        """
        tokens = set(self.word_RT[r].tolist())
        return [(w, word) for w, word in enumerate(self.words_R[r]) if w in tokens]


def word_evidence(
    log_p_ORT: torch.Tensor,
    rollout: Rollout,
    tokenizer: Any,
    find: FindWords = content_words,
    *,
    itself_KR: torch.Tensor | None = None,
) -> WordEvidence:
    """Computes the evidence for each content word in the captions from the output of `Speaker.log_probs`.

    itself_KR: True where one of the K = O − 1 other pictures is in fact the caption's own picture, which is then
    ignored.
    """
    words_R, word_RT = words_of_tokens(rollout, tokenizer, find)
    log_p_ORW = word_log_probs(log_p_ORT.cpu(), word_RT, max(1, *map(len, words_R)))
    if itself_KR is None:
        evidence_RW = mutual_information(log_p_ORW)
    else:
        others_KRW = log_p_ORW[1:].masked_fill(itself_KR[..., None], -torch.inf)
        evidence_RW = log_p_ORW[0] - others_KRW.logsumexp(0) + (~itself_KR).sum(0)[:, None].log()
    return WordEvidence(words_R, word_RT, log_p_ORW[0], evidence_RW)


def spread(value_RW: torch.Tensor, word_RT: torch.Tensor) -> torch.Tensor:
    """Copies the value of each word to all of its tokens, R×T; NaN on tokens that do not belong to any word."""
    value_RW = F.pad(value_RW, (0, 1), value=math.nan)
    return value_RW.gather(1, torch.where(word_RT == NO_WORD, value_RW.shape[1] - 1, word_RT))


class Likelihood:
    """Computes reward_BS, the mean log-probability of a caption's tokens under the initial model, in nats, at most 0.

    An empty caption gets the log-probability of its end token.
    """

    @reward(
        "likelihood", help="Mean log-probability per token of the caption under the initial model.", needs=("start",)
    )
    class Config(RewardOptions):
        """Mean log-probability per token of the caption under the initial model, in nats, at most 0.

        A scorer's cosine does not penalize a false word, but the initial model finds it unlikely. Combined with
        self-retrieval, this reward is the speaker in the Rational Speech Acts framework (Frank and Goodman 2012), as in
        ``self_distillation``.
        """

        kind: Literal["likelihood"]

        def build(self, parts: RunParts) -> Reward:
            return Likelihood(Speaker(parts.start(), pixels=parts.vision_learns))

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        log_p_RT = self.speaker.own_log_probs(rollout, batch)
        return (log_p_RT.sum(1) / rollout.valid_RT.sum(1).clamp(min=1)).view(-1, rollout.samples)


class MutualInformation:
    """Computes the pointwise mutual information of caption and picture under the initial model, in nats.

    ``per``: ``caption`` returns reward_BS; ``word`` returns reward_BST on the tokens of content words, each conditioned
    on the preceding text, and NaN on other tokens. Text that is independent of the picture gets 0; values may be
    negative.
    """

    @reward(
        "mutual information",
        help="Pointwise mutual information of caption and picture under the initial model.",
        needs=("start",),
    )
    class Config(RewardOptions):
        """Mutual information of caption and picture under the initial model, in nats.

        ``others``: number of other pictures in the batch to compare with; 0 uses the average picture.

        ``per``: one value per caption or per content ``word``. ``words``: selects content words with a closed list of
        English function words or with the ``tagger`` HanTa (extra ``words``).
        """

        kind: Literal["pmi"]
        others: int = Field(0, ge=0)
        per: Literal["caption", "word"] = "caption"
        words: Literal["list", "tagger"] = "list"

        @model_validator(mode="after")
        def has_an_effect(self) -> MutualInformation.Config:
            if self.words == "tagger" and self.per == "caption":
                raise ValueError(
                    "words selects the words that are rewarded one by one, but per = 'caption'; set per = 'word' or "
                    "remove words"
                )
            return self

        @property
        def per_token(self) -> bool:
            return self.per == "word"

        def check(self) -> None:
            check_words(self.words)

        def build(self, parts: RunParts) -> Reward:
            speaker = Speaker(parts.start(), self.others, pixels=parts.vision_learns)
            return MutualInformation(speaker, per=self.per, find=WORD_FINDERS[self.words])

    def __init__(
        self, speaker: Speaker, *, per: Literal["caption", "word"] = "caption", find: FindWords = content_words
    ) -> None:
        self.speaker, self.per, self.find = speaker, per, find

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        log_p_ORT = self.speaker.log_probs(rollout, batch).cpu()
        if self.per == "caption":
            return mutual_information(log_p_ORT.sum(2)).view(-1, rollout.samples)
        words = word_evidence(log_p_ORT, rollout, self.speaker.start.tokenizer, self.find)
        return spread(words.evidence_RW, words.word_RT).view(-1, rollout.samples, rollout.tokens_RT.shape[1])
