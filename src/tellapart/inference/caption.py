"""The verb ``caption``: a data set in, a file of captions out, for as many pictures as there are.

`caption_pictures` streams, resumes, and leaves out what cannot be read. `CaptionEngine` reads pictures ahead of the
model, encodes and captions them in batches and returns captions in order: threads decode, resize and normalize with the
captioner's own processor while the model works; inputs of different lengths (prompts, pictures that keep their shapes)
are captioned in batches of like length, which need less padding; where memory runs out, batches become half as large.

A `Writer` writes JSON lines, CSV, or a text file beside each picture. Whole lines are appended and flushed, so that a
killed run leaves at most a half-written last line, which the next run cuts off before it goes on. Beside
``captions.jsonl`` lies ``captions.jsonl.settings.json`` with what made it: a run with other settings does not go on in
that file, for its captions would be mixed unseen.

`tellapart.inference.best_of` chooses among samples without training. `Beliefs` needs none either (``--drop-guesses``):
a content word that is no likelier for this picture than for others was a guess, and is dropped or softened by rules
of English grammar without a tagger.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import re
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from tellapart.data import Dataset, Skipped
from tellapart.data.pictures import (
    CLIP_SUFFIXES,
    SUFFIXES,
    BytesPicture,
    FilePicture,
    StoredPicture,
    ahead,
    in_flight,
    open_image,
    sample_frames,
    signature_of,
)
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.inference.best_of import BestOf
from tellapart.inference.prompts import Prompts
from tellapart.language.phrases import soften
from tellapart.language.words import content_words, words_of_tokens
from tellapart.models.decoding import EVIDENCE, Decoding, check_choice
from tellapart.models.devices import BatchSize, hardware
from tellapart.models.names import warn_outside_scenes
from tellapart.models.onednn import packed_linears
from tellapart.models.saved import files_digest, settings_of, weights_fingerprint
from tellapart.rewards.speaker import Speaker, word_log_probs
from tellapart.types import Encoder, Item, Picture, Rollout
from tellapart.utils.io import (
    Progress,
    for_terminal,
    json_text,
    parse_json,
    replace_text,
    say,
    stdout_errors,
    temporary_beside,
    writable_file,
    write_errors,
)
from tellapart.utils.registry import LazyModule
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    import torch

    from tellapart.captioners.captioner import Captioner
    from tellapart.features.store import FeatureStore
    from tellapart.features.views import View
    from tellapart.scorers.base import Scorer
else:
    torch = LazyModule("torch")


CONTRASTS = 8  # pictures that a caption's own is compared with


class Beliefs:
    """Computes how much likelier the captioner finds each content word of its captions for their picture than for
    others.

    ``contrast_K``: features of the other pictures as the captioner takes them, K rows; ``ids_K``: their items' ids, so
    that no picture is compared with itself.
    """

    def __init__(self, captioner: Captioner, contrast_K: torch.Tensor, ids_K: Sequence[str]) -> None:
        self.captioner, self.contrast_K, self.ids_K = captioner, contrast_K, ids_K

    def __call__(self, visual: torch.Tensor, ids: Sequence[str], texts: Sequence[str]) -> list[list[float]]:
        """For each of the B captions the nats of each of its `content_words`; ``visual`` has B rows."""
        tokens_RT, valid_RT = (x.to(self.captioner.device) for x in self.captioner.pad(self.captioner.tokenize(texts)))
        rollout, speaker, K = Rollout(tokens_RT, valid_RT, list(texts)), Speaker(self.captioner), len(self.contrast_K)
        training = self.captioner.model.training
        self.captioner.model.eval()
        with torch.no_grad():
            own_RT = speaker.score(visual, rollout)
            everywhere = Rollout(tokens_RT.repeat(K, 1), valid_RT.repeat(K, 1), list(texts) * K, len(texts))
            others_KRT = speaker.score(self.contrast_K, everywhere).view(K, *tokens_RT.shape)
        self.captioner.model.train(training)
        found, word_RT = words_of_tokens(rollout, self.captioner.tokenizer, content_words)
        log_p_ORT = torch.cat([own_RT[None], others_KRT]).cpu()
        log_p_ORW = word_log_probs(log_p_ORT, word_RT, max(1, *map(len, found)))
        itself_KR = torch.tensor([[own == other for own in ids] for other in self.ids_K])
        rivals_KRW = log_p_ORW[1:].masked_fill(itself_KR[..., None], -torch.inf)
        count_R1 = (~itself_KR).sum(0)[:, None]
        nats_RW = (log_p_ORW[0] - rivals_KRW.logsumexp(0) + count_R1.log()).tolist()
        return [row[: len(words)] for row, words in zip(nats_RW, found, strict=True)]

    def without_guesses(self, visual: torch.Tensor, ids: Sequence[str], texts: Sequence[str]) -> list[str]:
        """The captions without the words whose evidence is below `EVIDENCE`."""
        beliefs = self(visual, ids, texts)
        return [soften(text, [nats < EVIDENCE for nats in row]) for text, row in zip(texts, beliefs, strict=True)]


WINDOW = 4  # batches that are sorted by length together, and written to the file together
CPU_ENCODING = 8  # pictures encoded at once on a CPU, whose caches hold the states of no more


class CaptionEngine:
    """Captions of items by one captioner. ``source``: its encoder, of which nothing is kept, or a view of the items;
    ``prompts``: of each item by its id."""

    def __init__(
        self,
        captioner: Captioner,
        decoding: Decoding,
        source: Encoder | View,
        skipped: Skipped,
        batch_size: int = 32,
        prompts: Mapping[str, str] | None = None,
    ) -> None:
        self._prompts = prompts
        self._captioner, self._decoding, self._skipped = captioner, decoding, skipped
        self._source = source
        self._window = batch_size * (WINDOW if captioner.lengths_differ or prompts else 1)
        on_cpu = captioner.device.type == "cpu"
        self._encoding = BatchSize(min(batch_size, CPU_ENCODING) if on_cpu else batch_size, "encoding")
        self._writing = BatchSize(batch_size, "writing captions")
        self._beliefs: Beliefs | None = None
        self.cut: set[str] = set()  # captions of the last `WINDOW` that were cut at the most tokens

    @classmethod
    def open(
        cls,
        captioner: Captioner,
        decoding: Decoding,
        store: FeatureStore | None,
        skipped: Skipped,
        features: str | None = None,
        batch_size: int = 32,
        prompts: Mapping[str, str] | None = None,
    ) -> CaptionEngine:
        """The captions' engine. ``store``: keeps features; None: pictures are encoded and forgotten.

        ``features``: files that take the place of the captioner's encoder, or "off".
        """
        if captioner.makes_features and store is None and features is None:
            return cls(captioner, decoding, captioner.encoder, skipped, batch_size, prompts)
        from tellapart.features.store import FeatureStore
        from tellapart.features.views import make_view

        view = make_view(captioner, store or FeatureStore(), features, progress=False)
        return cls(captioner, decoding, view, skipped, batch_size, prompts)

    def doubt_words(self, items: Sequence[Item], name: str) -> None:
        """Drop or soften from now on what the captioner would as soon write of other pictures, a few of ``items``.

        Which ones depends on the data set alone. Raises `UsageError` with its ``name`` where only one can be read.
        """
        spread = dict.fromkeys(len(items) * k // CONTRASTS for k in range(CONTRASTS))
        rest = (place for place in range(len(items)) if place not in spread)
        ids: list[str] = []
        rows: list[torch.Tensor] = []
        for place in (*spread, *rest):  # the rest stand in for those that cannot be read
            if len(ids) == CONTRASTS:
                break
            some = [items[place]]
            for _, kept, visual in self._windows(some):
                ids += [item.id for item in kept]
                rows += [self._captioner.inputs(visual)[0]] if kept else []
        if len(ids) < 2:
            raise UsageError(f"--drop-guesses compares pictures; of {name} only {len(ids)} can be read; leave it out")
        contrast_K = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # pictures may differ in their regions
        self._beliefs = Beliefs(self._captioner, contrast_K, ids)

    def captions(self, items: Sequence[Item], chooser: BestOf | None = None) -> Iterator[tuple[int, list[Written]]]:
        """For some items after another how many they are, and the captions of those that can be read, in order."""
        for count, kept, visual in self._windows(items):
            yield count, self._write(kept, visual, chooser) if kept else []

    def log_probs(self, item: Item, text: str | None = None) -> tuple[Rollout, torch.Tensor] | None:
        """Generates the captions of a picture, or takes this ``text``; computes log_p_RT in nats of each token.

        The log-probabilities are those of the captioner itself, at temperature 1. None where it cannot be read.
        """
        ((_, kept, visual),) = self._windows([item])
        if not kept:
            return None
        from tellapart.captioners.generate import without_gaps

        captioner, training = self._captioner, self._captioner.model.training
        captioner.model.eval()
        with torch.no_grad():
            visual = captioner.inputs(visual)
            if text is None:
                with without_gaps(captioner):
                    rollout = captioner.generate(visual, self._decoding, ItemSeeds((item.id,)))
            else:
                tokens_RT, valid_RT = captioner.pad(captioner.tokenize([text]))
                rollout = Rollout(tokens_RT.to(captioner.device), valid_RT.to(captioner.device), [text])
            log_p_RT = Speaker(captioner).score(visual, rollout)
        captioner.model.train(training)
        return rollout, log_p_RT

    # The captioner's input
    def _windows(self, items: Sequence[Item]) -> Iterator[tuple[int, list[Item], Any]]:
        """Windows of items: how many, those that can be read, and their features."""
        return self._encoded(items) if isinstance(self._source, Encoder) else self._viewed(items, self._source)

    def _encoded(self, items: Sequence[Item]) -> Iterator[tuple[int, list[Item], Any]]:
        """The windows as the captioner's own encoder makes them."""
        buffer = self._window + self._encoding.size
        threads = None if self._captioner.pixels_in_threads else 1
        work = ahead(self._prepare, map(self._opened, items), buffer=buffer, threads=threads, size=_held)
        with closing(work) as prepared:
            for start in range(0, len(items), self._window):
                kept, pixels_FCHW = [], []
                for item in items[start : start + self._window]:
                    found = next(prepared)
                    if isinstance(found, PictureError):
                        self._skipped.add_error(item.picture.name, found)
                    else:
                        kept.append(item)
                        pixels_FCHW.append(found)
                blocks = list(self._encoding.batches(len(kept), partial(self._encode, pixels_FCHW)))
                yield min(self._window, len(items) - start), kept, torch.cat(blocks) if blocks else None

    @staticmethod
    def _opened(item: Item) -> Picture | PictureError:
        """The picture, read now where its neighbours lie in the same file, which is quick in their order alone."""
        if not isinstance(item.picture, StoredPicture) or isinstance(item.picture, FilePicture):
            return item.picture
        try:
            return item.picture.read()
        except PictureError as error:
            return error

    def _prepare(self, picture: Picture | PictureError) -> torch.Tensor | PictureError:
        """Pixels F×… of a picture (F is 1) or of the frames of a clip, by the captioner's processor; in a thread."""
        if isinstance(picture, PictureError):
            return picture
        assert isinstance(self._source, Encoder)
        try:
            with in_flight():  # until it is small
                return self._source.pixels(sample_frames(picture, self._source.frames))
        except PictureError as error:
            return error

    def _encode(self, all_FCHW: Sequence[torch.Tensor], some: slice) -> torch.Tensor:
        """Features of some pictures or clips, one row each."""
        assert isinstance(self._source, Encoder)
        pixels_FCHW = all_FCHW[some]
        pixels = torch.cat(list(pixels_FCHW))
        if self._captioner.device.type == "cuda":
            pixels = pixels.pin_memory().to(self._captioner.device, non_blocking=True)
        with torch.no_grad():
            visual = self._source.encode(pixels)
            if self._source.join is not None:
                each = visual.split([len(frames) for frames in pixels_FCHW])
                visual = torch.stack([self._source.join(frames) for frames in each])
        return self._captioner.inputs(visual)

    def _viewed(self, items: Sequence[Item], view: View) -> Iterator[tuple[int, list[Item], Any]]:
        """The same from a feature store, from files of features, or from prompts."""
        for start in range(0, len(items), self._window):
            some = items[start : start + self._window]
            kept = view.readable(some, self._skipped)
            yield len(some), kept, torch.as_tensor(view.rows(kept)[:]) if kept else None

    # Its output
    def _write(self, items: Sequence[Item], visual: torch.Tensor, chooser: BestOf | None) -> list[Written]:
        """Captions of items from their features, those behind one prompt and of like length together."""
        from tellapart.captioners.generate import generate_captions

        lengths = self._captioner.input_lengths(visual) or [0] * len(items)
        prompts = [(self._prompts or {}).get(item.id, "") for item in items]
        order = sorted(range(len(items)), key=lambda place: (prompts[place], lengths[place]))

        def generate(captioner: Captioner, places: Sequence[int], some: slice) -> list[str]:
            chosen = places[some]
            in_order = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
            rows = visual[chosen[0] : chosen[0] + len(chosen)] if in_order else visual[chosen]
            decoding = self._decoding if chooser is None else self._decoding.drawn
            seeds = ItemSeeds(tuple(items[place].id for place in chosen)) if decoding.draws else None
            texts = generate_captions(captioner, rows, decoding, len(chosen), seeds)
            self.cut |= captioner.cut
            return texts

        written: list[str] = []
        self.cut = set()
        if self._prompts:  # found out once, not behind every prompt
            self._captioner.head()
        for prompt, some in groupby(order, key=prompts.__getitem__):
            places, asked = list(some), self._captioner.with_prompt(prompt)
            for texts in self._writing.batches(len(places), partial(generate, asked, places)):
                written += texts
            if prompt:  # another object, which counts for itself
                self._captioner.generated, self._captioner.cut_captions = asked.generated, asked.cut_captions
        samples = len(written) // len(items)
        groups: list[tuple[str, ...]] = [()] * len(items)
        for number, place in enumerate(order):
            texts = written[number * samples : (number + 1) * samples]
            groups[place] = tuple(" ".join(text.split()) for text in texts)
        if chooser is None:
            captions = [Written(item, group[0], samples=group) for item, group in zip(items, groups, strict=True)]
        elif self._decoding.asks_scorer:
            texts = chooser.consensus(items, groups, self._decoding.scorer_weight)
            captions = [Written(item, text) for item, text in zip(items, texts, strict=True)]
        else:
            ranked = chooser.rank(items, groups)
            captions = [Written(item, best[0][0], best) for item, best in zip(items, ranked, strict=True)]
        return captions if self._beliefs is None else self._without_doubted(captions, visual)

    def _without_doubted(self, captions: list[Written], visual: torch.Tensor) -> list[Written]:
        """The captions without the words that the captioner does not believe."""
        assert self._beliefs is not None
        edited: list[Written] = []
        for start in range(0, len(captions), self._writing.size):
            part = slice(start, start + self._writing.size)
            some = captions[part]
            ids, texts = [one.item.id for one in some], [one.caption for one in some]
            kept = self._beliefs.without_guesses(self._captioner.inputs(visual[part]), ids, texts)
            self.cut |= {text for one, text in zip(some, kept, strict=True) if one.caption in self.cut}
            edited += [replace(one, caption=text, samples=(text,)) for one, text in zip(some, kept, strict=True)]
        return edited


