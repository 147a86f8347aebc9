"""Finds words that a captioner guessed, that is, words that are no likelier for this picture than for other pictures.

``--drop-guesses`` removes or generalizes such content words according to rules of English grammar. It needs neither a
tagger nor training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tellapart.captioners.captioner import Captioner
from tellapart.language.soften import soften
from tellapart.models.decoding import EVIDENCE
from tellapart.models.training_mode import in_mode
from tellapart.rewards.evidence import word_evidence
from tellapart.rewards.speaker import Speaker
from tellapart.types import Rollout

CONTRASTS = 8  # each caption's own picture is compared with this many pictures


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Computes how much likelier the captioner finds each content word for the caption's own picture than for other
    pictures.

    contrast_K: the captioner's inputs for K other pictures.
    ids_K: the ids of these pictures' items, so that no picture is compared with itself.
    """

    captioner: Captioner
    contrast_K: torch.Tensor
    ids_K: Sequence[str]

    def __call__(self, visual: torch.Tensor, ids: Sequence[str], texts: Sequence[str]) -> list[list[float]]:
        """Returns the evidence, in nats, for each of the `content_words` in B captions. ``visual`` has B rows."""
        rollout, speaker, K = self.captioner.rollout_of(texts), Speaker(self.captioner), len(self.contrast_K)
        tokens_RT, valid_RT = rollout.tokens_RT, rollout.valid_RT
        with in_mode(self.captioner.model, False), torch.no_grad():
            own_RT = speaker.score(visual, rollout)
            everywhere = Rollout(tokens_RT.repeat(K, 1), valid_RT.repeat(K, 1), list(texts) * K, len(texts))
            others_KRT = speaker.score(self.contrast_K, everywhere).view(K, *tokens_RT.shape)
        itself_KR = torch.tensor([[own == other for own in ids] for other in self.ids_K])
        log_p_ORT = torch.cat([own_RT[None], others_KRT])
        words = word_evidence(log_p_ORT, rollout, self.captioner.tokenizer, itself_KR=itself_KR)
        rows = zip(words.evidence_RW.tolist(), words.words_R, strict=True)
        return [row[: len(own)] for row, own in rows]

    def without_guesses(self, visual: torch.Tensor, ids: Sequence[str], texts: Sequence[str]) -> list[str]:
        """Returns the captions after removing or generalizing the words whose evidence is below `EVIDENCE`."""
        beliefs = self(visual, ids, texts)
        return [soften(text, [nats < EVIDENCE for nats in row]) for text, row in zip(texts, beliefs, strict=True)]
