"""Training batches: samplers, pixels and references. A batch is a function of the seed and the step."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps

from tellapart.bags.mine import caption_features, item_captions, multimodal
from tellapart.bags.sampler import BagSampler, BatchRows, HardNegativeSampler, Sampler, curriculum, random_bags
from tellapart.captioners import Captioner
from tellapart.errors import UsageError
from tellapart.features.filling import RowMaker
from tellapart.features.nearest import COPY, nearest_neighbours
from tellapart.features.store import FeatureStore
from tellapart.recipe.schema import Bags, Recipe
from tellapart.scorers import Scorer
from tellapart.types import Batch, Item, Picture, Rows
from tellapart.utils.ahead import ahead
from tellapart.utils.blocks import blocks_of
from tellapart.utils.messages import say
from tellapart.utils.rng import ItemSeeds

IN_MEMORY = 2**28  # bytes; features of all training pictures up to this size are read into memory
EQUAL = 1e-4  # tolerance in standard deviations; one grey level is about a hundred times larger


class TrainingPixels:
    """Prepares pictures for a vision encoder that is being trained; clips are represented by their middle frame.

    If the processor resizes all pictures to one shape, they are stored as uint8 H×W×C and normalised on the device when
    a batch is made (``as_bytes``). Otherwise (pictures that keep their shapes, other preprocessing), the output of
    ``pixels`` is stored in float32.
    """

    def __init__(self, learner: Captioner | Scorer) -> None:
        self.learner = learner
        self.as_bytes = self._gives_bytes()

    def maker(self) -> RowMaker:
        """Returns the maker for `FeatureStore.readable` and `FeatureStore.rows`; its label identifies the
        preprocessing.
        """
        if not self.as_bytes:
            pixels = self.learner.pixels
            fingerprint = self.learner.encoder.fingerprint
            label, name = f"pixels float32 {fingerprint}", f"{self.learner.name}, pixels"
            return RowMaker(label, lambda images: pixels(images[:1])[0].numpy(), np.stack, name=name)
        settings = json.dumps(self.learner.processor.to_dict(), sort_keys=True, default=str)
        digest = hashlib.blake2b(settings.encode(), digest_size=12).hexdigest()
        label, name = f"pixels uint8 {digest}", f"{self.learner.name}, pixels"
        return RowMaker(label, lambda images: self._bytes(images[0]), np.stack, name=name)

    def augmented(self, pictures: Sequence[Picture], seeds: ItemSeeds) -> np.ndarray:
        """Returns pictures augmented by `blip_augmented`, uint8 B×H×W×C, for `tensor`; reads and augments them in
        threads.
        """
        height, width = self.size
        draws = zip(pictures, seeds.uniform("blip", BLIP_DRAWS).tolist(), strict=True)

        def made(one: tuple[Picture, list[float]]) -> np.ndarray:
            picture, drawn = one
            return self._bytes(blip_augmented(picture.image(), (width, height), drawn))

        return np.stack(list(ahead(made, draws, buffer=len(pictures))))

    @cached_property
    def size(self) -> tuple[int, int]:
        """Returns the height and width of a stored picture, in pixels."""
        height, width, _ = self._bytes(Image.new("RGB", (64, 64))).shape
        return height, width

    def tensor(self, rows: np.ndarray) -> torch.Tensor:
        """Converts stored rows to the vision encoder's input on the learner's device: float B×C×H×W, or B×…."""
        block = torch.from_numpy(np.ascontiguousarray(rows)).to(self.learner.device)
        return normalise(block, self.learner.processor) if self.as_bytes else block

    def _bytes(self, image: Image.Image) -> np.ndarray:
        """Returns a picture H×W×C after resizing and cropping, before rescaling and normalization."""
        read = self.learner.processor(images=[image], do_rescale=False, do_normalize=False, return_tensors="np")
        picture_CHW: np.ndarray = np.asarray(read["pixel_values"])[0]
        return picture_CHW.transpose(1, 2, 0).round().clip(0, 255).astype(np.uint8)

    def _gives_bytes(self) -> bool:
        """Checks on a wide and a tall picture whether normalized `_bytes` are equal to ``pixels``."""
        noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
        images = [Image.fromarray(noise), Image.fromarray(noise.transpose(1, 0, 2))]
        expected = [self.learner.pixels([image]).cpu().float() for image in images]
        if self.learner.processor is None or any(x.ndim != 4 or x.shape != expected[0].shape for x in expected):
            return False
        actual = [normalise(torch.from_numpy(self._bytes(image))[None], self.learner.processor) for image in images]
        return all(
            x.shape == y.shape and torch.allclose(x, y, rtol=0, atol=EQUAL)
            for x, y in zip(actual, expected, strict=True)
        )


def normalise(pictures_BHWC: torch.Tensor, processor: Any) -> torch.Tensor:
    """Rescales and normalizes uint8 B×H×W×C like the processor; returns float B×C×H×W."""
    device, grey_levels = pictures_BHWC.device, 1.0
    if getattr(processor, "do_rescale", True):
        grey_levels = round(1 / getattr(processor, "rescale_factor", 1 / 255), 6)
    mean, std = torch.zeros(1), torch.ones(1)
    if getattr(processor, "do_normalize", True):
        mean, std = torch.tensor(processor.image_mean), torch.tensor(processor.image_std)
    mean, std = (x.to(device) * grey_levels for x in (mean, std))
    return ((pictures_BHWC.float() - mean) / std).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


TRIES, OPERATIONS = 10, 2
BLIP_DRAWS = 4 * TRIES + 1 + 3 * OPERATIONS  # random numbers per picture
LEVEL = 5 / 10  # RandAugment's strength, as a fraction of its maximum
GREY = (128, 128, 128)
BLIP_OPERATIONS = (
    *("identity", "autocontrast", "brightness", "sharpness", "equalize"),
    *("shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
)


def blip_augmented(image: Image.Image, size: tuple[int, int], drawn: Sequence[float]) -> Image.Image:
    """Applies BLIP's training augmentation and returns a picture of the given ``size`` (width, height).

    A random crop (0.5 to 1 of the area, aspect ratio 3:4 to 4:3) is resized (bicubic), and mirrored with probability
    0.5. Then two of ten operations are drawn with replacement, and each is applied with probability 0.5
    (`blip_operation`). ``drawn``: `BLIP_DRAWS` random numbers in [0, 1).
    """
    image = image.resize(size, Image.Resampling.BICUBIC, box=resized_crop(image.size, drawn))
    if drawn[4 * TRIES] < 0.5:
        image = ImageOps.mirror(image)
    rest = drawn[4 * TRIES + 1 :]
    for choice, applied, sign in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if applied < 0.5:
            name = BLIP_OPERATIONS[int(choice * len(BLIP_OPERATIONS))]
            image = blip_operation(image, name, 1.0 if sign < 0.5 else -1.0)
    return image


def resized_crop(size: tuple[int, int], drawn: Sequence[float]) -> tuple[int, int, int, int]:
    """Returns a random crop as (left, upper, right, lower).

    Tries ten draws and returns the first that fits into the picture. The area is 0.5 to 1 of the picture's,
    and the aspect ratio is log-uniform between 3:4 and 4:3. If none fits, returns the largest such central crop.
    """
    width, height = size
    for share, turn, left, upper in zip(*(drawn[k : 4 * TRIES : 4] for k in range(4)), strict=True):
        area, ratio = width * height * (0.5 + 0.5 * share), (4 / 3) ** (2 * turn - 1)
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = int(left * (width - w + 1)), int(upper * (height - h + 1))
            return x, y, x + w, y + h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    x, y = (width - w) // 2, (height - h) // 2
    return x, y, x + w, y + h


def blip_operation(image: Image.Image, name: str, sign: float) -> Image.Image:
    """Applies one of `BLIP_OPERATIONS` to a picture at strength 5 of 10.

    Shears by 0.15, shifts by 5 pixels and rotates by 15 degrees, in the direction of ``sign``, filling with grey. At
    this strength, the factor for brightness and sharpness is 1.8 · 0.5 + 0.1 = 1, which leaves the picture unchanged.
    """
    if name == "autocontrast":
        return ImageOps.autocontrast(image)
    if name == "equalize":
        return ImageOps.equalize(image)
    if name == "rotate":
        return image.rotate(sign * 30 * LEVEL, Image.Resampling.BILINEAR, fillcolor=GREY)
    shear, shift = sign * 0.3 * LEVEL, sign * 10 * LEVEL
    maps = {  # from output to input coordinates
        "shear_x": (1, shear, 0, 0, 1, 0), "shear_y": (1, 0, 0, shear, 1, 0),
        "translate_x": (1, 0, shift, 0, 1, 0), "translate_y": (1, 0, 0, 0, 1, shift),
    }  # fmt: skip
    if name not in maps:  # identity, brightness, sharpness
        return image
    return image.transform(image.size, Image.Transform.AFFINE, maps[name], Image.Resampling.BILINEAR, fillcolor=GREY)


ROWS_PER_HASH = 4096  # rows hashed at a time


def sampler_of(recipe: Recipe, items: Sequence[Item], store: FeatureStore, load: Callable[[str], Scorer]) -> Sampler:
    """Builds the sampler that ``training.batches`` names. Raises `UsageError` before training.

    load: loads a scorer by its name in the recipe; its features determine which pictures look alike.
    """
    settings = recipe.training
    if settings.batches == "bags":
        return bags_of(recipe, items, store, load)
    if settings.batches == "families":
        together = [np.asarray(places) for places in families(items)]
        return BagSampler(lambda epoch: together, settings.batch_size, recipe.seed)
    return ShuffleSampler(len(items), settings.batch_size, recipe.seed)


def families(items: Sequence[Item]) -> list[list[int]]:
    """Groups the indices of look-alikes that `scenes` generated together. Raises `UsageError` for other pictures."""
    together: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        if item.truth is None:
            raise UsageError(
                f"training.batches = 'families' requires the data scenes:, but {item.id} is not a scene; remove it"
            )
        together.setdefault(item.truth.look_alikes, []).append(place)
    return list(together.values())


def bags_of(recipe: Recipe, items: Sequence[Item], store: FeatureStore, load: Callable[[str], Scorer]) -> Sampler:
    """Builds the look-alike sampler that ``[bags]`` describes. ``load``: see `sampler_of`."""
    settings, batch_size, n = recipe.bags or Bags(), recipe.training.batch_size, len(items)
    if settings.largest > n:
        raise UsageError(f"bags of {settings.largest} pictures require at least as many training pictures; got {n}")
    if settings.kind == "random":
        return BagSampler(random_bags(n, settings.stages), batch_size, recipe.seed)
    name = settings.scorer or (recipe.scorer.name if recipe.scorer else None)
    assert name is not None, "[bags] is required; the recipe's schema checks this"
    rows_NK = neighbours(settings, items, store, load(name))
    if settings.hard is not None:
        return HardNegativeSampler(ShuffleSampler(n, batch_size, recipe.seed), rows_NK, settings.hard, batch_size)
    return BagSampler(curriculum(rows_NK, settings.stages, say), batch_size, recipe.seed)


def neighbours(settings: Bags, items: Sequence[Item], store: FeatureStore, scorer: Scorer) -> np.ndarray:
    """Finds each picture's nearest neighbours by the scorer's features of pictures, or of pictures and captions.

    Returns row indices N×K. They are cached in the feature store under a hash of the inputs, so a resumed run, or
    another run on the same pictures, does not search again.
    """
    count, max_cosine = max(settings.neighbours, settings.largest - 1), settings.max_cosine or COPY
    image_ND = np.asarray(store.features(items, scorer.encoder))
    captions = None if settings.captions is None else item_captions(items, settings.captions)

    def searched() -> np.ndarray:
        joined_ND = image_ND if captions is None else multimodal(image_ND, caption_features(scorer, captions))
        rows_NK: np.ndarray = nearest_neighbours(joined_ND, count, max_cosine=max_cosine).rows_NK
        return rows_NK

    what = f"nearest neighbours: {count} for each of {len(image_ND):,} pictures, cosine at most {max_cosine:g}"
    rows_NK: np.ndarray = store.cached(f"{what} {fingerprint(image_ND, captions, scorer.fingerprint)}", searched)
    return rows_NK


def fingerprint(image_ND: np.ndarray, captions: Sequence[Sequence[str]] | None, scorer: str) -> str:
    """Hashes the features and, if captions are used, the captions and the scorer that encodes them."""
    digest = hashlib.blake2b(f"{image_ND.shape} {image_ND.dtype}".encode(), digest_size=10)
    for rows_BD in blocks_of(image_ND, ROWS_PER_HASH):
        digest.update(np.ascontiguousarray(rows_BD).data)
    if captions is not None:
        digest.update(json.dumps([scorer, captions]).encode())
    return digest.hexdigest()


class ShuffleSampler:
    """Shuffles all n pictures once per epoch and drops the incomplete last batch."""

    def __init__(self, n: int, batch_size: int, seed: int) -> None:
        self.n, self.batch_size, self.seed = n, min(batch_size, n), seed
        self._epoch, self._order_N = -1, np.empty(0, dtype=np.int64)

    def __call__(self, step: int) -> BatchRows:
        epoch, place = divmod(step, self.n // self.batch_size)
        if epoch != self._epoch:
            self._epoch, self._order_N = epoch, np.random.default_rng([self.seed, epoch]).permutation(self.n)
        return BatchRows(np.sort(self._order_N[place * self.batch_size : (place + 1) * self.batch_size]))


class DeferredBatch(Batch):
    """A batch that computes ``visual`` on first access, so that each rank computes only its own share.

    ``visual`` may be a function that returns the rows for a slice of the batch.
    """

    __slots__ = ("_visual",)
    _visual: torch.Tensor | Callable[[slice], torch.Tensor]

    @property
    def visual(self) -> torch.Tensor:
        """Returns `Batch.visual`, computed on first access."""
        if not isinstance(self._visual, torch.Tensor):
            self._visual = self._visual(slice(0, len(self.rows_B)))
        return self._visual

    @visual.setter
    def visual(self, visual: torch.Tensor | Callable[[slice], torch.Tensor]) -> None:
        self._visual = visual

    def __getitem__(self, pictures: slice) -> Batch:
        first, stop, _ = pictures.indices(len(self.rows_B))
        if isinstance(make := self._visual, torch.Tensor) or (first, stop) == (0, len(self.rows_B)):
            return Batch.__getitem__(self, slice(first, stop))

        def made(part: slice) -> torch.Tensor:
            return make(slice(first + part.start, first + part.stop))

        return self.part(slice(first, stop), made)


class TrainingSet:
    """Batches of training pictures and their references.

    ``batch(step)`` depends only on ``seed`` and ``step``, so a run can stop anywhere and resume.

    visual: features from a frozen encoder, N×…, or rows of ``pixels`` if the vision encoder is trained. They are read
        into memory if they take at most `IN_MEMORY` bytes.
    rows: the token ids of each picture's references; None if the objective does not use references.
    sampler: chooses the pictures in a batch (`tellapart.bags.sampler`).
    """

    def __init__(
        self,
        items: Sequence[Item],
        visual: Rows,
        rows: Sequence[Sequence[Sequence[int]]] | None,
        learner: Captioner | Scorer,
        sampler: Sampler,
        *,
        seed: int,
        captions_per_picture: int = 1,
        augment: str = "none",
        pixels: TrainingPixels | None = None,
    ) -> None:
        small = getattr(visual, "nbytes", IN_MEMORY + 1) <= IN_MEMORY
        self.items, self.visual, self.rows = items, np.asarray(visual) if small else visual, rows
        self.learner, self.device = learner, learner.device
        self.sampler, self.seed = sampler, seed
        self.captions_per_picture, self.augment, self.pixels = captions_per_picture, augment, pixels

    def batch(self, step: int) -> Batch:
        """Returns the batch for a step. Pixels are computed lazily, and only for this rank's share."""
        chosen = self.sampler(step)
        chosen_B = chosen.rows_B
        items = [self.items[i] for i in chosen_B]
        seeds = ItemSeeds(tuple(item.id for item in items), self.seed, step)
        rows_B = torch.from_numpy(chosen_B)
        if self.pixels is None:
            visual = torch.from_numpy(np.ascontiguousarray(self.visual[chosen_B])).to(self.device)
            batch = Batch(items, rows_B, visual, step=step, seed=self.seed)
        else:

            def pixels(part: slice) -> torch.Tensor:
                return self._pixels(chosen_B[part], seeds[part])

            batch = DeferredBatch(items, rows_B, cast(Any, pixels), step=step, seed=self.seed)
        if chosen.bag_B is not None:
            batch.bag_B = torch.from_numpy(chosen.bag_B)
        if chosen.distractors_BK is not None:
            batch.distractors_BK = torch.from_numpy(chosen.distractors_BK)
        if self.rows is not None:
            tokens_RT, valid_RT = self.learner.pad(self._pick(chosen_B, seeds))
            batch.tokens_RT, batch.valid_RT = tokens_RT.to(self.device), valid_RT.to(self.device)
        return batch

    def _pick(self, chosen_B: np.ndarray, seeds: ItemSeeds) -> list[Sequence[int]]:
        """Draws ``captions_per_picture`` references per picture, without replacement if there are enough."""
        assert self.rows is not None
        rows_B = [self.rows[int(i)] for i in chosen_B]
        orders = seeds.orders("references", [len(rows) for rows in rows_B])
        places = range(self.captions_per_picture)
        return [rows[order[k % len(rows)]] for rows, order in zip(rows_B, orders, strict=True) for k in places]

    def _pixels(self, chosen_B: np.ndarray, seeds: ItemSeeds) -> torch.Tensor:
        assert self.pixels is not None
        if self.augment == "blip":
            return self.pixels.tensor(self.pixels.augmented([self.items[i].picture for i in chosen_B], seeds))
        pixels_BCHW = self.pixels.tensor(self.visual[chosen_B])
        return pixels_BCHW if self.augment == "none" else random_crops(pixels_BCHW, seeds, flip="flip" in self.augment)


