"""Turns the errors of model loaders into one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tellapart.errors import TellapartError
from tellapart.models.quiet_transformers import silence_transformers
from tellapart.utils.documentation import page_url


@contextmanager
def loading_errors(name: str, expected: str) -> Iterator[None]:
    """Converts a loader's exceptions to one-line errors that say what to do."""
    silence_transformers()
    try:
        yield
    except (TellapartError, MemoryError):
        raise
    except Exception as error:  # loaders can raise any exception
        if "trust_remote_code" in str(error):
            line = (
                f"{name} requires its own code, which tellapart does not run; use a model that transformers "
                f"supports, or write a captioner around it ({page_url('captioners.md')})"
            )
        elif "torchvision" in str(error).lower() and find_spec("torchvision") is None:
            line = (
                f"{name}: transformers needs torchvision to process this model's pictures, but it is not "
                "installed; run: pip install torchvision (a version compatible with your torch), or use another "
                "model family"
            )
        else:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            count = 2 if lines[0].rstrip().endswith(":") else 1  # the first line can be a heading
            cause = " ".join(" ".join(lines[:count]).split())
            offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
            here = Path(name).exists() or name == "scenes"
            hub = "" if here else f": there is no such folder, and from the hub{offline}"
            line = f"cannot load {name}{hub}: {cause[:240].rstrip('.')}; expected {expected}"
        raise TellapartError(line) from error
