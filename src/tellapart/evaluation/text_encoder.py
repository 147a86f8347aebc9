"""A transformers encoder of texts, for BERTScore and for sentence features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

from tellapart.errors import UsageError
from tellapart.evaluation.hashed_model import HashedModel, load_text_model
from tellapart.metrics.bert_score import TokenFeatures
from tellapart.utils.progress import track

# The layer that agrees best with human judgements (from bert-score's table), by model type and number of layers.
_LAYERS = {
    ("bert", 12): 9,
    ("bert", 24): 18,
    ("roberta", 12): 10,
    ("roberta", 24): 17,
    ("xlm-roberta", 12): 9,
    ("xlm-roberta", 24): 17,
    ("distilbert", 6): 5,
}
_BATCH = 64


class TextEncoder(HashedModel):
    """An encoder of texts. ``layer``: the layer whose hidden states BERTScore uses; 0 means the embeddings."""

    def __init__(self, model: Any, tokenizer: Any, name: str, *, layer: int | None = None) -> None:
        config = model.config
        window = min(int(tokenizer.model_max_length), int(config.max_position_embeddings))
        if config.model_type in ("roberta", "xlm-roberta"):
            window = min(window, int(config.max_position_embeddings) - int(config.pad_token_id) - 1)
        super().__init__(model, tokenizer, name, window)
        depth = int(config.num_hidden_layers)
        self.layer = layer if layer is not None else _LAYERS.get((config.model_type, depth), depth)

    @property
    def signature(self) -> str:
        """Identifies the model (name and weights) and the layer. BERTScores are comparable only if their signatures are
        equal.
        """
        return f"layer:{self.layer}|idf:none|rescaled:no|model:{self.name_and_hash}"

    def token_features(self, texts: Sequence[str]) -> list[TokenFeatures]:
        """Computes each text's L2-normalized token features and their weights."""
        rows = self._rows(texts)
        state_of = dict(self.states(rows, "BERTScore", self.layer))
        unweighted = {self.tokenizer.cls_token_id, self.tokenizer.sep_token_id}
        return [
            TokenFeatures(
                torch.nn.functional.normalize(state_of[number], dim=-1).numpy(),
                np.array([token not in unweighted for token in row], dtype=float),
            )
            for number, row in enumerate(rows)
        ]

    def _rows(self, texts: Sequence[str]) -> list[list[int]]:
        # A leading space makes RoBERTa treat the first word like later words (as in the bert-score package).
        front = " " if self.model.config.model_type == "roberta" else ""
        stripped = [text.strip() for text in texts]
        return self.cut_to_window([front + text if text else text for text in stripped])

    def cut_to_window(self, texts: list[str]) -> list[list[int]]:
        """Tokenizes texts and truncates them to ``window`` tokens. Counts truncated texts in ``cut_texts``."""
        if not texts:
            return []
        sizes = [len(row) for row in self.tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
        self.cut_texts += sum(size > self.window for size in sizes)
        rows: list[list[int]] = self.tokenizer(texts, truncation=True, max_length=self.window)["input_ids"]
        return rows

    def states(
        self, rows: Sequence[Sequence[int]], label: str, layer: int | None = None
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yields the number of each row of tokens, and its states T×D, on the CPU in float32. Batches rows of similar
        length, and therefore yields them in another order.

        layer: the layer of the states [default: the model's last hidden state].
        """
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        starts = range(0, len(order), _BATCH)
        for start in track(starts, len(starts), f"{label} ({_BATCH} texts per step)"):
            numbers = order[start : start + _BATCH]
            batch = [torch.tensor(rows[number]) for number in numbers]
            ids_BT = pad_sequence(batch, True, self.tokenizer.pad_token_id or 0).to(self.device)
            mask_BT = pad_sequence([torch.ones_like(row_T) for row_T in batch], True).to(self.device)
            with torch.inference_mode():
                output = self.model(input_ids=ids_BT, attention_mask=mask_BT, output_hidden_states=layer is not None)
                state_BTD = (output.last_hidden_state if layer is None else output.hidden_states[layer]).float().cpu()
            for number, row_T, state_TD in zip(numbers, batch, state_BTD, strict=True):
                yield number, state_TD[: len(row_T)]


def load_text_encoder(
    name: str,
    device: str | torch.device = "auto",
    precision: str = "auto",
    *,
    layer: int | None = None,
    reader: str = "BERTScore",
    option: str = "--set bertscore=roberta-large",
) -> TextEncoder:
    """Loads a text encoder from a folder or by its hub name. Reads only safetensors.

    precision: the precision of the weights; ``auto`` means fp32.
    reader, option: the metric that needs the encoder and the option that sets it, for error messages.

    If the model does not exist, raises `TellapartError` with the command to run. If it is not a text model, raises
    `UsageError`.
    """
    expected = "a text encoder such as roberta-large"
    model, tokenizer = load_text_model(transformers.AutoModel, name, "text encoder", expected, device, precision)
    needed = ("num_hidden_layers", "max_position_embeddings")
    if model.config.is_encoder_decoder or not all(hasattr(model.config, key) for key in needed):
        raise UsageError(f"{name} is a {model.config.model_type} model; {reader} requires a text encoder; add {option}")
    return TextEncoder(model, tokenizer, str(name), layer=layer)
