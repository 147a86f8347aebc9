"""Tiny models of the families of vision-language models, random weights, saved in their real layouts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForImageTextToText,
    BlipImageProcessorPil,
    CLIPImageProcessorPil,
    GenerationConfig,
    PreTrainedTokenizerFast,
    SiglipImageProcessorPil,
)

WORDS = "a red dog on the green grass cat sits near blue house picture of describe this in one sentence . caption en"
SMALL: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION: dict[str, Any] = {**SMALL, "image_size": 32, "patch_size": 16}
DROPLESS: dict[str, Any] = {"attention_dropout": 0.0, "dropout": 0.0}


def tokenizer(
    special: dict[str, str],
    *,
    extra: tuple[str, ...] = (),
    named: dict[str, str] | None = None,
    before: str | None = None,
    after: str | None = None,
) -> PreTrainedTokenizerFast:
    """Whole words; ``before`` and ``after`` stand around every text, as the families have it.

    ``named``: further special tokens that the tokenizer knows by name.
    """
    words = list(dict.fromkeys([*special.values(), *extra, *(named or {}).values(), *WORDS.split()]))
    vocabulary = {word: place for place, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = " ".join(filter(None, [before, "$A", after]))
    around = [(token, vocabulary[token]) for token in dict.fromkeys(filter(None, [before, after]))]
    made.post_processor = processors.TemplateProcessing(single=wrapped, special_tokens=around)
    more: Any = named if named else list(extra)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, **special, extra_special_tokens=more, clean_up_tokenization_spaces=False
    )


def id_of(words: Any, token: str) -> int:
    return int(words.convert_tokens_to_ids(token))


LLAMA = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def decoder(kind: str, words: Any, **more: Any) -> dict[str, Any]:
    """The settings of a tiny language model with this tokenizer."""
    return {
        "model_type": kind, **SMALL, "num_key_value_heads": 2, "vocab_size": len(words) + 3, "head_dim": 8,
        "max_position_embeddings": 512, "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id, **more,
    }  # fmt: skip


def qformer() -> dict[str, Any]:
    return {
        **SMALL,
        "vocab_size": 40,
        "encoder_hidden_size": 16,
        "max_position_embeddings": 32,
        "cross_attention_frequency": 1,
    }


def save(folder: Path, config: Any, processor: Any, seed: int = 0) -> Path:
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config)
    with torch.no_grad():  # as they come, random weights say one word whatever they see
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator(name, seed)) * 0.4)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def generator(name: str, seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(sum(map(ord, name)) + seed)


def blip2(folder: Path) -> Path:
    from transformers import Blip2Config, Blip2Processor

    words = tokenizer(
        {"unk_token": "<unk>", "bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"}, before="</s>"
    )
    words.add_tokens(["<image>"], special_tokens=True)
    processor = Blip2Processor(BlipImageProcessorPil(size={"height": 32, "width": 32}), words, num_query_tokens=4)
    opt = decoder("opt", words, ffn_dim=32, word_embed_proj_dim=16, eos_token_id=id_of(words, "."), **DROPLESS)
    config = Blip2Config(
        vision_config=VISION, qformer_config=qformer(), text_config=opt, num_query_tokens=4,
        image_token_index=id_of(words, "<image>"),
    )  # fmt: skip
    return save(folder, config, processor)


def blip2_t5(folder: Path) -> Path:
    """With a language model of two sides, as FLAN-T5."""
    from transformers import Blip2Config, Blip2Processor

    words = tokenizer(
        {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}, after="</s>"
    )
    words.add_tokens(["<image>"], special_tokens=True)
    processor = Blip2Processor(BlipImageProcessorPil(size={"height": 32, "width": 32}), words, num_query_tokens=4)
    t5 = {
        "model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0,
        "vocab_size": len(words) + 3, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id,
        "decoder_start_token_id": words.pad_token_id,
    }  # fmt: skip
    config = Blip2Config(
        vision_config=VISION, qformer_config=qformer(), text_config=t5, num_query_tokens=4,
        image_token_index=id_of(words, "<image>"),
    )  # fmt: skip
    return save(folder, config, processor)


def instructblip(folder: Path) -> Path:
    from transformers import InstructBlipConfig, InstructBlipProcessor

    words = tokenizer(LLAMA, before="<s>")
    words.add_tokens(["<image>"], special_tokens=True)
    asking = tokenizer(
        {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
        before="[CLS]",
        after="[SEP]",
    )
    pictures = BlipImageProcessorPil(size={"height": 32, "width": 32})
    processor = InstructBlipProcessor(pictures, words, asking, num_query_tokens=4)
    config = InstructBlipConfig(
        vision_config=VISION, qformer_config=qformer(), text_config=decoder("llama", words), num_query_tokens=4,
        image_token_index=id_of(words, "<image>"),
    )  # fmt: skip
    return save(folder, config, processor)


def git(folder: Path) -> Path:
    from transformers import GitConfig, GitProcessor

    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    words = tokenizer(special, before="[CLS]", after="[SEP]")
    config = GitConfig(
        vision_config=VISION, **SMALL, vocab_size=len(words), max_position_embeddings=64, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, bos_token_id=words.cls_token_id, eos_token_id=words.sep_token_id,
        pad_token_id=words.pad_token_id,
    )  # fmt: skip
    pictures = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return save(folder, config, GitProcessor(pictures, words))


def paligemma(folder: Path) -> Path:
    from transformers import PaliGemmaConfig, PaliGemmaProcessor

    special = {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    words = tokenizer(special, before="<bos>")
    pictures = SiglipImageProcessorPil(size={"height": 32, "width": 32}, image_seq_length=4)
    processor = PaliGemmaProcessor(pictures, words)
    config = PaliGemmaConfig(
        vision_config={"model_type": "siglip_vision_model", **VISION},
        text_config=decoder("gemma", words) | {"vocab_size": len(words)},
        image_token_index=id_of(words, "<image>"), projection_dim=16, hidden_size=16,
    )  # fmt: skip
    return save(folder, config, processor)


def llava_parts() -> tuple[Any, dict[str, Any]]:
    """The processor of LLaVA and its kin, and what their configurations share."""
    from transformers import LlavaProcessor

    words = tokenizer(LLAMA, extra=("<image>",), before="<s>")
    pictures = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor = LlavaProcessor(
        pictures, words, patch_size=16, vision_feature_select_strategy="default", num_additional_image_tokens=1
    )
    return processor, {
        "vision_config": {"model_type": "clip_vision_model", **VISION, "projection_dim": 8},
        "text_config": decoder("llama", words),
        "image_token_index": id_of(words, "<image>"),
    }


def llava(folder: Path) -> Path:
    from transformers import LlavaConfig

    processor, shared = llava_parts()
    return save(folder, LlavaConfig(**shared), processor)


def llava_next(folder: Path) -> Path:
    """LLaVA 1.6: a picture is seen whole and in tiles, as many as its shape asks for."""
    from transformers import LlavaNextConfig, LlavaNextImageProcessorPil, LlavaNextProcessor

    _, shared = llava_parts()
    words = tokenizer(LLAMA, extra=("<image>",), before="<s>")
    points = [[32, 64], [64, 32], [64, 64]]
    pictures = LlavaNextImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, image_grid_pinpoints=points
    )
    processor = LlavaNextProcessor(
        pictures, words, patch_size=16, vision_feature_select_strategy="default", num_additional_image_tokens=1
    )
    return save(folder, LlavaNextConfig(**shared, image_grid_pinpoints=points), processor)


TURNS = (  # Idefics3's chat template, as SmolVLM has it too but for its beginning
    "{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == 'image' %}"
    "{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}"
    "{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def idefics(folder: Path, family: str) -> Path:
    """A picture whole and in tiles of rows and columns, which the prompt names; masks of pixels."""
    from transformers import AutoConfig, Idefics3ImageProcessorPil, SmolVLMImageProcessorPil

    begin = "<|im_start|>" if family == "smolvlm" else "<|begin_of_text|>"
    marks = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "User:", "Assistant:")
    places = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
    special = {"unk_token": "<unk>", "bos_token": begin, "eos_token": "<end_of_utterance>", "pad_token": "<pad>"}
    words = tokenizer(special, extra=(*marks, *places), before=None if family == "smolvlm" else begin)
    words.chat_template = begin + TURNS
    made = SmolVLMImageProcessorPil if family == "smolvlm" else Idefics3ImageProcessorPil
    pictures: Any = made(size={"longest_edge": 4 * 32}, max_image_size={"longest_edge": 32})
    vision = {**VISION, "patch_size": 8}
    config = AutoConfig.for_model(
        family, vision_config=vision, text_config=decoder("llama", words), scale_factor=2,
        image_token_id=id_of(words, "<image>"), pad_token_id=words.pad_token_id,
    )  # fmt: skip
    name = "SmolVLM" if family == "smolvlm" else "Idefics3"
    return save_parts(folder, config, words, pictures, {"processor_class": f"{name}Processor", "image_seq_len": 4})


def save_parts(folder: Path, config: Any, words: Any, pictures: Any, processor: dict[str, Any]) -> Path:
    """The files of a model on the hub whose processor has one for videos too, which needs torchvision to be made."""
    save(folder, config, words)
    pictures.save_pretrained(folder)
    (folder / "processor_config.json").write_text(json.dumps(processor))
    (folder / "video_preprocessor_config.json").write_text(json.dumps({"size": {"height": 32, "width": 32}}))
    return folder


def idefics3(folder: Path) -> Path:
    return idefics(folder, "idefics3")


def smolvlm(folder: Path) -> Path:
    return idefics(folder, "smolvlm")


def llava_onevision(folder: Path) -> Path:
    """A picture whole and in up to 36 tiles, whose tokens are scaled down to those of nine."""
    from transformers import LlavaOnevisionConfig, LlavaOnevisionImageProcessorPil

    extra = ("<image>", "<video>", "<|im_start|>", "user", "assistant")
    words = tokenizer({"unk_token": "<unk>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, extra=extra)
    words.chat_template = CHAT.replace("<|vision_start|> <|image_pad|> <|vision_end|>", "<image>")
    points = [[32 * row, 32 * column] for row in range(1, 7) for column in range(1, 7)]
    pictures: Any = LlavaOnevisionImageProcessorPil(size={"height": 32, "width": 32}, image_grid_pinpoints=points)
    config = LlavaOnevisionConfig(
        vision_config={"model_type": "siglip_vision_model", **VISION, "patch_size": 8, "vision_use_head": False},
        text_config=decoder("qwen2", words, max_position_embeddings=1024), image_grid_pinpoints=points,
        image_token_index=id_of(words, "<image>"), video_token_index=id_of(words, "<video>"),
    )  # fmt: skip
    settings = {"num_image_tokens": 16, "vision_feature_select_strategy": "full", "vision_aspect_ratio": "anyres_max_9"}
    return save_parts(folder, config, words, pictures, {"processor_class": "LlavaOnevisionProcessor", **settings})


def internvl(folder: Path) -> Path:
    """Up to twelve tiles one after the other; it is the whole processor that asks for them."""
    from transformers import GotOcr2ImageProcessorPil, InternVLConfig

    named = {
        "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }  # fmt: skip
    extra = ("<|im_start|>", "user", "assistant")
    special = {"unk_token": "<unk>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    words = tokenizer(special, extra=extra, named=named)
    words.chat_template = CHAT.replace("<|vision_start|> <|image_pad|> <|vision_end|>", "<IMG_CONTEXT>")
    pictures: Any = GotOcr2ImageProcessorPil(size={"height": 32, "width": 32})
    config = InternVLConfig(
        vision_config={**VISION, "image_size": [32, 32], "patch_size": [8, 8]}, text_config=decoder("qwen2", words),
        image_token_id=id_of(words, "<IMG_CONTEXT>"), image_seq_length=4,
    )  # fmt: skip
    return save_parts(folder, config, words, pictures, {"processor_class": "InternVLProcessor", "image_seq_length": 4})


def florence2(folder: Path) -> Path:
    """Asked by the token of a task; BART reads the picture's tokens and begins every caption with its own first one."""
    from transformers import Florence2Config, Florence2Processor

    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    more = ("What", "does", "the", "image", "describe?", "Describe", "in", "detail", "what", "is", "shown", "image.")
    words = tokenizer(special, extra=more, named={"image_token": "<image>"}, before="<s>", after="</s>")
    pictures: Any = CLIPImageProcessorPil(size={"height": 32, "width": 32}, do_center_crop=False)
    pictures.image_seq_length = 17
    tower = {
        "depths": [1, 1], "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1],
        "patch_prenorm": [False, True], "embed_dim": [8, 16], "num_heads": [2, 2], "num_groups": [2, 2],
        "window_size": 4, "projection_dim": 16, "drop_path_rate": 0.0,
    }  # fmt: skip
    bart = {
        "model_type": "bart", "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": len(words),
        "max_position_embeddings": 64, "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id, "decoder_start_token_id": words.eos_token_id,
        "forced_bos_token_id": words.bos_token_id, "dropout": 0.0,
    }  # fmt: skip
    config = Florence2Config(vision_config=tower, text_config=bart, image_token_id=id_of(words, "<image>"))
    save(folder, config, Florence2Processor(pictures, words))
    settings = GenerationConfig(
        bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
        decoder_start_token_id=words.eos_token_id, forced_bos_token_id=words.bos_token_id,
    )  # fmt: skip
    settings.save_pretrained(folder)
    return folder