def _held(picture: Picture | PictureError) -> int:
    """Bytes that a picture holds in memory before it is decoded."""
    return len(picture.data) if isinstance(picture, BytesPicture) else 0


@dataclass(frozen=True)
class CaptionSummary:
    """The outcome of `caption_pictures`. ``already`` had a caption before; ``cut_texts`` were longer than the
    scorer's window; of ``generated`` captions, samples included, ``cut_captions`` were cut at ``max_tokens``."""

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
        """Returns what is to be said of captions that were cut."""
        if not self.cut_captions:
            return []
        return [
            f"{self.cut_captions:,} of {self.generated:,} captions generated were cut at {self.max_tokens} tokens, "
            "before their end; for whole ones type a larger --max-tokens"
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
    store: FeatureStore | None = None,
    features: str | None = None,
    drop_guesses: bool = False,
    progress: bool = True,
    prompts: Prompts | None = None,
) -> CaptionSummary:
    """Caption every picture of ``dataset`` into ``out`` (``.jsonl`` or ``.csv``; None with ``format="txt"``).

    ``resume``: go on in a file that the same settings began, skipping the ids that it has; ``overwrite``: begin it
    anew (with ``txt``: replace text files that are there). ``store``: keep the captioner's features (None: do not;
    worth it where the pictures are used again). ``features``: files with features by item id, in place of the
    captioner's own encoder (`tellapart.features.views`). Unreadable pictures are named in the summary and in
    ``dataset.unreadable``.

    Where ``decoding`` writes several samples of a picture, all go into its line of a ``.jsonl`` file. What is sampled
    of a picture depends on its id alone: not on the batch size, on other pictures, or on where a run was resumed.

    ``best_of`` samples that many captions at ``decoding.temperature`` and keeps the one with the highest log-softmax
    of scale x cosine(caption, picture) among the picture and its 99 nearest neighbours of the whole data set by
    the scorer's image features (which come from ``store``, or the default one). Where ``decoding`` has a
    ``scorer_weight``, a consensus is chosen by the scorer too (`BestOf.consensus`). ``drop_guesses`` drops or softens
    words that the captioner finds no likelier for the picture than for others of the data set (`Beliefs`).
    ``prompts``: of single pictures; those of the captioner's own prompt, where that has fields. The
    captions' order in a file is the data set's; a resumed run appends.

    Raises `UsageError` for a request that cannot be met, `TellapartError` for a full disk (what was written stays,
    whole), and where not one picture could be read.
    """
    started = time.monotonic()
    check_choice(decoding, best_of, scorer is not None)
    if batch_size < 1:
        raise UsageError(f"a batch of {batch_size} pictures; expected at least 1")
    check_drop_guesses(dataset, decoding, drop_guesses, best_of)
    if prompts is None and (own := captioner.chosen.get("prompt")):
        prompts = Prompts.read(own, dataset)
    if prompts is not None and drop_guesses:
        raise UsageError("--drop-guesses compares pictures behind one prompt, and --prompt has fields; leave one out")
    before = captioner.generated, captioner.cut_captions
    used, scorer_name = hardware(captioner.model), scorer.name if scorer else None
    warn_outside_scenes(captioner.name, dataset, "captioner")
    warn_outside_scenes(scorer_name, dataset, "scorer")
    request = caption_request(
        dataset.spec, captioner.name, decoding, best_of, scorer_name, features, used["precision"], drop_guesses, prompts
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
        engine = CaptionEngine.open(captioner, decoding, store, dataset.unreadable, features, batch_size,
                                    None if prompts is None else prompts.by_id)  # fmt: skip
        if drop_guesses and todo:
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
    return CaptionSummary(
        out,
        written,
        already,
        empty,
        dataset.unreadable,
        cut,
        time.monotonic() - started,
        captioner.generated - before[0],
        captioner.cut_captions - before[1],
        decoding.max_tokens,
    )


def check_drop_guesses(dataset: Dataset, decoding: Decoding, drop_guesses: bool, best_of: int | None = None) -> None:
    """Raises `UsageError` where captions cannot be rid of guesses: several samples of a picture, a single picture."""
    if drop_guesses and best_of is not None:
        raise UsageError("--drop-guesses edits captions, and --best-of scores them as they were sampled; leave one out")
    if drop_guesses and decoding.samples > 1:
        raise UsageError(
            "--drop-guesses edits the one caption of a picture, and --samples keeps several; leave one out"
        )
    if drop_guesses and len(dataset) < 2:
        raise UsageError(
            f"--drop-guesses compares a picture with others, and {dataset.spec} has {len(dataset)}; leave it out"
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
) -> bool:
    """Returns whether `caption_pictures` would find a caption of every picture, without loading a model.

    ``captioner`` and ``scorer`` are names, ``precision`` is that of the captioner's weights.

    False where that is unknown: the file was begun with other settings, or
    the models' files are others than then.
    """
    request = caption_request(
        dataset.spec, captioner, decoding, best_of, scorer, features, precision, drop_guesses, prompts
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
        **({"truthful": EVIDENCE} if drop_guesses else {}),
        **({"prompt": prompts.template} if prompts is not None else {}),
    }


def settings_fingerprint(captioner: Captioner) -> str:
    """A hash of what a captioner is asked by beside its weights: configuration, vocabulary and chat template."""
    tokenizer = captioner.tokenizer
    templates = [getattr(own, "chat_template", None) for own in (tokenizer, getattr(captioner, "whole", None))]
    parts = [settings_of(captioner.model), tokenizer.get_vocab(), templates]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=12).hexdigest()


