"""Uploads of a model to the hub."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub
import huggingface_hub.errors
import huggingface_hub.utils

from tellapart.errors import TellapartError, UsageError


def check_hub(hub_id: str) -> str:
    """Returns the whole name of a repository that this machine's token may write to: ``USER/NAME``.

    Raises `UsageError` for a name that the hub does not take or a missing token, `TellapartError` where the hub does
    not answer or refuses the token.
    """
    try:
        huggingface_hub.utils.validate_repo_id(hub_id)
    except huggingface_hub.utils.HFValidationError:
        raise UsageError(f"--push-to-hub {hub_id} is no name of a repository; expected USER/NAME") from None
    if huggingface_hub.get_token() is None:
        raise UsageError("--push-to-hub needs a token that may write; type: hf auth login, or set HF_TOKEN")
    with talking(hub_id, "nothing was trained"):
        user = huggingface_hub.HfApi().whoami()["name"]
    return hub_id if "/" in hub_id else f"{user}/{hub_id}"


def push_folder(folder: Path, hub_id: str, *, private: bool = False) -> str:
    """Makes the repository where there is none, uploads the folder in a commit, and returns the page's address.

    Raises `TellapartError` where the hub does not answer or refuses.
    """
    again = f"the model is whole in {folder}; type: hf upload {hub_id} {shlex.quote(str(folder))}"
    with talking(hub_id, again):
        api = huggingface_hub.HfApi()
        address = api.create_repo(hub_id, private=private or None, exist_ok=True)
        api.upload_folder(repo_id=hub_id, folder_path=folder, commit_message="Model and card by tellapart")
    return str(address)


@contextmanager
def talking(hub_id: str, otherwise: str) -> Iterator[None]:
    """Turns what goes wrong on the way to the hub into one line; ``otherwise``: what is left, and what to type."""
    client_error: type[Exception]  # of the HTTP client below it, which is another one from version to version
    client_error = huggingface_hub.errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except huggingface_hub.errors.OfflineModeIsEnabled:
        raise UsageError(f"cannot push to {hub_id}: HF_HUB_OFFLINE is set; unset it; {otherwise}") from None
    except (client_error, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:240] or type(error).__name__
        raise TellapartError(f"cannot push to {hub_id}: {cause.rstrip('.')}; {otherwise}") from error
