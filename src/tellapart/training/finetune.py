"""Plans a recipe for a captioner and pictures, trains it, writes a model card, and uploads both."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import huggingface_hub
import huggingface_hub.errors
import huggingface_hub.utils
import psutil
import torch
import transformers
from transformers.models.auto import configuration_auto

from tellapart import __version__
from tellapart.data import open_many
from tellapart.data.dataset import Dataset
from tellapart.data.specification import parse
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.evaluation.formats import read_results
from tellapart.metrics.results import Candidates
from tellapart.models import ranks
from tellapart.models.devices import best_device, resolve_precision
from tellapart.models.names import model_folder
from tellapart.models.saved import checked_model_folder, saved_options
from tellapart.recipe.presets import default_objective, objective_table, reads_references
from tellapart.recipe.reading import apply_override, check_recipe, read_recipe
from tellapart.recipe.schema import Recipe, Training
from tellapart.training.fingerprint import picture_identity
from tellapart.training.loop import kept_start
from tellapart.training.run_folder import Run, write_text
from tellapart.training.runs import train
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.registry import OPTION

CLIP = "openai/clip-vit-base-patch32"  # the listener where none is named: small, and known to everybody
SAMPLED = {"kind": "sample", "temperature": 0.5, "samples": 4}
RATE, LORA_RATE = 3e-5, 3e-4
TOKENS_A_WORD = 1.4  # about what tokenizers of English make of a caption's words, punctuation counted
STEPS, BATCH = 300, 50
FEWEST = 8  # pictures: two held out for the table, two for validation, and some to learn from
SHARE = 0.4  # of the free memory, for what the backward pass keeps


def plan(
    model: str,
    pictures: Sequence[str],
    *,
    objective: str | None = None,
    scorer: str | None = None,
    lora: bool = False,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    rate: float | None = None,
    max_tokens: int = 30,
    seed: int = 0,
    settings: Sequence[str] = (),
    folder: Path | None = None,
    overwrite: bool = False,
) -> Recipe:
    """Returns the recipe for this captioner and these pictures.

    A tenth of the pictures is held out for validation and another for the table before and after (a quarter each where
    there are fewer than forty). ``objective``: a preset, by default `default_objective`. ``scorer``: default
    ``scenes`` for pictures of the synthetic world, else `CLIP`. ``batch_size``: pictures a step, by default `BATCH` or
    what is there; its backward pass goes in as many parts as free memory asks for. ``epochs``: passes over the
    training pictures, in place of ``steps`` (default `STEPS`). ``settings``: further keys as ``--set`` has them,
    which overrule all else. ``folder``: the run's; what free memory and hardware decided when it began there is
    kept, for it is part of what is trained, and so are its steps where none are given. ``overwrite``: not so.

    Raises `UsageError` for an unknown objective, too few pictures, pictures without the references that the objective
    reads, and where fewer steps are given than a run in ``folder`` has.
    """
    if steps is not None and epochs is not None:
        raise UsageError("--steps and --epochs both say how long to train; leave one of them out")
    photos = not all(spec.startswith("scenes") for spec in pictures)
    objective = objective or default_objective(photos=photos)
    objective_options = objective_table(objective)
    count, bare, longest = survey(pictures)
    if bare and reads_references(objective_options):
        raise UsageError(
            f"{bare:,} of {count:,} pictures have no reference, which objective '{objective}' learns from; "
            "give captions of them, or type --objective self-retrieval"
        )
    parts = 4 if count < 40 else 10 if count <= 10_000 else 50
    learned = [part_of(spec, range(1, parts - 1), parts) for spec in pictures]
    learned_from = len(
        open_many(learned)
    )  # limit=… in a specification is of each part, so not (parts − 2) / parts of all
    if batch_size is not None and batch_size > learned_from:
        raise UsageError(
            f"--batch-size {batch_size}: of {count:,} pictures {learned_from:,} are left to learn from; "
            "expected at most so many"
        )
    batch = batch_size or min(BATCH, count * (parts - 2) // parts)
    before = None if overwrite else planned(folder)
    if epochs is not None:
        steps = max(1, round(epochs * learned_from / batch))
    if before is not None and steps is not None and steps < before.steps:
        raise UsageError(
            f"{folder} holds a run of {before.steps:,} steps; expected more of them, to go on with it (--steps "
            f"{2 * before.steps}); to begin anew with {steps:,}, type: --overwrite, or another --out"
        )
    steps = steps or (before.steps if before else STEPS)
    samples = 1
    if objective_options["kind"] == "reinforce":
        objective_options = {"decoding": SAMPLED, **objective_options}
        samples = objective_options["decoding"]["samples"]
    decoding = {"kind": "greedy", "max_tokens": max_tokens}
    tokens = (
        math.ceil(TOKENS_A_WORD * longest)
        if objective_options["kind"] != "reinforce" and reads_references(objective_options)
        else max_tokens
    )
    test_size = max(2, count // parts)
    table = {
        "name": "finetune",
        "about": f"{objective} on {' '.join(pictures)}, settings by tellapart finetune.",
        "seed": seed,
        "data": {
            "train": learned,
            "validation": [part_of(spec, [parts - 1], parts) for spec in pictures],
            "test": [part_of(spec, [parts], parts) for spec in pictures],
        },
        "captioner": {"name": model} | ({"lora": {}, "train": ["language_model"]} if lora else {}),
        "scorer": {"name": scorer or (CLIP if photos else "scenes")},
        "objective": as_long(objective_options, max_tokens),
        "training": {
            "steps": steps,
            "batch_size": batch,
            "gradient_accumulation_steps": before.gradient_accumulation_steps
            if before
            else parts_of_batch(model, batch * samples, tokens),
            "learning_rate": rate or (LORA_RATE if lora else RATE),
            "schedule": "linear",
            "warmup": min(10, steps // 10),
            "precision": before.precision if before else resolve_precision("auto", best_device()),
            "checkpoint_every": max(1, steps // 6),
        },
        "validation": {
            "every": max(1, steps // 4),
            "limit": 500,
            "decoding": decoding,
        },
        "evaluation": {"decoding": decoding, "lookalike": min(10, test_size)},
    }
    for setting in settings:
        apply_override(table, setting)
    recipe = check_recipe(table, "finetune")
    if recipe.validation.select is None:  # the objective's own metric; R@1 among look-alikes, which has no ceiling
        own = "recall@1.lookalike" if recipe.objective.measure == "recall" else recipe.select
        apply_override(table, f"validation.select={own}")
        recipe = check_recipe(table, "finetune")
    return recipe


def as_long(objective: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Returns this table [objective] with ``max_tokens`` of its samples, and of those that its rewards draw."""
    longer = {"decoding": {**objective["decoding"], "max_tokens": max_tokens}} if "decoding" in objective else {}
    rewards = [as_long(reward, max_tokens) for reward in objective.get("rewards", ())]
    return {**objective, **longer} | ({"rewards": rewards} if rewards else {})


