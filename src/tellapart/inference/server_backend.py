"""Opens a model behind a server from a name such as ``openai:MODEL@URL``."""

from __future__ import annotations

from tellapart.boost.backends import open_backend
from tellapart.boost.batch_backend import BatchBackend
from tellapart.boost.batch_servers import ANTHROPIC_URL
from tellapart.boost.server_model import SETTINGS
from tellapart.boost.spec_settings import spec_settings
from tellapart.boost.types import Backend
from tellapart.errors import UsageError
from tellapart.models.encoded_options import without_option

PROMPT = "Describe the image in one sentence."


def open_server(name: str) -> tuple[Backend, str]:
    """Opens the backend for a name such as ``openai:MODEL@URL?prompt=TEXT&key=…``. Returns the backend and the prompt.

    With ``batch=1``, the backend is a batch endpoint. Raises `UsageError` for an invalid name.
    """
    body = name.partition("?")[0]
    spec_settings(name, body, (*SETTINGS, "prompt", "batch"))  # rejects unknown settings
    spec, prompt = without_option(name, "prompt")
    spec, batch = without_option(spec, "batch")
    model = body.partition("@")[0]
    if prompt is not None and not prompt.strip():
        raise UsageError(f"{model}: the prompt is empty; remove prompt= to use the default, '{PROMPT}'")
    if batch not in (None, "0", "1"):
        raise UsageError(f"{model}: expected batch=1 (the batch endpoint) or batch=0, got {batch}")
    if batch == "1":
        return BatchBackend.open(spec), prompt or PROMPT
    if body.startswith("anthropic:"):
        bare = model.removeprefix("anthropic:")
        raise UsageError(
            f"{body}: use '{model}?batch=1' for the batch endpoint, or openai:{bare}@{ANTHROPIC_URL} "
            "for single requests"
        )
    return open_backend(spec), prompt or PROMPT