def weights_of(captioner: Captioner, scorer: Scorer | None) -> dict[str, Any]:
    """The settings that only the loaded models know."""
    return {
        "captioner_weights": weights_fingerprint(captioner.model, captioner.processor),
        OPTIONS: captioner.chosen,
        READING: settings_fingerprint(captioner),
        **({"frames": captioner.frames} if captioner.frames > 1 else {}),
        "scorer_weights": scorer.fingerprint if scorer is not None else None,
    }


METADATA = "metadata.jsonl"  # of Hugging Face: a list of the pictures in its folder, by their file names
FORMATS = ("jsonl", "csv", "txt")
PRINTED = Path("-")  # in place of a file: standard output
FILES = {"captioner_files", "scorer_files"}  # settings by which `is_complete` knows the models
OPTIONS = "captioner_options"  # those that its folder has as well
READING = "captioner_settings"  # a hash of its configuration, vocabulary and chat template
NEWER = {OPTIONS, READING}  # 0.1 did not write them down
OF_MODELS = {"captioner_weights", "scorer_weights", "frames", *NEWER}  # settings that only a loaded model has
DEVICE = "device"  # written down, and no setting: a run may go on elsewhere
PRECISION = "precision"
PLAIN = {PRECISION: "fp32"}  # where none is written down: of 0.1, and of servers, which do not say
SYNC_SECONDS = 3.0


