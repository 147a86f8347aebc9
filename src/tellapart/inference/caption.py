"""Captions a data set of any size with a model on this machine, and writes the captions to a file.

`caption_pictures` streams pictures, resumes interrupted runs, and skips pictures that cannot be read.
`tellapart.inference.engine` reads, encodes and captions pictures. `tellapart.captions.writers` writes JSON Lines, CSV,
or a text file beside each picture. `tellapart.inference.best_of` reranks samples without training.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart.captioners.captioner import Captioner
from tellapart.captions.replacement import Replace
from tellapart.captions.writers import Writer, open_writer
from tellapart.data import Dataset, Skipped
from tellapart.errors import TellapartError, UsageError
from tellapart.features.store import FeatureStore
from tellapart.inference.best_of import BestOf
from tellapart.inference.engine import CaptionEngine
from tellapart.inference.prompts import Prompts
from tellapart.inference.run_settings import caption_request, weights_of
from tellapart.inference.setting_checks import check_drop_guesses, check_lines
from tellapart.models.decoding import Decoding, check_choice
from tellapart.models.devices import hardware
from tellapart.models.packed_linears import packed_linears
from tellapart.models.training_domain import warn_outside_scenes
from tellapart.scorers.base import Scorer
from tellapart.types import Item
from tellapart.utils.progress import Progress


@dataclass(frozen=True)
class CaptionSummary:
    """The result of `caption_pictures`.

    already: the number of pictures that already had a caption.
    cut_texts: the number of texts that exceeded the scorer's context window.
    generated: the number of generated captions, including samples.
    cut_captions: the number of generated captions that were truncated at ``max_tokens``.
    """

    out: Path | None
    written: int
    already: int
    empty: int
    skipped: Skipped
    cut_texts: int
    seconds: float
    generated: int = 0
    cut_captions: int = 0
    max_tokens: int = 0

    def lines(self) -> list[str]:
        """Returns warnings about truncated captions."""
        if not self.cut_captions:
            return []
        return [
            (
                f"{self.cut_captions:,} of {self.generated:,} generated captions were truncated at "
                f"{self.max_tokens} tokens; for complete captions, use a larger --max-tokens"
            )
        ]


def caption_pictures(
    captioner: Captioner,
    dataset: Dataset,
    out: Path | None,
    *,
    decoding: Decoding,
    batch_size: int = 32,
    format: str | None = None,
    best_of: int | None = None,
    scorer: Scorer | None = None,
    resume: bool = True,
    overwrite: bool = False,
    replace_edited: bool = False,
    store: FeatureStore | None = None,
    features: str | None = None,
    drop_guesses: bool = False,
    progress: bool = True,
    prompts: Prompts | None = None,
    claims: bool = False,
) -> CaptionSummary:
    """Captions all pictures in ``dataset`` and writes ``out`` (``.jsonl`` or ``.csv``, or None with ``format="txt"``).

    The random numbers for a picture depend only on its id, not on the batch size, the other pictures, or where a run
    was resumed. Captions are written in the order of the data set. A resumed run appends to the file.

    Args:
        decoding: the decoding settings. If they draw several samples per picture, all samples are written to the
            picture's line in a ``.jsonl`` file. With a ``scorer_weight``, the scorer takes part in MBR decoding
            (`BestOf.consensus`).
        best_of: the number of captions to sample at ``decoding.temperature``. Keeps the caption with the highest
            log-softmax of scale × cosine(caption, picture) over the picture and its 99 nearest neighbours by the
            scorer's image features.
        resume: continue a file that was started with the same settings, and skip pictures that are already in the file.
        overwrite: start the file over, but keep captions that a person wrote or edited.
        replace_edited: also replace captions that a person wrote or edited, after backing them up.
        store: a cache for the captioner's features. It pays off if the pictures are used again.
        features: files with features by item id, used instead of the captioner's encoder (`features.feature_files`).
        drop_guesses: remove or generalize words that are equally likely for other pictures (`Beliefs`).
        prompts: one prompt per picture [default: made from the captioner's own prompt if it contains fields].
        claims: add each claim's confidence, estimated from the samples (`inference.claims.claim_confidences`).

    Raises:
        UsageError: if the settings are inconsistent or not supported.
        TellapartError: if the disk is full (complete lines are kept), or if no picture can be read.
    """
    started = time.monotonic()
    check_choice(decoding, best_of, scorer is not None)
    if batch_size < 1:
        raise UsageError(f"batch size: expected at least 1, got {batch_size}")
    check_drop_guesses(drop_guesses, decoding, best_of, dataset)
    check_lines(out, format, decoding, best_of, claims=claims)
    if prompts is None and (template := captioner.chosen.get("prompt")):
        prompts = Prompts.read(template, dataset)
    if prompts is not None and drop_guesses:
        raise UsageError("--drop-guesses requires a --prompt without fields; remove one of the two")
    before = captioner.generated, captioner.cut_captions
    used, scorer_name = hardware(captioner.model), scorer.name if scorer else None
    warn_outside_scenes(captioner.name, dataset, "captioner")
    warn_outside_scenes(scorer_name, dataset, "scorer")
    request: dict[str, Any] = {"best_of": best_of, "features": features, "prompts": prompts, "claims": claims}
    request |= {"precision": used["precision"], "scorer": scorer_name, "drop_guesses": drop_guesses}
    settings = caption_request(dataset.spec, captioner.name, decoding, **request) | weights_of(captioner, scorer) | used
    with closing(open_writer(dataset, out, format, settings, resume, Replace(overwrite, replace_edited))) as writer:
        todo = [item for item in dataset if item.id not in writer.done]
        already, chooser = len(dataset) - len(todo), None
        if scorer is not None and todo:
            chooser = BestOf.among(dataset, scorer, store, wanted=[item.id for item in todo], progress=progress)
            todo = [item for item in todo if item.id in chooser.places]
            if best_of is not None:
                decoding = decoding.model_copy(update={"kind": "sample", "samples": best_of})
        by_id = None if prompts is None else prompts.by_id
        engine = CaptionEngine.open(captioner, decoding, store, dataset.unreadable, features, batch_size, by_id, claims)
        if drop_guesses and todo:
            engine.doubt_words(list(dataset), dataset.spec)
        written, empty = _write_captions(engine, todo, chooser, writer, progress)
    if todo and not written and not already:
        raise TellapartError(dataset.unreadable.line(len(dataset)) or "no picture could be captioned")
    counts = (captioner.generated - before[0], captioner.cut_captions - before[1], decoding.max_tokens)
    cut, seconds = scorer.cut_texts if scorer is not None else 0, time.monotonic() - started
    return CaptionSummary(out, written, already, empty, dataset.unreadable, cut, seconds, *counts)


def _write_captions(
    engine: CaptionEngine, todo: Sequence[Item], chooser: BestOf | None, writer: Writer, progress: bool
) -> tuple[int, int]:
    """Captions the items in ``todo``. Returns the number of captions written, and how many of them are empty."""
    written = empty = 0
    with packed_linears(engine.captioner.model), Progress(len(todo), "captioning", enabled=progress) as shown:
        for count, captions in engine.captions(todo, chooser):
            writer.write(captions)
            written += len(captions)
            empty += sum(not one.caption for one in captions)
            shown.advance(count)
    return written, empty
