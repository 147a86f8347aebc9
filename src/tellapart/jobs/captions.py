"""The work of ``tellapart caption``: a shard's captions as JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.data import Dataset
from tellapart.inference.caption import weights_of
from tellapart.inference.engine import CaptionEngine
from tellapart.inference.writers import json_line
from tellapart.jobs.works import Done
from tellapart.models.device import hardware
from tellapart.models.packing import packed_linears

if TYPE_CHECKING:
    from tellapart.captioners.base import Captioner
    from tellapart.models.decoding import Decoding


class Captions:
    """Captions by one captioner, as `tellapart.inference.caption.caption_pictures` writes them to a ``.jsonl``."""

    def __init__(self, captioner: Captioner, decoding: Decoding, batch_size: int, features: str | None) -> None:
        self._captioner, self._decoding = captioner, decoding
        self._batch_size, self._features = batch_size, features

    @classmethod
    def open(
        cls,
        captioner: str,
        decoding: dict[str, Any],
        batch_size: int,
        features: str | None,
        device: str,
        precision: str,
        code: list[str],
    ) -> Captions:
        """With the captioner of that name, loaded; ``code`` is what may run for it."""
        from tellapart.captioners import load_captioner
        from tellapart.models.decoding import Decoding
        from tellapart.models.device import resolve_device, resolve_precision
        from tellapart.models.plugins import allow_code

        allow_code(*code)
        place = resolve_device(device)
        loaded = load_captioner(captioner, place, resolve_precision(precision, place))
        return cls(loaded, Decoding(**decoding), batch_size, features)

    def models(self) -> dict[str, Any]:
        """See `tellapart.jobs.works.Work`."""
        return weights_of(self._captioner, None) | {"precision": hardware(self._captioner.model)["precision"]}

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `tellapart.jobs.works.Work`."""
        engine = CaptionEngine.open(
            self._captioner, self._decoding, None, dataset.unreadable, self._features, self._batch_size
        )
        written = empty = 0
        with packed_linears(self._captioner.model), out.open("w", encoding="utf-8", newline="\n") as file:
            for _, captions in engine.captions(dataset):
                file.writelines(json_line(one) for one in captions)
                written += len(captions)
                empty += sum(not one.caption for one in captions)
        return Done.of(dataset, written, empty=empty)
