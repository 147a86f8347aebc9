"""Prefetches pictures, then encodes and captions them in batches, in order.

While the model runs, threads decode pictures, and resize and normalize them with the captioner's own processor. Inputs
that differ in length (prompts, pictures at native resolution) are batched by length to reduce padding. If memory runs
out, the batch size is halved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import torch

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.consensus import consensus
from tellapart.captioners.generated_captions import generate_captions, without_gaps
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.written import Written
from tellapart.data import Skipped
from tellapart.data.decode_memory import decode_memory
from tellapart.data.pictures import BytesPicture, FilePicture, StoredPicture, sample_frames
from tellapart.errors import PictureError, UsageError
from tellapart.features.store import FeatureStore
from tellapart.features.views import View, make_view
from tellapart.inference.best_of import BestOf
from tellapart.inference.doubts import CONTRASTS, Beliefs
from tellapart.inference.sampled_claims import Sample, claim_confidences, scored_samples
from tellapart.language.markdown import tidy_lines
from tellapart.models.decoding import Decoding
from tellapart.models.out_of_memory import BatchSize
from tellapart.models.training_mode import in_mode
from tellapart.rewards.speaker import Speaker
from tellapart.types import Encoder, Item, Picture, Rollout
from tellapart.utils.ahead import ahead
from tellapart.utils.blocks import blocks_of
from tellapart.utils.rng import ItemSeeds

WINDOW = 4  # number of batches that are sorted by length and written together
# A prefetched picture, possibly with its bytes already read, or the error that reading it raised; and its record.
Opened = tuple[Picture | PictureError, PictureRecord | None]
CPU_ENCODING = 8  # encoder batch size on a CPU, because the hidden states of larger batches do not fit into its caches


class CaptionEngine:
    """Captions items with a captioner.

    source: the captioner's encoder (then features are not cached), or a view of the items' features.
    prompts: each item's prompt, by id.
    claims: whether to add each claim's confidence to the captions.
    """

    def __init__(
        self,
        captioner: Captioner,
        decoding: Decoding,
        source: Encoder | View,
        skipped: Skipped,
        batch_size: int = 32,
        prompts: Mapping[str, str] | None = None,
        claims: bool = False,
    ) -> None:
        self._prompts, self._claims = prompts, claims
        self.captioner, self._decoding, self._skipped = captioner, decoding, skipped
        self._source = source
        self._window = batch_size * (WINDOW if captioner.lengths_differ or prompts else 1)
        on_cpu = captioner.device.type == "cpu"
        self._encoding = BatchSize(min(batch_size, CPU_ENCODING) if on_cpu else batch_size, "encoding")
        self._writing = BatchSize(batch_size, "writing captions")
        self._beliefs: Beliefs | None = None
        self._pictures: dict[str, PictureRecord | None] = {}  # by id, for the items in the last window
        self.cut: set[str] = set()  # captions in the last window that were truncated at max_tokens

    @classmethod
    def open(
        cls,
        captioner: Captioner,
        decoding: Decoding,
        store: FeatureStore | None,
        skipped: Skipped,
        features: str | None = None,
        **settings: Any,
    ) -> CaptionEngine:
        """Creates an engine. ``store``: a cache for features, or None to cache no features.

        ``features``: feature files to use instead of the captioner's encoder, or "off".
        """
        if captioner.makes_features and store is None and features is None:
            return cls(captioner, decoding, captioner.encoder, skipped, **settings)
        view = make_view(captioner, store or FeatureStore(), features, progress=False)
        return cls(captioner, decoding, view, skipped, **settings)

    def doubt_words(self, items: Sequence[Item], name: str) -> None:
        """Makes the engine remove or generalize words that the captioner finds equally likely for a few other
        ``items``.

        The choice of these items depends only on the data set. If fewer than two of them can be read, raises
        `UsageError` with the data set's ``name``.
        """
        spread = dict.fromkeys(len(items) * k // CONTRASTS for k in range(CONTRASTS))
        rest = (place for place in range(len(items)) if place not in spread)
        ids: list[str] = []
        rows: list[torch.Tensor] = []
        for place in (*spread, *rest):  # the rest are substitutes for pictures that cannot be read
            if len(ids) == CONTRASTS:
                break
            some = [items[place]]
            for _, kept, visual in self._windows(some):
                ids += [item.id for item in kept]
                rows += [self.captioner.inputs(visual)[0]] if kept else []
        if len(ids) < 2:
            raise UsageError(
                f"--drop-guesses requires at least two readable pictures, but {name} has {len(ids)}; remove this option"
            )
        contrast_K = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # the number of regions may vary
        self._beliefs = Beliefs(self.captioner, contrast_K, ids)

    def captions(self, items: Sequence[Item], chooser: BestOf | None = None) -> Iterator[tuple[int, list[Written]]]:
        """For each window, yields the number of items and the captions of the readable items, in order."""
        for count, kept, visual in self._windows(items):
            written = self._write(kept, visual, chooser) if kept else []
            yield count, [replace(one, picture=self._pictures.get(one.item.id)) for one in written]

    def log_probs(self, item: Item, text: str | None = None) -> tuple[Rollout, torch.Tensor] | None:
        """Generates captions for a picture (or uses ``text`` if given), and computes log_p_RT, in nats, for each token.

        The log-probabilities are those of the captioner at temperature 1. Returns None if the picture cannot be read.
        """
        ((_, kept, visual),) = self._windows([item])
        if not kept:
            return None

        captioner = self.captioner
        with in_mode(captioner.model, False), torch.no_grad():
            visual = captioner.inputs(visual)
            if text is None:
                with without_gaps(captioner):
                    rollout = captioner.generate(visual, self._decoding, ItemSeeds((item.id,)))
            else:
                rollout = captioner.rollout_of([text])
            log_p_RT = Speaker(captioner).score(visual, rollout)
        return rollout, log_p_RT

    # The captioner's input
    def _windows(self, items: Sequence[Item]) -> Iterator[tuple[int, list[Item], Any]]:
        """For each window of items, yields the number of items, the readable items, and the readable items'
        features.
        """
        return self._encoded(items) if isinstance(self._source, Encoder) else self._viewed(items, self._source)

    def _encoded(self, items: Sequence[Item]) -> Iterator[tuple[int, list[Item], Any]]:
        """Yields windows with features from the captioner's own encoder."""
        buffer = self._window + self._encoding.size
        threads = None if self.captioner.pixels_in_threads else 1
        work = ahead(self._prepare, map(self._opened, items), buffer=buffer, threads=threads, size=_held)
        with closing(work) as prepared:
            for window in blocks_of(items, self._window):
                kept, pixels_FCHW = [], []
                self._pictures = {}
                for item, found in zip(window, prepared, strict=False):
                    if isinstance(found, PictureError):
                        self._skipped.add_error(item.picture.name, found)
                    else:
                        kept.append(item)
                        pixels, self._pictures[item.id] = found
                        pixels_FCHW.append(pixels)
                blocks = list(self._encoding.batches(len(kept), partial(self._encode, pixels_FCHW)))
                yield len(window), kept, torch.cat(blocks) if blocks else None

    @staticmethod
    def _opened(item: Item) -> Opened:
        """Opens a picture. Archive members are read immediately, because reading them is fast only in file order."""
        if not isinstance(item.picture, StoredPicture) or isinstance(item.picture, FilePicture):
            return item.picture, None
        record = PictureRecord.of(item.picture, "")
        try:
            return item.picture.read(), record
        except PictureError as error:
            return error, None

    def _prepare(self, opened: Opened) -> tuple[torch.Tensor, PictureRecord | None] | PictureError:
        """Returns the processed pixels, F×…, of a picture (F = 1) or of a clip's frames, and a record of the decoded
        bytes. Runs in a thread.
        """
        picture, record = opened
        if isinstance(picture, PictureError):
            return picture
        assert isinstance(self._source, Encoder)
        try:
            with decode_memory():  # held until the picture is resized
                if isinstance(picture, StoredPicture):
                    record = PictureRecord.of(picture, "")
                    picture = picture.read()
                pixels_FCHW = self._source.pixels(sample_frames(picture, self._source.frames))
        except PictureError as error:
            return error
        return pixels_FCHW, record._replace(content=picture.key()) if record else PictureRecord.of(picture)

    def _encode(self, all_FCHW: Sequence[torch.Tensor], some: slice) -> torch.Tensor:
        """Encodes some pictures or clips, and returns one row of features for each."""
        assert isinstance(self._source, Encoder)
        pixels_FCHW = all_FCHW[some]
        pixels = torch.cat(list(pixels_FCHW))
        if self.captioner.device.type == "cuda":
            pixels = pixels.pin_memory().to(self.captioner.device, non_blocking=True)
        with torch.no_grad():
            visual = self._source.encode(pixels)
            if self._source.join is not None:
                each = visual.split([len(frames) for frames in pixels_FCHW])
                visual = torch.stack([self._source.join(frames) for frames in each])
        return self.captioner.inputs(visual)

    def _viewed(self, items: Sequence[Item], view: View) -> Iterator[tuple[int, list[Item], Any]]:
        """Yields windows of items whose features (or pixels or prompts) come from a view."""
        for some in blocks_of(items, self._window):
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
        """Captions items from their features."""
        decoding = self._decoding if chooser is None and not self._claims else self._decoding.drawn
        groups = self._samples(items, visual, decoding)
        pairs = zip(items, groups, strict=True)
        if chooser is None and self._claims and self._decoding.kind == "consensus":
            captions = [Written(item, consensus(group)) for item, group in pairs]
        elif chooser is None:
            captions = [Written(item, group[0], samples=group) for item, group in pairs]
        elif self._decoding.asks_scorer:
            texts = chooser.consensus(items, groups, self._decoding.scorer_weight)
            captions = [Written(item, text) for item, text in zip(items, texts, strict=True)]
        else:
            ranked = chooser.rank(items, groups)
            captions = [Written(item, best[0][0], best) for item, best in zip(items, ranked, strict=True)]
        if self._beliefs is not None:
            captions = self._without_doubted(captions, visual)
        return self._with_claims(captions, groups, visual) if self._claims else captions

    def _samples(self, items: Sequence[Item], visual: torch.Tensor, decoding: Decoding) -> list[tuple[str, ...]]:
        """Returns the captions generated for each item. Items with the same prompt are batched by length."""
        lengths = self.captioner.input_lengths(visual) or [0] * len(items)
        prompts = [(self._prompts or {}).get(item.id, "") for item in items]
        order = sorted(range(len(items)), key=lambda place: (prompts[place], lengths[place]))
        groups: list[tuple[str, ...]] = [()] * len(items)

        def generate(captioner: Captioner, places: Sequence[int], some: slice) -> list[str]:
            chosen = places[some]
            in_order = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
            rows = visual[chosen[0] : chosen[0] + len(chosen)] if in_order else visual[chosen]
            seeds = ItemSeeds(tuple(items[place].id for place in chosen)) if decoding.draws else None
            texts = generate_captions(captioner, rows, decoding, len(chosen), seeds)
            self.cut |= captioner.cut
            return texts

        self.cut = set()
        if self._prompts:  # computes the head once instead of for every prompt
            self.captioner.head()
        for prompt, some in groupby(order, key=prompts.__getitem__):
            places, asked = list(some), self.captioner.with_prompt(prompt)
            parts = self._writing.batches(len(places), partial(generate, asked, places))
            texts = [text for part in parts for text in part]
            for place, group in zip(places, blocks_of(texts, len(texts) // len(places)), strict=True):
                groups[place] = tuple(tidy_lines(text, self._decoding.paragraphs) for text in group)
            if prompt:  # `asked` is then a separate object with its own counters
                self.captioner.generated, self.captioner.cut_captions = asked.generated, asked.cut_captions
        return groups

    def _with_claims(
        self, captions: list[Written], groups: Sequence[tuple[str, ...]], visual: torch.Tensor
    ) -> list[Written]:
        """Adds each claim's confidence. Omits log-probabilities if every picture has its own prompt."""
        if self._prompts:
            samples = [[Sample(text) for text in group] for group in groups]
        else:
            samples = scored_samples(self.captioner, self.captioner.inputs(visual), groups)
        return [
            replace(one, claims=claim_confidences(own, one.texts)) for one, own in zip(captions, samples, strict=True)
        ]

    def _without_doubted(self, captions: list[Written], visual: torch.Tensor) -> list[Written]:
        """Returns the captions after removing or generalizing the words that the captioner guessed."""
        assert self._beliefs is not None
        edited: list[Written] = []
        for start in range(0, len(captions), self._writing.size):
            part = slice(start, start + self._writing.size)
            some = captions[part]
            ids, texts = [one.item.id for one in some], [one.caption for one in some]
            kept = self._beliefs.without_guesses(self.captioner.inputs(visual[part]), ids, texts)
            self.cut |= {text for one, text in zip(some, kept, strict=True) if one.caption in self.cut}
            edited += [replace(one, caption=text, samples=(text,)) for one, text in zip(some, kept, strict=True)]
        return edited


def _held(opened: Opened) -> int:
    """Returns the number of bytes that an encoded picture occupies in memory."""
    return len(opened[0].data) if isinstance(opened[0], BytesPicture) else 0
