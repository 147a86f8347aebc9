"""Per-word reward: rewards each content word for distinguishing look-alikes, weighted by the confidence that it is
true.

A false word raises a caption's cosine almost as often as a true word does, because an extra claim costs nothing. This
reward therefore measures each content word separately: how much the score drops when the word's claim is removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from tellapart.language.removed_claim import neutral, without
from tellapart.language.token_words import NO_WORD, words_of_tokens
from tellapart.language.words import WORD_FINDERS, WORD_KINDS, Word, check_words
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.evidence import WordEvidence, spread, word_evidence
from tellapart.rewards.run_parts import Nearest, RunParts, frozen_scorers
from tellapart.rewards.speaker import Speaker
from tellapart.scorers.base import Scorer
from tellapart.types import Batch, Rollout
from tellapart.utils.recipe_names import ModelName

SHARE = 0.5  # weight of the mutual information that ``both`` adds to the log-probability


@dataclass(frozen=True)
class Price:
    """Computes the reward for a word: gate · worth − (1 − gate) · penalty − rent, in nats.

    The gate is sigmoid(slope · (evidence − offset)). The evidence is the initial model's confidence in the word (mutual
    information with the picture, or log-probability) + ``truth`` · the score drop among random pictures when the word
    is removed. ``rent`` sets the operating point on the precision-recall curve. ``worth`` is a factor for the score
    drop among look-alikes, which is clipped to [−``limit``, ``limit``].
    """

    rent: float = 0.0
    penalty: float = 1.0
    slope: float = 2.0
    offset: float = -2.5
    truth: float = 0.2
    worth: float = 1.0
    limit: float = 3.0

    def gate(self, confidence: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
        """Computes the gate of each word: the confidence in the word, from 0 to 1.

        far: the score drop among random pictures when the word is removed, in nats.
        """
        return torch.sigmoid(self.slope * (confidence + self.truth * far - self.offset))

    def credit(self, gate: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        """Computes the credit for each word, in nats.

        near: the score drop among look-alikes when the word is removed, in nats.
        """
        worth = self.worth * near.clamp(-self.limit, self.limit)
        return gate * worth - (1 - gate) * self.penalty - self.rent


@dataclass(frozen=True)
class JudgedWords:
    """The content words of R captions.

    near_RW: the worth of each word in nats. gate_RW: the confidence in each word, in [0, 1]. If a caption has fewer
    than W words, the remaining entries in its row are undefined.
    """

    words: WordEvidence
    near_RW: torch.Tensor
    gate_RW: torch.Tensor


class WordEffects:
    """Measures how much the scorer's log-probability of the picture drops when a content word is removed.

    ``features_ND``: the scorer's features for all training pictures. ``nearest``: returns the look-alikes of training
    pictures. ``replace``: ``neutral`` replaces the word with a neutral word of the same class, ``delete`` removes it.
    """

    def __init__(
        self,
        scorer: Scorer,
        features_ND: np.ndarray,
        nearest: Nearest,
        *,
        replace: Literal["neutral", "delete"] = "neutral",
    ) -> None:
        self.scorer, self.features_ND, self.nearest = scorer, features_ND, nearest
        self.change = neutral if replace == "neutral" else without

    def __call__(
        self, texts: list[str], found: list[list[Word]], rows_B: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the score drops near_RW, among the picture's look-alikes, and far_RW, among the pictures ``rows_B``.
        Score drops are in nats, and 0 where there is no word. The text tower encodes one text per caption and one per
        content word; picture features are precomputed.
        """
        captions = len(texts) // len(rows_B)
        whose = [(r, w) for r, words in enumerate(found) for w in range(len(words))]
        if not whose:
            return torch.zeros(len(texts), 0), torch.zeros(len(texts), 0)
        changed = [self.change(texts[r], found[r][w]) for r, w in whose]
        features = self.scorer.text_features([*texts, *changed]).cpu().float()
        row_N, place_N = torch.tensor(whose).T
        near_RW, far_RW = torch.zeros(2, len(texts), max(map(len, found)))
        images_BD = torch.from_numpy(self.features_ND[rows_B]).float()
        near_BKD = torch.from_numpy(self.features_ND[self.nearest(rows_B)]).float()
        own_N = row_N // captions
        text_N, without_N = features[row_N], features[len(texts) :]
        for value_RW, candidates in ((near_RW, near_BKD), (far_RW, images_BD)):
            drop_N = self._log_probs(text_N, own_N, images_BD, candidates) - self._log_probs(
                without_N, own_N, images_BD, candidates
            )
            value_RW[row_N, place_N] = drop_N
        return near_RW, far_RW

    def _log_probs(
        self, text_ND: torch.Tensor, own_N: torch.Tensor, images_BD: torch.Tensor, candidates: torch.Tensor
    ) -> torch.Tensor:
        """Computes log p(picture | text), either against B×K×D candidates or among the B pictures themselves."""
        own_cosine_N = (text_ND * images_BD[own_N]).sum(1)
        if candidates.ndim == 2:
            cosine_NK = text_ND @ candidates.T
        else:
            others_NK = torch.einsum("nd,nkd->nk", text_ND, candidates[own_N])
            cosine_NK = torch.cat([own_cosine_N[:, None], others_NK], dim=1)
        return self.scorer.scale * own_cosine_N - (self.scorer.scale * cosine_NK).logsumexp(1)


