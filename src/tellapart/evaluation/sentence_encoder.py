"""An encoder of sentences, for search and for the soft matching of claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tellapart.errors import UsageError
from tellapart.evaluation.text_encoder import TextEncoder, load_text_encoder
from tellapart.models.names import model_folder
from tellapart.utils.strict_json import parse_json


class SentenceEncoder(TextEncoder):
    """An encoder that returns one vector per text: the mean of the token states, or the first token's state.

    ``pooling``: "mean", or "cls" if the folder's ``1_Pooling/config.json`` (from sentence-transformers) says so.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, pooling: str = "mean") -> None:
        super().__init__(model, tokenizer, name)
        self.pooling = pooling

    @property
    def signature(self) -> str:
        """Identifies the model and the pooling."""
        return f"pooling:{self.pooling}|model:{self.name_and_hash}"

    def features(self, texts: Sequence[str]) -> np.ndarray:
        """Computes L2-normalized features N×D, float32."""
        rows = self.cut_to_window(list(texts))
        count = 1 if self.pooling == "cls" else None  # number of tokens
        states = self.states(rows, "encoding queries and captions")
        pooled = {number: state_TD[:count].mean(0) for number, state_TD in states}
        pooled_ND = torch.stack([pooled[number] for number in range(len(rows))])
        return torch.nn.functional.normalize(pooled_ND, dim=-1).numpy()


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
    ways = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    used = ["pooling_mode_mean_tokens"]
    if found is not None:
        settings = parse_json(Path(found).read_text(encoding="utf-8"))
        used = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    if len(used) != 1 or used[0] not in ways:
        raise UsageError(f"{found} uses the pooling {', '.join(used) or 'nothing'}; expected one of {', '.join(ways)}")
    return SentenceEncoder(base.model, base.tokenizer, base.name, ways[used[0]])
