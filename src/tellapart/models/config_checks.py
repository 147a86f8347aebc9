"""Rejects a model's ``config.json`` that would load code, or whose sizes are implausible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError
from tellapart.utils.strict_json import parse_json

ATTENTION_IMPLEMENTATIONS = (
    "eager",
    "sdpa",
    "flex_attention",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
)
SIZES = {
    "n_layer", "num_layers", "num_hidden_layers", "n_head", "num_attention_heads", "n_embd", "hidden_size",
    "intermediate_size", "projection_dim", "vocab_size",
}  # fmt: skip
MOST_LAYERS, MOST_UNITS = 10_000, 1 << 31  # the largest plausible sizes


def check_config(name: str, config: Path) -> None:
    """Raises `TellapartError` if a model's configuration names an attention implementation outside transformers.

    Transformers would load such a kernel as code from the hub. Also raises `TellapartError` for implausible sizes, with
    which transformers would silently skip weights or build layers for hours.
    """
    try:
        content = parse_json(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # loading raises the error
    if isinstance(content, dict) and "configuration_files" in content:  # transformers would read one of these
        raise TellapartError(f"{name}: its config.json contains configuration_files; expected a single configuration")
    for key, value in _settings(content):
        if key.removesuffix("_internal").endswith("attn_implementation"):
            for each in value.values() if isinstance(value, dict) else [value]:
                if each is not None and str(each).removeprefix("paged|") not in ATTENTION_IMPLEMENTATIONS:
                    raise TellapartError(
                        f"{name}: its config.json sets {key} to '{each}', which would load code; expected one of "
                        f"{', '.join(ATTENTION_IMPLEMENTATIONS)}; remove that line to use the model without the code"
                    )
        most = MOST_LAYERS if "layer" in key else MOST_UNITS
        if key in SIZES and isinstance(value, int) and not 0 <= value <= most:
            raise TellapartError(
                f"{name}: its config.json sets {key} to {value}, which is not plausible; copy the file again"
            )


def _settings(content: Any) -> Iterator[tuple[str, Any]]:
    """Yields the settings of a configuration and of its parts, because transformers builds models of the parts too."""
    parts: Iterable[Any] = content if isinstance(content, list) else ()
    if isinstance(content, dict):
        yield from content.items()
        parts = content.values()
    for part in parts:
        yield from _settings(part)
