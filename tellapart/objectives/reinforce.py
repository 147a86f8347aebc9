"""REINFORCE: captions that the captioner wrote itself, made likelier as far as their reward says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tellapart.decode import Decoding
from tellapart.objectives.base import Loss, token_log_probs
from tellapart.types import Batch, Rollout

Reward = Callable[[Rollout, Batch], torch.Tensor]
Baseline = Callable[[torch.Tensor, Batch], torch.Tensor]


class Reinforce:
    """Policy gradient of a reward, DiscriTune's (paper 3, section 3 and appendix B.1).

    Loss: mean over captions of −(reward − baseline) · log p(caption), where log p is the sum over
    the caption's tokens divided as ``normalise`` says: ``length+1`` (DiscriTune: end token left out
    of the sum), ``length`` (paper 2: end token in), ``none`` (the sum).
    ``kl``: weight of KL(captioner ‖ start) per token, in nats, against drifting from ``start``.
    """

    def __init__(
        self,
        reward: Reward,
        baseline: Baseline,
        decoding: Decoding,
        *,
        normalise: str = "length+1",
        dropout_in_rollout: bool = True,
        kl: float = 0.0,
        start: Any = None,
    ) -> None:
        self.reward, self.baseline, self.decoding = reward, baseline, decoding
        self.normalise, self.dropout_in_rollout, self.kl, self.start = normalise, dropout_in_rollout, kl, start

    def __call__(self, learner: Any, batch: Batch) -> Loss:
        rollout = self.roll_out(learner, batch)
        reward_BS = self.reward(rollout, batch)
        advantage_R = (reward_BS - self.baseline(reward_BS, batch)).view(-1)
        logits_RTV = learner.logits(batch.visual, rollout.tokens_RT, rollout.valid_RT)
        log_p_R = caption_log_probs(
            token_log_probs(logits_RTV, rollout.tokens_RT, self.temperature),
            rollout,
            learner.end,
            self.normalise,
        )
        heard_R = ~advantage_R.isnan()  # a reward of NaN abstains
        loss = -(advantage_R[heard_R] * log_p_R[heard_R]).sum() / max(1, int(heard_R.sum()))
        logs = {
            "reward": float(reward_BS.nanmean()),
            "length": float(rollout.valid_RT.sum(1).float().mean()),
            "distinct": len(set(rollout.texts)) / len(rollout.texts),
        }
        if self.kl:
            divergence = self.divergence(logits_RTV, batch, rollout)
            loss, logs["kl"] = loss + self.kl * divergence, float(divergence.detach())
        return Loss(loss, logs)

    @property
    def temperature(self) -> float:
        """What was sampled and what is scored agree: tempered sampling is scored with its temperature."""
        return self.decoding.temperature if self.decoding.kind == "sample" else 1.0

    def roll_out(self, learner: Any, batch: Batch) -> Rollout:
        training = learner.model.training
        learner.model.train(training and self.dropout_in_rollout)
        with torch.no_grad():
            rollout = learner.generate(batch.visual.detach(), self.decoding)
        learner.model.train(training)
        return rollout

    def divergence(self, logits_RTV: torch.Tensor, batch: Batch, rollout: Rollout) -> torch.Tensor:
        """KL(captioner ‖ start) over the whole vocabulary, mean over the rollout's tokens, in nats."""
        with torch.no_grad():
            start_RTV = self.start.logits(batch.visual.detach(), rollout.tokens_RT, rollout.valid_RT)
        now_NV = logits_RTV[rollout.valid_RT].float().log_softmax(-1)
        start_NV = start_RTV[rollout.valid_RT].float().log_softmax(-1)
        return (now_NV.exp() * (now_NV - start_NV)).sum(-1).mean()

    def state_dict(self) -> dict[str, Any]:
        return self.baseline.state_dict() if hasattr(self.baseline, "state_dict") else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if hasattr(self.baseline, "load_state_dict"):
            self.baseline.load_state_dict(state)


def caption_log_probs(log_probs_RT: torch.Tensor, rollout: Rollout, end: int, normalise: str) -> torch.Tensor:
    """One log-probability R for each caption from its tokens'; an empty caption counts as its end token.

    ``length+1``: sum over words, without the end token, divided by (words + 1); ``length``: sum with the
    end token, divided by its count; ``none``: the sum with the end token.
    """
    words_RT = rollout.valid_RT & (rollout.tokens_RT != end)
    if normalise == "length+1":
        # An empty caption has no word to make likelier: its end token stands in, so that it can be unlearned.
        counted_RT = torch.where(words_RT.any(1, keepdim=True), words_RT, rollout.valid_RT)
        return (log_probs_RT * counted_RT).sum(1) / (words_RT.sum(1) + 1)
    total_R = (log_probs_RT * rollout.valid_RT).sum(1)
    return total_R / rollout.valid_RT.sum(1).clamp(min=1) if normalise == "length" else total_R
