"""The verb ``caption``: a data set in, captions out, for as many pictures as there are.

Streams, resumes, and leaves out what cannot be read. ``best_of`` is the baseline that needs no training: sample N
captions of a picture and keep the most discriminative one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.data import Dataset, Skipped
from tellapart.errors import TellapartError, UsageError
from tellapart.inference.writers import Written, is_complete, open_writer
from tellapart.models.device import hardware
from tellapart.models.loading import files_digest
from tellapart.progress import Progress
from tellapart.types import Encoder, Item
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    import numpy as np
    import torch

    from tellapart.captioners.base import Captioner
    from tellapart.features.store import FeatureStore
    from tellapart.models.decoding import Decoding
    from tellapart.scorers.base import Scorer

DISTRACTORS = 99  # with the picture itself a set of a hundred, as the papers evaluate


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
    the scorer's image features (which come from ``store``, or the default one). The captions' order in a
    file is the data set's; a resumed run appends.

    Raises `UsageError` for a request that cannot be met, `TellapartError` for a full disk (what was written stays,
    whole), and where not one picture could be read.
    """
    started = time.monotonic()
    if best_of is not None and (best_of < 2 or scorer is None):
        raise UsageError("best-of needs at least 2 samples and a scorer; type: --best-of 10 --scorer MODEL")
    if scorer is not None and best_of is None:
        raise UsageError("a scorer chooses among samples; type --best-of 10 with it, or leave it out")
    if batch_size < 1:
        raise UsageError(f"a batch of {batch_size} pictures; expected at least 1")
    used = hardware(captioner.model)
    request = _request(
        dataset, captioner.name, decoding, best_of, scorer.name if scorer else None, features, used["precision"]
    )
    settings = request | _weights(captioner, scorer) | used
    writer = open_writer(dataset, out, format, settings, resume, overwrite)
    try:
        todo = [item for item in dataset if item.id not in writer.done]
        already = len(dataset) - len(todo)
        job = _Job(captioner, decoding, store, dataset.unreadable, features)
        chooser = None
        if best_of is not None and scorer is not None and todo:
            chooser = BestOf(dataset, scorer, store, progress=progress)
            todo = [item for item in todo if item.id in chooser.places]
            job.sample(best_of)
        written = empty = 0
        with Progress(len(todo), "captioning", enabled=progress) as shown:
            for batch in _batches(todo, batch_size):
                captions = job.captions(batch, chooser)
                writer.write(captions)
                written += len(captions)
                empty += sum(not one.caption for one in captions)
                shown.advance(len(batch))
    finally:
        writer.close()
    if todo and not written and not already:
        raise TellapartError(dataset.unreadable.line(len(dataset)) or "no picture could be captioned")
    cut = scorer.cut_texts if scorer is not None else 0
    return CaptionSummary(out, written, already, empty, dataset.unreadable, cut, time.monotonic() - started)


class _Job:
    """From a few items to their captions."""

    def __init__(
        self,
        captioner: Captioner,
        decoding: Decoding,
        store: FeatureStore | None,
        skipped: Skipped,
        features: str | None = None,
    ) -> None:
        from tellapart.features.store import FeatureStore
        from tellapart.features.views import EncodedView, make_view

        self._captioner, self._decoding, self._skipped = captioner, decoding, skipped
        self._view = make_view(captioner, store or FeatureStore(), features, progress=False)
        self._encoder: Encoder | None = None  # without a store: pictures are encoded and forgotten
        if isinstance(self._view, EncodedView) and store is None:
            self._encoder = self._view.encoder

    def sample(self, count: int) -> None:
        """Sample ``count`` captions per picture from now on, at the configured temperature."""
        self._decoding = self._decoding.model_copy(update={"kind": "sample", "samples": count})

    def captions(self, items: Sequence[Item], chooser: BestOf | None) -> list[Written]:
        """Captions of the readable items."""
        from tellapart.captioners.base import generate_captions

        kept, visual = self._visual(items)
        if not kept:
            return []
        seeds = ItemSeeds(tuple(item.id for item in kept))
        written = generate_captions(self._captioner, visual, self._decoding, seeds=seeds)
        texts = [" ".join(text.split()) for text in written]
        samples = len(texts) // len(kept)
        groups = [tuple(texts[place * samples : (place + 1) * samples]) for place in range(len(kept))]
        if chooser is None:
            return [Written(item, group[0], samples=group) for item, group in zip(kept, groups, strict=True)]
        ranked = chooser.rank(kept, groups)
        return [Written(item, best[0][0], best) for item, best in zip(kept, ranked, strict=True)]

    def _visual(self, items: Sequence[Item]) -> tuple[list[Item], Any]:
        """The readable items and their captioner features, one row each."""
        from tellapart.errors import PictureError
        from tellapart.features.store import encoder_rows

        if self._encoder is None:
            kept = self._view.readable(items, self._skipped)
            return kept, self._view.rows(kept) if kept else None
        maker, kept, prepared = encoder_rows(self._encoder), [], []
        for item in items:
            try:
                prepared.append(maker.of(item.picture))
                kept.append(item)
            except PictureError as error:
                self._skipped.add_error(item.picture.name, error)
        return kept, maker.rows(prepared) if kept else None


