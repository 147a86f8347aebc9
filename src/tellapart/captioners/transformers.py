"""Any model that ``AutoModelForImageTextToText`` loads, as a captioner: one adapter for all the families."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
import transformers
from PIL import Image
from torch import nn
from transformers import modeling_outputs
from transformers.models.auto import modeling_auto, processing_auto

from tellapart.captioners.captioner import Captioner, check_room, max_tokens_after
from tellapart.captioners.kv_cache import CACHE, KVCache, explain_no_cache, no_cache_reason, replaced_forward
from tellapart.captioners.load import CAPTIONERS, CaptionerEntry
from tellapart.captioners.packed_pictures import TEXT, Grids, Tiles
from tellapart.captioners.teacher_forcing import hidden_cached
from tellapart.captioners.text_only import TextOnly
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.models.chat import rendered
from tellapart.models.devices import precision_of
from tellapart.models.saved import load_whole, weights_fingerprint
from tellapart.types import Encoder
from tellapart.utils.files import write_sums

INSTRUCTION = "Describe this picture in one sentence."


@dataclass(frozen=True)
class Layout:
    """The parts of a family by the paths of their modules.

    ``output``: which of the vision tower's outputs the rest of the model reads; None where the rest reads more than
    one, so that nothing short of the pixels can stand for a picture. ``prompt`` is what it is asked by default,
    ``template`` what surrounds that where the model has no chat template (``{image}`` is the picture's place).
    ``answers``: the prompt may be any question; else it is the name of a task, or what captions begin with.
    """

    vision: str
    output: str | None = "last_hidden_state"
    mapper: tuple[str, ...] = ()
    language: tuple[str, ...] = ("model.language_model", "lm_head")
    prompt: str = INSTRUCTION
    template: str = "{image}{prompt}"
    answers: bool = False


QFORMER = ("query_tokens", "qformer", "language_projection")
PROJECTOR = ("model.multi_modal_projector",)
LAYOUTS = {
    "blip-2": Layout("vision_model", mapper=QFORMER, language=("language_model",), prompt="", template="{prompt}"),
    "instructblip": Layout(
        "vision_model",
        mapper=QFORMER,
        language=("language_model",),
        prompt="A short image caption.",  # InstructBLIP, appendix C
        template="{prompt}",
        answers=True,
    ),
    "git": Layout(
        "git.image_encoder",
        mapper=("git.visual_projection",),
        language=("git.embeddings", "git.encoder", "output"),
        prompt="",
        template="{prompt}",
    ),
    "paligemma": Layout("model.vision_tower", mapper=PROJECTOR, prompt="caption en"),
    "gemma3": Layout("model.vision_tower", mapper=PROJECTOR),
    "llava": Layout(
        "model.vision_tower",
        "hidden_states",
        mapper=PROJECTOR,
        template="USER: {image}\n{prompt} ASSISTANT:",
        answers=True,
    ),
    "llava_next": Layout(
        "model.vision_tower",
        "hidden_states",
        mapper=("model.multi_modal_projector", "model.image_newline"),
        template="USER: {image}\n{prompt} ASSISTANT:",
        answers=True,
    ),
    "florence2": Layout(
        "model.vision_tower",
        mapper=PROJECTOR,
        prompt="<CAPTION>",  # its processor writes the picture's token and the question of a task
        template="{prompt}",
    ),
    "qwen2_vl": Layout("model.visual", "pooler_output"),
    "qwen2_5_vl": Layout("model.visual", "pooler_output"),
    "glm4v": Layout("model.visual", "pooler_output"),
    "aya_vision": Layout("model.vision_tower", "hidden_states", mapper=PROJECTOR),
    "deepseek_vl": Layout("model.vision_model", mapper=("model.aligner",)),
    "janus": Layout("model.vision_model", mapper=("model.aligner",)),
    "vision-encoder-decoder": Layout(
        "encoder", mapper=("enc_to_dec_proj",), language=("decoder",), prompt="", template="{prompt}"
    ),
}

# Of families without a line above: what their parts are usually called, the first that is there.
VISION = ("model.vision_tower", "model.vision_model", "model.visual", "model.vision_encoder", "vision_model", "encoder")
MAPPERS = (
    "model.multi_modal_projector",
    "model.image_newline",
    "model.connector",
    "model.aligner",
    "model.projector",
    "model.visual_embeddings_table",
    "model.embed_vision",
    "image_to_text_projection",
)
LANGUAGE = ("model.language_model", "model.text_model", "language_model", "text_model", "decoder")


def layout_of(model: Any) -> Layout:
    """The family's layout; of an unknown family what the names show, with pixels as the picture."""
    layout = LAYOUTS.get(model.config.model_type)
    if layout is None:
        return Layout(
            first(model, VISION),
            None,
            present(model, MAPPERS),
            (*first_of(model, LANGUAGE), *present(model, ("lm_head",))),
        )
    if layout.output == "hidden_states" and not isinstance(model.config.vision_feature_layer, int):
        return Layout(layout.vision, None, layout.mapper, layout.language, layout.prompt, layout.template)
    return layout


def first_of(model: nn.Module, paths: tuple[str, ...]) -> tuple[str, ...]:
    return present(model, paths)[:1]


def first(model: nn.Module, paths: tuple[str, ...]) -> str:
    return next(iter(present(model, paths)), "")


def present(model: nn.Module, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``paths`` that this model has."""
    return tuple(path for path in paths if find_module(model, path) is not None)


def find_module(model: Any, path: str) -> Any:
    for name in path.split("."):
        model = getattr(model, name, None)
    return model


class Group(nn.Module):
    """Modules and parameters from several places of a model, under one roof.

    What replaces one of them here (LoRA does) also replaces it in the model.
    """

    def __init__(self, model: nn.Module, paths: tuple[str, ...]) -> None:
        super().__init__()
        self.homes: dict[str, Any] = {}
        for path in present(model, paths):
            parent, _, name = path.rpartition(".")
            setattr(self, name, find_module(model, path))
            self.homes[name] = (model.get_submodule(parent), name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.__dict__.get("homes", {}):
            home, attribute = self.homes[name]
            setattr(home, attribute, value)


def prompt_text(layout: Layout, prompt: str | None, processor: Any, image: str) -> str:
    """The text before a caption, the picture's token ``image`` in it: by the chat template where there is one."""
    asked = layout.prompt if prompt is None else prompt
    if getattr(processor, "chat_template", None):
        content = [{"type": "image"}, {"type": "text", "text": asked}]
        turns = [{"role": "user", "content": content}]
        return str(rendered(processor.tokenizer.name_or_path, processor, turns))
    return layout.template.format(image=image, prompt=asked)


def image_token(processor: Any, config: Any) -> str:
    """The token that stands for a picture in a text; empty where there is none."""
    places = placeholders(config)
    return str(processor.tokenizer.convert_ids_to_tokens(places[0])) if places else ""


def picture_marker(layout: Layout, processor: Any, config: Any) -> str | None:
    """Returns what stands for a picture in the text that ``processor`` is given; None where texts name no picture."""
    text = prompt_text(layout, None, processor, image_token(processor, config))
    names = ("image_token", "boi_token")
    usual = [getattr(owner, name, None) for name in names for owner in (processor, processor.tokenizer)]
    return next((str(each) for each in (*usual, image_token(processor, config)) if each and str(each) in text), None)


def placeholders(config: Any) -> list[int]:
    """Ids of the tokens in whose place the model reads a picture, the usual one first: never part of a caption."""
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index", "audio_token_id")
    ids = [getattr(config, name, None) for name in names]
    ids += getattr(config, "visual_indicator_token_ids", ())  # Ovis' marks of the edges of tiles
    return list(dict.fromkeys(int(i) for i in ids if i is not None))


def padded_left(rows: list[list[int]], fill: int) -> torch.Tensor:
    """Rows of ids R×L, each at the right end of its row."""
    width = max(map(len, rows))
    return torch.tensor([[fill] * (width - len(row)) + row for row in rows])


def load_any(where: str, kind: str, name: str, dtype: torch.dtype) -> tuple[Any, type[Captioner], Any, Any]:
    """Loads a model that ``AutoModelForImageTextToText`` or ``AutoModelForCausalLM`` knows.

    Returns it with the class of its captioner, its tokenizer, and its whole processor: None where it sees no pictures.
    Raises `TellapartError` for a model of any other kind.
    """
    if kind in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        model = load_whole(transformers.AutoModelForImageTextToText, where, dtype=dtype)
        whole = whole_processor(where, model.config)
        return model, Hf, whole.tokenizer, whole
    if kind not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise TellapartError(f"{name} is a {kind} model, which is not a supported captioner{nearest(kind, CAPTIONERS)}")
    model = load_whole(transformers.AutoModelForCausalLM, where, dtype=dtype)
    tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    return model, TextOnly, tokenizer, None


def whole_processor(where: str, config: Any) -> Any:
    """A folder's (or hub name's) processor of pictures and text.

    A processor of videos needs torchvision, which nothing here uses: it is left out. Where a family has no processor
    of its own, tokenizer and picture processor stand in for one. Raises what transformers raises for missing files.
    """
    pictures = transformers.AutoImageProcessor.from_pretrained(where, backend="pil", trust_remote_code=False)
    if type(config) not in processing_auto.PROCESSOR_MAPPING:
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        return Pair(image_processor=pictures, tokenizer=tokenizer)
    family: Any = processing_auto.PROCESSOR_MAPPING[type(config)]
    whole = without_videos(family).from_pretrained(where, trust_remote_code=False)
    whole.image_processor = pictures
    return whole


class Pair(SimpleNamespace):
    """A tokenizer and a picture processor that no processor of transformers holds together."""

    def save_pretrained(self, folder: Any) -> None:
        for part in (self.tokenizer, self.image_processor):
            part.save_pretrained(folder)


def without_videos(family: Any) -> Any:
    """The class of a processor as it is for pictures alone, by the same name."""
    whole = family.get_attributes()
    if "video_processor" not in whole:
        return family
    kept = [name for name in whole if name != "video_processor"]
    module = vars(sys.modules[family.__module__])
    if module.get("num2words", True) is None:  # SmolVLM asks for this package, for the length of a video in words
        module["num2words"] = str

    def arguments(cls: Any, *names: Any, **settings: Any) -> list[Any]:
        found: list[Any] = family._get_arguments_from_pretrained.__func__(cls, *names, **settings)
        return [*found[: whole.index("video_processor")], None, *found[whole.index("video_processor") :]]

    def made(self: Any, *parts: Any, **named: Any) -> None:
        named |= dict(zip(whole, parts, strict=False))
        named.pop("video_processor", None)
        transformers.ProcessorMixin.__init__(self, **named)

    base = type("ProcessorWithoutVideos", (transformers.ProcessorMixin,), {"__init__": made})
    members = {
        "get_attributes": classmethod(lambda cls: kept),
        "_get_arguments_from_pretrained": classmethod(arguments),
        "video_processor": SimpleNamespace(num_frames=None, fps=None),  # what SmolVLM's chat template asks of it
    }
    return type(family.__name__, (family, base), members)


class PicturePrompt:
    """The prompt ``text`` (None: the layout's own) of a model, as its ``processor`` of pictures and text writes it.

    ``accepted``: the names of inputs that the model takes. ``blank`` makes a picture without content. ``places`` are
    the ids of tokens that stand for a picture's; they are never part of a caption.
    """

    def __init__(
        self,
        config: Any,
        processor: Any,
        layout: Layout,
        text: str | None,
        accepted: Collection[str],
        blank: Callable[[], Image.Image],
        tiles: Tiles | None = None,
    ) -> None:
        self.config, self.processor, self.layout, self.text = config, processor, layout, text
        self.tokenizer: Any = processor.tokenizer
        self.accepted, self.blank, self.places, self.tiles = accepted, blank, placeholders(config), tiles

    @property
    def written(self) -> str:
        """The prompt as the processor is given it."""
        return prompt_text(self.layout, self.text, self.processor, image_token(self.processor, self.config))

    @cached_property
    def of_blank(self) -> dict[str, torch.Tensor]:
        """Returns what the model reads of one blank picture and the prompt, but for the pixels."""
        if self.config.model_type == "vision-encoder-decoder":
            return {}
        if self.config.model_type == "git":  # its tokenizer would end the text before the caption
            ids = self.tokenizer(self.text or "", add_special_tokens=False)["input_ids"]
            ids = torch.tensor([[self.tokenizer.cls_token_id, *ids]])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if hasattr(self.processor, "num_query_tokens"):
            self.processor.num_query_tokens = self.config.num_query_tokens
        text = self.written
        begun = {"add_special_tokens": False} if text.startswith(self.tokenizer.bos_token or "\0") else {}
        read = self.processor(images=[self.blank()], text=[text], return_tensors="pt", **begun)
        return {name: x for name, x in read.items() if name in self.accepted and name != "pixel_values"}

    @cached_property
    def blank_ids(self) -> list[int]:
        """The ids in `of_blank` that stand for the blank picture."""
        ids: list[int] = self.of_blank["input_ids"][0].tolist()
        if self.tiles is None:
            return [i for i in ids if i == self.places[0]]
        read = self.tiles.read(self.blank())
        own: list[int] = read["input_ids"][0].tolist()
        same = all(torch.equal(read[name], x) for name, x in self.of_blank.items() if name not in TEXT)
        if not same or not any(ids[at : at + len(own)] == own for at in range(len(ids))):
            raise TellapartError(
                f"a {self.config.model_type} model reads a picture in another way with its prompt than alone; expected "
                "a family of docs/captioners.md, or write a captioner of your own around it"
            )
        return own

    def with_picture(self, picture: Sequence[int]) -> list[int]:
        """The prompt's ids with the ids ``picture`` in the blank picture's place."""
        ids, own = self.of_blank["input_ids"][0].tolist(), self.blank_ids
        at = next(at for at in range(len(ids)) if ids[at : at + len(own)] == own)
        return [*ids[:at], *picture, *ids[at + len(own) :]]

    def rows(self, pictures: Sequence[Sequence[int]], device: torch.device) -> dict[str, torch.Tensor]:
        """The prompt for R ``pictures``, given by their ids, aligned at the right."""
        rows = [self.with_picture(picture) for picture in pictures]
        ids_RP = padded_left(rows, self.tokenizer.pad_token_id)
        inputs = {"input_ids": ids_RP, "attention_mask": padded_left([[1] * len(row) for row in rows], 0)}
        kinds = {name: (ids_RP == self.places[0]).int() for name in TEXT[2:] if name in self.of_blank}
        return {name: x.to(device) for name, x in (inputs | kinds).items()}


VISUAL_TOKENS = 256
TOLERANCE = 1e-3  # of outputs after a cached prompt, in float32


def identity(states: torch.Tensor) -> torch.Tensor:
    return states


class PicturesOfHf(Captioner):
    """The half of `hf.Hf` that reads pictures. ``processor`` is the whole one, of pictures and text."""

    pixels_in_threads = True

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str, visual_tokens: int | None) -> None:
        super().__init__(model, tokenizer, processor.image_processor, name)
        self.whole, self.visual_tokens = processor, visual_tokens or VISUAL_TOKENS
        self.layout = layout_of(model)
        self.tower: Any = find_module(model, self.layout.vision) if self.layout.output and self.layout.vision else None
        most = Grids.limit(self.processor)
        self.grids = Grids.of(self.processor, self.visual_tokens)
        self.accepted = set(inspect.signature(model.forward).parameters) - {"labels"}
        marker = None if self.grids is not None else picture_marker(self.layout, processor, model.config)
        self.tiles = None if marker is None else Tiles.of(processor, marker, self.accepted, always=self.tower is None)
        if visual_tokens is not None and (self.grids is None or visual_tokens < 4):
            told = "its pictures have one shape; leave it out" if self.grids is None else "expected at least 4"
            raise UsageError(f"{name}: visual_tokens is {visual_tokens}; {told}")
        if visual_tokens is not None and most is not None and visual_tokens > most:
            raise UsageError(
                f"{name}: visual_tokens is {visual_tokens}, and its processor makes at most {most}, as it was saved; "
                "name the model that it was made of, or raise size in its preprocessor_config.json"
            )

    @property
    def encoder(self) -> Encoder:
        if self.tower is not None:
            return super().encoder

        pixels_only = weights_fingerprint(torch.nn.Module(), self.processor, f"pixels {self.view}")
        precision = precision_of(self.model)
        return Encoder(pixels_only, self.pixels, self._encode_frozen, precision=precision, name=self.name)

    @property
    def makes_features(self) -> bool:
        return self.tower is not None

    @property
    def view(self) -> str:
        layer = self.model.config.vision_feature_layer if self.layout.output == "hidden_states" else ""
        rows = f"{self.visual_tokens}" if self.grids else self.tiles.key if self.tiles else ""
        return " ".join(filter(None, (self.layout.output, f"{layer}", rows)))

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        if self.grids is not None:
            return torch.stack([self.grids.pack_picture(image, self.processor) for image in images])
        if self.tiles is not None:
            return torch.stack([self.tiles.pack_picture(image) for image in images])
        rows = [self.processor(images=[image], return_tensors="pt")["pixel_values"] for image in images]
        other = next((row for row in rows if row.shape != self._row_shape), None)
        if other is not None:
            raise TellapartError(
                f"{self.name} makes {tuple(other.shape)} of one picture and {tuple(self._row_shape)} of another, and "
                "its processor has no token that stands for a picture; expected a family of docs/captioners.md"
            )
        return torch.cat(rows)

    def blank_visual(self) -> torch.Tensor:
        """Returns what `encode` gives of one blank picture."""
        return self._encode_frozen(self.pixels([self.blank()]))

    def blank(self) -> Image.Image:
        """A picture without content."""
        if self.tiles is not None:
            return Image.new("RGB", self.tiles.blank)
        side = self.grids.side if self.grids else 64
        return Image.new("RGB", (side, side))

    @cached_property
    def _row_shape(self) -> torch.Size:
        """1×… : what the processor makes of one picture."""
        shape = self.processor(images=[self.blank()], return_tensors="pt")["pixel_values"].shape
        return torch.Size([1, *shape[1:]])

    def inputs(self, visual: torch.Tensor) -> torch.Tensor:
        packed = self.grids is not None or self.tiles is not None  # with shapes, which do not survive bf16
        return visual.to(self.device) if packed else super().inputs(visual)

    @property
    def lengths_differ(self) -> bool:  # type: ignore[override]
        return self.grids is not None or (self.tiles is not None and self.tiles.light)

    def input_lengths(self, visual: torch.Tensor) -> list[int] | None:
        if self.tiles is not None:
            return visual[:, 0].round().long().tolist()
        return None if self.grids is None else self.grids.tokens(visual[:, 0, :3].round().long())

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """The tower's output B×patches×D; packed rows where pictures keep their shapes."""
        pixels = self.inputs(pixels_BCHW)
        if self.tower is None:
            return pixels
        if self.grids is not None:
            grid_B3, cells = self.grids.unpack(pixels, merged=False)
            states = self.tower(cells.to(self.dtype), grid_thw=grid_B3).pooler_output
            return self.grids.pack_cells(grid_B3, states)
        if self.tiles is not None:
            return self.tiles.encoded(pixels, lambda tiles: self._states(tiles.to(self.dtype)))
        return self._states(pixels)

    def _states(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """That output of the tower which the rest of the model reads, B×patches×D."""
        if self.layout.output == "hidden_states":
            layer = self.model.config.vision_feature_layer
            states_BPD: torch.Tensor = self.tower(pixels_BCHW, output_hidden_states=True).hidden_states[layer]
        else:
            states_BPD = self.tower(pixels_BCHW).last_hidden_state
        return states_BPD

    @contextmanager
    def _precomputed_vision(self) -> Iterator[None]:
        """For the moment the tower hands on what it is given, which is what it gave before."""
        try:
            with replaced_forward(self.tower, self._pass_through) if self.tower is not None else nullcontext():
                yield
        except ValueError as error:
            if "do not match" not in str(error):  # the words of transformers for too few or too many places
                raise
            raise TellapartError(f"{self.name}: its processor does not fit the model: {error}") from None

    def _pass_through(self, pixel_values: torch.Tensor, **_: Any) -> Any:
        states = pixel_values if self.grids else pixel_values.squeeze(1)
        read: dict[str, Any] = {} if self.grids else {"last_hidden_state": states}
        if self.layout.output == "hidden_states":
            read["hidden_states"] = (states,) * (self.tower.config.num_hidden_layers + 1)
        if self.grids:
            read["pooler_output"] = states
        return modeling_outputs.BaseModelOutputWithPooling(**read)


class Hf(PicturesOfHf):
    """BLIP-2, InstructBLIP, GIT, PaliGemma, LLaVA, Qwen-VL and their kin.

    ``visual`` is what the vision tower gives (B×patches×D), so that a picture is encoded once while the projector
    behind the tower still learns. Of a family whose layout is not known (`layouts`) it is the pixels themselves, and
    the tower runs in every step. Where pictures keep their own shapes (Qwen-VL) rows are as `grids` packs them, of at
    most ``visual_tokens`` tokens a picture; where they are cut into tiles or of an unknown family, as `tiles` does.

    ``prompt``: what the model is asked, put into its chat template where it has one. Captions are what it answers:
    no loss is on the prompt or the picture's tokens, and the latter are never written.
    """

    options: ClassVar = {"prompt": str, "visual_tokens": int}

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        processor: Any,
        name: str,
        prompt: str | None = None,
        visual_tokens: int | None = None,
    ) -> None:
        """``processor`` is the whole one, of pictures and text."""
        super().__init__(model, tokenizer, processor, name, visual_tokens)
        self.text_config = model.config.get_text_config(decoder=True)
        self.is_encoder_decoder = bool(
            model.config.is_encoder_decoder or getattr(self.text_config, "is_encoder_decoder", False)
        )
        self.set_prompt(prompt)
        self.places = self.before.places

    def set_prompt(self, prompt: str | None) -> None:
        config = self.model.config
        if prompt and config.model_type == "vision-encoder-decoder":
            raise UsageError(f"{self.name}: this model reads pictures alone; leave prompt out")
        self.prompt = prompt
        self.before = PicturePrompt(config, self.whole, self.layout, prompt, self.accepted, self.blank, self.tiles)

    def _inputs(self, visual: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns what the model reads of R pictures from their rows in ``visual``, prompts aligned at their right
        ends.
        """
        if self.tiles is not None:
            ids, tensors = self.tiles.unpack(visual)
            inputs = self.before.rows([row.tolist() for row in ids], self.device)
            inputs |= self.tiles.batch(tensors, self.dtype)
            if self.tower is not None:  # for `_pass_through`
                inputs["pixel_values"] = inputs["pixel_values"].unsqueeze(-3)
            return inputs
        if self.grids is None:
            asked = self.before.of_blank
            inputs = {name: x.to(self.device).repeat(len(visual), *[1] * (x.ndim - 1)) for name, x in asked.items()}
            visual = self.inputs(visual)
            return {**inputs, "pixel_values": visual.unsqueeze(1) if self.tower is not None else visual}
        grid_R3, cells = self.grids.unpack(visual, merged=self.tower is not None)
        inputs = self.before.rows([[self.places[0]] * count for count in self.grids.tokens(grid_R3)], self.device)
        return {**inputs, "image_grid_thw": grid_R3, "pixel_values": cells.to(self.dtype)}

    # Captions
    @cached_property
    def ends(self) -> list[int]:
        """The model's own end tokens, the one that captions are taught with first."""
        whose: Any = (self.model.generation_config, getattr(self.model, "language_model", None), self.text_config)
        settings = [getattr(owner, "generation_config", owner) for owner in whose]
        ids = next((s.eos_token_id for s in settings if getattr(s, "eos_token_id", None) is not None), None)
        ids = [ids] if isinstance(ids, int) else list(ids or [self.tokenizer.eos_token_id])
        usual = [i for i in ids if i == self.tokenizer.eos_token_id]
        return usual + [i for i in ids if i not in usual]

    @property
    def end(self) -> int:
        return self.ends[0]

    @property
    def stop_tokens(self) -> list[int]:
        return [*self.ends, *self._stop_ids]

    @property
    def suppressed_tokens(self) -> Sequence[int]:
        return [*self.places, *self.gaps]

    @property
    def max_caption_tokens(self) -> int | None:
        if self.is_encoder_decoder:
            return max_tokens_after(self.text_config, self._begun(1).shape[1])
        before = self.before.of_blank["input_ids"].shape[1]
        if self.grids is not None:  # of another shape a picture may take more places than the blank one did
            before += self.visual_tokens - len(self.before.blank_ids)
        if self.tiles is not None:
            before += self.tiles.most_tokens - len(self.before.blank_ids)
        return max_tokens_after(self.text_config, before)

    def _caption_rows(self, texts: Sequence[str]) -> list[list[int]]:
        return [[i for i in row if i not in self.places] for row in super()._caption_rows(texts)]

    @cached_property
    def _last_layer(self) -> Any:
        return self.model.get_output_embeddings()

    @cached_property
    def plain(self) -> bool:
        """Returns whether scores are nothing but the output layer of the states before it (some models squash or
        scale).
        """
        if hasattr(self._last_layer, "base_layer"):
            return False  # LoRA stands beside it
        device = self.device.type
        training = self.model.training
        self.model.eval()
        with torch.no_grad(), torch.autocast(device, enabled=False):
            visual = self.blank_visual()
            tokens_RT = torch.tensor([[self.end, self.end]], device=self.device)
            scores_RTV = self._run(visual, tokens_RT, torch.ones_like(tokens_RT).bool())
            with replaced_forward(self._last_layer, identity):
                states_RTH = self._run(visual, tokens_RT, torch.ones_like(tokens_RT).bool())
            layer: Any = self._last_layer
            gap = 1e-4 if self.dtype == torch.float32 else 2e-2
            equal = states_RTH.shape[-1] == layer.weight.shape[1] and torch.allclose(
                F.linear(states_RTH, layer.weight, layer.bias).float(), scores_RTV.float(), rtol=gap, atol=gap
            )
        self.model.train(training)
        return bool(equal)

    @property
    def output_layer(self) -> Any:
        return self._last_layer if self.plain else None

    @property
    def caches(self) -> bool:
        reason = no_cache_reason(self.model)
        if reason is None and self.model.config.model_type not in LAYOUTS and not self.cache_is_right:
            reason = "after a cached prompt its outputs are others"
        return explain_no_cache(self.name, reason)

    @cached_property
    def cache_is_right(self) -> bool:
        """Returns whether outputs after a cached prompt are those of one pass, for two captions of a blank picture.

        Families with a layout are tested to give the same outputs; any other is tried.
        """
        training = self.model.training
        self.model.eval()
        tokens_RT = torch.full((2, 3), self.end, device=self.device)
        valid_RT = torch.ones_like(tokens_RT, dtype=torch.bool)
        try:
            with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
                visual = self.blank_visual()
                plain_RTH = self.hidden_uncached(visual, tokens_RT, valid_RT).float()
                cached_RTH = hidden_cached(self, self.prefill(visual, 3), tokens_RT, valid_RT.sum(1)).float()
            gap = TOLERANCE if self.model.dtype == torch.float32 else 100 * TOLERANCE
            return torch.allclose(cached_RTH, plain_RTH, rtol=gap, atol=gap)
        except Exception:  # a family that nobody has tried raises anything
            return False
        finally:
            self.model.train(training)

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        visual_R = visual.repeat_interleave(len(tokens_RT) // len(visual), dim=0)
        with self.without_head():
            return self._run(visual_R, tokens_RT, valid_RT)

    def without_head(self) -> AbstractContextManager[None]:
        """For the moment the model's output is what its output layer reads, where `head` says that this is enough."""
        return replaced_forward(self._last_layer, identity) if self.plain else nullcontext()

    def _run(self, visual_R: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """The model's output at the T positions that score ``tokens``."""
        inputs, T = self._inputs(visual_R), tokens_RT.shape[1]
        with self._precomputed_vision():
            if self.is_encoder_decoder:
                inputs["decoder_input_ids"] = torch.cat([self._begun(len(tokens_RT)), tokens_RT[:, :-1]], dim=1)
            else:
                check_room(self.text_config, inputs["input_ids"].shape[1], T)
                inputs = {name: self._longer(name, x, tokens_RT, valid_RT) for name, x in inputs.items()}
            logits_RTV: torch.Tensor = self.model(**inputs, use_cache=False).logits[:, -T:]
            return logits_RTV

    def _longer(self, name: str, x: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """An input of the prompt with that of the caption after it; the last token of a caption is not read."""
        if name == "input_ids":
            return torch.cat([x, tokens_RT[:, :-1]], dim=1)
        if name == "attention_mask":
            return torch.cat([x, valid_RT[:, :-1].to(x.dtype)], dim=1)
        if name in ("token_type_ids", "mm_token_type_ids"):
            of_text = int(self.model.config.model_type == "paligemma")  # 0 there is the prefix, which sees itself whole
            return torch.cat([x, x.new_full((len(x), tokens_RT.shape[1] - 1), of_text)], dim=1)
        return x

    def _begun(self, rows: int) -> torch.Tensor:
        """Returns what a decoder has read before a caption: where it starts, and the token that it must begin with
        (BART).
        """
        owners = (self.model, getattr(self.model, "language_model", None))
        settings = [getattr(owner, "generation_config", None) for owner in owners]
        settings += [self.model.config, self.text_config]
        names = ("decoder_start_token_id", "forced_bos_token_id")
        found = [[x for s in settings if (x := getattr(s, name, None)) is not None] for name in names]
        begun = [values[0] for values in found if values]
        return torch.tensor([begun] * rows, device=self.device)

    @property
    def pads_prompts(self) -> bool:
        """Returns whether pictures take different numbers of places, so that shorter prompts are padded at the left."""
        return self.grids is not None or self.tiles is not None

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> KVCache:
        inputs = self._inputs(visual)
        if self.is_encoder_decoder:
            inputs["decoder_input_ids"] = self._begun(len(visual))
        else:
            check_room(self.text_config, inputs["input_ids"].shape[1], max_tokens)
        last = {"logits_to_keep": 1} if "logits_to_keep" in self.accepted else {}
        with self.without_head(), self._precomputed_vision():
            output = self.model(**inputs, **last, use_cache=True)
        inner = getattr(output, "language_model_outputs", None) or output
        read_BP = inputs["decoder_input_ids" if self.is_encoder_decoder else "input_ids"]
        state = KVCache(getattr(inner, CACHE), output.logits[:, -1:], read_BP.shape[1])
        mask_BP = inputs.get("attention_mask")
        if self.is_encoder_decoder:
            state.encoded_NPD, state.encoded_mask_NP = inner.encoder_last_hidden_state, mask_BP
            return state
        if mask_BP is not None and self.pads_prompts:
            state.mask_NP = mask_BP
        if self.model.config.model_type == "git":  # the picture has no places in the text
            state.position_N1 = torch.full((len(visual), 1), inputs["input_ids"].shape[1], device=self.device)
        deltas_B1 = getattr(self.model.base_model, "rope_deltas", None)
        if "image_grid_thw" in inputs and deltas_B1 is not None:
            assert mask_BP is not None
            state.position_N1 = mask_BP.sum(1, keepdim=True) + deltas_B1
        return state

    def decode(self, state: KVCache, tokens_NT: torch.Tensor) -> torch.Tensor:
        model, more = self.model, {CACHE: state.cache, "use_cache": True}
        with self.without_head():
            if self.is_encoder_decoder:
                hidden_NTH = self._decode_beside_encoder(state, tokens_NT, more)
            else:
                if (mask_NP := state.attention_mask(tokens_NT.shape[1])) is not None:
                    more["attention_mask"] = mask_NP
                if state.position_N1 is not None:
                    position_NT = state.positions(tokens_NT.shape[1])
                    axes = self.grids is not None  # time, height and width, which are one for words
                    more["position_ids"] = position_NT.expand(3, -1, -1) if axes else position_NT
                if hasattr(model.config, "num_query_tokens"):  # BLIP-2 and InstructBLIP want a picture each time
                    model = model.language_model
                hidden_NTH = model(input_ids=tokens_NT, **more).logits
        state.decoded += tokens_NT.shape[1]
        return hidden_NTH

    def _decode_beside_encoder(self, state: KVCache, tokens_NT: torch.Tensor, more: dict[str, Any]) -> torch.Tensor:
        """Computes `decode` of an encoder-decoder, whose encoder's keys and values are in the cache."""
        model = self.model
        if model.config.model_type == "vision-encoder-decoder":
            output = model.decoder(input_ids=tokens_NT, encoder_hidden_states=state.encoded_NPD, **more)
        else:
            output = getattr(model, "language_model", model)(
                decoder_input_ids=tokens_NT,
                encoder_outputs=modeling_outputs.BaseModelOutput(last_hidden_state=state.encoded_NPD),
                attention_mask=state.encoded_mask_NP,
                **more,
            )
        logits_NTV: torch.Tensor = output.logits
        return logits_NTV

    # The rest
    def parts(self) -> dict[str, torch.nn.Module]:
        layout, parts = self.layout, {}
        if layout.vision:
            parts["vision"] = find_module(self.model, layout.vision)
        if any(find_module(self.model, path) is not None for path in layout.mapper):
            parts["mapper"] = Group(self.model, layout.mapper)
        parts["language_model"] = (
            Group(self.model, layout.language) if first(self.model, layout.language) else self.model
        )
        return parts

    def save(self, folder: str | Path) -> None:
        super().save(folder)
        self.whole.save_pretrained(folder)
        write_sums(Path(folder))


CAPTIONERS.register(
    CaptionerEntry(name="transformers", factory=load_any, help="Any other model that describes pictures or writes.")
)
