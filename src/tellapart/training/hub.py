"""Uploads a model to the hub."""

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
    """Returns the full name, ``USER/NAME``, of a repository that this machine's token may write to.

    Raises `UsageError` if the name is invalid or the token is missing, and `TellapartError` if the hub cannot be
    reached or rejects the token.
    """
    try:
        huggingface_hub.utils.validate_repo_id(hub_id)
    except huggingface_hub.utils.HFValidationError:
        raise UsageError(f"--push-to-hub {hub_id} is not a repository name; expected USER/NAME") from None
    if huggingface_hub.get_token() is None:
        raise UsageError("--push-to-hub requires a token with write access; run: hf auth login, or set HF_TOKEN")
    with talking(hub_id, "training has not started"):
        user = huggingface_hub.HfApi().whoami()["name"]
    return hub_id if "/" in hub_id else f"{user}/{hub_id}"


def push_folder(folder: Path, hub_id: str, *, private: bool = False) -> str:
    """Creates the repository if necessary, uploads the folder in one commit, and returns the URL of its page.

    Raises `TellapartError` if the hub does not answer or rejects the upload.
    """
    again = f"the complete model is in {folder}; run: hf upload {hub_id} {shlex.quote(str(folder))}"
    with talking(hub_id, again):
        api = huggingface_hub.HfApi()
        address = api.create_repo(hub_id, private=private or None, exist_ok=True)
        api.upload_folder(repo_id=hub_id, folder_path=folder, commit_message="Upload model and card from tellapart")
    return str(address)


@contextmanager
def talking(hub_id: str, otherwise: str) -> Iterator[None]:
    """Turns hub errors into a one-line `TellapartError`.

    ``otherwise``: the end of the message, which says what already exists and what to run instead.
    """
    client_error: type[Exception]  # base error of the HTTP client; its type depends on the version of huggingface_hub
    client_error = huggingface_hub.errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except huggingface_hub.errors.OfflineModeIsEnabled:
        raise UsageError(f"cannot push to {hub_id} because HF_HUB_OFFLINE is set; unset it; {otherwise}") from None
    except (client_error, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:240] or type(error).__name__
        raise TellapartError(f"cannot push to {hub_id}: {cause.rstrip('.')}; {otherwise}") from error
