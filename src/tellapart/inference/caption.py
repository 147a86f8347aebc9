"""The verb ``caption``: a data set in, captions out, for as many pictures as there are.

Streams, resumes, and leaves out what cannot be read. ``best_of`` is the baseline that needs no training: sample N
captions of a picture and keep the most discriminative one.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.data import Dataset, Skipped
from tellapart.errors import TellapartError, UsageError
from tellapart.inference.best_of import BestOf
from tellapart.inference.engine import CaptionEngine
from tellapart.inference.truthful import EVIDENCE
from tellapart.inference.writers import OPTIONS, READING, is_complete, open_writer
from tellapart.models.device import hardware
from tellapart.models.loading import files_digest, warn_outside_scenes
from tellapart.progress import Progress

if TYPE_CHECKING:
    from tellapart.captioners.base import Captioner
    from tellapart.features.store import FeatureStore
    from tellapart.models.decoding import Decoding
    from tellapart.scorers.base import Scorer


@dataclass(frozen=True)
class CaptionSummary:
    """The outcome of `caption_pictures`. ``already`` had a caption before; ``cut_texts`` were longer than the
    scorer's window."""

    out: Path | None
    written: int
    already: int
    empty: int
    skipped: Skipped
    cut_texts: int
    seconds: float


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
    store: FeatureStore | None = None,
    features: str | None = None,
    truthful: bool = False,
    progress: bool = True,
) -> CaptionSummary:
    """Caption every picture of ``dataset`` into ``out`` (``.jsonl`` or ``.csv``; None with ``format="txt"``).

    ``resume``: go on in a file that the same settings began, skipping the ids that it has; ``overwrite``: begin it
    anew (with ``txt``: replace text files that are there). ``store``: keep the captioner's features (None: do not;
    worth it where the pictures are used again). ``features``: files with features by item id, in place of the
    captioner's own encoder (`tellapart.features.files`). Unreadable pictures are named in the summary and in
    ``dataset.unreadable``.

    Where ``decoding`` writes several samples of a picture, all go into its line of a ``.jsonl`` file. What is sampled
    of a picture depends on its id alone: not on the batch size, on other pictures, or on where a run was resumed.

    ``best_of`` samples that many captions at ``decoding.temperature`` and keeps the one with the highest log-softmax
    of scale x cosine(caption, picture) among the picture and its 99 nearest neighbours of the whole data set by
    the scorer's image features (which come from ``store``, or the default one). Where ``decoding`` has a
    ``scorer_weight``, a consensus is chosen by the scorer too (`BestOf.consensus`). ``truthful`` drops or softens words
    that the captioner finds no likelier for the picture than for others of the data set (`inference.truthful`). The
    captions' order in a file is the data set's; a resumed run appends.

    Raises `UsageError` for a request that cannot be met, `TellapartError` for a full disk (what was written stays,
    whole), and where not one picture could be read.
    """
    from tellapart.models.packing import packed_linears

    started = time.monotonic()
    if best_of is not None and (best_of < 2 or scorer is None):
        raise UsageError("best-of needs at least 2 samples and a scorer; type: --best-of 10 --scorer MODEL")
    if decoding.asks_scorer and scorer is None:
        raise UsageError("a consensus with scorer_weight needs a scorer; type: --consensus 48 --scorer MODEL")
    if scorer is not None and best_of is None and not decoding.asks_scorer:
        raise UsageError("a scorer chooses among samples; type --best-of 10 or --consensus 48 with it, or leave it out")
    if batch_size < 1:
        raise UsageError(f"a batch of {batch_size} pictures; expected at least 1")
    check_truthful(dataset, decoding, truthful, best_of)
    used, scorer_name = hardware(captioner.model), scorer.name if scorer else None
    warn_outside_scenes(captioner.name, dataset, "captioner")
    warn_outside_scenes(scorer_name, dataset, "scorer")
    request = caption_request(
        dataset.spec, captioner.name, decoding, best_of, scorer_name, features, used["precision"], truthful
    )
    settings = request | weights_of(captioner, scorer) | used
    writer = open_writer(dataset, out, format, settings, resume, overwrite)
    try:
        todo = [item for item in dataset if item.id not in writer.done]
        already = len(dataset) - len(todo)
        chooser = None
        if scorer is not None and todo:
            chooser = BestOf.among(dataset, scorer, store, wanted=[item.id for item in todo], progress=progress)
            todo = [item for item in todo if item.id in chooser.places]
            if best_of is not None:
                decoding = decoding.model_copy(update={"kind": "sample", "samples": best_of})
        engine = CaptionEngine.open(captioner, decoding, store, dataset.unreadable, features, batch_size)
        if truthful and todo:
            engine.doubt_words(list(dataset), dataset.spec)
        written = empty = 0
        with packed_linears(captioner.model), Progress(len(todo), "captioning", enabled=progress) as shown:
            for count, captions in engine.captions(todo, chooser):
                writer.write(captions)
                written += len(captions)
                empty += sum(not one.caption for one in captions)
                shown.advance(count)
    finally:
        writer.close()
    if todo and not written and not already:
        raise TellapartError(dataset.unreadable.line(len(dataset)) or "no picture could be captioned")
    cut = scorer.cut_texts if scorer is not None else 0
    return CaptionSummary(out, written, already, empty, dataset.unreadable, cut, time.monotonic() - started)


