"""A captioner's evidence for a text and its words: their mutual information with the picture, computed from the
captioner's likelihoods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tellapart.language.token_words import NO_WORD, words_of_tokens
from tellapart.language.words import FindWords, Word, content_words
from tellapart.types import Rollout


def mutual_information(log_p_OR: torch.Tensor) -> torch.Tensor:
    """Computes log p(text | its picture) − log of the mean of p(text | picture) over the other pictures, in nats.

    log_p_OR: log-probabilities for O pictures, starting with the text's own picture. Trailing dimensions are kept.
    """
    return log_p_OR[0] - log_p_OR[1:].logsumexp(0) + math.log(len(log_p_OR) - 1)


def word_log_probs(log_p_ORT: torch.Tensor, word_RT: torch.Tensor, words: int) -> torch.Tensor:
    """Computes log_p_ORW, the sum of the log-probabilities of each word's tokens; 0 for padding.

    ``words``: W, the maximum number of words per caption.
    """
    belongs_RTW = word_RT[..., None] == torch.arange(words)
    return torch.einsum("ort,rtw->orw", log_p_ORT, belongs_RTW.to(log_p_ORT))


@dataclass(frozen=True)
class WordEvidence:
    """The content words of R captions and the captioner's evidence for them.

    words_R: the words of each caption.
    word_RT: the index of the word that each token belongs to.
    log_p_RW: the log-probability of each word, in nats; 0 for missing words.
    evidence_RW: the mutual information of each word with the picture, in nats; 0 for missing words.
    """

    words_R: list[list[Word]]
    word_RT: torch.Tensor
    log_p_RW: torch.Tensor
    evidence_RW: torch.Tensor

    def written(self, r: int) -> list[tuple[int, Word]]:
        """Returns the words of a caption that the captioner's tokenizer can encode, with their indices.

        For all other words there is no evidence.
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

    itself_KR: True where one of the K = O − 1 other pictures is actually the caption's own picture. Such pictures are
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
    """Copies the value of each word to all of its tokens, R×T; NaN for tokens that do not belong to any word."""
    value_RW = F.pad(value_RW, (0, 1), value=math.nan)
    return value_RW.gather(1, torch.where(word_RT == NO_WORD, value_RW.shape[1] - 1, word_RT))