def survey(pictures: Sequence[str]) -> tuple[int, int, int]:
    """Counts the pictures, those without a reference, and the words of the longest reference."""
    dataset = open_many(list(pictures))
    count = len(dataset)
    if count < FEWEST:
        raise UsageError(
            f"{' '.join(pictures)}: {count} pictures; expected at least {FEWEST}, some of them to be held out"
        )
    if (different := different_pictures(dataset)) < FEWEST:
        raise UsageError(
            f"{' '.join(pictures)}: {count} pictures, {different} of them different; expected at least {FEWEST}, for "
            "what is held out must not be a copy of what is learned"
        )
    references = [item.references for item in dataset]
    longest = max((len(text.split()) for texts in references for text in texts), default=0)
    return count, sum(not texts for texts in references), longest


def different_pictures(dataset: Dataset) -> int:
    """Counts the pictures that are no copies of each other, by their bytes, up to `FEWEST`."""
    found: set[int | str] = set()
    for identity in (picture_identity, key_of):  # by their files' sizes, where these say enough
        found = set()
        for item in dataset:
            found.add(identity(item))
            if len(found) == FEWEST:
                return FEWEST
    return len(found)


def key_of(item: Item) -> str:
    """Returns the key of the picture's content, or its id where it cannot be read: that is told where it is to be
    encoded."""
    try:
        return item.picture.key()
    except PictureError:
        return item.id


def part_of(spec: str, chosen: Sequence[int], parts: int) -> str:
    """Returns the specification of some of its parts; a bare folder is one of kind ``folder``."""
    if "part=" in spec:
        raise UsageError(f"{spec} has a part of its own, and finetune holds parts out; leave part=… away")
    return f"{spec}{'&' if '?' in spec else '?'}part={','.join(map(str, chosen))}/{parts}"


