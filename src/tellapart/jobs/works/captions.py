"""The work of captioning: the captions of a shard; `joined_captions` merges those of all shards."""

from __future__ import annotations

import json
from dataclasses import dataclass
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
from tellapart.jobs.works.base import Done
from tellapart.models.decoding import Decoding
from tellapart.models.devices import hardware, resolve_device
from tellapart.models.packed_linears import packed_linears
from tellapart.models.precision import resolve_precision
from tellapart.utils.allowed_code import allow_code


def rows_file(out: Path) -> Path:
    """Returns the path of the file with a shard's captions in the log's format, which is next to the shard's result."""
    return out.with_name(out.name + ".pictures.jsonl")


@dataclass(frozen=True)
class Captions:
    """Captions pictures with one captioner, as `tellapart.inference.caption.caption_pictures` does for a ``.jsonl``
    file.

    ``prompts``: the job's folder if pictures have individual prompts, otherwise None.
    """

    captioner: Captioner
    decoding: Decoding
    batch_size: int
    features: str | None
    prompts: str | None

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
        prompts: str | None = None,
    ) -> Captions:
        """Loads the named captioner. ``code``: the user code that may run.

        Raises `UsageError` if the captioner's own prompt contains fields, which must be filled in before the job
        starts.
        """

        allow_code(*code)
        place = resolve_device(device)
        loaded = load_captioner(captioner, place, resolve_precision(precision, place))
        if prompts is None and has_fields(prompt := str(loaded.chosen.get("prompt") or "")):
            raise UsageError(
                f"{captioner}: the prompt contains fields, which are not supported with workers; pass "
                f"--prompt '{prompt}'"
            )
        return cls(loaded, Decoding(**decoding), batch_size, features, prompts)

    def models(self) -> dict[str, Any]:
        """See `Work`."""
        return weights_of(self.captioner, None) | {"precision": hardware(self.captioner.model)["precision"]}

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `Work`."""
        prompts = None if self.prompts is None else Job.prompts(self.prompts, {item.id for item in dataset})
        engine = CaptionEngine.open(
            self.captioner, self.decoding, None, dataset.unreadable, self.features, self.batch_size, prompts
        )
        written = empty = 0
        with (
            packed_linears(self.captioner.model),
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