def random_crops(pixels_BCHW: torch.Tensor, seeds: ItemSeeds, *, flip: bool) -> torch.Tensor:
    """Augments each picture: a random crop (0.6 to 1 of each side) resampled to the original size, random brightness
    and tint, and, if ``flip`` is set, a horizontal flip with probability 0.5.
    """
    B, device = len(pixels_BCHW), pixels_BCHW.device
    drawn = iter(seeds.uniform("crops", 9).float().to(device).unbind(1))

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * next(drawn)

    size_B, aspect_B = uniform(0.6, 1.0), uniform(0.85, 1.18)
    width_B, height_B = (size_B * aspect_B).clamp(max=1), (size_B / aspect_B).clamp(max=1)
    mirror_B = torch.where(uniform(0, 1) < 0.5, -1.0, 1.0) if flip else torch.ones(B, device=device)
    frame = torch.zeros(B, 2, 3, device=device)
    frame[:, 0, 0], frame[:, 1, 1] = width_B * mirror_B, height_B
    frame[:, 0, 2], frame[:, 1, 2] = uniform(-1, 1) * (1 - width_B), uniform(-1, 1) * (1 - height_B)
    grid = F.affine_grid(frame, list(pixels_BCHW.shape), align_corners=False)
    crops = F.grid_sample(pixels_BCHW, grid, align_corners=False, padding_mode="reflection")
    brightness_B, tint_B3 = uniform(0.7, 1.3), torch.stack([uniform(-0.2, 0.2) for _ in range(3)], dim=1)
    changed = crops * brightness_B[:, None, None, None] + tint_B3[:, :, None, None]
    return changed.contiguous(memory_format=torch.channels_last)
