"""Recaptions pictures with the sample that a scorer finds most distinctive."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.load import load_captioner
from tellapart.captions.authors import Author
from tellapart.captions.store import Edit
from tellapart.data import Dataset, Skipped
from tellapart.errors import UsageError
from tellapart.inference.engine import CaptionEngine
from tellapart.models.decoding import Decoding
from tellapart.models.devices import resolve_device
from tellapart.review.fit_finder import FitFinder

SAMPLES = 10  # samples per recaptioned picture


class Recaptioner:
    """Recaptions pictures so that a scorer can tell them from their look-alikes."""

    def __init__(self, captioner: Captioner, finder: FitFinder, dataset: Dataset) -> None:
        self._captioner, self._finder = captioner, finder
        self._items = {item.id: item for item in dataset}
        most = captioner.max_caption_tokens or 30
        self._decoding = Decoding(kind="sample", samples=SAMPLES, max_tokens=most)
        self._lock = threading.Lock()
        prompt = str(captioner.chosen.get("prompt") or "")
        self.author = Author(captioner.name, prompt, {**self._decoding.model_dump(), "best_of": SAMPLES,
                                                      "scorer": finder.scorer.name})  # fmt: skip

    @classmethod
    def open(cls, model: str, device: str, finder: FitFinder, dataset: Dataset) -> Recaptioner:
        """Loads the named captioner. Raises `UsageError` if there is no such model."""
        return cls(load_captioner(model, resolve_device(device)), finder, dataset)

    def captions(self, ids: Sequence[str]) -> dict[str, Edit]:
        """Returns the best caption of each picture, with the remaining samples as candidates.

        Raises `UsageError` if no picture can be read.
        """
        with self._lock:
            chooser = self._finder.best_of(ids)
            items = [self._items[id_] for id_ in ids if id_ in chooser.places]
            skipped = Skipped()
            engine = CaptionEngine.open(self._captioner, self._decoding, None, skipped)
            written = [one for _, some in engine.captions(items) for one in some]
            if not written:
                raise UsageError(f"none of the {len(ids):,} pictures could be read")
            ranked = chooser.rank([one.item for one in written], [one.texts for one in written])
            edits = {}
            for one, group in zip(written, ranked, strict=True):
                texts = list(dict.fromkeys(text for text, _ in group if text.strip()))
                if texts:
                    edits[one.item.id] = Edit(texts[0], {"candidates": texts})
            return edits
