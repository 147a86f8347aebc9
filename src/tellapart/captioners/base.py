"""Captioners, whatever model is inside: how one is loaded by its name, and the one `generate` that serves them all.

`load_captioner` finds families of transformers, published checkpoints, adapters, and captioners of the user's own.
A captioner computes the state of its decoder after the picture and the prompt (``prefill``, once per picture), hidden
states after further tokens (``decode``), and logits (``compute_logits``); the state is a `DecoderState`: a `KVCache` of
transformers, BLIP's, or that of an LSTM. Beam search gives token for token what transformers' ``generate`` gives, but
pictures that are finished leave the batch. Captions differ in length, and padding costs as much as words, so teacher
forcing (`hidden_cached`) scores captions of like length together.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import os
import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import torch
import torch.nn.functional as F
from PIL import Image
from transformers import Cache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from tellapart.captioners.lora import (
    ADAPTER,
    adapter_settings,
    base_of_adapter,
    is_adapter,
    merge_adapter,
    merged_weights,
)
from tellapart.data.pictures import load_rgb
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.models.loading import (
    DEFAULT,
    LARGE,
    OPTIONS_FILE,
    Decoding,
    Levels,
    checked_model_folder,
    decoding_in,
    dtype_of,
    is_server,
    levels_in,
    linear,
    loading_errors,
    precision_of,
    prompt_of_detail,
    resolve_device,
    resolve_precision,
    saved_options,
    set_precision,
    settings_of,
    silence_transformers,
    speed_up,
    weights_fingerprint,
)
from tellapart.models.tokens import caption_rows
from tellapart.types import Encoder, Rollout, Rows, in_mode, pad_rows
from tellapart.utils.io import check_sums, readable_weights, say_once, write_sums
from tellapart.utils.registry import Entry, LazyModule, Registry, call_factory, code_path
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    import transformers
else:
    transformers = LazyModule("transformers")


MANY_SCORES = 2**22  # scores: below so many, padding costs less than leaving it out


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
        wanted = os.environ.get("TELLAPART_CUDA_GRAPHS", "1") != "0"
        self.graphs = StepGraphs() if self.graphed and wanted else None

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
        self._stop_ids = [id_ for id_, own in enumerate(texts) if text in own and id_ not in special]
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
                "'FOLDER or FILE.h5'; to caption: --features FOLDER"
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


class Uncached:
    """A captioner without a KV cache as a decoder: every step runs ``hidden`` over all tokens so far.

    Right for any captioner, fast for none.
    """

    def __init__(self, captioner: Captioner) -> None:
        self.captioner, self.name, self.device = captioner, captioner.name, captioner.device
        self.tokenizer = captioner.tokenizer
        self.stop_tokens = captioner.stop_tokens
        self.compute_logits, self.suppressed_tokens = captioner.compute_logits, captioner.suppressed_tokens

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> TokenHistory:
        return TokenHistory(self, visual, torch.empty(len(visual), 0, dtype=torch.long, device=visual.device))

    def decode(self, state: Any, tokens_NT: torch.Tensor) -> torch.Tensor:
        state.tokens_NT = torch.cat([state.tokens_NT, tokens_NT], dim=1)
        return self.hidden(state)[:, -tokens_NT.shape[1] :]

    def hidden(self, state: TokenHistory) -> torch.Tensor:
        """Computes hidden_N(T+1)H before and after each of the T tokens so far."""
        tokens_NT = F.pad(state.tokens_NT, (0, 1), value=self.captioner.end)  # the last one is not read
        return self.captioner.hidden(state.visual, tokens_NT, torch.ones_like(tokens_NT, dtype=torch.bool))


@dataclass
class TokenHistory:
    """State of an `Uncached` captioner: the pictures' features, and the tokens so far."""

    captioner: Uncached
    visual: torch.Tensor
    tokens_NT: torch.Tensor

    def __len__(self) -> int:
        return len(self.visual)

    @property
    def prompt_tokens(self) -> int:
        raise UsageError(
            f"length_penalty_over is 'all', and {self.captioner.name} does not say how many tokens its prompt has; "
            "leave it at 'new'"
        )

    @property
    def hidden_N1H(self) -> torch.Tensor:
        return self.captioner.hidden(self)[:, -1:]

    def select(self, row_M: torch.Tensor) -> Self:
        return type(self)(self.captioner, self.visual[row_M], self.tokens_NT[row_M])


@dataclass(frozen=True, kw_only=True)
class CaptionerEntry(Entry[Callable[..., Any]]):
    """With ``model_type`` ``factory(folder) -> (model, class of captioner)`` loads any model folder of that type.

    With ``takes``, a pattern of whole names, ``factory(name, options as they were typed) -> Captioner`` loads those.
    Otherwise ``factory(**options) -> Captioner`` is called with what follows the name, ``NAME?key=value``. The entry
    ``transformers`` loads the model folders whose type has no entry: ``factory(folder, type, name, dtype)``.
    """

    model_type: bool = False
    takes: str = ""


# A module of this package registers a family under the ``model_type`` of its ``config.json``; an installed package
# adds a family, or a captioner of another make, by an entry point of the group.
CAPTIONERS: Registry[CaptionerEntry] = Registry(
    "captioner", CaptionerEntry, group="tellapart.captioners", package="tellapart.captioners"
)


def saved_decoding(decoding: Decoding | None) -> dict[str, Any]:
    """Returns generation settings as they stand in `OPTIONS_FILE`; a scorer that chooses among captions is left out."""
    if decoding is None:
        return {}
    return {"decoding": decoding.model_copy(update={"scorer_weight": 0.0}).model_dump(exclude_defaults=True)}


STOP: Mapping[str, Callable[[str], Any]] = {"stop": str}  # the option that every family has
DETAIL: Mapping[str, Callable[[str], Any]] = {"detail": float}  # of those that were trained for several amounts