def check_truthful(dataset: Dataset, decoding: Decoding, truthful: bool, best_of: int | None = None) -> None:
    """Raises `UsageError` where captions cannot be made truthful: several samples of a picture, a single picture."""
    if truthful and best_of is not None:
        raise UsageError("--truthful edits captions, and --best-of scores them as they were sampled; leave one out")
    if truthful and decoding.samples > 1:
        raise UsageError("--truthful edits the one caption of a picture, and --samples keeps several; leave one out")
    if truthful and len(dataset) < 2:
        raise UsageError(
            f"--truthful compares a picture with others, and {dataset.spec} has {len(dataset)}; leave it out"
        )


def nothing_left(
    dataset: Dataset,
    out: Path | None,
    captioner: str,
    *,
    decoding: Decoding,
    format: str | None = None,
    best_of: int | None = None,
    scorer: str | None = None,
    features: str | None = None,
    precision: str = "fp32",
    truthful: bool = False,
) -> bool:
    """Whether `caption_pictures` would find a caption of every picture, without loading a model.

    ``captioner`` and ``scorer`` are names, ``precision`` is that of the captioner's weights.

    False where that is unknown: the file was begun with other settings, or
    the models' files are others than then.
    """
    request = caption_request(dataset.spec, captioner, decoding, best_of, scorer, features, precision, truthful)
    return is_complete(dataset, out, format, request)


def caption_request(
    data: str,
    captioner: str,
    decoding: Decoding,
    best_of: int | None,
    scorer: str | None,
    features: str | None,
    precision: str,
    truthful: bool,
) -> dict[str, Any]:
    """The settings of a run: a run with other settings must not append to the same file."""
    return {
        "captioner": captioner,
        "captioner_files": files_digest(captioner.partition("?")[0], "captioner"),
        "data": data,
        "decoding": decoding.model_dump(),
        "precision": precision,
        "best_of": best_of,
        "scorer": scorer,
        "scorer_files": files_digest(scorer, "scorer") if scorer is not None else None,
        **({"features": str(Path(features).expanduser().resolve())} if features is not None else {}),
        **({"truthful": EVIDENCE} if truthful else {}),
    }


def settings_fingerprint(captioner: Captioner) -> str:
    """A hash of what a captioner is asked by beside its weights: configuration, vocabulary and chat template."""
    from tellapart.scorers.base import settings_of

    tokenizer = captioner.tokenizer
    templates = [getattr(own, "chat_template", None) for own in (tokenizer, getattr(captioner, "whole", None))]
    parts = [settings_of(captioner.model), tokenizer.get_vocab(), templates]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=12).hexdigest()


def weights_of(captioner: Captioner, scorer: Scorer | None) -> dict[str, Any]:
    """The settings that only the loaded models know."""
    from tellapart.scorers.base import weights_fingerprint

    return {
        "captioner_weights": weights_fingerprint(captioner.model, captioner.processor),
        OPTIONS: captioner.chosen,
        READING: settings_fingerprint(captioner),
        **({"frames": captioner.frames} if captioner.frames > 1 else {}),
        "scorer_weights": scorer.fingerprint if scorer is not None else None,
    }
