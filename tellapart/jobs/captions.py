"""The work of ``tellapart caption``: a shard's captions as JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.data import Dataset
from tellapart.inference.caption import weights_of
from tellapart.inference.engine import CaptionEngine
from tellapart.inference.writers import json_line
from tellapart.jobs.works import Done

if TYPE_CHECKING:
    from tellapart.captioners.base import Captioner


class Captions:
    """Captions by one captioner, as `tellapart.inference.caption.caption_pictures` writes them to a ``.jsonl``."""

    def __init__(
        self,
        captioner: str,
        decoding: dict[str, Any],
        batch_size: int,
        features: str | None,
        device: str,
        precision: str,
        code: list[str],
    ) -> None:
        from tellapart.captioners import load_captioner
        from tellapart.models.decoding import Decoding
        from tellapart.models.device import hardware, resolve_device, resolve_precision
        from tellapart.models.plugins import allow_code

        allow_code(*code)
        place = resolve_device(device)
        self._captioner: Captioner = load_captioner(captioner, place, resolve_precision(precision, place))
        self._decoding, self._batch_size, self._features = Decoding(**decoding), batch_size, features
        self._hardware = hardware(self._captioner.model)

    def models(self) -> dict[str, Any]:
        """See `tellapart.jobs.works.Work`."""
        return weights_of(self._captioner, None) | {"precision": self._hardware["precision"]}

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `tellapart.jobs.works.Work`."""
        engine = CaptionEngine(
            self._captioner, self._decoding, None, dataset.unreadable, self._features, self._batch_size
        )
        written = empty = 0
        with out.open("w", encoding="utf-8", newline="\n") as file:
            for _, captions in engine.captions(dataset):
                file.writelines(json_line(one) for one in captions)
                written += len(captions)
                empty += sum(not one.caption for one in captions)
        return Done.of(dataset, written, empty=empty)