def planned(folder: Path | None) -> Training | None:
    """Returns the settings of the run in this folder; None where none has begun."""
    if folder is None or not (folder / "run.json").is_file() or not (folder / "recipe.toml").is_file():
        return None
    return read_recipe(folder / "recipe.toml").training


def parts_of_batch(model: str, captions: int, tokens: int) -> int:
    """Returns the number of micro-batches with which the activations of the language model fit into memory.

    A token keeps some 34 hidden vectors a layer and three rows of scores (Korthikanti et al. 2022, table 2), each of
    four bytes. 1 where the model's size cannot be read before it is loaded.
    """

    bare, _, options = model.partition("?")
    named = dict(parse_qsl(options)).get("language_model", bare)  # of a ClipCap, and of published weights of one
    try:
        text = transformers.AutoConfig.from_pretrained(
            checked_model_folder(named, "captioner"), trust_remote_code=False
        ).get_text_config()
        size: int = text.num_hidden_layers * text.hidden_size * 34 + text.vocab_size * 3
    except (OSError, ValueError, AttributeError, RecursionError, TellapartError):
        return 1  # a wrong name is reported when it is loaded
    return max(1, math.ceil(4 * captions * (tokens + 20) * size / (SHARE * free_memory())))


def free_memory() -> int:
    """Returns bytes, of the GPU where there is one; the main rank's, for all ranks plan the same run."""
    if torch.cuda.is_available():
        return int(ranks.from_main(torch.cuda.mem_get_info()[0]))

    return int(ranks.from_main(psutil.virtual_memory().available / ranks.count()))


def summary(recipe: Recipe, out: Path) -> str:
    """Returns a line that says what is trained on what, and for how long."""
    specs = [recipe.data.train, recipe.data.validation, recipe.data.test or ()]
    train, validation, test = (len(open_many([one] if isinstance(one, str) else one)) for one in specs)
    steps, batch = recipe.training.steps, recipe.training.batch_size
    return (
        f"{recipe.about.partition(', settings')[0]}: {train:,} pictures to learn from, {validation:,} for validation, "
        f"{test:,} for the table; {steps:,} steps of {batch:,} pictures; all settings: {out / 'recipe.toml'}"
    )


def run_finetune(
    recipe: Recipe, out: Path, *, hub_id: str | None = None, private: bool = False, overwrite: bool = False
) -> Run:
    """Trains the recipe into ``out``, or goes on there, also for more steps, and puts a card beside the model.

    ``hub_id``: upload both. ``overwrite``: remove the run that is there.
    """
    repository = None if hub_id is None else check_hub(hub_id)
    run = train(recipe, out, resume=True, overwrite=overwrite, extend=True, summary=summary(recipe, out))
    if not ranks.is_main():
        return run
    model = run.folder / "model"
    write_text(model / FILE, model_card(run, repository))
    if repository is not None:
        say(f"pushed to {push_folder(model, repository, private=private)}")
    return run


FILE = "README.md"
PUBLISHED = ("flickr8k", "coco", "conceptual", "nocaps", "concadia", "imagecode", "msrvtt", "tgif", "msvd")
BODY = """
# {title}, fine-tuned to tell pictures apart

{about}

Made by tellapart {version}; the whole recipe is `recipe.toml` in the run's folder. Licence: that of the base model and
of the pictures, which this card does not know.

## Evaluation

On pictures held out from training, with 95 % bootstrap intervals; the recalls are by {scorer}.

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
    """Returns the card of a run's model. ``hub_id``: its name on the hub; by default the snippet names the folder."""
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
    rewarded = ", which also gave the rewards" if recipe.objective.kind == "reinforce" else ""
    model = hub_id or folder.as_posix()
    body = BODY.format(
        title=Path(recipe.captioner.name.partition("?")[0]).name,
        about=recipe.about,
        version=__version__,
        scorer=f"`{recipe.scorer.name}`{rewarded}",
        rows="\n".join(rows),
        kept="" if run.info.get("kept_step") != 0 else f"\n{kept_start(recipe)}.\n",
        snippet=snippet(folder, model, recipe),
        model=model,
        option=f" {OPTION} {maker}" if (maker := saved_options(str(folder)).get("made_by")) else "",
    )
    return f"---\n{metadata(folder, recipe)}\n---\n{body}"