class BestOf:
    """Ranks sampled captions by how well the scorer finds their picture among its look-alikes.

    ``places``: id to row, of the pictures that can be read. The look-alikes are the ``distractors`` nearest
    neighbours in the whole data set by the scorer's image features (ties: `tellapart.features.nearest`).
    """

    def __init__(
        self,
        dataset: Dataset,
        scorer: Scorer,
        store: FeatureStore | None,
        *,
        distractors: int = DISTRACTORS,
        progress: bool = True,
    ) -> None:
        import numpy as np

        from tellapart.features.nearest import Vectors
        from tellapart.features.store import FeatureStore

        store = store or FeatureStore()
        encoder = scorer.encoder
        kept = store.readable(dataset, encoder, skipped=dataset.unreadable, progress=progress)
        self._scorer = scorer
        self.places = {item.id: place for place, item in enumerate(kept)}
        features: np.ndarray = store.features(kept, encoder, progress=progress) if kept else np.zeros((0, 1), "f4")
        self._vectors = Vectors.of(features)
        self._distractors = min(distractors, max(len(kept) - 1, 0))

    def rank(self, items: Sequence[Item], groups: Sequence[Sequence[str]]) -> list[tuple[tuple[str, float], ...]]:
        """For each item its captions with their scores in nats, best first; equal scores keep their order."""
        import torch

        sets_BKD = self._sets([self.places[item.id] for item in items])
        texts = [text for group in groups for text in group]
        texts_BSD = self._scorer.text_features(texts).cpu().float()
        texts_BSD = texts_BSD.reshape(len(items), -1, texts_BSD.shape[-1])
        scores_BSK = self._scorer.scale * torch.einsum("bsd,bkd->bsk", texts_BSD, sets_BKD)
        # A data set of one picture has no distractors: rank by similarity.
        scores_BS = scores_BSK.log_softmax(-1)[..., 0] if sets_BKD.shape[1] > 1 else scores_BSK[..., 0]
        return [
            tuple(sorted(zip(group, row.tolist(), strict=True), key=lambda pair: -pair[1]))
            for group, row in zip(groups, scores_BS, strict=True)
        ]

    def _sets(self, rows: Sequence[int]) -> torch.Tensor:
        """sets_BKD: the features of each picture (first) and of its nearest neighbours."""
        import numpy as np
        import torch

        from tellapart.features.nearest import Exclusions, nearest_among

        row_B, gallery = np.array(rows), self._vectors
        itself = Exclusions(row_B, np.arange(len(gallery)))
        near_BK = nearest_among(gallery.take(row_B), gallery, self._distractors, itself).rows_NK
        return torch.from_numpy(gallery.given_ND[np.concatenate([row_B[:, None], near_BK], axis=1)])


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
) -> bool:
    """Whether `caption_pictures` would find a caption of every picture, without loading a model.

    ``captioner`` and ``scorer`` are names, ``precision`` is that of the captioner's weights.

    False where that is unknown: the file was begun with other settings, or
    the models' files are others than then.
    """
    return is_complete(
        dataset, out, format, _request(dataset, captioner, decoding, best_of, scorer, features, precision)
    )


def _request(
    dataset: Dataset,
    captioner: str,
    decoding: Decoding,
    best_of: int | None,
    scorer: str | None,
    features: str | None,
    precision: str,
) -> dict[str, Any]:
    """The settings of a run: a run with other settings must not append to the same file."""
    return {
        "captioner": captioner,
        "captioner_files": files_digest(captioner.partition("?")[0], "captioner"),
        "data": dataset.spec,
        "decoding": decoding.model_dump(),
        "precision": precision,
        "best_of": best_of,
        "scorer": scorer,
        "scorer_files": files_digest(scorer, "scorer") if scorer is not None else None,
        **({"features": str(Path(features).expanduser().resolve())} if features is not None else {}),
    }


def _weights(captioner: Captioner, scorer: Scorer | None) -> dict[str, Any]:
    """The settings that only the loaded models know."""
    from tellapart.scorers.base import weights_fingerprint

    return {
        "captioner_weights": weights_fingerprint(captioner.model, captioner.processor),
        **({"frames": captioner.frames} if captioner.frames > 1 else {}),
        "scorer_weights": scorer.fingerprint if scorer is not None else None,
    }


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