def vipllava(folder: Path) -> Path:
    """A family without a layout of its own: its projector reads several layers of the tower."""
    from transformers import VipLlavaConfig

    processor, shared = llava_parts()
    return save(folder, VipLlavaConfig(**shared, vision_feature_layers=[-2, -1]), processor)


def gemma3(folder: Path) -> Path:
    from transformers import Gemma3Config, Gemma3ImageProcessorPil, Gemma3Processor

    special = {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    marks = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    words = tokenizer(special, named=marks, before="<bos>")
    pictures = Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    processor = Gemma3Processor(pictures, words, image_seq_length=4, chat_template=GEMMA_CHAT)
    text = decoder("gemma3_text", words, sliding_window=64, layer_types=["sliding_attention", "full_attention"])
    config = Gemma3Config(
        vision_config={"model_type": "siglip_vision_model", **VISION}, text_config=text, mm_tokens_per_image=4,
        image_token_index=id_of(words, "<image_soft_token>"), boi_token_index=id_of(words, "<start_of_image>"),
        eoi_token_index=id_of(words, "<end_of_image>"),
    )  # fmt: skip
    return save(folder, config, processor)


GEMMA_CHAT = (
    "<bos> {% for message in messages %}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<start_of_image> {% else %}{{ part['text'] }}{% endif %}{% endfor %} {% endfor %}"
)
CHAT = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|> <|image_pad|> <|vision_end|> "
    "{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %} <|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)


def qwen(folder: Path, family: str) -> Path:
    """Pictures of their own shapes; a chat template."""
    from transformers import AutoConfig, Qwen2VLImageProcessorPil

    extra = (
        "<|im_start|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
        "user",
        "assistant",
    )
    words = tokenizer({"unk_token": "<unk>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, extra=extra)
    words.chat_template = CHAT
    pictures = Qwen2VLImageProcessorPil(
        patch_size=4, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 64, "longest_edge": 4096}
    )
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    text = decoder(f"{family}_text", words, rope_parameters=rope)
    vision: dict[str, Any] = {
        "depth": 2,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    if family == "qwen3_5":
        text |= {"layer_types": ["linear_attention", "full_attention"], "partial_rotary_factor": 1.0}
        text |= {
            f"linear_{name}": size
            for name, size in (("key_head_dim", 8), ("value_head_dim", 8), ("num_key_heads", 2), ("num_value_heads", 2))
        }
        vision |= {"hidden_size": 16, "out_hidden_size": 16, "intermediate_size": 32, "num_position_embeddings": 64}
    elif family == "qwen3_vl":
        vision |= {"hidden_size": 16, "out_hidden_size": 16, "intermediate_size": 32, "num_position_embeddings": 64}
        vision |= {"deepstack_visual_indexes": [0, 1]}
    elif family == "qwen2_vl":
        vision |= {"embed_dim": 16, "hidden_size": 16, "mlp_ratio": 2}
    else:
        vision |= {
            "hidden_size": 16,
            "out_hidden_size": 16,
            "intermediate_size": 32,
            "fullatt_block_indexes": [1],
            "window_size": 16,
        }
    ids = {f"{kind}_token_id": words.convert_tokens_to_ids(f"<|{kind}_pad|>") for kind in ("image", "video")}
    ids["vision_start_token_id"] = words.convert_tokens_to_ids("<|vision_start|>")
    config = AutoConfig.for_model(family, text_config=text, vision_config=vision, **ids)
    save(folder, config, words)
    pictures.save_pretrained(folder)
    return folder


def qwen2_vl(folder: Path) -> Path:
    return qwen(folder, "qwen2_vl")


def qwen2_5_vl(folder: Path) -> Path:
    return qwen(folder, "qwen2_5_vl")


def qwen3_vl(folder: Path) -> Path:
    """A family without a layout of its own: its language model reads several layers of the tower."""
    return qwen(folder, "qwen3_vl")


def qwen3_5(folder: Path) -> Path:
    """Most layers are linear attention, which keeps a state in place of keys and values."""
    return qwen(folder, "qwen3_5")


def gemma4(folder: Path) -> Path:
    """Pictures of their own shapes, as patches with their places; a processor that also reads sound and videos."""
    from transformers import Gemma4AudioFeatureExtractor, Gemma4Config, Gemma4ImageProcessorPil, Gemma4TextConfig

    special = {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    marks = {"boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>"}
    marks |= {"boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>"}
    words = tokenizer(special, extra=("<|video|>",), named=marks, before="<bos>")
    words.chat_template = GEMMA_CHAT.replace("<start_of_image>", "<|image|>")
    pictures: Any = Gemma4ImageProcessorPil(patch_size=2, max_soft_tokens=70, pooling_kernel_size=2)
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64, "global_head_dim": 8}
    text = Gemma4TextConfig(
        **decoder("gemma4_text", words) | {"vocab_size": len(words) + 4}, **layers,
        vocab_size_per_layer_input=len(words) + 4, hidden_size_per_layer_input=4,
    )  # fmt: skip
    vision = {
        **SMALL,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "patch_size": 2,
        "pooling_kernel_size": 2,
        "position_embedding_size": 512,
    }
    ids = {f"{name}_id": id_of(words, token) for name, token in marks.items() if name != "eoa_token"}
    config = Gemma4Config(
        text_config=text, vision_config=vision, audio_config=None, **ids, eoa_token_index=id_of(words, "<audio|>"),
        video_token_id=len(words) + 1, tie_word_embeddings=False,
    )  # fmt: skip
    save_parts(folder, config, words, pictures, {"processor_class": "Gemma4Processor", "image_seq_length": 70})
    sound = json.loads(Gemma4AudioFeatureExtractor().to_json_string())
    settings = json.loads((folder / "processor_config.json").read_text())
    (folder / "processor_config.json").write_text(json.dumps(settings | {"feature_extractor": sound}))
    return folder


def mistral3(folder: Path) -> Path:
    """Pictures of their own shapes, every row of tokens closed by a token for the break."""
    from transformers import Mistral3Config

    extra = ("[IMG]", "[IMG_BREAK]", "[IMG_END]", "<|im_start|>", "user", "assistant", "<|im_end|>")
    words = tokenizer(LLAMA, extra=extra, before="<s>")
    words.chat_template = CHAT.replace("<|vision_start|> <|image_pad|> <|vision_end|>", "[IMG]")
    vision = {"model_type": "pixtral", **VISION, "image_size": 64, "patch_size": 8, "head_dim": 8}
    config = Mistral3Config(
        vision_config=vision, text_config=decoder("mistral", words), image_token_index=id_of(words, "[IMG]"),
        spatial_merge_size=2, tie_word_embeddings=False,
    )  # fmt: skip
    pictures = {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 64}}
    pictures["patch_size"] = {"height": 8, "width": 8}
    settings = {"processor_class": "PixtralProcessor", "patch_size": 8, "spatial_merge_size": 2}
    return save_settings(folder, config, words, pictures, settings)


def lfm2_vl(folder: Path) -> Path:
    """Large pictures in tiles before a smaller whole, each as patches with a mask; half of its layers convolve."""
    from transformers import Lfm2VlConfig

    places = tuple(f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 11))
    named = {
        "image_token": "<image>", "image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>",
        "image_thumbnail_token": "<|img_thumbnail|>",
    }  # fmt: skip
    named |= {f"place_{number}": place for number, place in enumerate(places)}
    special = {"unk_token": "<unk>", "bos_token": "<|startoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|pad|>"}
    words = tokenizer(special, extra=("<|im_start|>", "user", "assistant"), named=named)
    words.chat_template = CHAT.replace("<|vision_start|> <|image_pad|> <|vision_end|>", "<image>")
    layers = {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8, "block_auto_adjust_ff_dim": False}
    vision = {"model_type": "siglip2_vision_model", **SMALL, "patch_size": 8, "num_patches": 16}
    config = Lfm2VlConfig(
        vision_config=vision | {"vision_use_head": False}, text_config=decoder("lfm2", words, **layers),
        image_token_id=id_of(words, "<image>"), projector_hidden_size=16, tie_word_embeddings=False,
    )  # fmt: skip
    pictures = {"image_processor_type": "Lfm2VlImageProcessor", "tile_size": 32, "encoder_patch_size": 8}
    pictures |= {"min_image_tokens": 2, "max_image_tokens": 4, "size": {"height": 32, "width": 32}}
    return save_settings(folder, config, words, pictures, {"processor_class": "Lfm2VlProcessor"})


def save_settings(folder: Path, config: Any, words: Any, pictures: dict[str, Any], processor: dict[str, Any]) -> Path:
    """The files of a model whose processor cannot be made without torchvision."""
    save(folder, config, words)
    (folder / "preprocessor_config.json").write_text(json.dumps(pictures))
    (folder / "processor_config.json").write_text(json.dumps(processor))
    return folder


def vit_gpt2(folder: Path) -> Path:
    """A vision encoder before a causal language model that attends to it."""
    from transformers import GPT2Config, VisionEncoderDecoderConfig, ViTConfig, ViTImageProcessorPil

    words = tokenizer({"unk_token": "<unk>", "bos_token": "<|end|>", "eos_token": "<|end|>", "pad_token": "<pad>"})
    text = GPT2Config(
        vocab_size=len(words), n_positions=64, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, add_cross_attention=True, bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )  # fmt: skip
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(**VISION), text)
    config.decoder_start_token_id, config.pad_token_id = words.bos_token_id, words.pad_token_id
    config.eos_token_id = words.eos_token_id
    save(folder, config, words)
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def aya_vision(folder: Path) -> Path:
    """Tiles one after the other, each after its number, and the whole picture last; tiles are made only if asked."""
    from transformers import AyaVisionConfig, AyaVisionProcessor, GotOcr2ImageProcessorPil

    tiles = tuple(f"TILE_{number}" for number in range(1, 13))
    marks = ("<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "TILE_GLOBAL", *tiles)
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<pad>"}
    words = tokenizer(special, extra=(*marks, "<|im_start|>", "user", "assistant"), before="<s>")
    pictures: Any = GotOcr2ImageProcessorPil(size={"height": 32, "width": 32})
    chat = CHAT.replace("<|vision_start|> <|image_pad|> <|vision_end|>", "<image>")
    processor = AyaVisionProcessor(pictures, words, patch_size=8, img_size=32, downsample_factor=2, chat_template=chat)
    config = AyaVisionConfig(
        vision_config={"model_type": "siglip_vision_model", **VISION, "patch_size": 8, "vision_use_head": False},
        text_config=decoder("cohere2", words, sliding_window=64, layer_types=["sliding_attention", "full_attention"]),
        image_token_index=id_of(words, "<|IMG_PATCH|>"),
    )  # fmt: skip
    return save(folder, config, processor)


def ovis2(folder: Path) -> Path:
    """Pictures become probabilities over words of a visual vocabulary, with words for the edges of its tiles."""
    from transformers import Ovis2Config, Ovis2ImageProcessorPil, Ovis2Processor

    edges = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
    extra = ("<image>", "<IMG_ATOM>", *edges, "<|im_start|>", "user", "assistant")
    words = tokenizer({"unk_token": "<unk>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, extra=extra)
    chat = CHAT.replace("<|vision_start|> <|image_pad|> <|vision_end|>", "<image>")
    pictures: Any = Ovis2ImageProcessorPil(size={"height": 32, "width": 32}, crop_to_patches=True)
    vision = {**VISION, "patch_size": 8, "vocab_size": 24, "hidden_stride": 2}
    config = Ovis2Config(
        vision_config=vision, text_config=decoder("qwen2", words), vocab_size=len(words) + 3, hidden_size=16,
        image_token_id=id_of(words, "<IMG_ATOM>"), visual_indicator_token_ids=[id_of(words, edge) for edge in edges],
    )  # fmt: skip
    return save(folder, config, Ovis2Processor(pictures, words, chat_template=chat, image_seq_length=4))


def glm4v(folder: Path) -> Path:
    """Pictures of their own shapes, as in Qwen-VL; a start and an end token of the picture."""
    from transformers import Glm4vConfig, Glm4vImageProcessorPil

    marks = tuple(f"<|{kind}|>" for kind in ("begin_of_image", "end_of_image", "begin_of_video", "end_of_video"))
    extra = ("<|image|>", "<|video|>", *marks, "<|im_start|>", "user", "assistant")
    words = tokenizer({"unk_token": "<unk>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, extra=extra)
    picture = "<|begin_of_image|> <|image|> <|end_of_image|>"
    words.chat_template = CHAT.replace("<|vision_start|> <|image_pad|> <|vision_end|>", picture)
    pictures: Any = Glm4vImageProcessorPil(
        patch_size=4, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 128, "longest_edge": 8192}
    )
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    vision = {
        "depth": 2, "num_heads": 2, "patch_size": 4, "image_size": 32, "hidden_size": 16, "out_hidden_size": 16,
        "intermediate_size": 64,
    }  # fmt: skip
    ids = {"image_start_token_id": "<|begin_of_image|>", "image_end_token_id": "<|end_of_image|>"}
    ids |= {"video_start_token_id": "<|begin_of_video|>", "video_end_token_id": "<|end_of_video|>"}
    ids |= {"image_token_id": "<|image|>", "video_token_id": "<|video|>"}
    config = Glm4vConfig(
        text_config=decoder("glm4v_text", words, rope_parameters=rope), vision_config=vision,
        **{name: id_of(words, token) for name, token in ids.items()},
    )  # fmt: skip
    return save_parts(folder, config, words, pictures, {"processor_class": "Glm4vProcessor"})


DEEPSEEK: dict[str, Any] = {
    "special": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
    "extra": ("User:", "Assistant:"),
    "before": "<s>",
}
DEEPSEEK_CHAT = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image_placeholder> {% else %}{{ part['text'] }}{% endif %}{% endfor %} "
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


def deepseek_vl(folder: Path) -> Path:
    from transformers import DeepseekVLConfig, DeepseekVLImageProcessorPil, DeepseekVLProcessor

    words = tokenizer(**DEEPSEEK, named={"image_token": "<image_placeholder>"})
    pictures: Any = DeepseekVLImageProcessorPil(size={"height": 32, "width": 32}, min_size=4)
    processor = DeepseekVLProcessor(pictures, words, chat_template=DEEPSEEK_CHAT, num_image_tokens=4)
    config = DeepseekVLConfig(
        vision_config={"model_type": "siglip_vision_model", **VISION, "vision_use_head": False},
        text_config=decoder("llama", words), image_token_id=id_of(words, "<image_placeholder>"),
    )  # fmt: skip
    return save(folder, config, processor, seed=1)  # of 0 all captions are empty


def janus(folder: Path) -> Path:
    """Also draws pictures, with a third network that captions have no use for."""
    from transformers import JanusConfig, JanusImageProcessorPil, JanusProcessor

    named = {"image_token": "<image_placeholder>", "boi_token": "<begin_of_image>", "eoi_token": "<end_of_image>"}
    words = tokenizer(**DEEPSEEK, named=named)
    pictures: Any = JanusImageProcessorPil(size={"height": 32, "width": 32}, min_size=4)
    processor = JanusProcessor(pictures, words, chat_template=DEEPSEEK_CHAT, num_image_tokens=4)
    vision = {**VISION, "mlp_ratio": 2.0, "projection_dim": 16, "num_image_tokens": 4}
    drawing = {
        "embed_dim": 4, "num_embeddings": 8, "latent_channels": 8, "base_channels": 32, "channel_multiplier": [1, 1],
        "num_res_blocks": 1, "projection_dim": 16, "image_token_embed_dim": 16,
    }  # fmt: skip
    config = JanusConfig(
        vision_config=vision, text_config=decoder("llama", words), vq_config=drawing,
        image_token_id=id_of(words, "<image_placeholder>"),
    )  # fmt: skip
    return save(folder, config, processor, seed=1)


FAMILIES: dict[str, Callable[[Path], Path]] = {
    made.__name__: made
    for made in (
        blip2,
        blip2_t5,
        instructblip,
        git,
        paligemma,
        gemma3,
        llava,
        llava_next,
        vipllava,
        qwen2_vl,
        qwen2_5_vl,
        qwen3_vl,
        vit_gpt2,
        idefics3,
        smolvlm,
        llava_onevision,
        internvl,
        florence2,
        aya_vision,
        ovis2,
        glm4v,
        deepseek_vl,
        janus,
        qwen3_5,
        gemma4,
    )
}
WITH_TORCHVISION: dict[str, Callable[[Path], Path]] = {made.__name__: made for made in (mistral3, lfm2_vl)}
