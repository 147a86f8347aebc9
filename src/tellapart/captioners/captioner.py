"""`Captioner`, the common interface of all model families, encodes pixels into features and decodes features into text.

A captioner computes the decoder state after the picture and the prompt (``prefill``, once per picture), hidden states
for the following tokens (``decode``), and logits (``compute_logits``). `captioners.decoding.generate` works with all
captioners.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from PIL import Image

from tellapart.captioners.cuda_graphs import StepGraphs
from tellapart.captioners.decoder_state import DecoderState, TokenHistory
from tellapart.captioners.decoding import generate
from tellapart.captioners.generated_captions import generate_captions
from tellapart.captioners.lora import merged_weights
from tellapart.captioners.teacher_forcing import hidden_cached
from tellapart.data.pictures import load_rgb
from tellapart.errors import UsageError
from tellapart.models.decoding import DEFAULT, Decoding
from tellapart.models.digests import settings_of, weights_fingerprint
from tellapart.models.onednn import LARGE, linear, speed_up
from tellapart.models.precision import precision_of
from tellapart.models.quiet_transformers import silence_transformers
from tellapart.models.saved_options import Levels, SavedOptions
from tellapart.models.tokens import caption_rows, pad_rows
from tellapart.models.training_mode import in_mode
from tellapart.models.weight_permissions import readable_weights
from tellapart.types import Encoder, Rollout
from tellapart.utils.blocks import blocks_of
from tellapart.utils.checksums import write_sums
from tellapart.utils.rng import ItemSeeds

MANY_SCORES = 2**22  # with fewer logits than this, computing those of padding is cheaper than skipping them


class Captioner(ABC):
    """Generates text from pictures: ``encode(pixels) -> visual``, ``logits``, ``generate``.

    Captions are rows R = B·S, where the S captions for a picture are consecutive; ``visual`` has B rows. ``options``:
    maps each option in a name (``NAME?key=value``) to the parser of its value. ``chosen``: the options that were set.
    """

    options: ClassVar[Mapping[str, Callable[[str], Any]]] = {}
    gaps: Sequence[int] = ()  # token ids that `without_gaps` suppresses in captions
    pixels_in_threads = False  # whether `pixels` is thread-safe
    lengths_differ = False  # whether `input_lengths` returns a length for each picture
    sees_clips = False  # whether the captioner accepts the features of several frames
    graphed = False  # whether `decode` runs the same kernels for the same shapes, so that a GPU can replay the kernels
    masks_regions = False  # whether the captioner ignores zero rows, which pad pictures with fewer regions

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str) -> None:
        self.model, self.tokenizer, self.processor, self.name = model, tokenizer, processor, name
        speed_up(model)
        self.cut_texts = 0  # number of texts that `tokenize` truncated
        self.generated = self.cut_captions = 0  # number of generated captions, and number of truncated captions
        self.cut: set[str] = set()  # truncated captions of the most recently captioned pictures
        self.stop, self._stop_ids = "", list[int]()  # see `set_stop`
        self.chosen: dict[str, Any] = {}
        self.decoding: Decoding | None = None  # generation settings to save with the captioner, if any
        self.levels: Levels = ()  # levels of detail that the captioner was trained for
        enabled = os.environ.get("TELLAPART_CUDA_GRAPHS", "1") != "0"
        self.graphs = StepGraphs() if self.graphed and enabled else None

    def with_prompt(self, prompt: str) -> Self:
        """Returns a captioner that uses another prompt and shares this captioner's weights. For "", returns itself.
        Raises `UsageError` if the captioner does not accept prompts.
        """
        if not prompt:
            return self
        if "prompt" not in self.options:
            raise UsageError(
                f"{self.name} does not accept a prompt, but got '{prompt}'; remove the prompt, or use another captioner"
            )
        other = copy.copy(self)
        other.set_prompt(prompt)
        return other

    def set_prompt(self, prompt: str) -> None:
        """Sets the text before every caption, or the question to the model. Captioners with the option ``prompt``
        override this method.
        """
        raise NotImplementedError(f"{type(self).__name__} has an option 'prompt', so it must override `set_prompt`")

    @property
    def suppressed_tokens(self) -> Sequence[int]:
        """Returns the ids of the tokens that are never generated."""
        return self.gaps

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights and of the model's inputs."""
        dtype: torch.dtype = next(x.dtype for x in self.model.parameters() if x.is_floating_point())
        return dtype

    def inputs(self, visual: torch.Tensor) -> torch.Tensor:
        """Moves picture features to the model's device and dtype."""
        return visual.to(self.device, self.dtype if visual.is_floating_point() else None)

    def input_lengths(self, visual: torch.Tensor) -> list[int] | None:
        """Returns the number of language-model positions that each of B pictures (``visual``: B×…) takes.

        Returns None if all pictures take the same number of positions.
        """
        return None

    def same_shapes(self, visual: torch.Tensor) -> bool:
        """Returns True if the features of these pictures have the same shape, so that they can be averaged."""
        return not self.lengths_differ

    @property
    def end(self) -> int:
        """The id of the end token."""
        return int(self.tokenizer.eos_token_id)

    @property
    def stop_tokens(self) -> list[int]:
        """Ids of the tokens that end a caption and are kept in it: the end token, followed by those of `set_stop`."""
        return [self.end, *self._stop_ids]

    def set_stop(self, text: str) -> None:
        """Makes every token whose text contains ``text`` a stop token, in addition to the end token.

        Replaces previous calls; "" leaves only the end token. The published ClipCaps were not trained with an end token
        and stop at ".". Raises `UsageError` if no token matches.
        """
        self.stop, self._stop_ids = text, []
        if not text:
            return
        special = set(self.tokenizer.all_special_ids)
        texts = self.tokenizer.batch_decode([[id_] for id_ in range(len(self.tokenizer))])
        self._stop_ids = [id_ for id_, token_text in enumerate(texts) if text in token_text and id_ not in special]
        if not self._stop_ids:
            raise UsageError(f"{self.name}: none of its tokens contains '{text}'; remove stop or use another text")

    @property
    def encoder(self) -> Encoder:
        """Returns the vision encoder in its current state, for the feature store.

        Hashes the encoder's weights on each access, so access it only once. Raises `UsageError` if the captioner was
        built for features from files.
        """
        if not self.reads_pictures(self.model):
            raise UsageError(
                f"{self.name} has no vision encoder and reads features from files; in a recipe, set "
                "captioner.features = 'FOLDER or FILE.h5'; to caption, use NAME?features=FOLDER"
            )
        view = self.view if self.frames == 1 else f"{self.view}|{self.frames} frames"
        vision = self.parts()["vision"]
        fingerprint = weights_fingerprint(vision, self.processor, f"{view} {settings_of(vision)}")
        return Encoder(
            fingerprint,
            self.pixels,
            self._encode_frozen,
            self.frames,
            self.join_frames,
            precision_of(vision),
            self.name,
        )

    @property
    def frames(self) -> int:
        """Returns the number of frames per clip, from the model's configuration. 1 means the middle frame."""
        return int(getattr(self.model.config, "frames", 1)) if self.sees_clips else 1

    @frames.setter
    def frames(self, count: int) -> None:
        if count > 1 and not self.sees_clips:
            raise UsageError(
                f"{self.name} reads single pictures, not {count} frames; remove captioner.frames to use the middle "
                "frame of a clip, or use a BLIP, a ClipCap or a recurrent captioner"
            )
        self.model.config.frames = count

    def join_frames(self, visual_F: torch.Tensor) -> torch.Tensor:
        """Joins the features of a clip's F frames, F×…. For a still picture (F = 1), repeats its only frame.

        If a frame has several tokens, P×D, the frames are concatenated to F·P tokens, as in the video variant of BLIP
        (paper 1, Table 6). If a frame has one vector, D, the frames are averaged, as for the CNN-LSTM in paper 4.
        """
        if len(visual_F) == 1 and (self.frames == 1 or visual_F.ndim == 2):
            return visual_F[0]
        if visual_F.ndim == 2:
            return visual_F.mean(0)
        return visual_F.expand(self.frames, -1, -1).flatten(0, 1)

    @staticmethod
    def reads_pictures(model: Any) -> bool:
        """Returns True if the model comes with an image processor."""
        return True

    @property
    def makes_features(self) -> bool:
        """Returns True if a vision encoder computes features. Otherwise, the input is pixels or prompts."""
        return True

    @property
    def view(self) -> str:
        """Returns a name for the part of the vision encoder's output that ``encode`` returns.

        This name is part of the features' fingerprint.
        """
        return ""

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """Preprocesses PIL pictures for the model: float B×C×height×width."""
        pixels_BCHW: torch.Tensor = self.processor(images=list(images), return_tensors="pt")["pixel_values"]
        return pixels_BCHW

    @abstractmethod
    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Computes the vision encoder's output, B×… ."""

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes hidden_RTH with teacher forcing.

        ``hidden[:, t]`` times the output layer gives the logits that predict ``tokens[:, t]``. If `head` is None,
        returns these logits instead, R×T×V.
        """
        if len(tokens_RT) > len(visual) and self.caches:
            return hidden_cached(self, self.prefill(visual, tokens_RT.shape[1]), tokens_RT, valid_RT.sum(1))
        return self.hidden_uncached(visual, tokens_RT, valid_RT)

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes `hidden` in one pass, repeating the picture and the prompt for every caption."""
        raise NotImplementedError(f"{type(self).__name__} does not compute hidden states; override `hidden`")

    @property
    def caches(self) -> bool:
        """Returns True if the KV cache (`prefill` and `decode`) is supported.

        If it is not supported, generation calls `hidden` for each token.
        """
        return False

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> DecoderState:
        """Runs the decoder on B pictures and the prompt. Returns the decoder's state, with B rows.

        Raises `UsageError` if ``max_tokens`` more tokens would exceed the context length.
        """
        raise NotImplementedError(f"{type(self).__name__} has no KV cache")

    def decode(self, state: Any, tokens_NT: torch.Tensor) -> torch.Tensor:
        """Computes hidden_NTH after each of the new tokens N×T, and updates ``state`` (N rows) in place."""
        raise NotImplementedError(f"{type(self).__name__} has no KV cache")

    def begin(self, visual: torch.Tensor, max_tokens: int) -> DecoderState:
        """Returns the state before the first token, from `prefill` if the captioner has a KV cache."""
        if self.caches:
            return self.prefill(visual, max_tokens)
        return TokenHistory(self, visual, torch.empty(len(visual), 0, dtype=torch.long, device=visual.device))

    def step(self, state: Any, token_N1: torch.Tensor) -> torch.Tensor:
        """Computes hidden_N1H after one more token per row, and updates the state from `begin` in place."""
        return state.decode(token_N1) if isinstance(state, TokenHistory) else self.decode(state, token_N1)

    @property
    def output_layer(self) -> Any:
        """The linear layer that maps hidden states to logits, or None if logits are computed in another way."""
        return None

    def head(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Returns weight_VH and bias_V (or None) of the output layer. Returns None if `output_layer` is None.

        Objectives that need only some of the logits multiply only the corresponding rows.
        """
        layer = self.output_layer
        return None if layer is None else (layer.weight, getattr(layer, "bias", None))

    def compute_logits(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        """Computes logits_NV from hidden states."""
        if (layer := self.output_layer) is not None:
            logits_NV: torch.Tensor = layer(hidden_NH)
            return logits_NV
        return hidden_NH if (head := self.head()) is None else apply_head(hidden_NH, head)

    def generate(self, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
        """Generates captions for ``visual`` without tracking gradients. Uses dropout if the model is in training mode.

        ``seeds``: one seed per picture, which makes the picture's samples independent of the rest of the batch. If
        None, uses torch's default generator.
        """
        rollout = generate(self, visual, decoding, seeds)
        stopped_R = self.stopped(rollout)
        self.generated += len(stopped_R)
        self.cut_captions += int((~stopped_R).sum())
        return rollout

    def rollout_of(self, texts: Sequence[str], samples: int = 1) -> Rollout:
        """Returns given captions as a rollout, for scoring: ``samples`` captions per picture, picture by picture."""
        tokens_RT, valid_RT = self.pad(self.tokenize(texts))
        return Rollout(tokens_RT.to(self.device), valid_RT.to(self.device), list(texts), samples)

    def stopped(self, rollout: Rollout) -> torch.Tensor:
        """Returns stopped_R: True for captions with a stop token, False for captions truncated at the token limit."""
        stop_E = torch.tensor(list(self.stop_tokens), device=rollout.tokens_RT.device)
        return (torch.isin(rollout.tokens_RT, stop_E) & rollout.valid_RT).any(1)

    @abstractmethod
    def parts(self) -> dict[str, torch.nn.Module]:
        """Returns the trainable parts by name: ``vision``, ``mapper`` and ``language_model``, if they exist."""

    def caption(
        self,
        images: Sequence[Image.Image | str | Path],
        decoding: Decoding | None = None,
        *,
        batch_size: int = 32,
    ) -> list[str]:
        """Captions pictures, given as PIL images or paths. Returns one caption per picture, in order.

        decoding: defaults to the settings saved with the captioner or, if there are none, to five beams and at most 30
            tokens, as in ``tellapart caption``.

        Raises `PictureError` if a file cannot be read, and `UsageError` if ``images`` is not a list.
        """
        if isinstance(images, str | Path) or not isinstance(images, Sequence):
            raise UsageError(
                "caption expects a list of pictures; for a single picture, use captioner.caption([picture])[0]"
            )
        decoding, texts = decoding or self.decoding or DEFAULT, []
        for block in blocks_of(images, batch_size):
            photos = [load_rgb(each) for each in block]
            texts += generate_captions(self, self._encode_frozen(self.pixels(photos)), decoding)
        return texts

    def logits(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes the logits R×T×V of every next token with teacher forcing.

        The logits of padding are undefined. (They are zero if the output layer skips padding, which it does on a CPU if
        there are many logits.)
        """
        hidden_RTH = self.hidden(visual, tokens_RT, valid_RT)
        if (head := self.head()) is None:
            return hidden_RTH
        V = len(head[0])
        if hidden_RTH.device.type != "cpu" or valid_RT.numel() * V < MANY_SCORES or bool(valid_RT.all()):
            return apply_head(hidden_RTH, head)
        logits_NV = apply_head(hidden_RTH[valid_RT], head)
        return logits_NV.new_zeros(*valid_RT.shape, V).index_put((valid_RT,), logits_NV)

    @property
    def max_caption_tokens(self) -> int | None:
        """Maximum number of tokens in a caption, including the end token, that the language model can process.

        None: there is no limit.
        """
        return None

    def tokenize(self, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
        """Returns the token ids of captions, each of which ends with the end token or, after `set_stop`, a stop token.

        Captions with more than ``max_tokens`` tokens (None: `max_caption_tokens`) are truncated without an end token,
        so that the captioner does not learn to end there, and are counted in ``cut_texts``.
        """
        rows = self._caption_rows(texts)
        limit = self.max_caption_tokens if max_tokens is None else max_tokens
        self.cut_texts += 0 if limit is None else sum(len(row) > limit for row in rows)
        return [row[:limit] for row in rows]

    def _caption_rows(self, texts: Sequence[str]) -> list[list[int]]:
        if not self.stop:
            return caption_rows(self.tokenizer, texts, [self.end])
        # A model with a stop text was not trained with an end token, and some references do not contain the stop text.
        (stop_T,), stops = caption_rows(self.tokenizer, [self.stop], []), set(self._stop_ids)
        rows = caption_rows(self.tokenizer, texts, [])
        return [row if row and row[-1] in stops else [*row, *stop_T] for row in rows]

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return pad_rows(rows, self.tokenizer.pad_token_id)

    def save(self, folder: str | Path) -> None:
        """Saves the captioner to a folder that transformers can load, with LoRA adapters merged into the weights."""
        folder = Path(folder)
        silence_transformers()
        self.model.save_pretrained(folder, state_dict=merged_weights(self.model))
        readable_weights(folder)
        for part in (self.tokenizer, self.processor):
            if part is not None:
                part.save_pretrained(folder)
        SavedOptions(**self.chosen, decoding=self.decoding, detail=self.levels).write(folder)
        write_sums(folder)

    def _encode_frozen(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        with in_mode(self.model, False), torch.no_grad():
            return self.encode(self.inputs(pixels_BCHW)).float()


class PartsCaptioner(Captioner):
    """A captioner whose model has the parts ``vision`` (or None), ``mapper`` and ``language_model``."""

    @staticmethod
    def reads_pictures(model: Any) -> bool:
        return model.vision is not None

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        visual: torch.Tensor = self.model.encode(self.inputs(pixels_BCHW))
        return visual

    def parts(self) -> dict[str, torch.nn.Module]:
        names = ("vision", "mapper", "language_model")
        return {name: part for name in names if (part := getattr(self.model, name)) is not None}


def apply_head(hidden: torch.Tensor, head: tuple[torch.Tensor, torch.Tensor | None]) -> torch.Tensor:
    """Computes logits from hidden states …×H and the output layer (see `Captioner.head`)."""
    return (F.linear if head[0].numel() < LARGE else linear)(hidden, *head)
