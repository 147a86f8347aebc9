"""Computes the loss of each token in a caption, under MLE and under SMILE (paper 1, figure 5)."""

from __future__ import annotations

import torch

from tellapart.captioners import Captioner, load_captioner
from tellapart.features.store import FeatureStore
from tellapart.features.views import make_view
from tellapart.models.training_mode import in_mode
from tellapart.objectives.smile import subset_mask
from tellapart.types import Item


def losses_of(model: str, item: Item, text: str, device: str = "auto") -> list[tuple[str, float, float, str, float]]:
    """Loads a captioner by name, and computes `token_losses` for a picture's caption."""
    captioner = load_captioner(model, device)
    view = make_view(captioner, FeatureStore(), progress=False)
    return token_losses(captioner, torch.as_tensor(view.rows([item])[:]), text)


def token_losses(captioner: Captioner, visual: torch.Tensor, text: str) -> list[tuple[str, float, float, str, float]]:
    """Computes the loss of each token in a caption, in nats, under MLE and under SMILE (paper 1, figure 5).

    visual: the picture's features.

    For each token, returns its text, the MLE loss (over the vocabulary), the SMILE loss (over the caption's own
    tokens), and the captioner's most likely token with its probability. The first token's SMILE loss equals its MLE
    loss, as in first-token MLE.
    """
    labels_1T, valid_1T = (x.to(captioner.device) for x in captioner.pad(captioner.tokenize([text])))
    with torch.no_grad(), in_mode(captioner.model, training=False):
        logits_1TV = captioner.logits(captioner.inputs(visual), labels_1T, valid_1T).float()
    keep_1TV = subset_mask(labels_1T, valid_1T, logits_1TV.shape[-1], "own", None).expand_as(logits_1TV).clone()
    keep_1TV[:, 0] = True
    log_p_TV = logits_1TV.log_softmax(-1)[0]
    own_TV = logits_1TV.masked_fill(~keep_1TV, -torch.inf).log_softmax(-1)[0]
    label_T1 = labels_1T[0, :, None]
    mle_T, smile_T = (-each_TV.gather(1, label_T1)[:, 0] for each_TV in (log_p_TV, own_TV))
    best_T = log_p_TV.max(-1)
    words = [captioner.tokenizer.decode([id_]).strip() or "·" for id_ in labels_1T[0].tolist()]
    likeliest = [captioner.tokenizer.decode([id_]).strip() or "·" for id_ in best_T.indices.tolist()]
    return list(zip(words, mle_T.tolist(), smile_T.tolist(), likeliest, best_T.values.exp().tolist(), strict=True))
