"""A model's folder to the Hugging Face hub. The token is the hub's own: ``HF_TOKEN``, or that of ``hf auth login``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tellapart.errors import TellapartError, UsageError


def check_hub(hub_id: str) -> str:
    """The whole name of a repository that this machine's token may write to, ``USER/NAME``, before anything is trained.

    Raises `UsageError` for a name that the hub does not take or a missing token, `TellapartError` where the hub does
    not answer or refuses the token.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(hub_id)
    except HFValidationError:
        raise UsageError(f"--push-to-hub {hub_id} is no name of a repository; expected USER/NAME") from None
    if get_token() is None:
        raise UsageError("--push-to-hub needs a token that may write; type: hf auth login, or set HF_TOKEN")
    with talking(hub_id, "nothing was trained"):
        user = HfApi().whoami()["name"]
    return hub_id if "/" in hub_id else f"{user}/{hub_id}"


def push_folder(folder: Path, hub_id: str, *, private: bool = False) -> str:
    """Makes the repository where there is none, uploads the folder in a commit, and returns the page's address.

    Raises `TellapartError` where the hub does not answer or refuses.
    """
    from huggingface_hub import HfApi

    again = f"the model is whole in {folder}; type: hf upload {hub_id} {shlex.quote(str(folder))}"
    with talking(hub_id, again):
        api = HfApi()
        address = api.create_repo(hub_id, private=private or None, exist_ok=True)
        api.upload_folder(repo_id=hub_id, folder_path=folder, commit_message="Model and card by tellapart")
    return str(address)


@contextmanager
def talking(hub_id: str, otherwise: str) -> Iterator[None]:
    """What goes wrong on the way to the hub as one line; ``otherwise``: what is left, and what to type."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    client_error: type[Exception]  # of the HTTP client below it, which is another one from version to version
    client_error = HfHubHTTPError.__bases__[0]
    try:
        yield
    except OfflineModeIsEnabled:
        raise UsageError(f"cannot push to {hub_id}: HF_HUB_OFFLINE is set; unset it; {otherwise}") from None
    except (client_error, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:240] or type(error).__name__
        raise TellapartError(f"cannot push to {hub_id}: {cause.rstrip('.')}; {otherwise}") from error
