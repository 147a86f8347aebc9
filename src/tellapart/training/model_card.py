"""Writes a run's model card, with results before and after training and with code that uses the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.utils
from transformers.models.auto import configuration_auto

from tellapart import __version__
from tellapart.data.reader import READERS
from tellapart.data.specification import parse
from tellapart.evaluation.stored_results import read_results
from tellapart.metrics.metric_info import Candidates
from tellapart.models.names import model_folder
from tellapart.models.saved_options import saved_options
from tellapart.recipe.schema import Recipe
from tellapart.training.kept_start import kept_start
from tellapart.training.run_folder import Run
from tellapart.training.sources import spec_list
from tellapart.utils.allowed_code import OPTION

CARD = "README.md"
TEMPLATE = """
# {title}, fine-tuned to tell pictures apart

{about}

Made with tellapart {version}; the complete recipe is `recipe.toml` in the run's folder. License: see the licenses of
the base model and of the pictures.

## Evaluation

On pictures held out from training, with 95% intervals. Recall is measured with {scorer}.

| metric | before | after | n | candidates | chance |
|---|---|---|---|---|---|
{rows}
{kept}
## Use

{snippet}

Or from the command line:

```
tellapart caption {model} PICTURES -o captions.jsonl{option}
```
"""
WITH_TRANSFORMERS = """```python
from PIL import Image
from transformers import AutoProcessor, BlipForConditionalGeneration

processor = AutoProcessor.from_pretrained("{model}")
model = BlipForConditionalGeneration.from_pretrained("{model}")
picture = Image.open("photo.jpg").convert("RGB")
inputs = processor(images=picture, {prompt}return_tensors="pt")
tokens = model.generate(**inputs, num_beams={beams}, max_new_tokens={max_tokens})
print(processor.decode(tokens[0], skip_special_tokens=True))
```"""
WITH_TELLAPART = """```python
from tellapart.captioners import load_captioner
from tellapart.models.decoding import Decoding
{allow}
captioner = load_captioner("{model}")
decoding = Decoding(kind="beam", beams={beams}, max_tokens={max_tokens})
print(captioner.caption(["photo.jpg"], decoding)[0])
```"""


def model_card(run: Run, hub_id: str | None = None) -> str:
    """Returns the card for a run's model.

    ``hub_id``: name of the model in the usage snippet [default: the local folder].
    """
    recipe, folder = run.recipe, run.folder / "model"
    assert recipe.captioner is not None and recipe.captioner.name is not None and recipe.scorer is not None
    results, _ = read_results(run.folder)
    systems, candidates = results["systems"], results.get("candidates", {})
    before, after = systems.get("before", {}), systems.get("after", {})
    rows = [
        f"| {name} | {figure(before[name])} | {figure(after[name])} | {after[name]['n']:,} "
        f"| {setting(candidates.get(name))} |"
        for name in after
        if name in before
    ]
    rewarded = ", which also provided the rewards" if recipe.objective.kind == "reinforce" else ""
    model = hub_id or folder.as_posix()
    body = TEMPLATE.format(
        title=Path(recipe.captioner.name.partition("?")[0]).name,
        about=recipe.about,
        version=__version__,
        scorer=f"`{recipe.scorer.name}`{rewarded}",
        rows="\n".join(rows),
        kept="" if run.info.get("kept_step") != 0 else f"\n{kept_start(recipe)}.\n",
        snippet=snippet(folder, model, recipe),
        model=model,
        option=f" {OPTION} {maker}" if (maker := saved_options(str(folder)).made_by) else "",
    )
    return f"---\n{metadata(folder, recipe)}\n---\n{body}"


def metadata(folder: Path, recipe: Recipe) -> str:
    """Returns the card's YAML metadata.

    Omits values that the hub rejects (base models and data sets in local folders).
    """
    assert recipe.captioner is not None and recipe.captioner.name is not None
    data = huggingface_hub.ModelCardData(
        base_model=hub_base(recipe.captioner.name),
        datasets=sorted(set(hub_datasets(recipe))) or None,
        library_name="transformers" if of_transformers(folder) else "tellapart",
        pipeline_tag="image-text-to-text" if (folder / "chat_template.jinja").is_file() else "image-to-text",
        tags=["image-captioning", "tellapart"],
    )
    return data.to_yaml()


def snippet(folder: Path, model: str, recipe: Recipe) -> str:
    """Returns code that captions ``photo.jpg``, with transformers alone if possible, or else with tellapart."""
    decoding = recipe.evaluation.decoding
    options = saved_options(str(folder))
    prompt, maker = options.chosen.get("prompt"), options.made_by
    fields = {
        "model": model,
        "beams": decoding.beams if decoding.kind == "beam" else 1,
        "max_tokens": decoding.max_tokens,
        "allow": f'from tellapart.utils.allowed_code import allow_code\n\nallow_code("{maker}")' if maker else "",
        "prompt": f"text={json.dumps(prompt, ensure_ascii=False)}, " if prompt else "",
    }
    return (WITH_TRANSFORMERS if of_transformers(folder) and model_type(folder) == "blip" else WITH_TELLAPART).format(
        **fields
    )


def model_type(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type", ""))


def of_transformers(folder: Path) -> bool:
    """Returns True if transformers can load this model without tellapart and without remote code."""
    return model_type(folder) in configuration_auto.CONFIG_MAPPING_NAMES and not saved_options(str(folder)).made_by


def hub_base(name: str) -> str | None:
    """Returns the base model's hub id. If the name is a folder, reads the hub id from the model card in the folder."""
    bare = name.partition("?")[0]
    if bare == "scenes" or Path(bare).expanduser().is_dir():
        card = Path(model_folder(bare, "captioner")) / CARD
        base = (
            huggingface_hub.ModelCard.load(card, ignore_metadata_errors=True).data.base_model
            if card.is_file()
            else None
        )
        return base if isinstance(base, str) else None
    try:
        huggingface_hub.utils.validate_repo_id(bare)
    except huggingface_hub.utils.HFValidationError:
        return None
    return None if Path(bare).suffix in (".pt", ".pth") else bare


def hub_datasets(recipe: Recipe) -> Iterator[str]:
    """Yields the hub id or name of each published data set in the training data."""
    for spec in spec_list(recipe.data.train):
        kind, path, _ = parse(spec)
        if kind == "hf" and not path.exists():
            yield path.as_posix()
        elif READERS.find(kind).published:
            yield kind


def setting(candidates: dict[str, Any] | None) -> str:
    """Returns table cells with a recall's number of candidates and chance level, or empty cells for other metrics."""
    return " | " if candidates is None else f"{Candidates(**candidates)} | {candidates['chance']:.1f}"


def figure(result: dict[str, Any]) -> str:
    if result["value"] is None:
        return ""
    known = result["low"] is not None and result["high"] is not None  # too few pictures have no interval
    return f"{result['value']:.2f}" + (f" ({result['low']:.2f} to {result['high']:.2f})" if known else "")
