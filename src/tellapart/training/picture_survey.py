"""Checks that there are enough pictures for training, and measures their references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tellapart.data import open_many
from tellapart.data.dataset import Dataset
from tellapart.errors import PictureError, UsageError
from tellapart.recipe.presets import reads_references
from tellapart.training.fingerprint import picture_identity
from tellapart.types import Item

MIN_PICTURES = 8  # two pictures for the test set, two for validation, and the rest for training


def survey_pictures(pictures: Sequence[str], objective: str, table: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the number of pictures and the number of words in their longest reference.

    Raises `UsageError` if there are too few pictures, or if some pictures lack references that the objective requires.
    """
    dataset = open_many(list(pictures))
    count, names = len(dataset), " ".join(pictures)
    if count < MIN_PICTURES:
        raise UsageError(
            f"{names}: found {count} pictures; expected at least {MIN_PICTURES}, because some are held out"
        )
    if (different := different_pictures(dataset)) < MIN_PICTURES:
        raise UsageError(
            f"{names}: found {count} pictures, of which only {different} are distinct; expected at least "
            f"{MIN_PICTURES} distinct pictures, so that held-out pictures are not copies of training pictures"
        )
    references = [item.references for item in dataset]
    if (bare := sum(not texts for texts in references)) and reads_references(table):
        raise UsageError(
            f"{bare:,} of {count:,} pictures have no reference, which objective '{objective}' requires; add captions "
            "for them, or use --objective self-retrieval"
        )
    return count, max((len(text.split()) for texts in references for text in texts), default=0)


def different_pictures(dataset: Dataset) -> int:
    """Counts distinct pictures by their bytes, up to `MIN_PICTURES`."""
    distinct = 0
    for identity in (picture_identity, key_of):  # compare file sizes first, because that often suffices
        identities: set[int | str] = set()
        for item in dataset:
            identities.add(identity(item))
            if (distinct := len(identities)) == MIN_PICTURES:
                return distinct
    return distinct


def key_of(item: Item) -> str:
    """Returns the key of the picture's content.

    If the picture cannot be read, returns the item's id; the error is reported when the picture is encoded.
    """
    try:
        return item.picture.key()
    except PictureError:
        return item.id
