"""Reads a captioner's saved options, such as its decoding settings and levels of detail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.utils.hub import cached_file

from tellapart.errors import TellapartError, UsageError
from tellapart.models.decoding import DEFAULT, Decoding
from tellapart.models.names import missing_on_hub, model_folder
from tellapart.utils.documentation import page_url
from tellapart.utils.strict_json import parse_json

OPTIONS_FILE = "tellapart.json"  # next to a captioner's config.json: its options, decoding settings and levels
Levels = tuple[tuple[float, str], ...]  # pairs of an amount of detail (0 to 1) and the prompt that requests it


def saved_options(where: str, from_hub: bool = False) -> dict[str, Any]:
    """Returns the options saved with a captioner. ``from_hub``: whether to download them if ``where`` is a hub name.

    Raises `TellapartError` if the options file is invalid.
    """
    file: Path | None = Path(where) / OPTIONS_FILE
    if from_hub and not Path(where).is_dir():
        try:
            cached = cached_file(where, OPTIONS_FILE, _raise_exceptions_for_missing_entries=False)
        except OSError:
            cached = None  # offline, the required files can be in the cache without this optional file
        file = Path(cached) if cached else None
    if file is None or not file.is_file():
        return {}
    try:
        saved = parse_json(file.read_text(encoding="utf-8"))
    except ValueError:
        saved = None
    if not isinstance(saved, dict):
        raise TellapartError(f"{file} is damaged: expected a JSON object; copy the folder again, or remove this file")
    return saved


def levels_in(saved: Mapping[str, Any], name: str) -> Levels:
    """Returns the levels of detail in a captioner's saved options.

    Raises `TellapartError` if the levels are not pairs of a number and a prompt.
    """
    try:
        levels = tuple((float(value), str(prompt)) for value, prompt in saved.get("detail", ()))
        if all(0 <= value <= 1 for value, _ in levels):
            return levels
    except (TypeError, ValueError):
        pass
    raise TellapartError(
        f"{name}: detail in its {OPTIONS_FILE} is {saved['detail']!r:.80}; expected pairs of a number from 0 to 1 and "
        'a prompt, such as [[0.0, "briefly"], [1.0, ""]]; copy the folder again, or remove detail'
    )


def prompt_of_detail(levels: Levels, detail: float, name: str) -> str:
    """Returns the prompt of the level nearest to ``detail``. If two levels are equally near, returns the first one's.

    Raises `UsageError` for a number outside [0, 1], and for a captioner that was not trained with levels of detail.
    """
    if not 0 <= detail <= 1:
        raise UsageError(f"{name}: detail is {detail:g}; expected a number from 0 (least detail) to 1 (most detail)")
    if not levels:
        raise UsageError(
            f"{name} was not trained with levels of detail; remove ?detail=, or train a captioner with "
            f"objective.detail ({page_url('concepts/truth.md')})"
        )
    return min(levels, key=lambda level: abs(level[0] - detail))[1]


def decoding_in(saved: Mapping[str, Any]) -> Decoding | None:
    """Returns the decoding settings in a captioner's saved options, or None if the options do not contain any."""
    return Decoding.model_validate(saved["decoding"]) if "decoding" in saved else None


def saved_decoding(decoding: Decoding | None) -> dict[str, Any]:
    """Converts decoding settings to the format of `OPTIONS_FILE`, without the scorer's weight."""
    if decoding is None:
        return {}
    return {"decoding": decoding.model_copy(update={"scorer_weight": 0.0}).model_dump(exclude_defaults=True)}


def default_decoding(name: str) -> Decoding:
    """Returns the decoding settings saved with a captioner, or `DEFAULT` if no settings were saved.

    Does not load the captioner. For hub names, downloads the options file.
    """
    try:
        place = model_folder(name.partition("?")[0], "captioner")
        named = place.count("/") == 1 and not Path(place).is_dir()
        saved = saved_options(place, from_hub=named and missing_on_hub(place) is None)
        return DEFAULT if not isinstance(saved, dict) else decoding_in(saved) or DEFAULT
    except (OSError, ValueError, UsageError):
        return DEFAULT  # not a folder that tellapart wrote; errors are reported when the captioner is loaded
