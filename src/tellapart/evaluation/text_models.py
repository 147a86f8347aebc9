"""Text models from transformers for perplexity, BERTScore and search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
import transformers

from tellapart.errors import UsageError
from tellapart.metrics.bert_score import TokenFeatures
from tellapart.models.devices import resolve_device
from tellapart.models.digests import weights_fingerprint
from tellapart.models.names import model_folder
from tellapart.models.precision import dtype_of, exact_precision
from tellapart.models.saved import checked_model_folder, loading_errors
from tellapart.utils.progress import track
from tellapart.utils.strict_json import parse_json

T = TypeVar("T")

# Shared by all text models: the name and the hash of the weights, for signatures.


class HashedModel:
    """A transformers model, its tokenizer, and the name that it was loaded by. ``window``: its maximum length in
    tokens.

    ``cut_texts`` counts the distinct texts that were truncated to the window.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, window: int) -> None:
        self.model, self.tokenizer, self.name, self.window = model.eval(), tokenizer, name, window
        self.cut_texts = 0

    @property
    def device(self) -> Any:
        return next(self.model.parameters()).device

    @cached_property
    def fingerprint(self) -> str:
        """Returns a hash of all weights and the vocabulary."""
        return weights_fingerprint(self.model, SimpleNamespace(to_dict=self.tokenizer.get_vocab))

    @property
    def name_and_hash(self) -> str:
        """Returns the last part of the name and the first eight digits of the hash, such as ``gpt2@1a2b3c4d``."""
        return f"{str(self.name).rstrip('/').split('/')[-1]}@{self.fingerprint[:8]}"


