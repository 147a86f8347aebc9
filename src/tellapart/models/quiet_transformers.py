"""Silences transformers while it loads and saves models."""

from __future__ import annotations

import logging

from transformers.utils.logging import disable_progress_bar


def silence_transformers() -> None:
    """Disables transformers' progress bars for loading and saving, and its warning about padding."""
    disable_progress_bar()
    logging.getLogger("transformers.modeling_utils").addFilter(is_news)


def is_news(record: logging.LogRecord) -> bool:
    """Filters out the warning about unmasked padding, which appears whenever captions in a batch end at different
    steps.
    """
    return "passing in an `attention_mask`" not in record.getMessage()


def is_no_report(record: logging.LogRecord) -> bool:
    """Filters out the table of missing, unknown and mismatched weights."""
    return "LOAD REPORT" not in record.getMessage()
