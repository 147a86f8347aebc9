"""Paper 1, figure 5: the loss of one word if the label is richer or plainer than the model's prediction."""

from __future__ import annotations

import numpy as np

from replication.test_sets import ArmCaptions
from tellapart.scenes.world import Scene


def caption_pair(scene: Scene) -> tuple[str, str]:
    """Returns (rich, plain): the same true sentence with and without the colour of its only object.

    The noun is that of terse captions, as in the paper's figure: there, the model predicts "bus" where the label has
    "white", and "bus" is a later word of the label.
    """
    from tellapart.language.inflection import with_article
    from tellapart.scenes import vocabulary as v

    noun, ground = v.GENERIC[0], v.GROUNDS[scene.ground][0]
    return f"{with_article(f'{scene.objects[0].colour} {noun}')} {ground}", f"{with_article(noun)} {ground}"


def second_word_loss(captions: ArmCaptions, objective: str, label: str) -> np.ndarray:
    """Computes −log p in nats of the word after the article, N values; ``captions`` gives model and pictures.

    label: "rich" (the colour, at the position where a plain caption has the noun) or "plain" (the noun, at the position
        where a rich caption has the colour).
    objective: "mle" (over the whole vocabulary) or "smile" (over the words of the caption).
    """
    import torch

    from tellapart.captioners import load_captioner
    from tellapart.models.devices import best_device
    from tellapart.objectives.smile import subset_mask

    assert captions.model is not None, "references have no model"
    captioner = load_captioner(captions.model, best_device(), "fp32")
    texts = [caption_pair(item.truth)[0 if label == "rich" else 1] for item in captions.items]
    visual = captions.test_sets.features(captions.items, captioner)
    losses = []
    with torch.no_grad():
        for start in range(0, len(texts), 100):
            batch = torch.as_tensor(visual[start : start + 100]).to(captioner.device)
            padded = captioner.pad(captioner.tokenize(texts[start : start + 100]))
            labels_BT, valid_BT = (x.to(captioner.device) for x in padded)
            logits_BTV = captioner.logits(batch, labels_BT, valid_BT).float()
            if objective == "smile":
                keep_BTV = subset_mask(labels_BT, valid_BT, logits_BTV.shape[-1], "own", None)
                logits_BTV = logits_BTV.masked_fill(~keep_BTV, -torch.inf)
            log_probs_BV = logits_BTV[:, 1].log_softmax(-1)
            losses.append(-log_probs_BV.gather(1, labels_BT[:, 1:2])[:, 0].cpu().numpy())
    return np.concatenate(losses)
