"""Turns the errors of model loaders into one line, and silences transformers while it loads and saves models."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from tellapart.errors import TellapartError
from tellapart.utils.documentation import page_url


def silence_transformers() -> None:
    """Disables transformers' progress bars for loading and saving, and its warning about padding."""

    disable_progress_bar()
    logging.getLogger("transformers.modeling_utils").addFilter(is_news)


def is_news(record: logging.LogRecord) -> bool:
    """Filters out the warning about unmasked padding, which appears whenever captions in a batch end at different
    steps.
    """
    return "passing in an `attention_mask`" not in record.getMessage()


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
