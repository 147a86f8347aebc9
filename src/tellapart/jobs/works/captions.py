"""The work of captioning: the captions of a shard; `joined_captions` merges those of all shards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tellapart.captioners import load_captioner
from tellapart.captioners.captioner import Captioner
from tellapart.captions.formats import json_line
from tellapart.captions.log_row import text_fields
from tellapart.data import Dataset
from tellapart.errors import UsageError
from tellapart.inference.engine import CaptionEngine
from tellapart.inference.prompts import has_fields
from tellapart.inference.run_settings import weights_of
from tellapart.jobs.job import Job
from tellapart.jobs.works.base import Done, rows_file
from tellapart.models.decoding import Decoding
from tellapart.models.devices import hardware, resolve_device
from tellapart.models.packed_linears import packed_linears
from tellapart.models.precision import resolve_precision
from tellapart.utils.allowed_code import allow_code


@dataclass(frozen=True)
class Captions:
    """Captions pictures with one captioner, as `tellapart.inference.caption.caption_pictures` does for a ``.jsonl``
    file.

    ``code``: the user code that may run. ``prompts``: the job's folder if pictures have individual prompts, otherwise
    None.
    """

    captioner: str
    decoding: dict[str, Any]
    batch_size: int
    features: str | None
    device: str
    precision: str
    code: list[str]
    prompts: str | None = None

    @cached_property
    def _loaded(self) -> Captioner:
        """The named captioner. Raises `UsageError` if its own prompt contains fields, which must be filled in before
        the job starts.
        """
        allow_code(*self.code)
        place = resolve_device(self.device)
        loaded = load_captioner(self.captioner, place, resolve_precision(self.precision, place))
        if self.prompts is None and has_fields(prompt := str(loaded.chosen.get("prompt") or "")):
            raise UsageError(
                f"{self.captioner}: the prompt contains fields, which are not supported with workers; pass "
                f"--prompt '{prompt}'"
            )
        return loaded

    def models(self) -> dict[str, Any]:
        """See `Work`."""
        return weights_of(self._loaded, None) | {"precision": hardware(self._loaded.model)["precision"]}

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `Work`."""
        prompts = None if self.prompts is None else Job.prompts(self.prompts, {item.id for item in dataset})
        engine = CaptionEngine.open(
            self._loaded, Decoding(**self.decoding), None, dataset.unreadable, self.features,
            batch_size=self.batch_size, prompts=prompts,
        )  # fmt: skip
        written = empty = 0
        with (
            packed_linears(self._loaded.model),
            out.open("w", encoding="utf-8", newline="\n") as file,
            rows_file(out).open("w", encoding="utf-8") as rows,
        ):
            for _, captions in engine.captions(dataset):
                file.writelines(json_line(one) for one in captions)
                rows.writelines(
                    json.dumps({"id": one.item.id} | text_fields("\n".join(one.texts), one.picture)) + "\n"
                    for one in captions
                )
                written += len(captions)
                empty += sum(not one.caption for one in captions)
        return Done.of(dataset, written, empty=empty)
