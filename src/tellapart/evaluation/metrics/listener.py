"""How often an exact listener, which knows every scene and believes the caption, picks the right picture."""

from __future__ import annotations

from functools import partial

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.metrics.recall import pools_signature, recall_chance
from tellapart.metrics.corpus_scores import PERCENT, Measurement
from tellapart.metrics.metric_info import APART
from tellapart.metrics.registry import context_metric
from tellapart.metrics.slots import CaptionSlot
from tellapart.scenes.listener import listener_probabilities
from tellapart.utils.progress import track


@context_metric(
    "listener_accuracy",
    needs=("truth", "pictures", "scorer", "two"),
    signature=lambda context: f"{pools_signature(context, 'lookalike')}|listener:exact-truth",
    label="picked by an exact listener",
    help="% of pictures that would be picked by an exact listener, which knows every scene and believes the caption",
    direction="higher",
    group=APART,
    bounds=PERCENT,
    pools="lookalike",
    chance=partial(recall_chance, 1, "lookalike"),
)
def listener_accuracy(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the probability, in percent, that an exact listener picks the target from the look-alike set."""

    items, sets = context.items, context.sets("lookalike")
    assert items is not None
    value_N = np.full(len(items), np.nan)
    for members, target in track(list(zip(sets.sets, sets.target_Q, strict=True)), label="listening"):
        place = int(np.flatnonzero(members == target)[0])
        candidates = [items[member].truth for member in members]
        value_N[target] = listener_probabilities(slot.captions[target], candidates)[place]
    return Measurement(100 * value_N)