def _load(
    kind: Any, name: str, what: str, expected: str, device: str | torch.device, precision: str
) -> tuple[Any, Any]:
    """Loads a frozen model and its tokenizer: safetensors only, no remote code. Raises `TellapartError`."""
    device = resolve_device(device)
    dtype = dtype_of(exact_precision(precision, device))
    where = checked_model_folder(name, what)
    with loading_errors(name, expected):
        model = kind.from_pretrained(where, dtype=dtype, use_safetensors=True, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    return model.requires_grad_(False).to(device), tokenizer


# Any causal language model from transformers, for perplexity.


class LanguageModel(HashedModel):
    """A causal language model. ``start``: whether captions begin with the model's start token."""

    def __init__(self, model: Any, tokenizer: Any, name: str, *, start: bool = True) -> None:
        super().__init__(model, tokenizer, name, _window(model.config))
        self.start: int | None = tokenizer.bos_token_id if start else None

    @property
    def signature(self) -> str:
        """Identifies the model (name, weights) and the start token. Only perplexities with equal signatures are
        comparable.
        """
        start = "none" if self.start is None else self.tokenizer.convert_ids_to_tokens(self.start)
        return f"start:{start}|end:unscored|model:{self.name_and_hash}"

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of each text after the start token (if any), at most ``window``."""
        if not texts:
            return []
        encoded = self.tokenizer(list(texts), add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        front = [] if self.start is None else [self.start]
        rows = [[*front, *row] for row in encoded]
        self.cut_texts += sum(len(row) > self.window for row in rows)
        return [row[: self.window] for row in rows]


def load_language_model(
    name: str, device: str | torch.device = "auto", precision: str = "auto", *, start: bool = True
) -> LanguageModel:
    """Loads a causal language model (paper 1: GPT-2) from a folder or a hub name; safetensors only.

    ``precision``: precision of the weights; ``auto`` is fp32.

    Raises `TellapartError` with the command to run if there is no such model.
    """
    if name == "scenes":
        raise UsageError(
            "perplexity requires a language model, and the package includes none; add "
            "--set language_model=gpt2, or a model's folder"
        )
    expected = "a causal language model such as gpt2"
    loaded = _load(transformers.AutoModelForCausalLM, name, "language model", expected, device, precision)
    return LanguageModel(*loaded, str(name), start=start)


def _window(config: Any) -> int:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return int(getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None) or 1024)


# The layer that agrees best with human judgements (bert-score's table), by kind and number of layers.
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


class BaseEncoder(HashedModel):
    """A text encoder."""

    def encode_rows(
        self, rows: list[list[int]], label: str, read: Callable[[Any, torch.Tensor], Iterable[T]], **asked: bool
    ) -> list[T]:
        """Returns the result of ``read(output, mask_BT)`` for each row of tokens. Batches rows of similar length.

        ``asked``: additional arguments for the model.
        """
        pad = self.tokenizer.pad_token_id or 0
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        found: dict[int, T] = {}
        starts = range(0, len(order), _BATCH)
        for start in track(starts, len(starts), f"{label} ({_BATCH} texts per step)"):
            numbers = order[start : start + _BATCH]
            token_RT = [torch.tensor(rows[number]) for number in numbers]
            ids_BT = torch.nn.utils.rnn.pad_sequence(token_RT, batch_first=True, padding_value=pad)
            length_B1 = torch.tensor([[len(rows[number])] for number in numbers])
            mask_BT = (torch.arange(ids_BT.shape[1]) < length_B1).long()
            ids_BT, mask_BT = ids_BT.to(self.device), mask_BT.to(self.device)
            with torch.inference_mode():
                output = self.model(input_ids=ids_BT, attention_mask=mask_BT, **asked)
                found.update(zip(numbers, read(output, mask_BT), strict=True))
        return [found[number] for number in range(len(rows))]

    def cut_to_window(self, texts: list[str]) -> list[list[int]]:
        """Returns at most ``window`` tokens of each text. Counts longer texts in ``cut_texts``."""
        sizes = [len(row) for row in self.tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
        self.cut_texts += sum(size > self.window for size in sizes)
        rows: list[list[int]] = self.tokenizer(texts, truncation=True, max_length=self.window)["input_ids"]
        return rows


class TextEncoder(BaseEncoder):
    """An encoder for BERTScore. ``layer``: the layer whose hidden states are used (0: the embeddings)."""

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
        """Identifies the model (name, weights) and layer. Only BERTScores with equal signatures are comparable."""
        return f"layer:{self.layer}|idf:none|rescaled:no|model:{self.name_and_hash}"

    def token_features(self, texts: Sequence[str]) -> list[TokenFeatures]:
        """Computes each text's L2-normalized token features and their weights. Batches texts of similar length."""
        rows = self._rows(texts)

        def states(output: Any, mask_BT: torch.Tensor) -> Iterable[np.ndarray]:
            state_BTD = torch.nn.functional.normalize(output.hidden_states[self.layer].float(), dim=-1).cpu().numpy()
            return (state_TD[:length] for state_TD, length in zip(state_BTD, mask_BT.sum(1).tolist(), strict=True))

        unweighted = {self.tokenizer.cls_token_id, self.tokenizer.sep_token_id}
        return [
            TokenFeatures(state_TD, np.array([token not in unweighted for token in row], dtype=float))
            for row, state_TD in zip(
                rows, self.encode_rows(rows, "BERTScore", states, output_hidden_states=True), strict=True
            )
        ]

    def _rows(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        # A leading space makes RoBERTa treat the first word like the others (as in the bert-score package).
        front = " " if self.model.config.model_type == "roberta" else ""
        stripped = [text.strip() for text in texts]
        return self.cut_to_window([front + text if text else text for text in stripped])


def load_text_encoder(
    name: str,
    device: str | torch.device = "auto",
    precision: str = "auto",
    *,
    layer: int | None = None,
    reader: str = "BERTScore",
    option: str = "--set bertscore=roberta-large",
) -> TextEncoder:
    """Loads a text encoder from a folder or a hub name; safetensors only.

    precision: precision of the weights; ``auto`` is fp32.
    reader, option: the metric and the option that need it, for error messages.

    Raises `TellapartError` with the command to run if there is no such model, and `UsageError` if it is not a text
    model.
    """
    expected = "a text encoder such as roberta-large"
    model, tokenizer = _load(transformers.AutoModel, name, "text encoder", expected, device, precision)
    needed = ("num_hidden_layers", "max_position_embeddings")
    if model.config.is_encoder_decoder or not all(hasattr(model.config, key) for key in needed):
        raise UsageError(f"{name} is a {model.config.model_type} model; {reader} requires a text encoder; add {option}")
    return TextEncoder(model, tokenizer, str(name), layer=layer)


class SentenceEncoder(BaseEncoder):
    """An encoder that returns one vector per text: the mean of its token states, or the first one.

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
    """Loads a sentence encoder from a folder or a hub name: any transformers encoder, safetensors only.

    Raises `TellapartError` if there is no such model, and `UsageError` if its pooling is not supported.
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
