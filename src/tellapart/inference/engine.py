"""From items to captions: pictures are read ahead of the model, encoded and captioned in batches, returned in order.

Threads decode, resize and normalise with the captioner's own processor while the model works. Where inputs differ in
length (prompts, pictures that keep their shapes), captions are written in batches of like length, which need less
padding. Where memory runs out, batches become half as large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tellapart.data import Skipped
from tellapart.data.images.pictures import BytesPicture, FilePicture, StoredPicture, in_flight
from tellapart.errors import PictureError, UsageError
from tellapart.inference.best_of import BestOf
from tellapart.inference.truthful import CONTRASTS, Beliefs
from tellapart.inference.writers import Written
from tellapart.models.memory import BatchSize
from tellapart.types import Encoder, Item, Picture
from tellapart.utils.ahead import ahead
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    import torch

    from tellapart.captioners.base import Captioner
    from tellapart.features.store import FeatureStore
    from tellapart.features.views import View
    from tellapart.models.decoding import Decoding

WINDOW = 4  # batches that are sorted by length together, and written to the file together
CPU_ENCODING = 8  # pictures encoded at once on a CPU, whose caches hold the states of no more


class CaptionEngine:
    """Captions of items by one captioner. ``view``: how it sees them; ``encoder``: in its place, keeps nothing."""

    def __init__(
        self,
        captioner: Captioner,
        decoding: Decoding,
        view: View,
        skipped: Skipped,
        encoder: Encoder | None = None,
        batch_size: int = 32,
    ) -> None:
        self._captioner, self._decoding, self._skipped = captioner, decoding, skipped
        self._view, self._encoder = view, encoder
        self._window = batch_size * (WINDOW if captioner.lengths_differ else 1)
        on_cpu = captioner.device.type == "cpu"
        self._encoding = BatchSize(min(batch_size, CPU_ENCODING) if on_cpu else batch_size, "encoding")
        self._writing = BatchSize(batch_size, "writing captions")
        self._beliefs: Beliefs | None = None

    @classmethod
    def open(
        cls,
        captioner: Captioner,
        decoding: Decoding,
        store: FeatureStore | None,
        skipped: Skipped,
        features: str | None = None,
        batch_size: int = 32,
    ) -> CaptionEngine:
        """The captions' engine. ``store``: keeps features; None: pictures are encoded and forgotten.

        ``features``: files that take the place of the captioner's encoder, or "off".
        """
        from tellapart.features.store import FeatureStore
        from tellapart.features.views import EncodedView, make_view

        view = make_view(captioner, store or FeatureStore(), features, progress=False)
        encoder = view.encoder if isinstance(view, EncodedView) and store is None else None
        return cls(captioner, decoding, view, skipped, encoder, batch_size)

    def doubt_words(self, items: Sequence[Item], name: str) -> None:
        """Drop or soften from now on what the captioner would as soon write of other pictures, a few of ``items``.

        Which ones depends on the data set alone. Raises `UsageError` with its ``name`` where only one can be read.
        """
        import torch

        spread = dict.fromkeys(len(items) * k // CONTRASTS for k in range(CONTRASTS))
        rest = (place for place in range(len(items)) if place not in spread)
        ids: list[str] = []
        rows: list[torch.Tensor] = []
        for place in (*spread, *rest):  # the rest stand in for those that cannot be read
            if len(ids) == CONTRASTS:
                break
            some = [items[place]]
            for _, kept, visual in self._encoded(some) if self._encoder is not None else self._viewed(some):
                ids += [item.id for item in kept]
                rows += [self._captioner.inputs(visual)[0]] if kept else []
        if len(ids) < 2:
            raise UsageError(f"--truthful compares pictures; of {name} only {len(ids)} can be read; leave it out")
        contrast_K = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # pictures may differ in their regions
        self._beliefs = Beliefs(self._captioner, contrast_K, ids)

    def captions(self, items: Sequence[Item], chooser: BestOf | None = None) -> Iterator[tuple[int, list[Written]]]:
        """For some items after another how many they are, and the captions of those that can be read, in order."""
        for count, kept, visual in self._encoded(items) if self._encoder is not None else self._viewed(items):
            yield count, self._write(kept, visual, chooser) if kept else []

    # The captioner's input
    def _encoded(self, items: Sequence[Item]) -> Iterator[tuple[int, list[Item], Any]]:
        """Windows of items: how many, those that can be read, and their features."""
        import torch

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
        from tellapart.data.images.clips import sample_frames

        if isinstance(picture, PictureError):
            return picture
        assert self._encoder is not None
        try:
            with in_flight():  # until it is small
                return self._encoder.pixels(sample_frames(picture, self._encoder.frames))
        except PictureError as error:
            return error

    def _encode(self, all_FCHW: Sequence[torch.Tensor], some: slice) -> torch.Tensor:
        """Features of some pictures or clips, one row each."""
        import torch

        assert self._encoder is not None
        pixels_FCHW = all_FCHW[some]
        pixels = torch.cat(list(pixels_FCHW))
        if self._captioner.device.type == "cuda":
            pixels = pixels.pin_memory().to(self._captioner.device, non_blocking=True)
        with torch.no_grad():
            visual = self._encoder.encode(pixels)
            if self._encoder.join is not None:
                each = visual.split([len(frames) for frames in pixels_FCHW])
                visual = torch.stack([self._encoder.join(frames) for frames in each])
        return self._captioner.inputs(visual)

    def _viewed(self, items: Sequence[Item]) -> Iterator[tuple[int, list[Item], Any]]:
        """The same from a feature store, from files of features, or from prompts."""
        import torch

        for start in range(0, len(items), self._window):
            some = items[start : start + self._window]
            kept = self._view.readable(some, self._skipped)
            yield len(some), kept, torch.as_tensor(self._view.rows(kept)[:]) if kept else None

    # Its output
    def _write(self, items: Sequence[Item], visual: torch.Tensor, chooser: BestOf | None) -> list[Written]:
        """Captions of items from their features, those of like length together."""
        import torch

        from tellapart.captioners.base import generate_captions

        lengths = self._captioner.input_lengths(visual)
        order = list(range(len(items))) if lengths is None else sorted(range(len(items)), key=lengths.__getitem__)

        def generate(some: slice) -> list[str]:
            chosen = order[some]
            rows = visual[some] if lengths is None else visual[torch.tensor(chosen, device=visual.device)]
            seeds = ItemSeeds(tuple(items[place].id for place in chosen))
            decoding = self._decoding if chooser is None else self._decoding.drawn
            return generate_captions(self._captioner, rows, decoding, len(chosen), seeds)

        written = [text for texts in self._writing.batches(len(items), generate) for text in texts]
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
            truthful = self._beliefs.truthful(self._captioner.inputs(visual[part]), ids, texts)
            edited += [replace(one, caption=text, samples=(text,)) for one, text in zip(some, truthful, strict=True)]
        return edited


def _held(picture: Picture | PictureError) -> int:
    """Bytes that a picture holds in memory before it is decoded."""
    return len(picture.data) if isinstance(picture, BytesPicture) else 0
