"""The number of micro-batches that makes a step fit into memory."""

from __future__ import annotations

import math
from urllib.parse import parse_qsl

import psutil
import torch
import transformers

from tellapart.errors import TellapartError
from tellapart.models import collectives, ranks
from tellapart.models.saved import checked_model_folder

MEMORY_SHARE = 0.4  # fraction of free memory available for the activations of the backward pass


def parts_of_batch(model: str, captions: int, tokens: int) -> int:
    """Returns the number of micro-batches for which the language model's activations fit into memory.

    Each token needs about 34 hidden vectors per layer and three rows of logits (Korthikanti et al. 2022, table 2), at
    four bytes per number. Returns 1 if the model's size cannot be determined without loading the model.
    """

    bare, _, options = model.partition("?")
    named = dict(parse_qsl(options)).get("language_model", bare)  # for ClipCap, with or without published weights
    try:
        text = transformers.AutoConfig.from_pretrained(
            checked_model_folder(named, "captioner"), trust_remote_code=False
        ).get_text_config()
        size: int = text.num_hidden_layers * text.hidden_size * 34 + text.vocab_size * 3
    except (OSError, ValueError, AttributeError, RecursionError, TellapartError):
        return 1  # a wrong name is reported when the model is loaded
    return max(1, math.ceil(4 * captions * (tokens + 20) * size / (MEMORY_SHARE * free_memory())))


def free_memory() -> int:
    """Returns the main rank's free memory in bytes, on the GPU if there is one.

    All ranks get the same value, so that they plan the same run.
    """
    if torch.cuda.is_available():
        return int(collectives.from_main(torch.cuda.mem_get_info()[0]))
    return int(collectives.from_main(psutil.virtual_memory().available / ranks.count()))
