"""Authors of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Author:
    """The author of a text: a model with its prompt and decoding settings, or a person (``model`` is empty)."""

    model: str = ""
    prompt: str = ""
    decoding: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_person(self) -> bool:
        """Returns whether a person wrote the text."""
        return not self.model

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that are set, which are none for a person."""
        fields = {"model": self.model, "prompt": self.prompt, "decoding": dict(self.decoding)}
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Author:
        """Creates an author from the result of `to_json`."""
        return cls(str(value.get("model", "")), str(value.get("prompt", "")), dict(value.get("decoding") or {}))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Author:
        """Creates the author of captions that ``tellapart caption`` wrote with these settings."""
        options = settings.get("captioner_options") or {}
        prompt = settings.get("prompt") or (options.get("prompt") if isinstance(options, Mapping) else "")
        return cls(str(settings.get("captioner") or UNKNOWN.model), str(prompt or ""), settings.get("decoding") or {})


PERSON = Author()
UNKNOWN = Author("tellapart")  # for older logs, which do not name the model