@dataclass(frozen=True)
class Written:
    """One picture's caption; with best-of, its score in nats and all that was sampled, best first.

    ``samples``: all captions of the picture where several are wanted, and ``caption`` is the first.
    """

    item: Item
    caption: str
    candidates: tuple[tuple[str, float], ...] = ()
    samples: tuple[str, ...] = ()


class Writer(Protocol):
    """A destination of captions. ``done``: the ids that already have one."""

    done: set[str]

    def write(self, captions: Sequence[Written]) -> None:
        """Append captions. Raises `TellapartError` where the disk is full."""
        ...

    def close(self) -> None:
        """Flush to disk and close the file."""
        ...


def open_writer(
    items: Iterable[Item], out: Path | None, format: str | None, settings: dict[str, Any], resume: bool, overwrite: bool
) -> Writer:
    """The writer for ``out``; its suffix says the format where ``format`` does not."""
    chosen = format or (out.suffix.lower().lstrip(".") if out else "")
    samples = 1 if settings["best_of"] else settings["decoding"]["samples"]
    if samples > 1 and out is not None and out.name == METADATA:
        raise UsageError(f"{out}: has one text of each picture, and {samples} are asked for; type -o captions.jsonl")
    if out is not None and out.name == METADATA:
        for item in items:
            name_in(item, out.parent)
    if samples > 1 and chosen != "jsonl" and not (out == PRINTED and chosen in ("", "txt")):
        raise UsageError(
            f"{samples} captions of each picture go to a .jsonl file; type -o captions.jsonl, or ask for one"
        )
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format '{format}'; expected one of {', '.join(FORMATS)}")
    if out == PRINTED:
        return Printed(chosen or "jsonl", settings.get("best_of") is not None)
    if chosen == "txt":
        if out is not None:
            raise UsageError(
                f"{out}: captions go to a .jsonl or .csv file; for a .txt beside each picture type "
                "--format txt without -o"
            )
        return TextFiles.beside(items, overwrite)
    if out is None:
        raise UsageError("no file to write captions to; type -o captions.jsonl, -o - to print them, or --format txt")
    if chosen not in FORMATS:
        raise UsageError(f"{out}: cannot tell the format from this name; expected .jsonl or .csv, or type --format")
    return LineFile.open(out, chosen, settings, items, resume, overwrite)