def load_captioner(name: str, device: str | torch.device = "auto", precision: str = "auto") -> Captioner:
    """Loads a captioner from a folder, a run, a hub name, or ``scenes`` (ships with the package).

    Options may follow the name: ``Salesforce/blip-image-captioning-base?prompt=a picture of``; a saved captioner
    remembers its own. With ``stop=.`` captions also end with any token whose text contains ".". The folder of a PEFT
    adapter is merged into its base, which ``base_model`` names where it lies elsewhere. ``FILE.pt`` and ``FILE.pth``
    are published checkpoints (`official`), ``clipcap?vision=NAME&language_model=NAME`` is one with a new mapper,
    ``package.module:make?key=value`` one of the user's own (`load_custom`), which runs where the command line,
    `tellapart.utils.registry.allow_code` or an installed entry point names it. Else safetensors only.

    ``device``: ``auto`` is the accelerator where there is one. ``precision``: ``auto`` is ``bf16`` where that device
    multiplies in it, else ``fp32``; weights below ``fp32`` are for inference and take no gradient, so name ``fp32`` for
    a captioner that is to be trained. A captioner of the user's own keeps the precision that it was made in unless one
    is named.

    Raises `TellapartError` with the line to type where there is no such model, `UsageError` for options that it does
    not have, and for a device or precision that this machine does not have.
    """
    if is_server(name):
        raise UsageError(
            f"{name.partition('@')[0]} is behind a server, which writes captions ('tellapart caption', 'tellapart eval "
            "--captioner') and has no weights here; name a captioner of this machine"
        )
    device = resolve_device(device)
    chosen, bare, written = resolve_precision(precision, device), *name.partition("?")[::2]
    if (made := load_without_folder(bare, written)) is not None:
        if precision != "auto" or code_path(bare, "captioner") is None:
            set_precision(made.model, chosen)
        made.model.eval().to(device)
        return made
    folder = Path(bare).expanduser()
    if (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        return load_adapted(name, folder, written, device, precision)
    where = checked_model_folder(bare, "captioner")
    if (maker := saved_options(where).get("made_by")) is not None:
        if written:
            raise UsageError(f"{bare} was saved by a captioner of its own, with its options; leave '?{written}' out")
        made = load_custom(str(maker), {}, where)
        if precision != "auto":
            set_precision(made.model, chosen)
        made.model.eval().to(device)
        made.decoding = decoding_in(saved_options(where))
        return made
    with loading_errors(bare, "a captioner: a folder or hub name with config.json and safetensors"):
        kind = transformers.AutoConfig.from_pretrained(where, trust_remote_code=False).model_type
        if (found := load_family(kind, where)) is not None:
            model, family = found
            set_precision(model, chosen)
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
            pictures = family.reads_pictures(model)
            processor = (
                transformers.AutoImageProcessor.from_pretrained(where, backend="pil", trust_remote_code=False)
                if pictures
                else None
            )
        else:
            model, family, tokenizer, processor = CAPTIONERS.find("transformers").factory(
                where, kind, bare, dtype_of(chosen)
            )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    saved = saved_options(where, from_hub=True)
    decoding, levels = decoding_in(saved), levels_in(saved, bare)
    typed = with_detail(parse_options(written, {**family.options, **STOP, **DETAIL}, bare), levels, bare)
    options = {key: value for key, value in saved.items() if key not in ("decoding", "detail")} | typed
    model.requires_grad_(chosen == "fp32").eval().to(device)
    with loading_errors(bare, "a processor that fits the model"):
        own = {key: value for key, value in options.items() if key not in STOP}
        captioner = family(model, tokenizer, processor, str(name), **own)
        check_fit(captioner)
    captioner.chosen, captioner.decoding, captioner.levels = options, decoding, levels
    captioner.set_stop(options.get("stop", ""))
    return captioner


def load_adapted(name: str, folder: Path, written: str, device: torch.device, precision: str) -> Captioner:
    """The base of a PEFT adapter with the adapter merged in. ``written``: its options, and those of its base."""
    settings = adapter_settings(folder)
    check_sums(folder)
    pairs = [pair for pair in written.split("&") if pair]
    named = [pair.partition("=")[2] for pair in pairs if pair.startswith("base_model=")]
    base = base_of_adapter(folder, settings, parse_value(named[-1]) if named else None)
    rest = "&".join(pair for pair in pairs if not pair.startswith("base_model="))
    try:
        captioner = load_captioner(f"{base}?{rest}" if rest else base, device, precision)
    except TellapartError as error:
        elsewhere = f"if it lies elsewhere, type '{folder}?base_model=PLACE'"
        raise type(error)(f"{folder} is an adapter of {base}: {error}; {elsewhere}") from None
    merge_adapter(captioner.model, folder)
    captioner.name = name
    return captioner


def load_without_folder(name: str, written: str) -> Captioner | None:
    """A captioner that no folder of transformers holds: a published checkpoint, a new ClipCap, a user's own."""
    for entry in CAPTIONERS.builtin().values():
        if entry.takes and re.fullmatch(entry.takes, name):
            made: Captioner = entry.factory(name, written)
            return made
    if (path := code_path(name, "captioner")) is not None:
        return load_custom(path, dict(pair.split("=", 1) for pair in written.split("&") if "=" in pair))
    return None


def parse_options(written: str, known: Mapping[str, Callable[[str], Any]], name: str) -> dict[str, Any]:
    """``key=value&key=value`` as options that are ``known``; see `quoted`. Raises `UsageError` for others."""
    options: dict[str, Any] = {}
    for pair in filter(None, written.split("&")):
        key, equals, value = pair.partition("=")
        if key == "detail" and key not in known:
            prompt_of_detail((), 0.0, name)
        if key not in known or not equals:
            raise UsageError(
                f"{name}: no option '{pair}'{nearest(key, known) if known else '; this captioner has none'}"
            )
        try:
            options[key] = known[key](parse_value(value))
        except ValueError:
            raise UsageError(f"{name}: {key} is a number; found '{value}'") from None
    return options


def with_detail(typed: dict[str, Any], levels: Levels, name: str) -> dict[str, Any]:
    """The options with the prompt of the level in place of ``detail``. Raises `UsageError` where both are named."""
    if "detail" not in typed:
        return typed
    if "prompt" in typed:
        raise UsageError(f"{name}: a prompt and detail are named, and detail chooses the prompt; leave one of them out")
    rest = {key: value for key, value in typed.items() if key != "detail"}
    prompt = prompt_of_detail(levels, typed["detail"], name)
    return rest | ({"prompt": prompt} if prompt else {})


def parse_value(written: str) -> str:
    """The value that `quoted` wrote."""
    return written.replace("%26", "&").replace("%25", "%")


def quoted(value: str) -> str:
    """The value of an option as it stands in a captioner's name."""
    return value.replace("%", "%25").replace("&", "%26")


def load_family(model_type: str, folder: str) -> tuple[Any, type[Captioner]] | None:
    """The model in a folder and the class of its captioner; None where no family is registered for its type."""
    if model_type not in CAPTIONERS or not (entry := CAPTIONERS.find(model_type)).model_type:
        return None
    loaded: tuple[Any, type[Captioner]] = entry.factory(folder)
    return loaded


CONFIG = {"model_type": "own"}  # a model's folder is known by its config.json


def load_custom(path: str, options: dict[str, Any], folder: str | None = None) -> Captioner:
    """Returns what ``path`` makes of ``options``. Its ``save`` also writes down who made it, so that the ``folder``
    loads again: then it is called with ``folder=FOLDER`` alone, if its code is allowed to run (`utils.registry`).
    Raises `UsageError` where it is not, or makes something else.
    """
    asks = f"captioner {path}" if folder is None else f"the model's folder {folder}"
    captioner = call_factory(path, "captioner", asks, options if folder is None else {"folder": folder})
    if not isinstance(captioner, Captioner):
        raise UsageError(
            f"captioner {path} made a {type(captioner).__name__}; expected a tellapart.captioners.Captioner"
        )
    captioner.save = saving_factory(captioner, path)  # type: ignore[method-assign, assignment]
    if "seeds" not in inspect.signature(captioner.generate).parameters:
        captioner.generate = generate_per_picture(captioner)  # type: ignore[method-assign]
    return captioner


def saving_factory(captioner: Captioner, path: str) -> Callable[[Path], None]:
    save: Callable[[Path], None] = captioner.save

    @functools.wraps(save)
    def save_and_remember(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        save(folder)
        if not (folder / "config.json").is_file():
            (folder / "config.json").write_text(json.dumps(CONFIG) + "\n", encoding="utf-8")
        kept = {"made_by": path, **saved_decoding(captioner.decoding)}
        (folder / OPTIONS_FILE).write_text(json.dumps(kept) + "\n", encoding="utf-8")
        write_sums(folder)

    return save_and_remember


def generate_per_picture(captioner: Captioner) -> Callable[..., Rollout]:
    """A ``generate`` without ``seeds``, called picture by picture, with torch's own generator seeded for each."""
    generate: Callable[[torch.Tensor, Decoding], Rollout] = captioner.generate

    @functools.wraps(generate)
    def seeded(visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
        if seeds is None or decoding.kind != "sample":
            return generate(visual, decoding)
        rows: list[list[int]] = []
        for place, uniform_1 in enumerate(seeds.uniform("tokens", 1)):
            with torch.random.fork_rng():
                torch.manual_seed(int(uniform_1 * 2**53))
                one = generate(visual[place : place + 1], decoding)
            rows += [row[valid].tolist() for row, valid in zip(one.tokens_RT, one.valid_RT, strict=True)]
        tokens_RT, valid_RT = (x.to(visual.device) for x in pad_rows(rows, captioner.tokenizer.pad_token_id))
        return Rollout(tokens_RT, valid_RT, decode_rows(tokens_RT, valid_RT, captioner.tokenizer), decoding.samples)

    return seeded


def check_fit(captioner: Captioner) -> None:
    """Raises `TellapartError` for a processor or a tokenizer that is not the model's own."""
    if captioner.processor is not None:
        check_pictures(captioner)
    check_tokens(captioner)
    prompt = getattr(captioner, "before", None)
    getattr(prompt, "of_blank", None)  # made once: a prompt that the processor refuses is an error now


def check_pictures(captioner: Captioner) -> None:
    """Raises `TellapartError` where the processor makes pictures of another size than the vision encoder reads."""
    config: Any = captioner.model.config
    side = getattr(getattr(config, "vision_config", None), "image_size", None)
    pixels = captioner.pixels([Image.new("RGB", (64, 48))])
    if isinstance(side, int) and pixels.ndim == 4 and tuple(pixels.shape[-2:]) != (side, side):
        found = f"{pixels.shape[-1]}×{pixels.shape[-2]}"
        raise TellapartError(
            f"{captioner.name}: its processor makes pictures of {found} pixels, and its vision encoder reads "
            f"{side}×{side}; expected the processor that the model was saved with (preprocessor_config.json)"
        )


def check_tokens(captioner: Captioner) -> None:
    """The language model has a word embedding for every token of the tokenizer, but for those of pictures."""
    places = set(getattr(captioner, "places", ()))
    highest = max(set(captioner.tokenizer.get_vocab().values()) - places, default=0)
    text = getattr(captioner.model.config, "text_config", captioner.model.config)
    rows = getattr(text, "vocab_size", None)
    if isinstance(rows, int) and highest >= rows:
        raise TellapartError(
            f"{captioner.name}: its tokenizer has {highest + 1:,} tokens and its language model {rows:,}; expected the "
            "tokenizer that the model was saved with"
        )


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


SAMPLES_AT_ONCE = 1024  # rows of a batch


def generate_captions(
    captioner: Captioner,
    visual: torch.Tensor | Rows,
    decoding: Decoding,
    batch_size: int = 100,
    seeds: ItemSeeds | None = None,
) -> list[str]:
    """Captions of N pictures from their features N×…, dropout off; ``seeds`` of the N decide what is sampled.

    No caption has a gap (`without_gaps`). With ``decoding.confidence`` it comes without the words that the captioner is
    not sure of (`confident_texts`); a consensus is among samples without them.
    """
    if decoding.asks_scorer:
        raise ValueError("a scorer chooses among these captions; call inference.best_of.chosen_captions")
    batch_size = max(1, min(batch_size, SAMPLES_AT_ONCE // decoding.drawn.samples))
    texts: list[str] = []
    with in_mode(captioner.model, False), without_gaps(captioner):
        for start in range(0, len(visual), batch_size):
            block = captioner.inputs(torch.as_tensor(visual[start : start + batch_size]))
            of_block = None if seeds is None else seeds[start : start + batch_size]
            texts += _generate_texts(captioner, block, decoding, of_block)
    return texts


@contextmanager
def without_gaps(captioner: Captioner) -> Iterator[None]:
    """Suppresses the unknown word of a whole-word vocabulary within: in a caption it is a gap ("a man with a").

    What an objective samples keeps it, because log-probabilities are taken over the whole vocabulary.
    """
    before, words = captioner.gaps, getattr(getattr(captioner.tokenizer, "backend_tokenizer", None), "model", None)
    captioner.gaps = (captioner.tokenizer.unk_token_id,) if type(words).__name__ == "WordLevel" else ()
    try:
        yield
    finally:
        captioner.gaps = before


def _generate_texts(
    captioner: Captioner, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None
) -> list[str]:
    from tellapart.captioners.consensus import confident_texts, consensus

    rollout = captioner.generate(visual, decoding.drawn, seeds)
    texts = confident_texts(captioner, visual, rollout, least) if (least := decoding.confidence) else rollout.texts
    cut = zip(texts, captioner.stopped(rollout).tolist(), strict=True)
    captioner.cut = {" ".join(text.split()) for text, stopped in cut if not stopped}
    if decoding.kind != "consensus":
        return texts
    each = decoding.candidates
    return [consensus(texts[start : start + each]) for start in range(0, len(texts), each)]


GOING = 0.75  # finished rows leave the batch when no more than this share goes on
GROUPS, AT_LEAST = 4, 32  # groups of like length in teacher forcing, and rows in one
NEVER = -1.0e9  # the log-probability of what must not be chosen, as in transformers
# The name of the KV cache, as an argument and in an output; `cache` from transformers 5.24 on.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


class DecoderState(Protocol):
    """State of a decoder for N rows after the tokens so far; `decode` of its captioner updates it in place."""

    def __len__(self) -> int: ...

    @property
    def prompt_tokens(self) -> int:
        """Number of token ids before the first generated token: start token, prompt, and prefix of the picture."""
        ...

    @property
    def hidden_N1H(self) -> torch.Tensor:
        """Last hidden state after `prefill`, from which the first token is scored."""
        ...

    def select(self, row_M: torch.Tensor) -> Self:
        """Returns the state of these rows, each as often as it is named; this one stays as it is."""
        ...


class Decoder(Protocol):
    """A captioner as decoding uses it; see `Captioner` for its members."""

    name: str
    tokenizer: Any

    @property
    def device(self) -> torch.device: ...
    @property
    def stop_tokens(self) -> Sequence[int]: ...
    @property
    def suppressed_tokens(self) -> Sequence[int]: ...
    def prefill(self, visual: torch.Tensor, max_tokens: int) -> DecoderState: ...
    def decode(self, state: Any, tokens_NT: torch.Tensor) -> torch.Tensor: ...
    def compute_logits(self, hidden_NH: torch.Tensor) -> torch.Tensor: ...


@torch.no_grad()
def generate(decoder: Decoder, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
    """Generates ``decoding.samples`` captions for each of B pictures; captions of a picture are adjacent rows.

    A caption ends with the first of ``decoder.stop_tokens``, which is part of it, or after ``decoding.max_tokens``.
    ``seeds``: one for each picture, from which its tokens are drawn; None: torch's generator. Raises `TellapartError`
    where logits are NaN.
    """
    drawn = decoding.kind not in ("greedy", "beam")
    uniform_RT = decoding.uniform(len(visual), visual.device, seeds) if drawn else None
    state = decoder.prefill(visual, decoding.max_tokens)
    if decoding.samples > 1 and decoding.kind != "beam":
        state = state.select(torch.arange(len(visual) * decoding.samples, device=visual.device) // decoding.samples)
    logits_NV = check_finite(decoder.name, decoder.compute_logits(state.hidden_N1H[:, -1]))
    if visual.device.type == "cuda" and (graphs := getattr(decoder, "graphs", None)) is not None:
        tokens_RT = graphs(decoder, state, logits_NV, decoding, uniform_RT)
    else:
        tokens_RT = generate_tokens(make_loop(decoder, state, logits_NV, decoding, uniform_RT), decoding.max_tokens)
    return to_rollout(tokens_RT, decoder.tokenizer, decoder.stop_tokens, decoding.samples)


def check_finite(name: str, logits_NV: torch.Tensor) -> torch.Tensor:
    """Returns the logits of the first tokens. Raises `TellapartError` where they are NaN."""
    if bool(logits_NV.isnan().any()):
        raise TellapartError(
            f"{name}: its logits are NaN, so it can write no captions; expected weights and features that are finite: "
            "load an earlier checkpoint, or type --precision fp32"
        )
    return logits_NV


def suppress(score_NV: torch.Tensor, tokens: torch.Tensor | None) -> torch.Tensor:
    """Returns the scores with -inf for ``tokens``, which are never generated."""
    return score_NV if tokens is None else score_NV.index_fill(-1, tokens, -torch.inf)


def next_token(logits_RV: torch.Tensor, decoding: Decoding, uniform_R: torch.Tensor | None) -> torch.Tensor:
    """Chooses the next token of each row: the likeliest, or by inverse transform sampling with ``uniform_R``.

    Each row takes one number, so that its token does not depend on the other rows.
    """
    if uniform_R is None:
        return logits_RV.argmax(-1)
    sums_RV = (logits_RV.float() / decoding.temperature).softmax(-1).cumsum(-1, dtype=uniform_R.dtype)
    below_RV = sums_RV <= uniform_R[:, None] * sums_RV[:, -1:]
    return below_RV.sum(-1).clamp(max=sums_RV.shape[-1] - 1)


class SampleSearch:
    """One caption for each of R = B·samples rows, token by token: greedy, or drawn with ``uniform_RT``.

    ``running_N``: which of the N rows in the batch have not stopped. Tokens after a row's first stop token are
    undefined.
    """

    def __init__(
        self,
        decoder: Decoder,
        state: DecoderState,
        logits_NV: torch.Tensor,
        decoding: Decoding,
        uniform_RT: torch.Tensor | None,
    ) -> None:
        self.decoder, self.state, self.logits_NV, self.decoding = decoder, state, logits_NV, decoding
        self.uniform_RT, device = uniform_RT, logits_NV.device
        self.row_N = torch.arange(len(logits_NV), device=device)
        self.stop_V = token_table(decoder.stop_tokens, logits_NV)
        self.suppressed = token_ids(decoder.suppressed_tokens, device)
        self.tokens_RT = self.row_N.new_full((len(logits_NV), decoding.max_tokens), decoder.stop_tokens[0])
        self.token_N = self.row_N
        self.running_N = torch.ones_like(self.row_N, dtype=torch.bool)

    def choose(self, place: int) -> None:
        """Chooses the tokens at ``place``."""
        logits_NV = suppress(self.logits_NV, self.suppressed)
        uniform_N = None if self.uniform_RT is None else self.uniform_RT[self.row_N, place]
        self.token_N = next_token(logits_NV, self.decoding, uniform_N)
        self.tokens_RT[self.row_N, place] = self.token_N
        self.running_N = self.running_N & ~self.stop_V[self.token_N]

    def keep(self, kept_N: torch.Tensor) -> None:
        """Leaves the other rows out from now on."""
        self.state, self.row_N = self.state.select(kept_N), self.row_N[kept_N]
        self.token_N, self.running_N = self.token_N[kept_N], self.running_N[kept_N]

    def decode(self, place: int) -> None:
        """Computes the logits after the tokens at ``place``."""
        hidden_N1H = self.decoder.decode(self.state, self.token_N[:, None])
        self.logits_NV = self.decoder.compute_logits(hidden_N1H[:, -1])

    def result(self, tokens: int) -> torch.Tensor:
        """Returns tokens_RT."""
        return self.tokens_RT[:, :tokens]


def make_loop(
    decoder: Decoder,
    state: DecoderState,
    logits_NV: torch.Tensor,
    decoding: Decoding,
    uniform_RT: torch.Tensor | None,
) -> SampleSearch | BeamSearch:
    """Returns the loop of a kind of decoding, before its first token; ``logits_NV`` are those of ``state``."""
    if decoding.kind == "beam":
        return BeamSearch(decoder, state, logits_NV, decoding)
    return SampleSearch(decoder, state, logits_NV, decoding, uniform_RT)


def generate_tokens(loop: SampleSearch | BeamSearch, max_tokens: int) -> torch.Tensor:
    """Runs a loop until all its rows have stopped, at most ``max_tokens`` times. Returns tokens_RT.

    On a GPU the host never waits for the device: rows stay, and whether all have stopped is looked at when the answer
    has arrived.
    """
    running = RunningCount(loop.running_N.device)
    for place in range(max_tokens):
        loop.choose(place)
        if place + 1 == max_tokens or not (count := running.count(loop.running_N)):
            break
        if count <= GOING * len(loop.running_N):
            loop.keep(loop.running_N.nonzero()[:, 0])
        loop.decode(place)
    return loop.result(place + 1)


def token_ids(tokens: Sequence[int], device: torch.device) -> torch.Tensor | None:
    """Returns ids on the device; None for none."""
    return torch.tensor(list(tokens), device=device) if tokens else None


def token_table(tokens: Sequence[int], logits_NV: torch.Tensor) -> torch.Tensor:
    """Returns a table of the V tokens, True for these; ids beyond the vocabulary are never generated."""
    known = [token for token in tokens if token < logits_NV.shape[-1]]
    table_V = torch.zeros(logits_NV.shape[-1], dtype=torch.bool)
    table_V[known] = True
    return table_V.to(logits_NV.device)


@dataclass
class Beams:
    """K hypotheses of each of B pictures: tokens_BKT (T: most tokens), and the score_BK by which they are ranked."""

    tokens_BKT: torch.Tensor
    score_BK: torch.Tensor

    def gather(self, place_BM: torch.Tensor) -> Beams:
        """Returns M of the hypotheses of each picture, by their places."""
        wide_BMT = place_BM[..., None].expand(-1, -1, self.tokens_BKT.shape[2])
        return Beams(self.tokens_BKT.gather(1, wide_BMT), self.score_BK.gather(1, place_BM))

    def grow(self, place: int, sum_BKV: torch.Tensor) -> tuple[Beams, torch.Tensor]:
        """Returns the K best hypotheses with one more token, and from_BK: the beam that each continues.

        ``sum_BKV``: their log-probabilities.
        """
        K, V = sum_BKV.shape[1:]
        score_BK, flat_BK = sum_BKV.flatten(1).topk(K)
        from_BK, token_BK = flat_BK // V, flat_BK % V
        grown = Beams(self.gather(from_BK).tokens_BKT, score_BK)
        grown.tokens_BKT[:, :, place] = token_BK
        return grown, from_BK


class BeamSearch:
    """The best ``samples`` of ``beams`` hypotheses of each picture, best first.

    Finished hypotheses are ranked by their log-probability divided by their length (length penalty 1), by one of two
    rules (`Decoding.length_penalty_over`). ``new``: the generated tokens with the end token, as transformers does from
    4.38 on; a stop token ends a hypothesis at once. ``all``: the prompt and the generated tokens without the end token,
    as in transformers 4.15; a stop token other than the end token is followed by the end token at no cost, as the
    papers' programs force it. The search of a picture is over when its best candidate is no better than its worst
    finished hypothesis; ``running_N``: which of the N pictures in the batch are still searched. Tokens after a row's
    first stop token are undefined.
    """

    def __init__(self, decoder: Decoder, state: DecoderState, logits_NV: torch.Tensor, decoding: Decoding) -> None:
        self.decoder, self.state, self.logits_NV, self.decoding = decoder, state, logits_NV, decoding
        B, K, T, device = len(state), decoding.beams, decoding.max_tokens, logits_NV.device
        self.counts_all = decoding.length_penalty_over == "all"
        self.prompt = state.prompt_tokens if self.counts_all else 0
        ends, others = decoder.stop_tokens[:1], decoder.stop_tokens[1:]
        self.end_V = token_table(ends if self.counts_all else decoder.stop_tokens, logits_NV)
        self.forces_end = self.counts_all and bool(others)
        self.stop_V = token_table(others, logits_NV)
        self.suppressed = token_ids(decoder.suppressed_tokens, device)
        self.result_BKT = torch.full((B, K, T), decoder.stop_tokens[0], device=device)
        score_BK = torch.full((B, K), NEVER, device=device)
        first_BK = score_BK.clone()
        first_BK[:, 0] = 0.0
        self.open, self.finished = Beams(self.result_BKT.clone(), first_BK), Beams(self.result_BKT.clone(), score_BK)
        self.done_BK = torch.zeros(B, K, dtype=torch.bool, device=device)
        self.picture_N = torch.arange(B, device=device)
        self.running_N = torch.ones(B, dtype=torch.bool, device=device)
        self.beams = 1  # the K beginnings are one
        self.row_NK = self.picture_N[:, None]

    def choose(self, place: int) -> None:
        """Extends the hypotheses by the tokens at ``place``."""
        K, last = self.decoding.beams, place + 1 == self.decoding.max_tokens
        log_p_NV = suppress(self.logits_NV.float().log_softmax(-1), self.suppressed)
        if self.forces_end and place:
            stopped_N = self.stop_V[self.open.tokens_BKT[:, :, place - 1].flatten()]
            end_V = torch.where(self.end_V, 0.0, 2 * NEVER)
            log_p_NV = torch.where(stopped_N[:, None], end_V, log_p_NV)
        sum_BKV = log_p_NV.unflatten(0, (-1, self.beams)).expand(-1, K, -1) + self.open.score_BK[..., None]
        # A hypothesis finishes where it is among the K best of all, and its picture is still searched.
        best, _ = self.open.grow(place, sum_BKV)
        ended_BK = self.end_V[best.tokens_BKT[:, :, place]]
        length = self.prompt + place if self.counts_all else place + 1
        self._finish(best, ended_BK if self.counts_all else ended_BK | last, length)
        if last and not self.counts_all:
            self.result_BKT[self.picture_N] = self.finished.tokens_BKT
            return
        # The K best that have not ended go on.
        worst_B = torch.where(self.done_BK, self.finished.score_BK.amin(1, keepdim=True), NEVER).amin(1)
        self.open, from_BK = self.open.grow(place, sum_BKV.masked_fill_(self.end_V, 2 * NEVER))
        candidate_B = best.score_BK[:, 0] if self.counts_all else self.open.score_BK[:, 0]
        self.running_N = self.running_N & (candidate_B / max(length, 1) > worst_B)
        if last:
            self._finish(self.open, torch.ones_like(ended_BK), length + 1)
        self.result_BKT[self.picture_N] = self.finished.tokens_BKT
        first_N1 = torch.arange(len(self.picture_N), device=self.picture_N.device)[:, None] * self.beams
        self.row_NK = (first_N1 + (from_BK if self.beams > 1 else 0)).expand(-1, K)

    def _finish(self, hypotheses: Beams, ended_BK: torch.Tensor, length: int) -> None:
        """Keeps the K best of the finished hypotheses and those of ``hypotheses`` that have ended."""
        mean_BK = hypotheses.score_BK / max(length, 1) + ~self.running_N[:, None] * NEVER + ~ended_BK * NEVER
        merged = Beams(
            torch.cat([self.finished.tokens_BKT, hypotheses.tokens_BKT], dim=1),
            torch.cat([self.finished.score_BK, mean_BK], dim=1),
        )
        best_BK = merged.score_BK.topk(self.decoding.beams).indices
        done_BK = torch.cat([self.done_BK, ended_BK & self.running_N[:, None]], dim=1)
        self.finished, self.done_BK = merged.gather(best_BK), done_BK.gather(1, best_BK)

    def keep(self, kept_N: torch.Tensor) -> None:
        """Leaves the other pictures out from now on."""
        self.open, self.finished = (
            Beams(each.tokens_BKT[kept_N], each.score_BK[kept_N]) for each in (self.open, self.finished)
        )
        self.picture_N, self.running_N = self.picture_N[kept_N], self.running_N[kept_N]
        self.done_BK, self.row_NK = self.done_BK[kept_N], self.row_NK[kept_N]

    def decode(self, place: int) -> None:
        """Computes the logits after the tokens at ``place``."""
        self.state, self.beams = self.state.select(self.row_NK.flatten()), self.decoding.beams
        token_N1 = self.open.tokens_BKT[:, :, place].reshape(-1, 1)
        self.logits_NV = self.decoder.compute_logits(self.decoder.decode(self.state, token_N1)[:, -1])

    def result(self, tokens: int) -> torch.Tensor:
        """Returns tokens_RT."""
        return self.result_BKT[:, : self.decoding.samples, :tokens].flatten(0, 1)


class RunningCount:
    """Counts the rows that go on: on a CPU at once; on a GPU all, until a count of none has been copied back."""

    def __init__(self, device: torch.device) -> None:
        self.at_once = device.type != "cuda"
        self.copies: list[tuple[torch.Tensor, torch.cuda.Event]] = []

    def count(self, going_N: torch.Tensor) -> int:
        if self.at_once:
            return int(going_N.sum())
        if any(event.query() and not int(copied) for copied, event in self.copies):
            return 0

        copied = torch.empty((), dtype=torch.long, pin_memory=True)
        copied.copy_(going_N.sum(), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self.copies.append((copied, event))
        return len(going_N)


class StepGraphs:
    """Generates tokens on a GPU by CUDA graphs, one for each token, where a batch has the shapes of an earlier one.

    A small batch waits for the launches of its kernels, hundreds for each token; a graph launches them at once. The
    first batch of some shapes runs as `generate_tokens` does, the second is recorded, and further ones are copied to
    where the recorded kernels read. What the kernels depend on beside their inputs is part of the key: where the
    weights lie, and the mode, decoding and autocast of the model.
    """

    MOST = 4  # shapes that are kept
    SHARE = 0.25  # of the free memory that the inputs of one may take; its steps need about three times as much

    def __init__(self) -> None:
        self.recorded: OrderedDict[Any, RecordedSteps | None] = OrderedDict()
        self.refused = False

    def __call__(
        self,
        captioner: Captioner,
        state: KVCache,
        logits_NV: torch.Tensor,
        decoding: Decoding,
        uniform_RT: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns tokens_RT."""
        loop = make_loop(captioner, state, logits_NV, decoding, uniform_RT)
        cached = [] if self.refused else state.tensors()
        if not cached:
            return generate_tokens(loop, decoding.max_tokens)
        inputs = [*cached, logits_NV, *([] if uniform_RT is None else [uniform_RT])]
        key = self._key(captioner, inputs, decoding)
        known, steps = key in self.recorded, self.recorded.pop(key, None)
        if known and steps is None and self._fits(inputs):
            steps = self._record(captioner, state, inputs, decoding)
        self.recorded[key] = steps
        while len(self.recorded) > self.MOST:
            self.recorded.popitem(last=False)
        return generate_tokens(loop, decoding.max_tokens) if steps is None else steps(inputs)

    def _record(
        self, captioner: Captioner, state: KVCache, inputs: Sequence[torch.Tensor], decoding: Decoding
    ) -> RecordedSteps | None:
        """Returns the steps; None, from then on, where a model does what cannot be recorded, or memory ran out."""
        try:
            return RecordedSteps(captioner, state.with_tensors, inputs, decoding)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())  # it still waits for the end of the recording
            self.refused = True
            self.recorded.clear()
            first = str(error).partition("\n")[0]
            say_once(f"{captioner.name}: its steps are not recorded as CUDA graphs, and run one by one: {first}")
        return None

    def _fits(self, inputs: Sequence[torch.Tensor]) -> bool:
        needed = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
        return needed <= self.SHARE * torch.cuda.mem_get_info(inputs[0].device)[0]

    @staticmethod
    def _key(captioner: Captioner, inputs: Sequence[torch.Tensor], decoding: Decoding) -> Any:
        modules = list(modules_of(captioner.model))
        return (
            *((tuple(tensor.shape), tensor.dtype) for tensor in inputs),
            decoding.model_dump_json(),
            tuple(captioner.stop_tokens),
            tuple(captioner.suppressed_tokens),
            tuple(module.training for module in modules),
            torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None,
            tuple(
                tensor.data_ptr()
                for module in modules
                for tensor in (*module._parameters.values(), *module._buffers.values())
                if tensor is not None
            ),
        )


def modules_of(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yields a module and all within, in a fifth of the time of ``modules()``, which looks for tied ones."""
    yield module
    for child in module._modules.values():
        if child is not None:
            yield from modules_of(child)


class RecordedSteps:
    """The steps of a loop as CUDA graphs that share their memory; called with inputs of the same shapes.

    ``inputs``: the tensors of the decoder's state, the first logits, and the numbers to draw with where tokens are
    drawn. ``with_tensors`` makes a state of the former.
    """

    def __init__(
        self,
        captioner: Captioner,
        with_tensors: Callable[[Sequence[torch.Tensor]], KVCache],
        inputs: Sequence[torch.Tensor],
        decoding: Decoding,
    ) -> None:
        self.inputs = [tensor.clone() for tensor in inputs]
        drawn = decoding.kind not in ("greedy", "beam")
        *cached, logits_NV = self.inputs[:-1] if drawn else self.inputs
        state = with_tensors(cached)
        self.loop = make_loop(captioner, state, logits_NV, decoding, self.inputs[-1] if drawn else None)
        self.beginning = dict(vars(self.loop))  # what the first graph reads is not given back
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.running: list[torch.Tensor] = []
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        torch.clear_autocast_cache()  # weights are cast in the first graph, and not before
        with torch.cuda.stream(stream):
            for place in range(decoding.max_tokens):
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    self.loop.choose(place)
                    if place + 1 < decoding.max_tokens:
                        self.loop.decode(place)
                finally:
                    graph.capture_end()
                self.graphs.append(graph)
                self.running.append(self.loop.running_N)
        torch.clear_autocast_cache()
        torch.cuda.current_stream().wait_stream(stream)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns tokens_RT."""
        torch._foreach_copy_(self.inputs, list(inputs))
        running = RunningCount(self.inputs[0].device)
        for place, graph in enumerate(self.graphs):
            graph.replay()
            if not running.count(self.running[place]):
                break
        return self.loop.result(place + 1).clone()


def to_rollout(tokens_RT: torch.Tensor, tokenizer: Any, stop_tokens: Sequence[int], samples: int) -> Rollout:
    """Returns generated ids as a `Rollout`: valid up to and including the first stop token."""
    is_stop_RT = torch.isin(tokens_RT, torch.tensor(list(stop_tokens), device=tokens_RT.device))
    stops_before_RT = is_stop_RT.long().cumsum(1) - is_stop_RT.long()
    valid_RT = stops_before_RT == 0
    tokens_RT = tokens_RT.masked_fill(~valid_RT, tokenizer.pad_token_id)
    return Rollout(tokens_RT, valid_RT, decode_rows(tokens_RT, valid_RT, tokenizer), samples)


def decode_rows(tokens_RT: torch.Tensor, valid_RT: torch.Tensor, tokenizer: Any) -> list[str]:
    """Returns token rows as caption texts, without special tokens."""
    rows = [row[valid].tolist() for row, valid in zip(tokens_RT.cpu(), valid_RT.cpu(), strict=True)]
    return [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]


@dataclass
class KVCache:
    """State of a language model of transformers for N rows: keys and values, and what else a forward pass needs.

    ``mask_NP``: which positions of the prompts are tokens; None: all. ``position_N1``: the position of the first token,
    where the model does not count by itself. ``encoded_NPD``: an encoder's states. ``decoded``: tokens after the
    prompt.
    """

    cache: Any
    hidden_N1H: torch.Tensor
    prompt_tokens: int
    mask_NP: torch.Tensor | None = None
    position_N1: torch.Tensor | None = None
    encoded_NPD: torch.Tensor | None = None
    encoded_mask_NP: torch.Tensor | None = None
    decoded: int = 0

    def __len__(self) -> int:
        return len(self.hidden_N1H)

    def select(self, row_M: torch.Tensor) -> Self:
        chosen = copy.copy(self)
        chosen.cache = select_rows(self.cache, row_M)
        for name in KVCache.TENSORS:
            if (tensor := getattr(self, name)) is not None:
                setattr(chosen, name, tensor[row_M])
        return chosen

    TENSORS: ClassVar[Sequence[str]] = ("hidden_N1H", "mask_NP", "position_N1", "encoded_NPD", "encoded_mask_NP")

    def tensors(self) -> list[torch.Tensor]:
        """Returns all tensors of the state; none where its cache is of a kind that does not grow token by token."""
        layers = layers_of(self.cache)
        if any(type(layer) is not DynamicLayer for layer in layers):
            return []
        cached = [tensor for layer in layers for tensor in (layer.keys, layer.values)]
        return cached + [tensor for name in self.TENSORS if (tensor := getattr(self, name)) is not None]

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Self:
        """Returns the same state of other `tensors`."""
        rest, chosen = iter(tensors), copy.copy(self)
        chosen.cache = copied_cache(self.cache)
        for layer in layers_of(chosen.cache):
            layer.keys, layer.values = next(rest), next(rest)
        for name in self.TENSORS:
            if getattr(self, name) is not None:
                setattr(chosen, name, next(rest))
        return chosen

    def attention_mask(self, tokens: int) -> torch.Tensor | None:
        """Returns the mask of the prompt, of the tokens after it, and of ``tokens`` more; None where nothing is
        padding."""
        if self.mask_NP is None:
            return None
        return F.pad(self.mask_NP, (0, self.decoded + tokens), value=1)

    def positions(self, tokens: int) -> torch.Tensor:
        """Returns the positions N×T of the next ``tokens``."""
        assert self.position_N1 is not None
        return self.position_N1 + self.decoded + torch.arange(tokens, device=self.position_N1.device)


def select_rows(cache: Any, row_N: torch.Tensor) -> Any:
    """Returns the keys and values of these rows, each as often as it is named; ``cache`` stays as it is."""
    if isinstance(cache, EncoderDecoderCache):
        parts = (cache.self_attention_cache, cache.cross_attention_cache)
        return EncoderDecoderCache(*(select_rows(part, row_N) for part in parts))
    chosen: Cache = copied_cache(cache)
    chosen.batch_select_indices(row_N)
    return chosen


def copied_cache(cache: Any) -> Any:
    """Returns a cache of the same keys and values, which grows by itself."""
    if isinstance(cache, EncoderDecoderCache):
        return EncoderDecoderCache(copied_cache(cache.self_attention_cache), copied_cache(cache.cross_attention_cache))
    chosen: Cache = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    return chosen


def layers_of(cache: Any) -> list[Any]:
    """Returns the layers of a cache, those of an encoder's states last."""
    if isinstance(cache, EncoderDecoderCache):
        return [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    return list(cache.layers)


def no_cache_reason(model: Any) -> str | None:
    """Returns why a model of transformers cannot decode from a KV cache; None where it can."""
    asked = "is_activation_checkpointing"  # its name in newer transformers
    asked = asked if hasattr(type(model), asked) else "is_gradient_checkpointing"
    if not model._supports_default_dynamic_cache() or model._is_stateful:
        return f"a {model.config.model_type} model keeps no keys and values"
    if model.training and getattr(model, asked):
        return "gradient checkpointing keeps no keys and values"
    return None


def explain_no_cache(name: str, reason: str | None) -> bool:
    """Returns whether there is a KV cache, which is where there is no ``reason`` against it; prints one once."""
    if reason is not None:
        say_once(f"{name}: the picture is read again for every caption, because {reason}")
    return reason is None


def hidden_cached(
    captioner: Decoder, state: DecoderState, tokens_RT: torch.Tensor, length_R: torch.Tensor
) -> torch.Tensor:
    """Computes hidden_RTH, teacher-forced, from the state after B pictures; R = B·S, a picture's S rows are adjacent.

    Rows count up to their ``length``; beyond the longest of its group a row's hidden states are zero.
    """
    S = len(tokens_RT) // len(state)
    groups, outputs = length_groups(length_R), []
    for row_N in groups:
        longest = int(length_R[row_N].max()) if len(groups) > 1 else tokens_RT.shape[1]
        rows = state.select(row_N // S)
        hidden_NTH = rows.hidden_N1H
        if longest > 1:
            hidden_NTH = torch.cat([hidden_NTH, captioner.decode(rows, tokens_RT[row_N, : longest - 1])], dim=1)
        outputs.append(F.pad(hidden_NTH, (0, 0, 0, tokens_RT.shape[1] - hidden_NTH.shape[1])))
    return outputs[0] if len(groups) == 1 else torch.cat(outputs)[torch.cat(groups).argsort()]


def length_groups(length_R: torch.Tensor) -> list[torch.Tensor]:
    """Returns the rows in groups of like length; in one on a GPU, where a launch costs more than padding."""
    count = min(GROUPS, len(length_R) // AT_LEAST) if length_R.device.type == "cpu" else 1
    return list(length_R.argsort(stable=True).tensor_split(count)) if count > 1 else [
        torch.arange(len(length_R), device=length_R.device)
    ]  # fmt: skip


@contextmanager
def replaced_forward(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Replaces the forward of ``module``, or what already replaces it, within the context."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before
