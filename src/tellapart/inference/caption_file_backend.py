"""Uses a file of captions as a describer for `tellapart.boost`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tellapart.boost.types import Answer, BackendError, Request
from tellapart.data import Dataset
from tellapart.data.caption_files import read_caption_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.errors import UsageError
from tellapart.utils.messages import say


@dataclass
class CaptionFileBackend:
    """Serves descriptions from a file, looked up by picture id."""

    name: str
    texts: dict[str, str]

    @classmethod
    def open(cls, path: str, dataset: Dataset | None) -> CaptionFileBackend:
        """Reads the file and matches its ids with those of the data set. Raises `UsageError` if no id matches, or if an
        id is ambiguous.
        """
        if not path:
            raise UsageError("file: missing path; use file:captions.jsonl")
        if dataset is None:
            raise UsageError(f"file:{path}: workers are not needed to read descriptions from a file; remove --workers")
        known = KnownIds.of_files(dataset.spec, dataset)
        matched = match_captions(read_caption_file(path), known, path)
        if matched.how is not None:
            say(matched.how)
        texts = {id: texts[0] for id, texts in matched.texts.items()}
        if not any(id in texts for id in known.ids):
            raise UsageError(f"{path} contains no captions for the pictures in {dataset.spec}")
        digest = hashlib.blake2b(repr(sorted(texts.items())).encode("utf-8", "backslashreplace"), digest_size=6)
        return cls(f"file:{Path(path).name}-{digest.hexdigest()}", texts)

    def complete(self, request: Request) -> Answer:
        """Returns the picture's description. Raises `BackendError` if the file has none."""
        if (text := self.texts.get(request.item)) is None:
            raise BackendError(f"{self.name} has no caption for this picture")
        return Answer(text)