def is_complete(items: Sequence[Item], out: Path | None, format: str | None, request: dict[str, Any]) -> bool:
    """Returns whether every item has its caption, by a run with this ``request`` and the same files of the models."""
    chosen = format or (out.suffix.lower().lstrip(".") if out else "")
    if chosen == "txt" and out is None:
        return len(TextFiles.beside(items, False).done) == len(items)
    if out is None or out == PRINTED or not out.is_file():
        return False
    if chosen not in ("jsonl", "csv") or request["captioner_files"] is None:
        return False
    try:
        before = parse_json(settings_file(out).read_text(encoding="utf-8"))
        done = ids_of(out.read_bytes().decode("utf-8", "replace"), chosen, out)
    except (OSError, ValueError, UsageError):
        return False
    if not isinstance(before, dict):
        return False
    same = PLAIN | {k: v for k, v in before.items() if k not in (*OF_MODELS, DEVICE)}
    if same != plain(request):
        return False
    if not pictures_file(out).is_file() and any(isinstance(item.picture, StoredPicture) for item in items):
        return False
    return all(item.id in done for item in items) and not replaced(items, out, done)


class Printed:
    """Captions on standard output, each as soon as it is there: lines of JSON or CSV, or (``txt``) captions alone."""

    def __init__(self, format: str, scored: bool) -> None:
        self.done: set[str] = set()
        self._format = format
        if format == "csv":
            with stdout_errors():
                sys.stdout.write(csv_header(scored))

    def write(self, captions: Sequence[Written]) -> None:
        line = {"jsonl": json_line, "csv": csv_line, "txt": text_lines}[self._format]
        with stdout_errors():
            for one in captions:
                sys.stdout.write(line(one))
        self.done.update(one.item.id for one in captions)

    def close(self) -> None:
        """Nothing to close."""


