"""Captions a data set of any size with a model on this machine, and writes the captions to a file.

`caption_pictures` streams pictures, resumes interrupted runs, and skips pictures that cannot be read.
`tellapart.inference.engine` reads, encodes and captions pictures. `tellapart.captions.writers` writes JSON Lines, CSV,
or a text file beside each picture. `tellapart.inference.best_of` reranks samples without training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart.captioners.captioner import Captioner
from tellapart.data import Dataset, Skipped
from tellapart.errors import TellapartError, UsageError
from tellapart.inference.caption_run import CaptionRun
from tellapart.inference.engine import CaptionEngine
from tellapart.inference.prompts import Prompts
from tellapart.inference.run_settings import caption_request, weights_of
from tellapart.models.devices import hardware
from tellapart.models.packed_linears import packed_linears
from tellapart.models.training_domain import warn_outside_scenes
from tellapart.utils.progress import Progress


@dataclass
class CaptionSummary:
    """The result of `caption_pictures`.

    already: the number of pictures that already had a caption.
    generated: the number of generated captions, including samples.
    cut_captions: the number of generated captions that were truncated at ``max_tokens``.
    """

    skipped: Skipped
    max_tokens: int
    written: int = 0
    already: int = 0
    empty: int = 0
    generated: int = 0
    cut_captions: int = 0

    def lines(self) -> list[str]:
        """Returns warnings about truncated captions."""
        if not self.cut_captions:
            return []
        return [
            f"{self.cut_captions:,} of {self.generated:,} generated captions were truncated at "
            f"{self.max_tokens} tokens; for complete captions, use a larger --max-tokens"
        ]


def caption_pictures(
    captioner: Captioner,
    dataset: Dataset,
    out: Path | None,
    *,
    batch_size: int = 32,
    features: str | None = None,
    **options: Any,
) -> CaptionSummary:
    """Captions all pictures in ``dataset`` and writes ``out`` (``.jsonl`` or ``.csv``, or None with ``format="txt"``).

    The random numbers for a picture depend only on its id, not on the batch size, the other pictures, or where a run
    was resumed. Captions are written in the order of the data set. A resumed run appends to the file.

    Args:
        features: files with features by item id, used instead of the captioner's encoder (`features.feature_files`).
        options: further fields of `CaptionRun`; ``decoding`` is required.

    Raises:
        UsageError: if the settings are inconsistent or not supported.
        TellapartError: if the disk is full (complete lines are kept), or if no picture can be read.
    """
    run = CaptionRun(dataset=dataset, out=out, **options)
    decoding, prompts = run.decoding, run.prompts
    if batch_size < 1:
        raise UsageError(f"batch size: expected at least 1, got {batch_size}")
    run.check()
    if run.schema:
        raise UsageError("--schema requires a server model; remove it")
    if run.drop_guesses and len(dataset) < 2:
        raise UsageError(
            f"--drop-guesses compares each picture with other pictures, but {dataset.spec} contains {len(dataset)}; "
            "remove --drop-guesses"
        )
    if prompts is None and (template := captioner.chosen.get("prompt")):
        prompts = Prompts.read(template, dataset)
    if prompts is not None and run.drop_guesses:
        raise UsageError("--drop-guesses requires a --prompt without fields; remove one of the two")
    used = hardware(captioner.model)
    warn_outside_scenes(captioner.name, dataset, "captioner")
    settings = caption_request(
        dataset.spec, captioner.name, decoding, best_of=run.best_of, scorer=run.scorer.name if run.scorer else None,
        features=features, precision=used["precision"], drop_guesses=run.drop_guesses, prompts=prompts,
        claims=run.claims,
    )  # fmt: skip
    summary = CaptionSummary(dataset.unreadable, decoding.max_tokens)
    before = captioner.generated, captioner.cut_captions
    with run.opened(settings | weights_of(captioner, run.scorer) | used) as (writer, todo, chooser):
        summary.already = sum(item.id in writer.done for item in dataset)
        if chooser is not None and run.best_of is not None:
            decoding = decoding.model_copy(update={"kind": "sample", "samples": run.best_of})
        by_id = None if prompts is None else prompts.by_id
        engine = CaptionEngine.open(
            captioner,
            decoding,
            run.store,
            dataset.unreadable,
            features,
            batch_size=batch_size,
            prompts=by_id,
            claims=run.claims,
        )
        if run.drop_guesses and todo:
            engine.doubt_words(list(dataset), dataset.spec)
        with packed_linears(captioner.model), Progress(len(todo), "captioning", enabled=run.progress) as progress:
            for count, captions in engine.captions(todo, chooser):
                writer.write(captions)
                summary.written += len(captions)
                summary.empty += sum(not one.caption for one in captions)
                progress.advance(count)
    if todo and not summary.written and not summary.already:
        raise TellapartError(dataset.unreadable.line(len(dataset)) or "no picture could be captioned")
    summary.generated = captioner.generated - before[0]
    summary.cut_captions = captioner.cut_captions - before[1]
    return summary
