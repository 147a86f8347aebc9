"""Opens the model behind a server that a name such as ``openai:MODEL@URL`` stands for."""

from __future__ import annotations

from urllib.parse import unquote

from tellapart.boost.backends import open_backend
from tellapart.boost.batches import ANTHROPIC_URL, open_batches
from tellapart.boost.openai_server import KEYS
from tellapart.boost.types import Backend
from tellapart.errors import UsageError, nearest

PROMPT = "Describe the image in one sentence."


def open_server(name: str) -> tuple[Backend, str]:
    """Opens the backend of ``openai:MODEL@URL?prompt=TEXT&key=…``; returns it and the prompt.

    With ``batch=1``, it is a batch endpoint. Raises `UsageError` for an invalid name.
    """
    body, _, query = name.partition("?")
    pairs = query.split("&") if query else []
    prompts = [unquote(pair.removeprefix("prompt=")) for pair in pairs if pair.startswith("prompt=")]
    rest = [pair for pair in pairs if not pair.startswith("prompt=")]
    for key in (pair.partition("=")[0] for pair in rest):
        if key not in (*KEYS, "batch"):
            raise UsageError(
                f"{body.partition('@')[0]}: unknown setting '{key}'{nearest(key, (*KEYS, 'prompt', 'batch'))}"
            )
    if prompts and not prompts[-1].strip():
        raise UsageError(
            f"{body.partition('@')[0]}: the prompt is empty; remove prompt= to use the default, '{PROMPT}'"
        )
    batch = [pair.removeprefix("batch=") for pair in rest if pair.startswith("batch=")]
    rest = [pair for pair in rest if not pair.startswith("batch=")]
    if batch and batch[-1] not in ("0", "1"):
        raise UsageError(f"{body.partition('@')[0]}: expected batch=1 (the batch endpoint) or batch=0, got {batch[-1]}")
    spec, prompt = "?".join([body, "&".join(rest)]) if rest else body, (prompts or [PROMPT])[-1]
    if batch and batch[-1] == "1":
        return open_batches(spec), prompt
    if body.startswith("anthropic:"):
        model = body.partition(":")[2].partition("@")[0]
        raise UsageError(
            f"{body}: use 'anthropic:{model}?batch=1' for the batch endpoint, or openai:{model}@{ANTHROPIC_URL} "
            "for single requests"
        )
    return open_backend(spec), prompt