class PaidWords:
    """Computes `Price.credit` for every content word.

    Returns reward_BST, where each token of a content word has the word's credit and all other tokens have NaN. If
    ``per`` is ``caption``, returns reward_BS, the sum of the credits of the words in a caption.

    ``cfg.confidence``: how to measure the initial model's confidence in a word: ``log_prob``, the word's
    log-probability given the preceding text; ``pmi``, the word's mutual information with the picture; ``both``, the
    log-probability plus half of the mutual information, which predicts best which words are true (docs/research).
    ``cfg.shuffled_gates``: a control that permutes the gates among words of the same kind, so that the total reward is
    the same but goes to random words.
    """

    @reward(
        "paid words",
        help="Rewards each content word for distinguishing look-alikes, weighted by the confidence that it is true.",
        needs=("start", "scorer"),
    )
    class Config(RewardOptions):
        """Rewards the tokens of each content word with gate · worth − (1 − gate) · penalty − rent, in nats.

        ``worth``: factor for the drop in the scorer's score among the ``nearest`` look-alikes when the word's claim is
        removed; the drop is clipped to ±``limit``. The gate is sigmoid(``slope`` · (confidence + ``truth`` · drop among
        the batch's pictures − ``offset``)). The confidence comes from the initial model: the log-probability of the
        word, the mutual information between word and picture (compared with ``others`` other pictures in the batch, or
        with the average picture if 0), or ``both``. ``rent`` sets the operating point on the precision-recall curve.

        ``per`` = "caption" sums the credits of a caption's words. ``shuffled_gates`` permutes the gates as a control.
        """

        kind: Literal["paid_words"]
        per: Literal["word", "caption"] = "word"
        rent: float = 0.0
        penalty: float = Field(1.0, ge=0)
        worth: float = Field(1.0, ge=0)
        limit: float = Field(3.0, gt=0)
        slope: float = Field(2.0, gt=0)
        offset: float = -2.5
        truth: float = Field(0.2, ge=0)
        confidence: Literal["both", "pmi", "log_prob"] = "both"
        others: int = Field(0, ge=0)
        nearest: int = Field(9, ge=1)
        replace: Literal["neutral", "delete"] = "neutral"
        words: Literal["list", "tagger"] = "list"
        scorer: ModelName | None = Field(None, description="scorer to use instead of the recipe's [scorer]")
        shuffled_gates: bool = False

        def needs(self) -> tuple[str, ...]:
            return ("start",) if self.scorer else ("start", "scorer")

        def scorer_names(self) -> tuple[str, ...]:
            return (self.scorer,) if self.scorer else ()

        @property
        def per_token(self) -> bool:
            return self.per == "word"

        def check(self) -> None:
            check_words(self.words)

        def build(self, parts: RunParts) -> Reward:
            (scorer,) = frozen_scorers(self.scorer_names(), parts)
            nearest = parts.nearest_train(scorer, self.nearest)
            effects = WordEffects(scorer, parts.train_features(scorer), nearest, replace=self.replace)
            speaker = Speaker(parts.start(), self.others, pixels=parts.vision_learns)
            return PaidWords(effects, speaker, self)

    def __init__(self, effects: WordEffects, speaker: Speaker, cfg: Config | None = None) -> None:
        self.effects, self.speaker, self.cfg = effects, speaker, cfg or PaidWords.Config(kind="paid_words")
        self.price = Price(**{name: getattr(self.cfg, name) for name in Price.__dataclass_fields__})
        self.find = WORD_FINDERS[self.cfg.words]

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        judged = self.judge(rollout, batch)
        words_R, word_RT = judged.words.words_R, judged.words.word_RT
        gate_RW = shuffled_gates(judged.gate_RW, words_R, batch) if self.cfg.shuffled_gates else judged.gate_RW
        credit_RW = self.price.credit(gate_RW, judged.near_RW)
        if self.cfg.per == "caption":
            is_word_RW = torch.tensor([[w < len(words) for w in range(gate_RW.shape[1])] for words in words_R])
            return (credit_RW * is_word_RW).sum(1).view(-1, rollout.samples)
        return spread(credit_RW, word_RT).view(-1, rollout.samples, word_RT.shape[1])

    def judge(self, rollout: Rollout, batch: Batch) -> JudgedWords:
        """Returns the content words with their worth and gate, before gates are shuffled and credits are summed."""
        log_p_ORT = self.speaker.log_probs(rollout, batch)
        words = word_evidence(log_p_ORT, rollout, self.speaker.start.tokenizer, self.find)
        near_RW, far_RW = self.effects(rollout.texts, words.words_R, batch.rows_B.numpy())
        return JudgedWords(words, near_RW, self.price.gate(self.confidence_of(words), far_RW))

    def confidence_of(self, words: WordEvidence) -> torch.Tensor:
        """Computes confidence_RW, the initial model's confidence in each word, in nats."""
        if self.cfg.confidence == "log_prob":
            return words.log_p_RW
        if self.cfg.confidence == "pmi":
            return words.evidence_RW
        return words.log_p_RW + SHARE * words.evidence_RW

    def word_classes(self, rollout: Rollout) -> torch.Tensor:
        """Returns class_RT: the kind of word that each token belongs to; 0 if the token does not belong to a word."""
        found, word_RT = words_of_tokens(rollout, self.speaker.start.tokenizer, self.find)
        kinds = torch.zeros(len(found), max(1, max(map(len, found))), dtype=torch.long)
        for r, words in enumerate(found):
            for w, word in enumerate(words):
                kinds[r, w] = 1 + WORD_KINDS.index(word.kind)
        return torch.where(word_RT == NO_WORD, 0, kinds.gather(1, word_RT.clamp(min=0)))


def shuffled_gates(gate_RW: torch.Tensor, found: list[list[Word]], batch: Batch) -> torch.Tensor:
    """Permutes the gates among words of the same kind in the batch."""
    mixed_RW = gate_RW.clone()
    generator = torch.Generator().manual_seed(batch.seed * 1_000_003 + batch.step)
    for kind in WORD_KINDS:
        where = [(r, w) for r, words in enumerate(found) for w, word in enumerate(words) if word.kind == kind]
        if where:
            row_N, place_N = torch.tensor(where).T
            dealt_N = torch.randperm(len(where), generator=generator)
            mixed_RW[row_N, place_N] = gate_RW[row_N, place_N][dealt_N]
    return mixed_RW