def text_lines(written: Written) -> str:
    """The captions of a picture alone, a line each."""
    texts = written.samples if len(written.samples) > 1 else (written.caption,)
    return "".join(f"{for_terminal(text)}\n" for text in texts)


def csv_header(scored: bool) -> str:
    return "id,caption,score\n" if scored else "id,caption\n"


def csv_line(written: Written) -> str:
    """The line of a picture in a ``.csv`` file."""
    text = io.StringIO()
    score = [f"{written.candidates[0][1]:.6g}"] if written.candidates else []
    csv.writer(text, lineterminator="\n").writerow([_one_line(written.item.id), written.caption, *score])
    return text.getvalue()


def name_in(item: Item, folder: Path) -> str:
    """Returns the path of a picture relative to a folder, with forward slashes.

    Raises `UsageError` for no file, and for a name that is no text, which no list can say.
    """
    if not isinstance(item.picture, FilePicture):
        raise UsageError(f"{item.picture.name} is not a file, and metadata.jsonl names files; type -o captions.jsonl")
    name = Path(os.path.relpath(item.picture.path, folder)).as_posix()
    if name.encode("utf-8", "ignore").decode() != name:
        raise UsageError(f"{item.picture.name}: its name is not in UTF-8, and metadata.jsonl names files; rename it")
    return name


def json_line(written: Written, folder: Path | None = None) -> str:
    """The line of a picture in a ``.jsonl`` file; with a ``folder`` in its `METADATA`. Raises as `name_in`."""
    record: dict[str, Any] = {"id": written.item.id}
    if folder is not None:
        record |= {"file_name": name_in(written.item, folder), "text": written.caption}
    else:
        record |= {"captions": written.samples} if len(written.samples) > 1 else {"caption": written.caption}
    if written.candidates:
        record["score"] = round(written.candidates[0][1], 6)
        record["candidates"] = [{"caption": text, "score": round(score, 6)} for text, score in written.candidates]
    return json_text(record) + "\n"


def settings_file(path: Path) -> Path:
    return path.with_name(path.name + ".settings.json")


def pictures_file(path: Path) -> Path:
    """Beside captions: of which pictures they are, a line each with its size, time and content."""
    return path.with_name(path.name + ".pictures.jsonl")


def picture_lines(items: Iterable[Item]) -> Iterator[str]:
    """Yields the lines of `pictures_file` for those pictures that lie on disk."""
    for item in items:
        if isinstance(item.picture, StoredPicture):
            with contextlib.suppress(PictureError):  # features from files: no picture is opened
                size, time_ns = item.picture.signature()
                value = {"id": item.id, "size": size, "mtime_ns": time_ns, "content": item.picture.key()}
                yield json.dumps(value) + "\n"


def replaced(items: Iterable[Item], path: Path, done: set[str]) -> set[str]:
    """The ids that are ``done`` and whose picture on disk is not the one that was captioned.

    A file is read only where its size or time is another. None where the pictures of these captions are not recorded.
    """
    known = {}
    with contextlib.suppress(FileNotFoundError), pictures_file(path).open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # half a line, of a killed run
                value = parse_json(line.decode())
                known[str(value["id"])] = ((value["size"], value["mtime_ns"]), value["content"])
    found = set()
    for item in items if known else ():
        if item.id in done and isinstance(item.picture, StoredPicture):
            with contextlib.suppress(PictureError):  # gone, or never opened (features from files)
                signature, content = known.get(item.id, (None, None))
                if item.picture.signature() != signature and item.picture.key() != content:
                    found.add(item.id)
    return found


