"""Resolves `CaptionOptions` for a model: computes the model's name with all its settings, and the decoding settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tellapart.errors import UsageError
from tellapart.inference.caption_by_server import MAX_STRUCTURED_TOKENS, MAX_TOKENS
from tellapart.inference.decoding_options import caption_decoding
from tellapart.inference.options import CaptionOptions, refuse
from tellapart.inference.prompts import has_fields
from tellapart.inference.structured import AnswerSchema
from tellapart.models.decoding import DEFAULT, Decoding
from tellapart.models.encoded_options import quoted, without_option
from tellapart.models.names import is_server
from tellapart.models.saved_options import default_decoding
from tellapart.utils.urls import is_url


@dataclass(frozen=True)
class CaptionPlan:
    """`CaptionOptions` resolved for a model.

    Args:
        model: the captioner's name with all its settings. Includes the prompt unless the prompt contains fields.
        decoding: the decoding settings.
        template: a prompt with fields (only for captioners on this machine).
        features: files with features, which are used instead of the captioner's encoder.
        ledger: the file that stores a server's answers, or None for a file beside the captions.
        schema: the JSON schema for a server's answers.
    """

    model: str
    decoding: Decoding
    template: str | None = None
    features: str | None = None
    ledger: Path | None = None
    schema: AnswerSchema | None = None

    @property
    def served(self) -> bool:
        """Returns whether the model runs behind a server."""
        return is_server(self.model)


def plan_captions(model: str, options: CaptionOptions) -> CaptionPlan:
    """Resolves the options for a model. Raises `UsageError` if an option would have no effect."""
    served = is_server(model)
    model, own = without_option(model, "ledger" if served else "features")
    template = options.prompt if options.prompt is not None and not served and has_fields(options.prompt) else None
    if template is None:
        refuse({"--fields": None if served else options.fields}, "requires a --prompt with fields, such as {tags}")
    if options.prompt is not None and template is None:
        model = _with_prompt(model, quote(options.prompt, safe=" ") if served else quoted(options.prompt))
    if served:
        longer = options.schema is not None or "paragraphs=keep" in ",".join(options.decoding or ())
        default = DEFAULT.model_copy(update={"max_tokens": MAX_STRUCTURED_TOKENS if longer else MAX_TOKENS})
    else:
        refuse({"--schema": options.schema}, "requires a server model")
        default = default_decoding(model)
    decoding = caption_decoding(options, default)
    if served:
        refuse({"--beams": options.beams}, f"requires a local model, but {model.partition('@')[0]} runs on a server")
        if options.out is not None and is_url(options.out):
            raise UsageError(
                f"-o {options.out}: captions from a server cannot be written to a URL; use a local "
                "file, such as -o captions.jsonl"
            )
        decoding = decoding.model_copy(update={"kind": "greedy"}) if decoding.kind == "beam" else decoding
        schema = None if options.schema is None else AnswerSchema.read(options.schema)
        return CaptionPlan(model, decoding, ledger=None if own is None else Path(own), schema=schema)
    return CaptionPlan(model, decoding, template, own)


def check_destination(options: CaptionOptions) -> None:
    """Raises `UsageError` for a destination that only a job can write to. Does not read any data."""
    if options.out is not None and is_url(options.out):
        raise UsageError(f"-o {options.out}: only a job can write to a URL; add --workers 1, or specify a local file")


def _with_prompt(model: str, prompt: str) -> str:
    """Adds a prompt to the captioner's name. Raises `UsageError` if the name already contains a prompt."""
    options = model.partition("?")[2]
    if any(pair.startswith("prompt=") for pair in options.split("&")):
        raise UsageError(f"{model} already contains a prompt; remove it from the name, or remove --prompt")
    return f"{model}{'&' if options else '?'}prompt={prompt}"
