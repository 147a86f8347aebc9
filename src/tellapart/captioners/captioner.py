"""`Captioner`, the common interface of all model families: encodes pixels into features and decodes features into text.

A captioner computes the decoder state after the picture and the prompt (``prefill``, once per picture), hidden states
for the following tokens (``decode``), and logits (``compute_logits``). `captioners.decoding.generate` works with all of
them.
"""

from __future__ import annotations

import copy
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from PIL import Image

from tellapart.captioners.cuda_graphs import StepGraphs
from tellapart.captioners.decoding import generate
from tellapart.captioners.generate import generate_captions
from tellapart.captioners.lora import is_adapter, merged_weights
from tellapart.captioners.sampling import DecoderState
from tellapart.captioners.teacher_forcing import MANY_SCORES, hidden_cached
from tellapart.captioners.uncached import Uncached
from tellapart.data.pictures import load_rgb
from tellapart.errors import UsageError
from tellapart.models.captioner_options import OPTIONS_FILE, Levels, saved_decoding
from tellapart.models.decoding import DEFAULT, Decoding
from tellapart.models.digests import settings_of, weights_fingerprint
from tellapart.models.onednn import LARGE, linear, speed_up
from tellapart.models.padding import pad_rows
from tellapart.models.precision import precision_of
from tellapart.models.saved import silence_transformers
from tellapart.models.tokens import caption_rows
from tellapart.models.training_mode import in_mode
from tellapart.models.weight_permissions import readable_weights
from tellapart.types import Encoder, Rollout
from tellapart.utils.blocks import blocks_of
from tellapart.utils.checksums import write_sums
from tellapart.utils.rng import ItemSeeds