def recorded_precision(out: Path | None) -> str | None:
    """The precision in which the captions of this file were begun; None where none were."""
    if out is None or out == PRINTED or not out.is_file():
        return None
    try:
        before = parse_json(settings_file(out).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(before.get(PRECISION, "fp32")) if isinstance(before, dict) else None


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as they are read back from their file."""
    value: dict[str, Any] = json.loads(json.dumps(settings))
    return value


def ids_of(text: str, format: str, path: Path) -> set[str]:
    """The ids of whole lines of captions; raises `UsageError` for any other line."""
    return {id_ for id_, _ in _records(text, format, path)}


def _records(text: str, format: str, path: Path) -> Iterator[tuple[str, str]]:
    """(id, the text that it takes) of whole captions, a CSV's head left out; raises `UsageError` for any other line."""
    text = text[: text.rfind("\n") + 1]
    lines: Any = csv.reader(io.StringIO(text, newline="")) if format == "csv" else io.StringIO(text, newline="")
    for number, line in enumerate(lines, start=1):
        if format == "csv" and number == 1:
            continue
        try:
            if format == "csv":
                id_, _ = line[:2]
                yield str(id_), _csv_line(line)
            else:
                value = parse_json(line)
                if not isinstance(value.get("caption", value.get("text")), str) and not _texts(value.get("captions")):
                    raise ValueError("no caption")
                yield str(value["id"]), line
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(
                f"{path}, line {number}: not a caption as this command writes them; mend or remove the "
                "line, or type --overwrite"
            ) from None


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def _csv_line(values: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


class LineFile:
    """Captions appended to one file, a line each."""

    def __init__(self, path: Path, format: str, scored: bool, file: int) -> None:
        self.path, self.format, self._scored, self._file = path, format, scored, file
        self.done: set[str] = set()
        self._settings_file = settings_file(path)
        self._synced = time.monotonic()

    @classmethod
    def open(cls, path: Path, format: str, settings: dict[str, Any], items: Iterable[Item], resume: bool,
             overwrite: bool) -> LineFile:  # fmt: skip
        """Begin the file, or go on with it: captions of pictures that were replaced since are left out of it.

        An empty file, which a process that was killed at once leaves, is begun. Raises `UsageError` where that must
        not be.
        """
        with _write_errors(path):
            there = path.exists() and writable_file(path).stat().st_size > 0 and not overwrite
            writable_file(path)
        if there and not resume:
            raise UsageError(f"{path}: exists; type --overwrite to begin it anew, or name another file")
        if there:
            _same_settings(path, settings)
        with _write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        made: LineFile | None = None
        try:
            made = cls(path, format, settings.get("best_of") is not None, file)
            made._lock()
            with _write_errors(path):
                if not there:
                    os.ftruncate(file, 0)
                    pictures_file(path).unlink(missing_ok=True)
                    replace_text(settings_file(path), json.dumps(settings, indent=1, sort_keys=True) + "\n")
                made._take_up()
                if other := replaced(items, path, made.done):
                    made._leave_out(other)
                    say(f"{path}: {len(other):,} pictures were replaced since; they are captioned again")
                elif (
                    made.done
                    and not pictures_file(path).is_file()
                    and made._record([Written(item, "") for item in items if item.id in made.done])
                ):
                    say(f"{path}: of which pictures it was made was not recorded; only those replaced from now on are "
                        "noticed")  # fmt: skip
        except BaseException:
            os.close(made._file if made is not None else file)
            raise
        return made

    def write(self, captions: Sequence[Written]) -> None:
        """Append captions; on a full disk the partial line is removed, so that the file can be resumed."""
        if not captions:
            return
        with _write_errors(self.path):
            self._record(captions)
        data = memoryview("".join(self._line(written) for written in captions).encode())
        start = os.lseek(self._file, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(self._file, data) :]
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, start)
            kept = f"{len(self.done):,} captions are kept; free some space and run the same command again to go on"
            raise TellapartError(f"{self.path}: {error.strerror}; {kept}") from None
        self.done.update(written.item.id for written in captions)

    def close(self) -> None:
        """Flush to disk; a file without a single caption is removed."""
        with contextlib.suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)
        if not self.done:
            writable_file(self.path).unlink(missing_ok=True)
            self._settings_file.unlink(missing_ok=True)
            pictures_file(self.path).unlink(missing_ok=True)

    def _record(self, captions: Sequence[Written]) -> bool:
        """Keep of which pictures they are, before the captions, so that none is there without; False for no files."""
        if not any(isinstance(written.item.picture, StoredPicture) for written in captions):
            return False
        lines = picture_lines({written.item.id: written.item for written in captions}.values())
        with pictures_file(self.path).open("a", encoding="utf-8") as file:
            file.writelines(lines)
        return True

    def _leave_out(self, ids: set[str]) -> None:
        """Replace the file by one without these captions, which is locked before it has its name."""
        real, text = writable_file(self.path), self.path.read_bytes().decode("utf-8", "replace")
        kept = "".join(line for id_, line in _records(text, self.format, self.path) if id_ not in ids)
        temporary = temporary_beside(real)
        try:
            temporary.write_text(self._header() + kept, encoding="utf-8", newline="")
            file, self._file = self._file, os.open(temporary, os.O_RDWR)
            os.close(file)
            self._lock()
            os.fsync(self._file)
            temporary.replace(real)
        finally:
            temporary.unlink(missing_ok=True)
        self.done -= ids

    def _line(self, written: Written) -> str:
        if self.format == "csv":
            return csv_line(written)
        return json_line(written, self.path.parent if self.path.name == METADATA else None)

    def _header(self) -> str:
        return csv_header(self._scored) if self.format == "csv" else ""

    def _take_up(self) -> None:
        """Remove a half-written last line and read the ids that are there."""
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole:
            self.done |= ids_of(whole.decode("utf-8", "replace"), self.format, self.path)
        if len(whole) < len(data):
            os.ftruncate(self._file, len(whole))
        if not whole:
            os.write(self._file, self._header().encode())

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # no such locks on this system
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{self.path}: another process is writing this file; name another one") from None


