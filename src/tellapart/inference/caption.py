"""The verb ``caption``: a data set in, a file of captions out, for as many pictures as there are.

`caption_pictures` streams, resumes, and leaves out what cannot be read. `CaptionEngine` reads pictures ahead of the
model, encodes and captions them in batches and returns captions in order: threads decode, resize and normalize with the
captioner's own processor while the model works; inputs of different lengths (prompts, pictures that keep their shapes)
are captioned in batches of like length, which need less padding; where memory runs out, batches become half as large.

`tellapart.captions.writers` writes them: JSON lines, CSV, or a text file beside each picture.

`tellapart.inference.best_of` chooses among samples without training. `Beliefs` needs none either (``--drop-guesses``):
a content word that is no likelier for this picture than for others was a guess, and is dropped or softened by rules
of English grammar without a tagger.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.generate import generate_captions, without_gaps
from tellapart.captions.lines import Written
from tellapart.captions.provenance import PictureRecord
from tellapart.captions.writers import Replace, is_complete, open_writer
from tellapart.data import Dataset, Skipped
from tellapart.data.pictures import BytesPicture, FilePicture, StoredPicture, ahead, in_flight, sample_frames
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.features.store import FeatureStore
from tellapart.features.views import View, make_view
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
from tellapart.scorers.base import Scorer
from tellapart.types import Encoder, Item, Picture, Rollout
from tellapart.utils.messages import Progress
from tellapart.utils.rng import ItemSeeds

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
        self._pictures: dict[str, PictureRecord | None] = {}  # of the items of the last window
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
            written = self._write(kept, visual, chooser) if kept else []
            yield count, [replace(one, picture=self._pictures.get(one.item.id)) for one in written]

    def log_probs(self, item: Item, text: str | None = None) -> tuple[Rollout, torch.Tensor] | None:
        """Generates the captions of a picture, or takes this ``text``; computes log_p_RT in nats of each token.

        The log-probabilities are those of the captioner itself, at temperature 1. None where it cannot be read.
        """
        ((_, kept, visual),) = self._windows([item])
        if not kept:
            return None

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
                self._pictures = {}
                for item in items[start : start + self._window]:
                    found = next(prepared)
                    if isinstance(found, PictureError):
                        self._skipped.add_error(item.picture.name, found)
                    else:
                        kept.append(item)
                        pixels, self._pictures[item.id] = found
                        pixels_FCHW.append(pixels)
                blocks = list(self._encoding.batches(len(kept), partial(self._encode, pixels_FCHW)))
                yield min(self._window, len(items) - start), kept, torch.cat(blocks) if blocks else None

    @staticmethod
    def _opened(item: Item) -> Opened:
        """The picture, read now if its neighbours lie in the same file, which is quick in their order alone."""
        if not isinstance(item.picture, StoredPicture) or isinstance(item.picture, FilePicture):
            return Opened(item.picture)
        record = PictureRecord.of(item.picture, "")
        try:
            return Opened(item.picture.read(), record)
        except PictureError as error:
            return Opened(error)

    def _prepare(self, opened: Opened) -> tuple[torch.Tensor, PictureRecord | None] | PictureError:
        """Pixels F×… of a picture (F is 1) or of the frames of a clip, by the captioner's processor, and the record of
        the bytes that they were decoded from; in a thread."""
        if isinstance(opened.content, PictureError):
            return opened.content
        assert isinstance(self._source, Encoder)
        picture, record = opened.content, opened.record
        try:
            with in_flight():  # until it is small
                if isinstance(picture, StoredPicture):
                    record = PictureRecord.of(picture, "")
                    picture = picture.read()
                pixels_FCHW = self._source.pixels(sample_frames(picture, self._source.frames))
        except PictureError as error:
            return error
        if record is None:
            return pixels_FCHW, PictureRecord.of(picture)
        return pixels_FCHW, replace(record, content=picture.key())

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
            before = [PictureRecord.of(item.picture) for item in some]
            kept = view.readable(some, self._skipped)
            rows = torch.as_tensor(view.rows(kept)[:]) if kept else None
            self._pictures = {
                item.id: None if record is None else record.if_unchanged(item.picture)
                for item, record in zip(some, before, strict=True)
            }
            yield len(some), kept, rows

    # Its output
    def _write(self, items: Sequence[Item], visual: torch.Tensor, chooser: BestOf | None) -> list[Written]:
        """Captions of items from their features, those behind one prompt and of like length together."""

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


@dataclass(frozen=True)
class Opened:
    """A picture on its way to the model: itself, its bytes if they were read already, or why they cannot be."""

    content: Picture | PictureError
    record: PictureRecord | None = None


def _held(opened: Opened) -> int:
    """Bytes that a picture holds in memory before it is decoded."""
    return len(opened.content.data) if isinstance(opened.content, BytesPicture) else 0


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
    replace_edited: bool = False,
    store: FeatureStore | None = None,
    features: str | None = None,
    drop_guesses: bool = False,
    progress: bool = True,
    prompts: Prompts | None = None,
) -> CaptionSummary:
    """Caption every picture of ``dataset`` into ``out`` (``.jsonl`` or ``.csv``; None with ``format="txt"``).

    ``resume``: go on in a file that the same settings began, skipping the pictures that it has; ``overwrite``: begin it
    anew, without replacing texts that a person wrote or edited; ``replace_edited``: replace those, too, and keep a
    backup. ``store``: keep the captioner's features (None: do not;
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
    writer = open_writer(dataset, out, format, settings, resume, Replace(overwrite, replace_edited))
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
        "captioner_options": captioner.chosen,
        "captioner_settings": settings_fingerprint(captioner),
        **({"frames": captioner.frames} if captioner.frames > 1 else {}),
        "scorer_weights": scorer.fingerprint if scorer is not None else None,
    }
