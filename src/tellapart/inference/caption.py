"""Captions a data set of any size with a model on this machine, and writes the captions to a file.

`caption_pictures` streams, resumes, and skips unreadable pictures. `tellapart.inference.engine` reads, encodes and
captions; `tellapart.captions.writers` writes JSON lines, CSV, or a text file beside each picture;
`tellapart.inference.best_of` reranks samples without training.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart.captioners.captioner import Captioner
from tellapart.captions.earlier_run import is_complete
from tellapart.captions.replacement import Replace
from tellapart.captions.writers import Writer, open_writer
from tellapart.data import Dataset, Skipped
from tellapart.errors import TellapartError, UsageError
from tellapart.features.store import FeatureStore
from tellapart.inference.best_of import BestOf
from tellapart.inference.engine import CaptionEngine
from tellapart.inference.output_checks import check_lines
from tellapart.inference.prompts import Prompts
from tellapart.models.decoding import EVIDENCE, Decoding, check_choice
from tellapart.models.devices import hardware
from tellapart.models.digests import files_digest, settings_of, weights_fingerprint
from tellapart.models.onednn import packed_linears
from tellapart.models.training_domain import warn_outside_scenes
from tellapart.scorers.base import Scorer
from tellapart.types import Item
from tellapart.utils.progress import Progress


@dataclass(frozen=True)
class CaptionSummary:
    """Result of `caption_pictures`.

    already: number of pictures that already had a caption.
    cut_texts: number of texts that exceeded the scorer's context window.
    generated: number of generated captions, including samples.
    cut_captions: number of generated captions that were truncated at ``max_tokens``.
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
    """Captions all pictures in ``dataset`` into ``out`` (``.jsonl`` or ``.csv``; None if ``format="txt"``).

    The random numbers for a picture depend only on its id, not on the batch size, the other pictures, or where a run
    was resumed. Captions are written in the order of the data set; a resumed run appends.

    Args:
        decoding: if it draws several samples per picture, all are written to the picture's line of a ``.jsonl`` file.
            With a ``scorer_weight``, the scorer takes part in MBR decoding (`BestOf.consensus`).
        best_of: number of captions to sample at ``decoding.temperature``. Keeps the one with the highest log-softmax of
            scale x cosine(caption, picture) over the picture and its 99 nearest neighbours by the scorer's image
            features.
        resume: continue a file that was started with the same settings, and skip the pictures in it.
        overwrite: start the file over, but keep texts that a person wrote or edited.
        replace_edited: replace those too, after backing them up.
        store: cache for the captioner's features, which pays off if the pictures are used again.
        features: files with features by item id, to use instead of the captioner's encoder (`features.feature_files`).
        drop_guesses: remove or generalize words that are no likelier for the picture than for others (`Beliefs`).
        prompts: one prompt per picture; None: made from the captioner's own prompt if that contains fields.
        claims: add the confidence of each claim, estimated from the samples (`inference.claims.claim_confidences`).

    Raises:
        UsageError: if the settings are inconsistent or not supported.
        TellapartError: if the disk is full (complete lines are kept), or if no picture can be read.
    """
    started = time.monotonic()
    check_choice(decoding, best_of, scorer is not None)
    if batch_size < 1:
        raise UsageError(f"batch size: expected at least 1, got {batch_size}")
    check_drop_guesses(dataset, decoding, drop_guesses, best_of)
    check_lines(out, format, decoding, best_of, claims=claims)
    if prompts is None and (template := captioner.chosen.get("prompt")):
        prompts = Prompts.read(template, dataset)
    if prompts is not None and drop_guesses:
        raise UsageError("--drop-guesses requires a --prompt without fields; remove one of the two")
    before = captioner.generated, captioner.cut_captions
    used, scorer_name = hardware(captioner.model), scorer.name if scorer else None
    warn_outside_scenes(captioner.name, dataset, "captioner")
    warn_outside_scenes(scorer_name, dataset, "scorer")
    request = caption_request(
        dataset.spec, captioner.name, decoding, best_of, scorer_name, features, used["precision"], drop_guesses,
        prompts, claims)  # fmt: skip
    settings = request | weights_of(captioner, scorer) | used
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
    """Captions the items in ``todo``; returns the number of captions written, and how many of them are empty."""
    written = empty = 0
    with packed_linears(engine.captioner.model), Progress(len(todo), "captioning", enabled=progress) as shown:
        for count, captions in engine.captions(todo, chooser):
            writer.write(captions)
            written += len(captions)
            empty += sum(not one.caption for one in captions)
            shown.advance(count)
    return written, empty


