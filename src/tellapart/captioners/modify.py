"""Sets how a captioner's language model is trained, in place: dropout and gradient checkpointing."""

from __future__ import annotations

from typing import Any

import torch

from tellapart.captioners.captioner import Captioner
from tellapart.errors import UsageError


def set_dropout(captioner: Captioner, rate: float) -> None:
    """Sets the rate of every dropout layer in the language model. Does not change the saved configuration.

    Raises `UsageError` if the language model has no dropout layer.
    """
    modules = captioner.parts()["language_model"].modules()
    layers = [module for module in modules if isinstance(module, torch.nn.Dropout)]
    if not layers:
        raise UsageError(f"the language model of {captioner.name} has no dropout layers; remove captioner.dropout")
    for layer in layers:
        layer.p = rate


def enable_gradient_checkpointing(captioner: Captioner) -> None:
    """Enables gradient checkpointing: the language model stores only the states between blocks and recomputes all other
    activations.

    Raises `UsageError` if the language model does not support gradient checkpointing.
    """
    language_model: Any = captioner.parts()["language_model"]
    if not getattr(language_model, "supports_gradient_checkpointing", False):
        raise UsageError(
            f"training.gradient_checkpointing is not supported by the language model of {captioner.name} "
            f"({type(language_model).__name__}); remove training.gradient_checkpointing, or set "
            "training.gradient_accumulation_steps"
        )
    # Transformers 5 renamed this method, and transformers 6 removes the old name.
    enable = getattr(language_model, "activation_checkpointing_enable", language_model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
