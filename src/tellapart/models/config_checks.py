"""Rejects a model's ``config.json`` if it would load code or contains implausible sizes."""

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

    Transformers would load such a kernel as code from the hub. Also raises `TellapartError` for implausible sizes,
    because transformers would silently skip weights or spend hours on building layers.
    """
    try:
        content = parse_json(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # the error is raised when the model is loaded
    if isinstance(content, dict) and "configuration_files" in content:  # transformers would read one of these files
        raise TellapartError(f"{name}: its config.json contains configuration_files; expected a single configuration")
    for key, value in _settings(content):
        if key.removesuffix("_internal").endswith("attn_implementation"):
            for each in value.values() if isinstance(value, dict) else [value]:
                if each is not None and str(each).removeprefix("paged|") not in ATTENTION_IMPLEMENTATIONS:
                    raise TellapartError(
                        f"{name}: its config.json sets {key} to '{each}', which would load code; expected one of "
                        f"{', '.join(ATTENTION_IMPLEMENTATIONS)}; to use the model without that code, remove {key}"
                    )
        most = MOST_LAYERS if "layer" in key else MOST_UNITS
        if key in SIZES and isinstance(value, int) and not 0 <= value <= most:
            raise TellapartError(
                f"{name}: its config.json sets {key} to {value}, which is not plausible; expected 0 to {most:,}; copy "
                "the file again"
            )


def _settings(content: Any) -> Iterator[tuple[str, Any]]:
    """Yields the settings in a configuration and in its nested configurations, from which transformers builds models
    too.
    """
    parts: Iterable[Any] = content if isinstance(content, list) else ()
    if isinstance(content, dict):
        yield from content.items()
        parts = content.values()
    for part in parts:
        yield from _settings(part)
