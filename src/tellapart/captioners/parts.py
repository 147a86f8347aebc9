"""Parts of captioners: loads vision encoders and language models by name, and modifies captioners in place.

Adds new words, dropout and gradient checkpointing to a captioner; LoRA is in `lora`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import transformers
from torch import nn

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.load import parse_options
from tellapart.captioners.official import published_resnet
from tellapart.errors import UsageError
from tellapart.models.saved import checked_model_folder, load_whole, loading_errors
from tellapart.models.tokens import with_new_words


def load_vision(name: str) -> tuple[Any, Any]:
    """Loads a vision encoder and its processor: any of transformers, a scorer's, or CLIP's ResNet from a weights file.

    ``NAME?pixels=192`` makes its processor resize pictures to 192 × 192; a CNN accepts any size. Raises the errors of
    `load_captioner`.
    """

    bare, _, written = name.partition("?")
    options = parse_options(written, {"pixels": int}, bare)
    if (resnet := published_resnet(bare)) is not None:
        if "pixels" in options:
            raise UsageError(f"{name}: CLIP's ResNet requires pictures of one size; remove ?pixels")
        return resnet
    where = checked_model_folder(bare, "scorer")
    with loading_errors(name, "a vision encoder such as microsoft/resnet-101, or a scorer"):
        model = transformers.AutoModel.from_pretrained(
            where, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
        )
        processor = transformers.AutoImageProcessor.from_pretrained(where, backend="pil", trust_remote_code=False)
    vision = getattr(model, "vision_model", model)
    if (side := options.get("pixels")) is not None:
        processor.size, processor.do_center_crop = {"height": side, "width": side}, False
        if hasattr(vision.config, "image_size"):
            vision.config.image_size = side
    return vision, processor


def load_language_model(name: str) -> tuple[Any, Any]:
    """Loads any causal language model of transformers in fp32, and its tokenizer; errors as in `load_captioner`."""
    where = checked_model_folder(name, "language model")
    with loading_errors(name, "a causal language model such as gpt2"):
        model = load_whole(transformers.AutoModelForCausalLM, where, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def add_words(captioner: Captioner, texts: Iterable[str], min_count: int) -> int:
    """Adds the words of ``texts`` that occur at least ``min_count`` times to the captioner, in place; returns how many.

    New words are initialized with the embedding of the unknown word, to which they were mapped before. Raises
    `UsageError` if the tokenizer or the language model cannot grow.
    """
    before = len(captioner.tokenizer)
    try:
        tokenizer = with_new_words(captioner.tokenizer, texts, min_count)
    except UsageError as error:
        raise UsageError(f"captioner.new_words: {captioner.name}: {error}") from None
    language_model: Any = captioner.parts()["language_model"]
    config = captioner.model.config
    if hasattr(language_model, "resize_token_embeddings"):
        language_model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        tables = [language_model.get_input_embeddings(), language_model.get_output_embeddings()]
        config.text_config.vocab_size = len(tokenizer)
    else:
        tables = [resized(language_model.embed, len(tokenizer)), resized(language_model.head, len(tokenizer))]
        language_model.embed, language_model.head = tables
        config.vocab_size = len(tokenizer)
    unknown = tokenizer.unk_token_id
    with torch.no_grad():
        for table in tables:
            for rows in table.parameters():
                rows[before:] = rows[unknown]
    captioner.tokenizer = tokenizer
    return len(tokenizer) - before


def resized(table: nn.Embedding | nn.Linear, size: int) -> nn.Embedding | nn.Linear:
    """Returns an embedding or output layer with more rows, keeping the old ones."""
    new: nn.Embedding | nn.Linear
    if isinstance(table, nn.Embedding):
        new = nn.Embedding(size, table.embedding_dim)
    else:
        new = nn.Linear(table.in_features, size)
    new.to(table.weight.device)
    with torch.no_grad():
        for rows, old in zip(new.parameters(), table.parameters(), strict=True):
            rows[: len(old)] = old
    return new


def set_dropout(captioner: Captioner, rate: float) -> None:
    """Sets the rate of every dropout layer of the language model. The saved configuration does not change.

    Raises `UsageError` if the language model has no dropout layer.
    """
    modules = captioner.parts()["language_model"].modules()
    layers = [module for module in modules if isinstance(module, torch.nn.Dropout)]
    if not layers:
        raise UsageError(f"the language model of {captioner.name} has no dropout layers; remove captioner.dropout")
    for layer in layers:
        layer.p = rate


def enable_gradient_checkpointing(captioner: Captioner) -> None:
    """Enables gradient checkpointing: the language model stores only the states between blocks and recomputes the rest.

    Raises `UsageError` if the language model does not support it.
    """
    language_model: Any = captioner.parts()["language_model"]
    if not getattr(language_model, "supports_gradient_checkpointing", False):
        raise UsageError(
            f"training.gradient_checkpointing is not supported by the language model of {captioner.name} "
            f"({type(language_model).__name__}); remove it, or set training.gradient_accumulation_steps"
        )
    # Renamed in transformers 5; the old name is removed in 6.
    enable = getattr(language_model, "activation_checkpointing_enable", language_model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
