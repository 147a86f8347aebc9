"""Computes worth and belief of each content word in a gallery's captions, and the loss of each token of a caption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tellapart.captioners import Captioner, load_captioner
from tellapart.features.store import FeatureStore
from tellapart.features.views import make_view
from tellapart.language.words import Word
from tellapart.objectives.smile import subset_mask
from tellapart.rewards.paid_words import JudgedWords, PaidWords, WordEffects
from tellapart.rewards.speaker import Speaker
from tellapart.scorers import Scorer
from tellapart.types import Batch, Item, Rollout, Rows, in_mode


def add_word_values(
    sets: dict[str, Any],
    ids: Sequence[str],
    scorer: Scorer,
    features_ND: np.ndarray,
    speaker: Captioner,
    visual: Rows,
) -> None:
    """Adds ``"words": [[start, end, worth, belief]]`` to every caption of a gallery, as in `rewards.paid_words`.

    start, end: the characters of the word in the caption.
    worth: the drop, in nats, of the scorer's log-probability of the target among the set's candidates when the word's
    claim is removed.
    belief: 0 to 1, from ``speaker``'s log-probability of the word, its mutual information with the picture, and the
    drop among the gallery's targets.
    features_ND, visual: inputs of the scorer and of ``speaker`` for all N test pictures, in the order of ``ids``.

    Does not use ground truth. Leaves a gallery of fewer than two sets unchanged, because mutual information compares
    pictures.
    """
    entries = sets["sets"]
    if len(entries) < 2:
        return
    row_of = {key: row for row, key in enumerate(ids)}
    rows_B = np.array([row_of[entry["target"]] for entry in entries])
    others = [[row_of[key] for key in entry["candidates"] if key != entry["target"]] for entry in entries]
    near_BK = np.array([rows[: min(map(len, others))] for rows in others], np.int64)  # K is 0 if all are copies
    effects = WordEffects(scorer, features_ND, lambda rows_B: near_BK)
    judge = PaidWords(effects, Speaker(speaker))
    seen = speaker.inputs(torch.as_tensor(np.ascontiguousarray(visual[rows_B])))
    batch = Batch([], torch.from_numpy(rows_B), seen)
    for name in entries[0]["systems"]:
        answers = [entry["systems"][name] for entry in entries]
        judged = _judged(judge, speaker, [answer["caption"] for answer in answers], batch)
        for r, answer in enumerate(answers):
            answer["words"] = [
                [word.start, word.end, round(float(judged.near_RW[r, w]), 3), round(float(judged.gate_RW[r, w]), 3)]
                for w, word in _written(judged, r)
            ]


def losses_of(model: str, item: Item, text: str, device: str = "auto") -> list[tuple[str, float, float, str, float]]:
    """Loads a captioner by name and computes `token_losses` of a caption of a picture."""
    captioner = load_captioner(model, device)
    view = make_view(captioner, FeatureStore(), progress=False)
    return token_losses(captioner, torch.as_tensor(view.rows([item])[:]), text)


def token_losses(captioner: Captioner, visual: torch.Tensor, text: str) -> list[tuple[str, float, float, str, float]]:
    """Computes the loss in nats of each token of a caption, under MLE and under SMILE (paper 1, figure 5).

    visual: features of the picture. Returns the token, the loss over the vocabulary, the loss over the caption's own
    tokens, and the captioner's most likely token with its probability. The first token's SMILE loss is the MLE loss, as
    in first-token MLE.
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


def _judged(judge: PaidWords, speaker: Captioner, texts: list[str], batch: Batch) -> JudgedWords:
    tokens_RT, valid_RT = (x.to(speaker.device) for x in speaker.pad(speaker.tokenize(texts)))
    with torch.no_grad(), in_mode(speaker.model, training=False):
        return judge.judge(Rollout(tokens_RT, valid_RT, texts), batch)


def _written(judged: JudgedWords, r: int) -> list[tuple[int, Word]]:
    """Returns the words of a caption that the captioner's tokenizer can represent; it has no belief in others."""
    tokens = set(judged.word_RT[r].tolist())
    return [(w, word) for w, word in enumerate(judged.found[r]) if w in tokens]
