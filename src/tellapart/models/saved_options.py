"""The options saved with a captioner, such as its decoding settings and levels of detail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from transformers.utils.hub import cached_file

from tellapart.errors import TellapartError
from tellapart.models.decoding import DEFAULT, Decoding
from tellapart.models.hub_names import missing_on_hub
from tellapart.models.names import model_folder
from tellapart.utils.strict_json import parse_json

OPTIONS_FILE = "tellapart.json"  # next to a captioner's config.json
Levels = tuple[tuple[Annotated[float, Field(ge=0, le=1)], str], ...]  # pairs of a level of detail and its prompt


class SavedOptions(BaseModel):
    """The content of a captioner's `OPTIONS_FILE`: decoding settings, levels of detail, and options of its name.

    ``made_by``: the factory of a custom captioner.
    """

    model_config = ConfigDict(extra="allow")

    decoding: Decoding | None = None
    detail: Levels = ()
    made_by: str = ""

    @property
    def chosen(self) -> dict[str, Any]:
        """Returns the options of the captioner's name, such as its prompt."""
        return dict(self.model_extra or {})

    def write(self, folder: Path) -> None:
        """Writes the options, without the scorer's weight, if there are any."""
        if content := self.model_dump(exclude_defaults=True, exclude={"decoding": {"scorer_weight"}}):
            (folder / OPTIONS_FILE).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


def saved_options(where: str, from_hub: bool = False) -> SavedOptions:
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
        return SavedOptions()
    try:
        saved = parse_json(file.read_text(encoding="utf-8"))
    except ValueError:
        saved = None
    if not isinstance(saved, dict):
        raise TellapartError(f"{file} is damaged: expected a JSON object; copy the folder again, or remove this file")
    try:
        return SavedOptions.model_validate(saved)
    except ValidationError as error:
        name, expected = str(error.errors()[0]["loc"][0]), error.errors()[0]["msg"]
        if name == "detail":
            expected = 'expected pairs of a number from 0 to 1 and a prompt, such as [[0.0, "briefly"], [1.0, ""]]'
        raise TellapartError(
            f"{where}: {name} in its {OPTIONS_FILE} is {saved[name]!r:.80}; {expected}; copy the folder again, or "
            f"remove {name}"
        ) from None


def default_decoding(name: str) -> Decoding:
    """Returns the decoding settings saved with a captioner, or `DEFAULT` if no settings were saved.

    Does not load the captioner. For hub names, downloads the options file.
    """
    try:
        place = model_folder(name.partition("?")[0], "captioner")
        named = place.count("/") == 1 and not Path(place).is_dir()
        return saved_options(place, from_hub=named and missing_on_hub(place) is None).decoding or DEFAULT
    except (OSError, ValueError, TellapartError):
        return DEFAULT  # not a folder that tellapart wrote; errors are reported when the captioner is loaded
