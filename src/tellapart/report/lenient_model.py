"""Base of the models that read a report's JSON files."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class LenientModel(BaseModel):
    """Base model that ignores unknown keys, so that newer files can be read, and accepts numbers as strings."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)
