"""The options of a captioning run, their checks, and its output, for `caption_pictures` and `caption_by_server`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart.captions.formats import LOG, METADATA, PRINTED, format_of
from tellapart.captions.replacement import Replace
from tellapart.captions.writers import Writer, open_writer
from tellapart.data import Dataset
from tellapart.errors import UsageError, need_extra
from tellapart.features.store import FeatureStore
from tellapart.inference.best_of import BestOf
from tellapart.inference.prompts import Prompts
from tellapart.inference.structured import AnswerSchema
from tellapart.models.decoding import Decoding
from tellapart.models.training_domain import warn_outside_scenes
from tellapart.scorers.base import Scorer
from tellapart.types import Item


@dataclass(kw_only=True)
class CaptionRun:
    """Captions for the pictures in ``dataset``, written to ``out`` (``.jsonl`` or ``.csv``, or None with
    ``format="txt"``).

    Args:
        decoding: the decoding settings. If they draw several samples per picture, all samples are written to the
            picture's line in a ``.jsonl`` file. With a ``scorer_weight``, the scorer takes part in MBR decoding
            (`BestOf.consensus`).
        best_of: the number of captions to sample at ``decoding.temperature``. Keeps the caption with the highest
            log-softmax of scale × cosine(caption, picture) over the picture and its 99 nearest neighbours by the
            scorer's image features.
        drop_guesses: remove or generalize words that are equally likely for other pictures (`Beliefs`) or, with a
            server, for a grey picture.
        claims: add each claim's confidence, estimated from the samples (`inference.sampled_claims.claim_confidences`),
            with log-probabilities if the model returns them.
        schema: request structured captions that match this schema (servers only). If an answer does not match, the
            request is repeated once.
        prompts: one prompt per picture [default: made from the captioner's own prompt if it contains fields].
        resume: continue a file that was started with the same settings, and skip pictures that are already in the file.
        overwrite: start the file over, but keep captions that a person wrote or edited.
        replace_edited: also replace captions that a person wrote or edited, after backing them up.
        store: a cache for features. It pays off if the pictures are used again.
    """

    dataset: Dataset
    out: Path | None
    decoding: Decoding
    format: str | None = None
    best_of: int | None = None
    scorer: Scorer | None = None
    drop_guesses: bool = False
    claims: bool = False
    schema: AnswerSchema | None = None
    prompts: Prompts | None = None
    resume: bool = True
    overwrite: bool = False
    replace_edited: bool = False
    store: FeatureStore | None = None
    progress: bool = True

    def check(self) -> None:
        """Raises `UsageError` if the options are not compatible with each other or with the output, and `MissingExtra`
        if the claim extractor is not installed.
        """
        decoding, best_of = self.decoding, self.best_of
        _check_choice(decoding, best_of, self.scorer is not None)
        chosen = format_of(self.out, self.format) if self.out != PRINTED else self.format or "jsonl"
        lines = chosen == "jsonl" and (self.out is None or self.out.name != METADATA)
        edited = best_of or self.drop_guesses or decoding.confidence
        if self.claims:
            need_extra("words", "--claims", "HanTa")
        for wrong, message in (
            (
                self.drop_guesses and best_of is not None,
                "--drop-guesses and --best-of cannot be combined, because --best-of scores captions before they are "
                "edited; remove one of them",
            ),
            (
                self.drop_guesses and decoding.samples > 1,
                "--drop-guesses and --samples cannot be combined, because only a single caption per picture can be "
                "edited; remove one of them",
            ),
            (
                (self.schema or self.claims) and not lines,
                f"{'--schema' if self.schema else '--claims'} requires JSON lines; use -o captions.jsonl",
            ),
            (
                decoding.paragraphs and chosen not in ("jsonl", "txt", LOG),
                "--decoding paragraphs=keep is not supported for this output; use -o captions.jsonl, or --format txt "
                "for a file beside each picture",
            ),
            (
                decoding.paragraphs and (decoding.samples > 1 or decoding.confidence),
                "--decoding paragraphs=keep supports only a single unedited caption; remove --samples and --decoding "
                "confidence",
            ),
            (
                self.claims and best_of is None and (not decoding.draws or decoding.drawn.samples < 2),
                "--claims requires several samples per picture; add --samples 10, --consensus 48 or --best-of 10 "
                "--scorer MODEL",
            ),
            (
                self.schema and (decoding.kind != "greedy" or edited),
                "--schema keeps a single unedited answer per picture; remove --samples, --best-of, --consensus, "
                "--drop-guesses and --decoding confidence",
            ),
        ):
            if wrong:
                raise UsageError(message)

    @contextmanager
    def opened(self, settings: dict[str, Any]) -> Iterator[tuple[Writer, list[Item], BestOf | None]]:
        """Opens the output of a run with these ``settings``. Yields the writer, the items to caption, and the
        `BestOf` that chooses between samples, or None without a scorer.
        """
        replaces = Replace(self.overwrite, self.replace_edited)
        writer = open_writer(self.dataset, self.out, self.format, settings, self.resume, replaces)
        with closing(writer):
            todo, chooser = [item for item in self.dataset if item.id not in writer.done], None
            if self.scorer is not None:
                warn_outside_scenes(self.scorer.name, self.dataset, "scorer")
            if self.scorer is not None and todo:
                wanted = [item.id for item in todo]
                chooser = BestOf.among(self.dataset, self.scorer, self.store, wanted=wanted, progress=self.progress)
                todo = [item for item in todo if item.id in chooser.places]
            yield writer, todo, chooser


def _check_choice(decoding: Decoding, best_of: int | None, has_scorer: bool) -> None:
    """Raises `UsageError` if the options select samples without a scorer, or name a scorer that selects nothing."""
    if best_of is not None and (best_of < 2 or not has_scorer):
        raise UsageError("--best-of requires at least 2 samples and a scorer; use --best-of 10 --scorer MODEL")
    if decoding.asks_scorer and not has_scorer:
        raise UsageError("a consensus with scorer_weight requires a scorer; use --consensus 48 --scorer MODEL")
    if has_scorer and best_of is None and not decoding.asks_scorer:
        raise UsageError("--scorer selects from samples; add --best-of 10 or --consensus 48, or remove --scorer")