def _same_settings(path: Path, settings: dict[str, Any]) -> None:
    try:
        before = parse_json(settings_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(
            f"{path}: exists, and {settings_file(path).name}, which would say what made it, does not; "
            "type --overwrite to begin it anew, or name another file"
        ) from None
    found = PLAIN | before if isinstance(before, dict) else {}
    apart = {*FILES, DEVICE} | (NEWER - found.keys())
    now = {key: value for key, value in (PLAIN | plain(settings)).items() if key not in apart}
    old = {key: value for key, value in found.items() if key not in apart}
    if old != now:
        other = ", ".join(key for key in sorted({*old, *now}) if old.get(key) != now.get(key))
        raise UsageError(
            f"{path}: was begun with another {other or 'setting'}; type --overwrite to begin it anew, or "
            "name another file"
        )


class TextFiles:
    """A ``.txt`` beside each picture, as tools for data sets expect it. An existing file is kept
    unless ``overwrite`` is set: a person may have written it."""

    def __init__(self, done: set[str]) -> None:
        self.done = done

    @classmethod
    def beside(cls, items: Iterable[Item], overwrite: bool) -> TextFiles:
        """Raises `UsageError` where two pictures would share a file."""
        done: set[str] = set()
        newer = 0
        items = list(items)
        targets = files_beside(items, ".txt")
        for item in items:
            target = targets[item.id]
            if target.exists() and not overwrite:
                done.add(item.id)
                with contextlib.suppress(PictureError):  # told where it is read
                    newer += target.stat().st_mtime_ns < signature_of(Path(item.picture.name), item.picture.name)[1]
        if newer:
            say(f"{newer:,} pictures are newer than their .txt, which is kept; --overwrite writes it anew")
        return cls(done)

    def write(self, captions: Sequence[Written]) -> None:
        """Each file is whole or not there."""
        for written in captions:
            target = _beside(written.item, ".txt")
            with _write_errors(target):
                replace_text(target, written.caption + "\n", sync=False)
            self.done.add(written.item.id)

    def close(self) -> None:
        """Nothing to close."""


def files_beside(items: Iterable[Item], suffix: str) -> dict[str, Path]:
    """Returns by id the file of each picture's name with another suffix.

    Raises `UsageError` where two pictures would share it, and for pictures that are not files.
    """
    taken: dict[Path, str] = {}
    found = {}
    for item in items:
        target = _beside(item, suffix)
        if target in taken:
            raise UsageError(f"{taken[target]} and {item.picture.name} would share {target}; rename one of them")
        taken[target] = item.picture.name
        found[item.id] = target
    return found


def _beside(item: Item, suffix: str) -> Path:
    if not isinstance(item.picture, FilePicture):
        raise UsageError(f"{item.picture.name} is not a file, so no {suffix} can lie beside it; type -o captions.jsonl")
    return item.picture.path.with_suffix(suffix)


def _readable(name: str) -> str:
    """Returns a name in letters that every file system and reader of tars takes, without its suffix and not too
    long.
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", PurePosixPath(name).stem).strip("-")[:60]


def write_sample(file: BinaryIO, number: int, item: Item, captions: Sequence[str]) -> None:
    """Appends a sample to a tar (WebDataset): the picture as it is in the data, its captions and its id."""
    data, suffix = bytes_of(item)
    key = f"{number:09d}-{_readable(item.id)}"
    texts = {"id": item.id, "captions": list(captions)} | ({"split": item.split} if item.split else {})
    members = [
        (f"{key}{suffix}", data),
        (f"{key}.json", (json.dumps(texts, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")),
    ]
    if all(len(caption.splitlines()) == 1 for caption in captions):  # else a line there would be a part of one
        text = "\n".join(captions) + "\n"
        members.append((f"{key}.txt", text.encode("utf-8", "backslashreplace")))
    for name, content in members:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        file.write(member.tobuf(tarfile.USTAR_FORMAT))
        file.write(content)
        file.write(b"\0" * (-len(content) % tarfile.BLOCKSIZE))


def bytes_of(item: Item) -> tuple[bytes, str]:
    """Returns the encoded picture, and a suffix by which it is read again; one that no file holds becomes a PNG."""
    picture: Any = item.picture
    if hasattr(picture, "read"):
        data = bytes(picture.read().data)
        suffix = PurePosixPath(picture.name.rpartition("#")[2]).suffix.lower()
        return data, suffix if suffix in SUFFIXES | CLIP_SUFFIXES else _suffix_of(data, picture.name)
    made = io.BytesIO()
    picture.image().save(made, "PNG")
    return made.getvalue(), ".png"


def _suffix_of(data: bytes, name: str) -> str:
    """Returns the suffix by the content, where the name says nothing (``photo.jpg?w=300``, ``a.jpg.1``)."""
    with open_image(data, name) as found:
        format = str(found.format)
    return {"JPEG": ".jpg", "MPO": ".jpg", "JPEG2000": ".jp2"}.get(format, f".{format.lower()}")


def end_tar(file: BinaryIO) -> None:
    """Writes what a tar ends with."""
    file.write(b"\0" * (2 * tarfile.BLOCKSIZE))


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise UsageError(f"the id {text!r} has a line break, which CSV cannot keep whole; type -o captions.jsonl")
    return text


def _write_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return write_errors(path, "name another file with -o", "free some space and run the same command again")
