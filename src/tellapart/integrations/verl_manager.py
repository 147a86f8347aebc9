"""A reward manager for verl (0.9) that scores all captions of a step at once.

verl scores captions one by one as they are generated, but rewards that compare pictures need the whole step. Configure
the reward manager like this:

    reward.custom_reward_function.path=verl_reward.py
    reward.reward_manager.source=importlib
    reward.reward_manager.name=BatchManager
    reward.reward_manager.module.path=pkg://tellapart.integrations.verl_manager
    reward.num_workers=1

Only verl imports this module.
"""

from __future__ import annotations

from typing import Any

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from tellapart.errors import UsageError
from tellapart.integrations.captions_together import CaptionsTogether

PATIENCE = 120.0  # an incomplete step is scored after this many seconds without a new caption


class BatchManager(RewardManagerBase):  # type: ignore[misc]  # verl ships no types
    """Scores the captions of a step together, using a ``compute_score`` such as `VerlBatchScore`.

    A step has ``data.train_batch_size`` × ``actor_rollout_ref.rollout.n`` captions. An incomplete step is scored after
    ``reward.reward_kwargs.patience`` seconds without a new caption. Raises `UsageError` if no ``compute_score`` is
    configured, or if there are several reward workers, because each would see only part of the step.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **kwargs: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        if config.reward.custom_reward_function.path is None:
            raise UsageError("reward.custom_reward_function.path is not set; expected a file with a VerlBatchScore")
        if config.reward.num_workers != 1:
            raise UsageError(
                f"reward.num_workers is {config.reward.num_workers}, but each worker would compare only its own "
                "captions; set reward.num_workers=1"
            )
        size = config.data.get("gen_batch_size", None) or config.data.train_batch_size
        options = config.reward.get("reward_kwargs", None) or {}
        captions = int(size) * int(config.actor_rollout_ref.rollout.n)
        self.together = CaptionsTogether(compute_score, captions, float(options.get("patience", PATIENCE)))

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Returns a caption's score as soon as all captions of its step have arrived."""
        item = data[-1]
        response = item.batch["responses"]
        length = int(item.batch["attention_mask"][-response.shape[-1] :].sum())
        text = await self.loop.run_in_executor(
            None, lambda: self.tokenizer.decode(response[:length], skip_special_tokens=True)
        )
        rest = item.non_tensor_batch
        caption = {
            "data_source": rest.get("data_source"),
            "solution_str": text,
            "ground_truth": (rest.get("reward_model") or {}).get("ground_truth"),
            "extra_info": rest.get("extra_info"),
        }
        score = await self.together.score_of(caption)
        return {"reward_score": score, "reward_extra_info": {"acc": score}}
