"""Figure 5 of paper 1: what one word costs where the label is richer, or plainer, than what the model would say."""

from __future__ import annotations

from typing import Any

import numpy as np


def caption_pair(scene: Any) -> tuple[str, str]:
    """(rich, plain): the same true sentence with and without the colour of its one object.

    The noun is the one that terse captions use, as in the paper's figure: there the model would say "bus" where the
    label has "white", and "bus" is a word of the label.
    """
    from tellapart.scenes import vocabulary as v
    from tellapart.scenes.lexicon import article

    noun, ground = v.GENERIC[0], v.GROUNDS[scene.ground][0]
    return f"{article(f'{scene.objects[0].colour} {noun}')} {ground}", f"{article(noun)} {ground}"


def second_word_loss(heard: Any, objective: str, label: str) -> np.ndarray:
    """−log p in nats of the word after the article, for each picture.

    ``label`` "rich": the colour, where a plain caption has the noun; "plain": the noun, where a rich one has the
    colour. ``objective`` "mle": among the whole vocabulary; "smile": among the words of the caption.
    """
    import torch

    from tellapart.captioners import load_captioner
    from tellapart.models.device import best_device
    from tellapart.objectives.smile import subset_mask

    captioner = load_captioner(heard.model, best_device())
    texts = [caption_pair(item.truth)[0 if label == "rich" else 1] for item in heard.items]
    visual = np.asarray(heard.lab.features(heard.items, captioner))
    losses = []
    with torch.no_grad():
        for start in range(0, len(texts), 100):
            block = torch.as_tensor(visual[start : start + 100]).to(captioner.device)
            padded = captioner.pad(captioner.tokenize(texts[start : start + 100]))
            labels_BT, valid_BT = (x.to(captioner.device) for x in padded)
            scores_BTV = captioner.logits(block, labels_BT, valid_BT).float()
            if objective == "smile":
                keep_BTV = subset_mask(labels_BT, valid_BT, scores_BTV.shape[-1], "own", None)
                scores_BTV = scores_BTV.masked_fill(~keep_BTV, -torch.inf)
            log_p_BV = scores_BTV[:, 1].log_softmax(-1)
            losses.append(-log_p_BV.gather(1, labels_BT[:, 1:2])[:, 0].cpu().numpy())
    return np.concatenate(losses)
