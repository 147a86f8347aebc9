"""The settings of a captioning run. Runs with different settings must not append to the same file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tellapart.captioners.captioner import Captioner
from tellapart.inference.caption_run import CaptionRun
from tellapart.inference.prompts import Prompts
from tellapart.models.decoding import EVIDENCE, Decoding
from tellapart.models.digests import files_digest, settings_of, weights_fingerprint
from tellapart.scorers.base import Scorer


def caption_request(
    data: str,
    captioner: str,
    decoding: Decoding,
    *,
    best_of: int | None = None,
    scorer: str | None = None,
    features: str | None = None,
    precision: str = "fp32",
    drop_guesses: bool = False,
    prompts: Prompts | None = None,
    claims: bool = False,
) -> dict[str, Any]:
    """Returns the settings of a run with a model on this machine.

    ``captioner`` and ``scorer`` are names, so no model is loaded; ``precision`` is that of the captioner's weights.
    """
    return {
        "captioner": captioner,
        "captioner_files": files_digest(captioner.partition("?")[0], "captioner"),
        "typed_options": captioner.partition("?")[2],
        "data": data,
        "decoding": decoding.model_dump(),
        "precision": precision,
        "best_of": best_of,
        "scorer": scorer,
        "scorer_files": files_digest(scorer, "scorer") if scorer is not None else None,
        **({"features": str(Path(features).expanduser().resolve())} if features is not None else {}),
        **({"truthful": EVIDENCE} if drop_guesses else {}),
        **({"prompt": prompts.template} if prompts is not None else {}),
        **({"claims": True} if claims else {}),
    }


def server_request(run: CaptionRun, captioner: str, prompt: str) -> dict[str, Any]:
    """Returns the settings of a run with a model behind a server. ``captioner``: the name of the server's backend."""
    settings: dict[str, Any] = {
        "captioner": captioner,
        "captioner_files": None,
        "prompt": prompt,
        "data": run.dataset.spec,
        "decoding": run.decoding.model_dump(),
        "best_of": run.best_of,
        "scorer": None if run.scorer is None else run.scorer.name,
    }
    if run.scorer is not None:
        settings["scorer_files"] = files_digest(run.scorer.name, "scorer")
        settings["scorer_weights"] = run.scorer.fingerprint
    settings |= {"truthful": EVIDENCE} if run.drop_guesses else {}
    return settings | ({"schema": run.schema.text} if run.schema else {}) | ({"claims": True} if run.claims else {})


def settings_fingerprint(captioner: Captioner) -> str:
    """Returns a hash of everything but a captioner's weights: its configuration, vocabulary and chat template."""
    tokenizer = captioner.tokenizer
    templates = [getattr(own, "chat_template", None) for own in (tokenizer, getattr(captioner, "whole", None))]
    parts = [settings_of(captioner.model), tokenizer.get_vocab(), templates]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=12).hexdigest()


def weights_of(captioner: Captioner, scorer: Scorer | None) -> dict[str, Any]:
    """Returns the settings that are known only after the models have been loaded."""
    return {
        "captioner_weights": weights_fingerprint(captioner.model, captioner.processor),
        "captioner_options": captioner.chosen,
        "captioner_settings": settings_fingerprint(captioner),
        **({"frames": captioner.frames} if captioner.frames > 1 else {}),
        "scorer_weights": scorer.fingerprint if scorer is not None else None,
    }
