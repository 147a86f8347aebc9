"""Loads scorers by name: any dual encoder in transformers, a scorer trained with tellapart, or a user-defined
scorer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from PIL import Image

from tellapart.errors import TellapartError, UsageError
from tellapart.models.devices import resolve_device
from tellapart.models.loading_errors import loading_errors
from tellapart.models.precision import exact_precision, set_precision
from tellapart.models.saved import check_whole, checked_model_folder, load_processor, load_reported
from tellapart.scorers.base import Scorer
from tellapart.scorers.parts import PartsModel, PartsScorer
from tellapart.utils.allowed_code import code_path
from tellapart.utils.code_loading import call_factory
from tellapart.utils.registry import Entry, Registry

ScorerEntry = Entry[Callable[..., Scorer]]  # factory(device) -> Scorer

# Installed packages add scorers with entry points in this group. Dual encoders in transformers need no entry point.
SCORERS: Registry[ScorerEntry] = Registry("scorer", Entry, group="tellapart.scorers")


def load_scorer(name: str, device: str | torch.device = "auto", precision: str = "auto") -> Scorer:
    """Loads a scorer, given a folder, a hub name, ``scenes`` (included in the package), or ``my.module:factory``.

    A user-defined factory is called with ``device`` and must return a `Scorer`; it runs only if `utils.allowed_code`
    allows it. Loads only safetensors. Features are always float32.

    device: ``auto`` selects an accelerator if one is available.
    precision: the precision of the weights; ``auto`` means fp32, because rewards and metrics are computed from cosines.

    Raises `TellapartError` if the model does not exist, is damaged, or is not a dual encoder.
    """
    device = resolve_device(device)
    chosen = exact_precision(precision, device)
    if (path := code_path(name, "scorer")) is not None:
        scorer = call_factory(path, "scorer", f"scorer '{name}'", {"device": str(device)})
        if not isinstance(scorer, Scorer):
            raise UsageError(f"scorer '{name}' returned a {type(scorer).__name__}; expected a tellapart.scorers.Scorer")
        if precision != "auto":
            set_precision(scorer.model, chosen)
        return scorer
    where = checked_model_folder(name, "scorer")
    with loading_errors(name, "a scorer such as openai/clip-vit-base-patch32"):
        model, report = load_reported(transformers.AutoModel, where, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        processor = load_processor(where)
        processor(images=[Image.new("RGB", (8, 8))], return_tensors="pt")  # damaged settings should fail now
    if not hasattr(model, "logit_scale"):
        raise TellapartError(
            f"{name} is a {type(model).__name__}, which does not score texts against pictures; expected a dual "
            "encoder such as CLIP; use --scorer openai/clip-vit-base-patch32"
        )
    why = ", so it cannot score texts against pictures; expected a dual encoder such as CLIP; use --scorer "
    check_whole(name, model, report, f"{why}openai/clip-vit-base-patch32")
    set_precision(model, chosen)
    kind = PartsScorer if isinstance(model, PartsModel) else Scorer
    return kind(model.eval().requires_grad_(False).to(device), tokenizer, processor, str(name))
