"""`Captioner`, the interface of every family: pixels to features, features to text.

A captioner computes the state of its decoder after the picture and the prompt (``prefill``, once per picture), hidden
states after further tokens (``decode``), and logits (``compute_logits``). `captioners.decoding.generate` serves all.
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
from tellapart.captioners.lora import (
    is_adapter,
    merged_weights,
)
from tellapart.captioners.sampling import DecoderState
from tellapart.captioners.teacher_forcing import MANY_SCORES, hidden_cached
from tellapart.captioners.uncached import Uncached
from tellapart.data.pictures import load_rgb
from tellapart.errors import UsageError
from tellapart.models.decoding import DEFAULT, Decoding
from tellapart.models.devices import precision_of
from tellapart.models.onednn import LARGE, linear, speed_up
from tellapart.models.saved import (
    OPTIONS_FILE,
    Levels,
    saved_decoding,
    settings_of,
    silence_transformers,
    weights_fingerprint,
)
from tellapart.models.tokens import caption_rows
from tellapart.types import Encoder, Rollout, in_mode, pad_rows
from tellapart.utils.files import readable_weights, write_sums
from tellapart.utils.rng import ItemSeeds


class Captioner(ABC):
    """Turns pictures into text: ``encode(pixels) -> visual``, ``log_probs``, ``generate``.

    Captions come as rows R = B·S, the S captions of a picture side by side; ``visual`` has B rows.
    ``options``: what may follow its name (``NAME?key=value``), and how each value is read; ``chosen``: those that did.
    """

    options: ClassVar[Mapping[str, Callable[[str], Any]]] = {}
    gaps: Sequence[int] = ()  # ids that `without_gaps` keeps out of captions
    pixels_in_threads = False  # whether several threads may call `pixels` at once
    lengths_differ = False  # whether `input_lengths` says how long the inputs of pictures are
    sees_clips = False  # whether it knows what to do with the features of several frames
    graphed = False  # whether `decode` computes the same kernels for the same shapes, so that a GPU can replay them
    masks_regions = False  # whether rows of zeros, which fill up pictures with fewer regions, change nothing

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str) -> None:
        self.model, self.tokenizer, self.processor, self.name = model, tokenizer, processor, name
        speed_up(model)
        self.cut_texts = 0  # texts that were longer than allowed and were cut in `tokenize`
        self.generated = self.cut_captions = 0  # captions that were generated, and those cut at the most tokens
        self.cut: set[str] = set()  # the texts of those, of the last pictures whose captions were generated
        self.stop, self._stop_ids = "", list[int]()  # see `set_stop`
        self.chosen: dict[str, Any] = {}
        self.decoding: Decoding | None = None  # the generation settings that it is saved with; None: none
        self.levels: Levels = ()  # the amounts of detail that it was trained for
        enabled = os.environ.get("TELLAPART_CUDA_GRAPHS", "1") != "0"
        self.graphs = StepGraphs() if self.graphed and enabled else None

    def with_prompt(self, prompt: str) -> Self:
        """Returns this captioner behind another prompt, with the same weights; itself for "".

        Raises `UsageError` where it takes no prompt.
        """
        if not prompt:
            return self
        if "prompt" not in self.options:
            raise UsageError(
                f"{self.name} takes no prompt, and was given '{prompt}'; leave it out, or name another captioner"
            )
        other = copy.copy(self)
        other.set_prompt(prompt)
        return other

    def set_prompt(self, prompt: str) -> None:
        """Sets what stands before every caption, or is asked; for captioners that have ``prompt`` among `options`."""
        raise NotImplementedError(f"{type(self).__name__} has an option 'prompt'; override `set_prompt`")

    @property
    def suppressed_tokens(self) -> Sequence[int]:
        """Returns the ids that are never generated."""
        return self.gaps

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, and of the pixels and features that they are multiplied with."""
        dtype: torch.dtype = next(x.dtype for x in self.model.parameters() if x.is_floating_point())
        return dtype

    def inputs(self, visual: torch.Tensor) -> torch.Tensor:
        """Features of pictures where the model is, in its dtype."""
        return visual.to(self.device, self.dtype if visual.is_floating_point() else None)

    def input_lengths(self, visual: torch.Tensor) -> list[int] | None:
        """Returns how many positions of the language model each picture takes; None: all as many."""
        return None

    @property
    def end(self) -> int:
        """The id of the end token."""
        return int(self.tokenizer.eos_token_id)

    @property
    def stop_tokens(self) -> list[int]:
        """Ids of all tokens that end a caption and are part of it: the end token first, then those of `set_stop`."""
        return [self.end, *self._stop_ids]

    def set_stop(self, text: str) -> None:
        """Ends captions also with any token whose text contains ``text``, which is then part of them; "": with none.

        Official ClipCaps were never taught an end token and stop at ".". Raises `UsageError` where no token has it.
        """
        self.stop, self._stop_ids = text, []
        if not text:
            return
        special = set(self.tokenizer.all_special_ids)
        texts = self.tokenizer.batch_decode([[id_] for id_ in range(len(self.tokenizer))])
        self._stop_ids = [id_ for id_, token_text in enumerate(texts) if text in token_text and id_ not in special]
        if not self._stop_ids:
            raise UsageError(f"{self.name}: none of its tokens contains '{text}'; leave stop out, or name another")

    @property
    def encoder(self) -> Encoder:
        """The vision encoder as it stands now, for the feature store. Hashes its weights: take it once.

        Raises `UsageError` for a captioner that was made for features from files.
        """
        if not self.reads_pictures(self.model):
            raise UsageError(
                f"{self.name} has no vision encoder: it reads features from files; in a recipe: captioner.features = "
                "'FOLDER or FILE.h5'; to caption: NAME?features=FOLDER"
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
        """Returns how many frames of a clip it looks at, as its ``config.json`` says; 1: the middle one."""
        return int(getattr(self.model.config, "frames", 1)) if self.sees_clips else 1

    @frames.setter
    def frames(self, count: int) -> None:
        if count > 1 and not self.sees_clips:
            raise UsageError(
                f"{self.name} looks at single pictures, not at {count} frames; leave captioner.frames out (the middle "
                "frame of a clip counts then), or name a BLIP, a ClipCap or a recurrent captioner"
            )
        self.model.config.frames = count

    def join_frames(self, visual_F: torch.Tensor) -> torch.Tensor:
        """The features of a clip from those of its frames F×…; a picture that stands still (F is 1) shows one always.

        Frames of several tokens P×D stand one after the other as F·P tokens, as in the video variant of BLIP (paper 1,
        Table 6); frames of one vector D are averaged, as for the CNN-LSTM of paper 4.
        """
        if len(visual_F) == 1 and (self.frames == 1 or visual_F.ndim == 2):
            return visual_F[0]
        if visual_F.ndim == 2:
            return visual_F.mean(0)
        return visual_F.expand(self.frames, -1, -1).flatten(0, 1)

    @staticmethod
    def reads_pictures(model: Any) -> bool:
        """Returns whether such a model has an image processor beside it."""
        return True

    @property
    def makes_features(self) -> bool:
        """Returns whether a vision encoder makes features of pictures; without one, pixels or prompts are its input."""
        return True

    @property
    def view(self) -> str:
        """Returns which output of the vision encoder ``encode`` takes; part of the features' fingerprint."""
        return ""

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """PIL pictures as the model wants them: float B×C×height×width."""
        pixels_BCHW: torch.Tensor = self.processor(images=list(images), return_tensors="pt")["pixel_values"]
        return pixels_BCHW

    @abstractmethod
    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """The vision encoder's output, B×… ."""

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes hidden_RTH, teacher-forced: position t, times the head, gives the logits of ``tokens[:, t]``.

        Where `head` is None, these are the logits R×T×V themselves.
        """
        if len(tokens_RT) > len(visual) and self.caches:
            return hidden_cached(self, self.prefill(visual, tokens_RT.shape[1]), tokens_RT, valid_RT.sum(1))
        return self.hidden_uncached(visual, tokens_RT, valid_RT)

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes `hidden` in one pass, the picture and the prompt repeated for every caption."""
        raise NotImplementedError(f"{type(self).__name__} computes no hidden states; override `hidden`")

    @property
    def caches(self) -> bool:
        """Returns whether there is a KV cache: `prefill` and `decode` work. Without one, generation runs `hidden` for
        each token.
        """
        return False

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> DecoderState:
        """Runs the decoder over B pictures and the prompt; returns its state, one row for each picture.

        Raises `UsageError` where ``max_tokens`` more exceed the context length.
        """
        raise NotImplementedError(f"{type(self).__name__} has no KV cache")

    def decode(self, state: Any, tokens_NT: torch.Tensor) -> torch.Tensor:
        """Computes hidden_NTH after each of these further tokens, and updates ``state`` in place."""
        raise NotImplementedError(f"{type(self).__name__} has no KV cache")

    @property
    def output_layer(self) -> Any:
        """The linear layer from hidden states to logits; None where logits are computed in another way."""
        return None

    def head(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Returns weight_VH of the output layer, and bias_V where there is one; None without such a layer.

        Objectives that need few logits multiply only the rows that they need.
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
        """Generates captions for ``visual``, without gradient; dropout as the model's mode says.

        ``seeds``, one for each of the B pictures, decide what is sampled: a picture's captions are then the same in
        any batch. Without them torch's own generator does.
        """
        rollout = generate(self if self.caches else Uncached(self), visual, decoding, seeds)
        self._count_cut(rollout)
        return rollout

    def stopped(self, rollout: Rollout) -> torch.Tensor:
        """Returns stopped_R: which captions have a stop token; the others were cut at the most tokens."""
        stop_E = torch.tensor(list(self.stop_tokens), device=rollout.tokens_RT.device)
        return (torch.isin(rollout.tokens_RT, stop_E) & rollout.valid_RT).any(1)

    def _count_cut(self, rollout: Rollout) -> None:
        """Counts the captions, and those that were cut."""
        stopped_R = self.stopped(rollout)
        self.generated += len(stopped_R)
        self.cut_captions += len(stopped_R) - int(stopped_R.sum())

    @abstractmethod
    def parts(self) -> dict[str, torch.nn.Module]:
        """Returns what can be trained by name: ``vision``, ``mapper``, ``language_model`` (where it has them)."""

    def caption(
        self,
        images: Sequence[Image.Image | str | Path],
        decoding: Decoding | None = None,
        *,
        batch_size: int = 32,
    ) -> list[str]:
        """Captions of pictures, given as PIL images or as paths, in their order.

        decoding: by default the settings that it was saved with, else five beams and at most 30 tokens, as ``tellapart
        caption``. Raises `PictureError` for a
        file that cannot be read.
        """
        if isinstance(images, str | Path) or not isinstance(images, Sequence):
            raise UsageError("caption takes a list of pictures; for one, type: captioner.caption([picture])[0]")
        decoding, texts = decoding or self.decoding or DEFAULT, []
        for start in range(0, len(images), batch_size):
            photos = [load_rgb(each) for each in images[start : start + batch_size]]
            texts += generate_captions(self, self._encode_frozen(self.pixels(photos)), decoding)
        return texts

    def logits(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Raw scores R×T×V of every next token, teacher-forced. What stands on padding means nothing; it is zero where
        the output layer leaves padding out, on a CPU and where there are many scores."""
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
        """The longest caption that the language model has positions for, in tokens, the end counted; None: any."""
        return None

    def tokenize(self, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
        """Returns token ids of captions, each with its end token; with a stop (`set_stop`), that in place of it.

        A caption of more than ``max_tokens`` tokens (None: `max_caption_tokens`) is cut before its end, so that the
        cut is not taught as an ending, and is counted in ``cut_texts``.
        """
        rows = self._caption_rows(texts)
        limit = self.max_caption_tokens if max_tokens is None else max_tokens
        self.cut_texts += 0 if limit is None else sum(len(row) > limit for row in rows)
        return [row[:limit] for row in rows]

    def _caption_rows(self, texts: Sequence[str]) -> list[list[int]]:
        if not self.stop:
            return caption_rows(self.tokenizer, texts, [self.end])
        # Such a model was never taught an end token: a caption ends as its stop does, which some references lack.
        (stop_T,), stops = caption_rows(self.tokenizer, [self.stop], []), set(self._stop_ids)
        rows = caption_rows(self.tokenizer, texts, [])
        return [row if row and row[-1] in stops else [*row, *stop_T] for row in rows]

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return pad_rows(rows, self.tokenizer.pad_token_id)

    @property
    def adapted(self) -> bool:
        """Returns whether LoRA stands beside its weights."""
        return any(is_adapter(name) for name, _ in self.model.named_parameters())

    def save(self, folder: str | Path) -> None:
        """A folder that plain transformers loads; LoRA, where there is some, is merged in."""
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
    """Computes logits from hidden states …×H by `Captioner.head`."""
    return (F.linear if head[0].numel() < LARGE else linear)(hidden, *head)


def check_room(text_config: Any, before: int, tokens: int) -> None:
    """Raises `UsageError` where a language model has no room for ``tokens`` after the ``before`` positions in front.

    The last token of a caption is not read, so it takes no position.
    """
    most = max_tokens_after(text_config, before)
    if most is not None and tokens > most:
        raise UsageError(
            f"a caption of {tokens} tokens does not fit: of the language model's {most + before - 1} positions "
            f"{before} are taken; expected at most {most} tokens; lower max_tokens, or give a captioner that is "
            "new more of them with captioner.new.max_tokens"
        )


def max_tokens_after(text_config: Any, before: int) -> int | None:
    """Tokens of the longest caption after ``before`` positions; None where the language model has no limit."""
    positions = getattr(text_config, "max_position_embeddings", None)
    return None if positions is None else max(0, int(positions) - before + 1)
