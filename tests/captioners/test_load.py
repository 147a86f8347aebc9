"""What a user may get wrong about a captioner: one clear line each."""

from __future__ import annotations

import json
import logging
import re
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli
from families import FAMILIES, LLAMA, decoder, tokenizer
from PIL import Image
from safetensors.torch import load_file, save_file
from test_official import save_clip
from tiny_blip import save_blip
from transformers import AutoModelForImageTextToText, AutoTokenizer

from tellapart.captioners import load_captioner
from tellapart.captioners.name_options import parse_options
from tellapart.errors import TellapartError, UsageError
from tellapart.models.decoding import DEFAULT, Decoding
from tellapart.models.encoded_options import quoted
from tellapart.models.saved_options import default_decoding


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES["llava"](tmp_path_factory.mktemp("llava"))


@pytest.fixture
def copy(llava: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llava, tmp_path / "model"))


def told(name: str, kind: type[Exception] = TellapartError) -> str:
    with pytest.raises(kind) as caught:
        load_captioner(name)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    return str(caught.value)


def settings(path: Path, change: dict[str, Any]) -> None:
    """Change a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def test_a_model_that_is_no_captioner(tmp_path: Path) -> None:
    assert "is a clip model, which is not a supported captioner" in told(str(save_clip(tmp_path)))


def test_a_saved_captioner_of_its_own_takes_no_options(copy: Path) -> None:
    (copy / "tellapart.json").write_text(json.dumps({"made_by": "mine:captioner"}))
    assert "was saved by a custom captioner, together with its options; remove '?prompt=a'" in told(
        f"{copy}?prompt=a", UsageError
    )


def test_a_prompt_may_have_any_sign() -> None:
    prompt = "cats & dogs, 100% true, %26?"
    assert parse_options(f"prompt={quoted(prompt)}&frames=3", {"prompt": str, "frames": int}, "x") == {
        "prompt": prompt, "frames": 3,
    }  # fmt: skip


def test_a_model_type_that_transformers_does_not_know(copy: Path) -> None:
    settings(copy / "config.json", {"model_type": "lavla"})
    assert "lavla" in told(str(copy))


def test_weights_that_are_not_there(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    assert "model.safetensors" in told(str(copy))


def test_weights_that_are_cut(copy: Path) -> None:
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "expected a captioner" in told(str(copy))


def test_a_hub_name_while_offline() -> None:
    line = told("somebody/llava-of-mine?prompt=hello")
    assert "not in the hub's cache, and HF_HUB_OFFLINE disables downloads" in line and "somebody/llava-of-mine" in line


def test_no_processor(copy: Path) -> None:
    for file in (*copy.glob("*processor*.json"),):
        file.unlink()
    assert "expected a captioner" in told(str(copy))


def test_a_processor_of_pictures_of_another_size(copy: Path) -> None:
    file = copy / "processor_config.json"
    whole = json.loads(file.read_text())
    whole["image_processor"] |= {"size": {"shortest_edge": 48}, "crop_size": {"height": 48, "width": 48}}
    file.write_text(json.dumps(whole))
    assert ": its processor returns pictures of 48×48 pixels, but its vision encoder" in told(str(copy))


def test_a_processor_that_counts_other_places_for_a_picture(copy: Path) -> None:
    settings(copy / "processor_config.json", {"num_additional_image_tokens": 3})
    captioner = load_captioner(str(copy))
    from PIL import Image

    from tellapart.models.decoding import Decoding

    visual = captioner.encode(captioner.pixels([Image.new("RGB", (32, 32))]))
    for attempt in (
        lambda: captioner.generate(visual.detach(), Decoding(max_tokens=3)),
        lambda: captioner.logits(visual, *captioner.pad([[5, 6]])),
    ):
        with pytest.raises(
            TellapartError, match=": its processor does not match the model: Image features and image tok"
        ):
            attempt()


def test_a_tokenizer_of_another_model(copy: Path) -> None:
    extra = tuple(f"<word{n}>" for n in range(9))
    tokenizer(LLAMA, extra=("<image>", *extra), before="<s>").save_pretrained(copy)
    assert "its tokenizer has" in told(str(copy))


def test_options_that_it_does_not_have(llava: Path, tiny_captioner: Path) -> None:
    assert "unknown option 'promt=hi'; did you mean 'prompt'?" in told(f"{llava}?promt=hi", UsageError)
    assert "unknown option 'prompt'; did you mean 'prompt'?" in told(f"{llava}?prompt", UsageError)
    assert ": visual_tokens must be a number; got 'many'" in told(f"{llava}?visual_tokens=many", UsageError)
    assert "visual_tokens is 9; it has no effect, because all pictures have the same shape" in told(
        f"{llava}?visual_tokens=9", UsageError
    )
    assert "unknown option 'promt=hi'; did you mean 'prompt'?" in told(f"{tiny_captioner}?promt=hi", UsageError)


def test_options_without_a_place(tmp_path: Path) -> None:
    folders = [FAMILIES[family](tmp_path / family) for family in ("vit_gpt2", "qwen2_vl")]
    assert "does not accept a prompt; remove prompt" in told(f"{folders[0]}?prompt=hi", UsageError)
    assert "visual_tokens is 1; expected at least 4" in told(f"{folders[1]}?visual_tokens=1", UsageError)


def test_a_causal_language_model_is_not_taken_for_a_captioner_of_pictures(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    words = tokenizer(LLAMA)
    made = decoder("llama", words)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(made.pop("model_type"), **made)).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    captioner = load_captioner(str(tmp_path))
    with pytest.raises(UsageError, match="is a language model without vision"):
        _ = captioner.encoder


@pytest.mark.parametrize("family", ["blip", "llava", "qwen2_vl"])
def test_a_captioner_that_lacks_weights_is_refused(family: str, tmp_path: Path) -> None:
    """Transformers makes them at random, and the captions are noise."""
    folder = Path(save_blip(tmp_path, ["a", "dog"]) if family == "blip" else FAMILIES[family](tmp_path))
    (file,) = folder.glob("*.safetensors")
    weights = load_file(file)
    kept = {name: weight for name, weight in weights.items() if "vision" not in name and "visual" not in name}
    assert 0 < len(kept) < len(weights)
    save_file(kept, file, {"format": "pt"})
    assert re.search(r"lacks \d+ weights of a \w+ \(.*vis.*, …\); expected a complete model", told(str(folder)))


@pytest.fixture
def adapter(tmp_path: Path) -> tuple[Path, Path, Any]:
    """The folder of an adapter as PEFT saves it, that of its base, and the base with the adapter beside it."""
    from peft import LoraConfig, get_peft_model

    base = FAMILIES["qwen2_vl"](tmp_path / "base")
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = get_peft_model(AutoModelForImageTextToText.from_pretrained(base), config)
    adapted.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", base, adapted.eval()


def test_a_peft_adapter_loads_with_its_base(adapter: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, base, adapted = adapter
    loaded: Any = load_captioner(str(folder))
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        theirs, ours = adapted(input_ids=ids).logits, loaded.model(input_ids=ids).logits
        plain = load_captioner(str(base)).model(input_ids=ids).logits
    assert torch.allclose(ours, theirs, atol=1e-5) and not torch.allclose(plain, theirs, atol=1e-2)
    assert all(parameter.requires_grad for parameter in loaded.model.parameters()), "it may be trained further"
    loaded.save(tmp_path / "merged")
    with torch.no_grad():
        assert torch.allclose(load_captioner(str(tmp_path / "merged")).model(input_ids=ids).logits, ours, atol=1e-5)


def test_the_base_of_an_adapter_may_lie_elsewhere(adapter: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, base, _ = adapter
    base.rename(tmp_path / "moved")
    assert "if the base model is in another place, use '" in told(str(folder))
    assert load_captioner(f"{folder}?base_model={tmp_path / 'moved'}&prompt=a dog").name.startswith(str(folder))


def test_an_adapter_of_another_model_is_refused(adapter: tuple[Path, Path, Any], tmp_path: Path) -> None:
    other = FAMILIES["git"](tmp_path / "git")
    assert "lacks 8 of the weights of an adapter for GitForCausalLM" in told(f"{adapter[0]}?base_model={other}")
    weights = load_file(adapter[0] / "adapter_model.safetensors")
    dropped = weights.pop(min(weights))
    save_file(weights, adapter[0] / "adapter_model.safetensors")
    assert dropped is not None and "lacks 1 of the weights of an adapter for Qwen2VL" in told(str(adapter[0]))
    assert ", which is itself an adapter; expected a" in told(f"{adapter[0]}?base_model={adapter[0]}")


@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": ["q_proj", "embed_tokens"]},
    ],
)
def test_an_adapter_with_tokens_that_its_base_lacks_is_refused_with_what_to_type(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model

    base = FAMILIES["qwen2_vl"](tmp_path / "base")
    model = AutoModelForImageTextToText.from_pretrained(base)
    rows = model.get_input_embeddings().weight.shape[0]
    model.resize_token_embeddings(rows + 4)
    get_peft_model(model, LoraConfig(r=2, **settings)).save_pretrained(tmp_path / "adapter")
    line = told(str(tmp_path / "adapter"))
    assert f"has {rows + 4} word embeddings, but its base has {rows}: tokens were" in line
    assert f"tokenizer.save_pretrained('{tmp_path / 'adapter'}')" in line and "loading state_dict" not in line


def grown_adapter(folder: Path, settings: dict[str, Any], **saved: Any) -> tuple[Any, Any, int]:
    """An adapter of a base with three tokens more; the model, its tokenizer, and the rows of its base."""
    from peft import LoraConfig, get_peft_model

    base = FAMILIES["qwen2_vl"](folder / "base")
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForImageTextToText.from_pretrained(base)
    rows = model.get_input_embeddings().weight.shape[0]
    tokenizer.add_tokens([f"<new{n}>" for n in range(rows - len(tokenizer) + 3)])
    model.resize_token_embeddings(len(tokenizer))
    torch.manual_seed(1)
    adapted = get_peft_model(model, LoraConfig(r=2, init_lora_weights=False, **settings))
    with torch.no_grad():
        for table in {adapted.get_input_embeddings(), adapted.get_output_embeddings()}:
            getattr(table, "base_layer", table).weight[-3:].normal_()
    adapted.save_pretrained(folder / "adapter", **saved)
    return adapted.eval(), tokenizer, rows


@pytest.mark.parametrize(
    ("settings", "saved"),
    [
        ({"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}, {}),
        ({"target_modules": ["q_proj"]}, {"save_embedding_layers": True}),
        ({"target_modules": ["q_proj", "lm_head", "embed_tokens"]}, {"save_embedding_layers": True}),
    ],
)
def test_an_adapter_with_tokens_of_its_own_loads_with_them(
    settings: dict[str, Any], saved: dict[str, Any], tmp_path: Path
) -> None:
    adapted, tokenizer, rows = grown_adapter(tmp_path, settings, **saved)
    assert "tokenizer.save_pretrained" in told(str(tmp_path / "adapter")), "which token is which, nobody knows"
    tokenizer.save_pretrained(tmp_path / "adapter")
    loaded: Any = load_captioner(str(tmp_path / "adapter"))
    assert loaded.tokenizer.get_vocab() == tokenizer.get_vocab()
    ids = torch.tensor([[5, rows, rows + 2, 6]])
    with torch.no_grad():
        ours = loaded.model(input_ids=ids).logits
        assert torch.allclose(ours, adapted(input_ids=ids).logits, atol=1e-5) and ours.shape[-1] == rows + 3
    loaded.save(tmp_path / "merged")
    again: Any = load_captioner(str(tmp_path / "merged"))
    assert len(again.tokenizer) == len(tokenizer)
    with torch.no_grad():
        assert torch.allclose(again.model(input_ids=ids).logits, ours, atol=1e-5)
    picture = Image.new("RGB", (56, 56), "red")
    assert load_captioner(str(tmp_path / "adapter")).caption([picture]) == again.caption([picture])


def test_an_adapter_that_saved_no_embeddings_of_its_tokens_is_refused(tmp_path: Path) -> None:
    """Its base would give them rows of random numbers."""
    _, tokenizer, rows = grown_adapter(tmp_path, {"target_modules": ["q_proj"]}, save_embedding_layers=False)
    tokenizer.save_pretrained(tmp_path / "adapter")
    line = told(str(tmp_path / "adapter"))
    assert f"a tokenizer with {rows + 3} tokens, but its base has only {rows} word" in line
    assert "save_embedding_layers=True" in line
    other = AutoTokenizer.from_pretrained(tmp_path / "base")
    other.add_special_tokens({"additional_special_tokens": ["<x>"]})
    other.save_pretrained(tmp_path / "adapter")
    vocab = other.get_vocab()
    if vocab["<x>"] < rows:  # it has a row of the base's
        loaded: Any = load_captioner(str(tmp_path / "adapter"))
        assert loaded.tokenizer.get_vocab() == vocab


def test_an_adapter_beside_another_tokenizer_is_refused(adapter: tuple[Path, Path, Any], tmp_path: Path) -> None:
    blip = save_blip(tmp_path, ["a", "dog"])
    AutoTokenizer.from_pretrained(blip).save_pretrained(adapter[0])
    assert "of the base's tokens are missing or have" in told(str(adapter[0]))


def test_the_cause_of_weights_that_do_not_fit_is_told_and_not_its_heading_alone(
    adapter: tuple[Path, Path, Any],
) -> None:
    weights = load_file(adapter[0] / "adapter_model.safetensors")
    weights = {key: torch.cat([each, each]) if "lora_B" in key else each for key, each in weights.items()}
    save_file(weights, adapter[0] / "adapter_model.safetensors")
    assert "size mismatch for" in told(str(adapter[0]))


@pytest.mark.parametrize("where", ["attn_implementation", "_attn_implementation_internal"])
@pytest.mark.parametrize("part", [None, "text_config"])
def test_a_kernel_of_the_hub_in_a_models_configuration_is_refused(where: str, part: str | None, tmp_path: Path) -> None:
    folder = FAMILIES["llava"](tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (config if part is None else config[part])[where] = "somebody/kernel"
    (folder / "config.json").write_text(json.dumps(config))
    assert f": its config.json sets {where} to 'somebody/kernel', which" in told(str(folder))
    (config if part is None else config[part])[where] = "sdpa"
    (folder / "config.json").write_text(json.dumps(config))
    load_captioner(str(folder))


def test_a_configuration_that_hides_a_kernel_or_is_nested_too_deeply_is_one_line(tmp_path: Path) -> None:
    folder = FAMILIES["llava"](tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.4.0.0.json").write_text(json.dumps(config | {"attn_implementation": "somebody/kernel"}))
    (folder / "config.json").write_text(json.dumps(config | {"configuration_files": ["config.4.0.0.json"]}))
    assert ": its config.json contains" in told(str(folder))
    (folder / "config.json").write_text("[" * 100_000)
    assert "cannot load" in told(str(folder))


def test_missing_weights_are_one_line(tmp_path: Path, cli: Cli) -> None:
    folder = FAMILIES["llava"](tmp_path / "llava")
    weights = load_file(folder / "model.safetensors")
    gone = next(name for name in weights if "vision" in name)
    kept = {name: each for name, each in weights.items() if name != gone}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    Image.new("RGB", (32, 32), "red").save(tmp_path / "a.png")
    printed, logger = StringIO(), logging.getLogger("transformers.modeling_utils")
    logger.addHandler(handler := logging.StreamHandler(printed))
    done = cli("caption", folder, tmp_path / "a.png", "-o", tmp_path / "out.jsonl")
    logger.removeHandler(handler)
    assert "lacks 1 weights of a Llava" in done.line and printed.getvalue() == ""


def test_an_index_that_names_files_elsewhere_is_refused(tiny_captioner: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_captioner, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    index = {"metadata": {}, "weight_map": {"mapper.model.0.weight": "../elsewhere.safetensors"}}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(TellapartError, match=r"refers to weights '../elsewhere.safetensors' outside its folder;"):
        load_captioner(str(tmp_path / "m"))


def test_a_captioner_keeps_the_generation_settings_that_it_is_saved_with(tiny_captioner: Path, tmp_path: Path) -> None:
    captioner = load_captioner(f"{tiny_captioner}?prompt=a")
    assert captioner.decoding is None and default_decoding(str(tiny_captioner)) == DEFAULT
    captioner.decoding = Decoding(kind="consensus", candidates=9, scorer_weight=0.1, max_tokens=7)
    captioner.save(tmp_path / "saved")
    again, kept = load_captioner(str(tmp_path / "saved")), Decoding(kind="consensus", candidates=9, max_tokens=7)
    assert again.decoding == kept == default_decoding(f"{tmp_path / 'saved'}?prompt=the")
    assert again.chosen == {"prompt": "a"}
    again.save(tmp_path / "twice")
    assert default_decoding(str(tmp_path / "twice")) == kept


@pytest.mark.parametrize("content", ["[1, 2]", "3", "{", "\xff"])
def test_options_that_are_no_object_are_one_line(content: str, copy: Path) -> None:
    (copy / "tellapart.json").write_text(content, encoding="latin-1")
    (copy / "SHA256SUMS").unlink(missing_ok=True)
    with pytest.raises(TellapartError, match=r"tellapart\.json is damaged: expected a JSON object"):
        load_captioner(str(copy))


@pytest.mark.parametrize(("key", "size"), [("num_hidden_layers", -3), ("num_hidden_layers", 10**7), ("vocab_size", -1)])
def test_sizes_that_no_model_has_are_one_line(cli: Cli, tiny_scorer: Path, key: str, size: int, tmp_path: Path) -> None:
    """A scorer without its layers scored, its weights left out in silence; a captioner was a traceback, or hours."""
    shutil.copytree(tiny_scorer, tmp_path / "scorer")
    (tmp_path / "scorer" / "SHA256SUMS").unlink()
    config = json.loads((tmp_path / "scorer" / "config.json").read_text())
    config["text_config"][key] = size
    (tmp_path / "scorer" / "config.json").write_text(json.dumps(config))
    mine = ("bags", "mine", "scenes:plain?n=12", "--scorer", tmp_path / "scorer", "-o", tmp_path / "bags.jsonl")
    assert f": its config.json sets {key} to {size}, which is not" in cli(*mine).line
    assert f": its config.json sets {key} to {size}," in told(str(tmp_path / "scorer"))
