"""A caption from a captioner or a server, with everything that is stored about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tellapart.captions.picture_record import PictureRecord
from tellapart.types import Item
from tellapart.utils.strict_json import json_text


@dataclass(frozen=True)
class Written:
    """A picture's caption. ``candidates``: with best-of, all samples with their scores in nats, best first.

    ``samples``: all captions of the picture if several were requested; ``caption`` is the first. ``picture``: the
    record of the decoded picture; None if unknown. ``structured``: the caption as an object that matches a JSON schema.
    ``claims``: the claims in the caption, each with its confidence.
    """

    item: Item
    caption: str
    candidates: tuple[tuple[str, float], ...] = ()
    samples: tuple[str, ...] = ()
    picture: PictureRecord | None = None
    structured: Mapping[str, Any] | None = None
    claims: tuple[Mapping[str, Any], ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Returns all captions of the picture, or the JSON of a structured caption."""
        if self.structured is not None:
            return (json_text(self.structured),)
        return self.samples if len(self.samples) > 1 else (self.caption,)