def check_drop_guesses(dataset: Dataset, decoding: Decoding, drop_guesses: bool, best_of: int | None = None) -> None:
    """Raises `UsageError` if ``drop_guesses`` cannot work: with several samples per picture, or fewer than two
    pictures.
    """
    if drop_guesses and best_of is not None:
        raise UsageError(
            "--drop-guesses and --best-of cannot be combined, because --best-of scores captions "
            "before they are edited; remove one"
        )
    if drop_guesses and decoding.samples > 1:
        raise UsageError(
            "--drop-guesses and --samples cannot be combined, because only a single caption per "
            "picture can be edited; remove one"
        )
    if drop_guesses and len(dataset) < 2:
        raise UsageError(
            f"--drop-guesses compares each picture with others, but {dataset.spec} has {len(dataset)}; remove it"
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
    drop_guesses: bool = False,
    prompts: Prompts | None = None,
    claims: bool = False,
) -> bool:
    """Returns whether every picture already has the caption that `caption_pictures` would write; loads no model.

    ``captioner`` and ``scorer`` are names; ``precision`` is that of the captioner's weights.

    Returns False if the file was started with other settings, or if the models' files have changed since.
    """
    request = caption_request(
        dataset.spec, captioner, decoding, best_of, scorer, features, precision, drop_guesses, prompts, claims
    )
    return is_complete(dataset, out, format, request)


def caption_request(
    data: str,
    captioner: str,
    decoding: Decoding,
    best_of: int | None,
    scorer: str | None,
    features: str | None,
    precision: str,
    drop_guesses: bool,
    prompts: Prompts | None = None,
    claims: bool = False,
) -> dict[str, Any]:
    """Returns the settings of a run; runs with different settings must not append to the same file."""
    return {
        "captioner": captioner,
        "captioner_files": files_digest(captioner.partition("?")[0], "captioner"),
        "typed_options": captioner.partition("?")[2],
        "data": data,
        "decoding": decoding.model_dump(),
        "precision": precision,
        "best_of": best_of,
        "scorer": scorer,
        "scorer_files": files_digest(scorer, "scorer") if scorer is not None else None,
        **({"features": str(Path(features).expanduser().resolve())} if features is not None else {}),
        **({"truthful": EVIDENCE} if drop_guesses else {}),
        **({"prompt": prompts.template} if prompts is not None else {}),
        **({"claims": True} if claims else {}),
    }


def settings_fingerprint(captioner: Captioner) -> str:
    """Returns a hash of a captioner's settings other than its weights: configuration, vocabulary and chat template."""
    tokenizer = captioner.tokenizer
    templates = [getattr(own, "chat_template", None) for own in (tokenizer, getattr(captioner, "whole", None))]
    parts = [settings_of(captioner.model), tokenizer.get_vocab(), templates]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=12).hexdigest()


def weights_of(captioner: Captioner, scorer: Scorer | None) -> dict[str, Any]:
    """Returns the settings that are known only once the models are loaded."""
    return {
        "captioner_weights": weights_fingerprint(captioner.model, captioner.processor),
        "captioner_options": captioner.chosen,
        "captioner_settings": settings_fingerprint(captioner),
        **({"frames": captioner.frames} if captioner.frames > 1 else {}),
        "scorer_weights": scorer.fingerprint if scorer is not None else None,
    }