def metadata(folder: Path, recipe: Recipe) -> str:
    """Returns the card's YAML. What the hub would refuse (a base model or data set that is a folder here) is left
    out."""
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
    """Returns code that captions ``photo.jpg``: plain transformers for BLIP, which needs no more; else tellapart's
    own."""
    decoding = recipe.evaluation.decoding
    options = saved_options(str(folder))
    prompt, maker = options.get("prompt"), options.get("made_by")
    fields = {
        "model": model,
        "beams": decoding.beams if decoding.kind == "beam" else 1,
        "max_tokens": decoding.max_tokens,
        "allow": f'from tellapart.utils.registry import allow_code\n\nallow_code("{maker}")' if maker else "",
        "prompt": f"text={json.dumps(prompt, ensure_ascii=False)}, " if prompt else "",
    }
    return (WITH_TRANSFORMERS if of_transformers(folder) and model_type(folder) == "blip" else WITH_TELLAPART).format(
        **fields
    )


def model_type(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type", ""))


def of_transformers(folder: Path) -> bool:
    """Returns whether transformers has the class of this model without tellapart and without code of somebody's own."""
    return model_type(folder) in configuration_auto.CONFIG_MAPPING_NAMES and "made_by" not in saved_options(str(folder))


def hub_base(name: str) -> str | None:
    """Returns the hub's name of the model that this one comes from: its own, or what the card of its folder says."""
    bare = name.partition("?")[0]
    if bare == "scenes" or Path(bare).expanduser().is_dir():
        card = Path(model_folder(bare, "captioner")) / FILE
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
    """Yields the published sets among the training data, by the hub's names or their own."""
    train = recipe.data.train
    for spec in (train,) if isinstance(train, str) else train:
        kind, path, _ = parse(spec)
        if kind == "hf" and not path.exists():
            yield path.as_posix()
        elif kind in PUBLISHED:
            yield kind


def setting(found: dict[str, Any] | None) -> str:
    """Returns the cells of a recall's candidates and chance; empty for other metrics."""
    return " | " if found is None else f"{Candidates(**found)} | {found['chance']:.1f}"


def figure(found: dict[str, Any]) -> str:
    if found["value"] is None:
        return ""
    return f"{found['value']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def check_hub(hub_id: str) -> str:
    """Returns the whole name of a repository that this machine's token may write to: ``USER/NAME``.

    Raises `UsageError` for a name that the hub does not take or a missing token, `TellapartError` where the hub does
    not answer or refuses the token.
    """
    try:
        huggingface_hub.utils.validate_repo_id(hub_id)
    except huggingface_hub.utils.HFValidationError:
        raise UsageError(f"--push-to-hub {hub_id} is no name of a repository; expected USER/NAME") from None
    if huggingface_hub.get_token() is None:
        raise UsageError("--push-to-hub needs a token that may write; type: hf auth login, or set HF_TOKEN")
    with talking(hub_id, "nothing was trained"):
        user = huggingface_hub.HfApi().whoami()["name"]
    return hub_id if "/" in hub_id else f"{user}/{hub_id}"


def push_folder(folder: Path, hub_id: str, *, private: bool = False) -> str:
    """Makes the repository where there is none, uploads the folder in a commit, and returns the page's address.

    Raises `TellapartError` where the hub does not answer or refuses.
    """
    again = f"the model is whole in {folder}; type: hf upload {hub_id} {shlex.quote(str(folder))}"
    with talking(hub_id, again):
        api = huggingface_hub.HfApi()
        address = api.create_repo(hub_id, private=private or None, exist_ok=True)
        api.upload_folder(repo_id=hub_id, folder_path=folder, commit_message="Model and card by tellapart")
    return str(address)


@contextmanager
def talking(hub_id: str, otherwise: str) -> Iterator[None]:
    """Turns what goes wrong on the way to the hub into one line; ``otherwise``: what is left, and what to type."""
    client_error: type[Exception]  # of the HTTP client below it, which is another one from version to version
    client_error = huggingface_hub.errors.HfHubHTTPError.__bases__[0]
    try:
        yield
    except huggingface_hub.errors.OfflineModeIsEnabled:
        raise UsageError(f"cannot push to {hub_id}: HF_HUB_OFFLINE is set; unset it; {otherwise}") from None
    except (client_error, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:240] or type(error).__name__
        raise TellapartError(f"cannot push to {hub_id}: {cause.rstrip('.')}; {otherwise}") from error