class Captioner(ABC):
    """Generates text from pictures: ``encode(pixels) -> visual``, ``logits``, ``generate``.

    Captions are rows R = B·S, with the S captions of a picture consecutive; ``visual`` has B rows.
    ``options``: maps each option in a name (``NAME?key=value``) to the parser of its value; ``chosen``: the options
    that were set.
    """

    options: ClassVar[Mapping[str, Callable[[str], Any]]] = {}
    gaps: Sequence[int] = ()  # token ids that `without_gaps` suppresses in captions
    pixels_in_threads = False  # whether `pixels` is thread-safe
    lengths_differ = False  # whether `input_lengths` returns the input length of each picture
    sees_clips = False  # whether it accepts the features of several frames
    graphed = False  # whether `decode` runs the same kernels for the same shapes, so that a GPU can replay them
    masks_regions = False  # whether zero rows, which pad pictures with fewer regions, are ignored

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str) -> None:
        self.model, self.tokenizer, self.processor, self.name = model, tokenizer, processor, name
        speed_up(model)
        self.cut_texts = 0  # number of texts that `tokenize` truncated
        self.generated = self.cut_captions = 0  # number of generated captions, and of truncated ones
        self.cut: set[str] = set()  # truncated texts of the most recently captioned pictures
        self.stop, self._stop_ids = "", list[int]()  # see `set_stop`
        self.chosen: dict[str, Any] = {}
        self.decoding: Decoding | None = None  # generation settings to save with the captioner, if any
        self.levels: Levels = ()  # levels of detail for which it was trained
        enabled = os.environ.get("TELLAPART_CUDA_GRAPHS", "1") != "0"
        self.graphs = StepGraphs() if self.graphed and enabled else None

    def with_prompt(self, prompt: str) -> Self:
        """Returns this captioner with another prompt and shared weights, or itself for "".

        Raises `UsageError` if it does not accept a prompt.
        """
        if not prompt:
            return self
        if "prompt" not in self.options:
            raise UsageError(
                f"{self.name} does not accept a prompt, but got '{prompt}'; remove it, or use another captioner"
            )
        other = copy.copy(self)
        other.set_prompt(prompt)
        return other

    def set_prompt(self, prompt: str) -> None:
        """Sets the prefix of every caption, or the question to the model, for captioners that have the option
        ``prompt``.
        """
        raise NotImplementedError(f"{type(self).__name__} has an option 'prompt', so it must override `set_prompt`")

    @property
    def suppressed_tokens(self) -> Sequence[int]:
        """Returns the token ids that are never generated."""
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
        """Returns the number of language-model positions for each of B pictures (``visual``: B×…); None if it is the
        same for all.
        """
        return None

    @property
    def end(self) -> int:
        """The id of the end token."""
        return int(self.tokenizer.eos_token_id)

    @property
    def stop_tokens(self) -> list[int]:
        """Ids of the tokens that end a caption and are kept in it: the end token, then the tokens from `set_stop`."""
        return [self.end, *self._stop_ids]

    def set_stop(self, text: str) -> None:
        """Adds every token whose text contains ``text`` to the stop tokens, which are kept in captions; "" adds none.

        The published ClipCaps were not trained with an end token and stop at ".". Raises `UsageError` if no token
        matches.
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
        """Returns the vision encoder in its current state, for the feature store. Hashes its weights, so call it once.

        Raises `UsageError` if the captioner was built for features from files.
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
        """Returns the number of frames per clip from its ``config.json``; 1 means the middle frame."""
        return int(getattr(self.model.config, "frames", 1)) if self.sees_clips else 1

    @frames.setter
    def frames(self, count: int) -> None:
        if count > 1 and not self.sees_clips:
            raise UsageError(
                f"{self.name} reads single pictures, not {count} frames; remove captioner.frames (the middle "
                "frame of a clip is used then), or use a BLIP, a ClipCap or a recurrent captioner"
            )
        self.model.config.frames = count

    def join_frames(self, visual_F: torch.Tensor) -> torch.Tensor:
        """Joins the features F×… of a clip's frames; a still picture (F = 1) repeats its only frame.

        Frames with several tokens P×D are concatenated to F·P tokens, as in the video variant of BLIP (paper 1,
        Table 6); frames with one vector D are averaged, as for the CNN-LSTM of paper 4.
        """
        if len(visual_F) == 1 and (self.frames == 1 or visual_F.ndim == 2):
            return visual_F[0]
        if visual_F.ndim == 2:
            return visual_F.mean(0)
        return visual_F.expand(self.frames, -1, -1).flatten(0, 1)

    @staticmethod
    def reads_pictures(model: Any) -> bool:
        """Returns whether models of this family come with an image processor."""
        return True

    @property
    def makes_features(self) -> bool:
        """Returns whether a vision encoder computes features; otherwise the input is pixels or prompts."""
        return True

    @property
    def view(self) -> str:
        """Returns the name of the vision encoder's output that ``encode`` returns; it is part of the features'
        fingerprint.
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
        """Computes hidden_RTH with teacher forcing: ``hidden[:, t] @ head`` gives the logits that predict ``tokens[:,
        t]``.

        If `head` is None, returns the logits R×T×V themselves.
        """
        if len(tokens_RT) > len(visual) and self.caches:
            return hidden_cached(self, self.prefill(visual, tokens_RT.shape[1]), tokens_RT, valid_RT.sum(1))
        return self.hidden_uncached(visual, tokens_RT, valid_RT)

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes `hidden` in one pass, repeating the picture and the prompt for every caption."""
        raise NotImplementedError(f"{type(self).__name__} does not compute hidden states; override `hidden`")

    @property
    def caches(self) -> bool:
        """Returns whether the KV cache (`prefill` and `decode`) is supported; if not, generation runs `hidden` for each
        token.
        """
        return False

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> DecoderState:
        """Runs the decoder over B pictures and the prompt; returns its state, with B rows.

        Raises `UsageError` if ``max_tokens`` more tokens exceed the context length.
        """
        raise NotImplementedError(f"{type(self).__name__} has no KV cache")

    def decode(self, state: Any, tokens_NT: torch.Tensor) -> torch.Tensor:
        """Computes hidden_NTH after each of the new tokens N×T, and updates ``state`` (N rows) in place."""
        raise NotImplementedError(f"{type(self).__name__} has no KV cache")

    @property
    def output_layer(self) -> Any:
        """The linear layer from hidden states to logits; None if logits are computed differently."""
        return None

    def head(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Returns weight_VH and bias_V (or None) of the output layer; None if there is no such layer.

        Objectives that need only some of the logits multiply only those rows.
        """
        layer = self.output_layer
        return None if layer is None else (layer.weight, getattr(layer, "bias", None))

    def compute_logits(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        """Computes logits_NV of hidden states."""
        if (layer := self.output_layer) is not None:
            logits_NV: torch.Tensor = layer(hidden_NH)
            return logits_NV
        return hidden_NH if (head := self.head()) is None else apply_head(hidden_NH, head)

    def generate(self, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
        """Generates captions for ``visual`` without gradient; dropout follows the model's mode.

        ``seeds``: one per picture; they make a picture's samples independent of the rest of the batch. None uses
        torch's default generator.
        """
        rollout = generate(self if self.caches else Uncached(self), visual, decoding, seeds)
        self._count_cut(rollout)
        return rollout

    def stopped(self, rollout: Rollout) -> torch.Tensor:
        """Returns stopped_R: True for captions with a stop token; the others were truncated at the token limit."""
        stop_E = torch.tensor(list(self.stop_tokens), device=rollout.tokens_RT.device)
        return (torch.isin(rollout.tokens_RT, stop_E) & rollout.valid_RT).any(1)

    def _count_cut(self, rollout: Rollout) -> None:
        """Counts generated and truncated captions."""
        stopped_R = self.stopped(rollout)
        self.generated += len(stopped_R)
        self.cut_captions += len(stopped_R) - int(stopped_R.sum())

    @abstractmethod
    def parts(self) -> dict[str, torch.nn.Module]:
        """Returns the trainable parts by name: those of ``vision``, ``mapper`` and ``language_model`` that exist."""

    def caption(
        self,
        images: Sequence[Image.Image | str | Path],
        decoding: Decoding | None = None,
        *,
        batch_size: int = 32,
    ) -> list[str]:
        """Captions pictures, given as PIL images or paths; returns one caption per picture, in order.

        decoding: defaults to the settings saved with the captioner, else to five beams and at most 30 tokens, like
        ``tellapart caption``. Raises `PictureError` if a file cannot be read, and `UsageError` for a single picture.
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
        """Computes raw scores R×T×V of every next token with teacher forcing.

        Scores of padding are undefined; they are zero if the output layer skips padding, which it does on a CPU and for
        many scores.
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
        """Maximum caption length in tokens, including the end token, that fits the language model; None: no limit."""
        return None

    def tokenize(self, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
        """Returns token ids of captions, each with its end token, or with the stop token of `set_stop` instead.

        Captions of more than ``max_tokens`` tokens (None: `max_caption_tokens`) are truncated without an end token, so
        that the captioner does not learn to end there, and are counted in ``cut_texts``.
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

    @property
    def adapted(self) -> bool:
        """Returns whether LoRA adapters are attached to its weights."""
        return any(is_adapter(name) for name, _ in self.model.named_parameters())

    def save(self, folder: str | Path) -> None:
        """Saves a folder that plain transformers can load, with any LoRA adapter merged in."""
        folder = Path(folder)
        silence_transformers()
        merged = {}
        if self.adapted:
            merged = {"state_dict": merged_weights(self.model)}
        self.model.save_pretrained(folder, **merged)
        readable_weights(folder)
        for part in (self.tokenizer, self.processor):
            if part is not None:
                part.save_pretrained(folder)
        levels = {"detail": self.levels} if self.levels else {}
        if kept := self.chosen | saved_decoding(self.decoding) | levels:
            (folder / OPTIONS_FILE).write_text(json.dumps(kept, ensure_ascii=False) + "\n", encoding="utf-8")
        write_sums(folder)

    def _encode_frozen(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        with in_mode(self.model, False), torch.no_grad():
            return self.encode(self.inputs(pixels_BCHW)).float()


def apply_head(hidden: torch.Tensor, head: tuple[torch.Tensor, torch.Tensor | None]) -> torch.Tensor:
    """Computes logits from hidden states …×H with `Captioner.head`."""
    return (F.linear if head[0].numel() < LARGE else linear)(hidden, *head)


def check_room(text_config: Any, before: int, tokens: int) -> None:
    """Raises `UsageError` if ``tokens`` tokens do not fit into the language model after ``before`` positions.

    The last token of a caption is never fed to the model, so it takes no position.
    """
    most = max_tokens_after(text_config, before)
    if most is not None and tokens > most:
        raise UsageError(
            f"a caption of {tokens} tokens does not fit: {before} of the language model's {most + before - 1} "
            f"positions are taken, so at most {most} tokens are possible; lower max_tokens, or raise "
            "captioner.new.max_tokens for a new captioner"
        )


def max_tokens_after(text_config: Any, before: int) -> int | None:
    """Returns the maximum caption length in tokens after ``before`` positions; None if the model has no limit."""
    positions = getattr(text_config, "max_position_embeddings", None)
    return None if positions is None else max(0, int(positions) - before + 1)
