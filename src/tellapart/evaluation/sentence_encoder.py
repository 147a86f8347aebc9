"""An encoder of sentences, for search and for the soft matching of claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tellapart.errors import UsageError
from tellapart.evaluation.text_encoder import BaseEncoder, load_text_encoder
from tellapart.models.names import model_folder
from tellapart.utils.strict_json import parse_json


class SentenceEncoder(BaseEncoder):
    """An encoder that returns one vector per text: the mean of the token states, or the first token's state.

    ``pooling``: "mean", or "cls" if the folder's ``1_Pooling/config.json`` (from sentence-transformers) says so.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, window: int, pooling: str = "mean") -> None:
        super().__init__(model, tokenizer, name, window)
        self.pooling = pooling

    @property
    def signature(self) -> str:
        """Identifies the model and the pooling."""
        return f"pooling:{self.pooling}|model:{self.name_and_hash}"

    def features(self, texts: Sequence[str]) -> np.ndarray:
        """Computes L2-normalized features N×D, float32. Batches texts of similar length."""

        def pooled(output: Any, mask_BT: torch.Tensor) -> Iterable[np.ndarray]:
            state_BTD = output.last_hidden_state.float()
            weight_BT1 = mask_BT[..., None].float()
            mean_BD = (state_BTD * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1)
            pooled_BD = state_BTD[:, 0] if self.pooling == "cls" else mean_BD
            return torch.nn.functional.normalize(pooled_BD, dim=-1).cpu().numpy()

        return np.stack(self.encode_rows(self.cut_to_window(list(texts)), "encoding queries and captions", pooled))


def load_sentence_encoder(name: str, device: str | torch.device = "auto", precision: str = "auto") -> SentenceEncoder:
    """Loads a sentence encoder from a folder or by its hub name. Accepts any transformers encoder, and reads only
    safetensors.

    Raises `TellapartError` if the model does not exist, and `UsageError` if its pooling is not supported.
    """
    option = "--set query_encoder=minilm-l6"
    base = load_text_encoder(name, device, precision, reader="semantic search", option=option)
    if base.tokenizer.pad_token is None:
        raise UsageError(f"{name}: its tokenizer has no padding token; expected a sentence encoder; add {option}")
    found = transformers.utils.cached_file(
        model_folder(name, "sentence encoder"), "1_Pooling/config.json", _raise_exceptions_for_missing_entries=False
    )
    pooling = "mean"
    if found is not None:
        settings = parse_json(Path(found).read_text(encoding="utf-8"))
        used = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
        ways = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
        if len(used) != 1 or used[0] not in ways:
            raise UsageError(
                f"{found} uses the pooling {', '.join(used) or 'nothing'}; expected one of {', '.join(ways)}"
            )
        pooling = ways[used[0]]
    return SentenceEncoder(base.model, base.tokenizer, base.name, base.window, pooling)
