"""The recipes of the full-size rows run on tiny models, and docs/papers.md leads to what is really there."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_blip import save_blip

from tellapart.captioners import Captioner
from tellapart.errors import UsageError
from tellapart.recipe import mistakes
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import Recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.fingerprint import canonical
from tellapart.training.loop import fit
from tellapart.training.run_folder import Run
from tellapart.training.runs import upstream

ROOT = Path(__file__).parent.parent
RECIPES = sorted((ROOT / "recipes" / "papers").glob("*.toml"))
PAGE = ROOT / "docs" / "papers.md"


# --- the recipes


@pytest.fixture(scope="module")
def tiny_blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a BLIP with random weights that knows the words of scenes."""
    from tellapart.scenes import Scenes

    texts = [text for scene in Scenes(60, detail=0.8) for text in scene.references]
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    return save_blip(tmp_path_factory.mktemp("blip"), words, positions=64)


@pytest.fixture(scope="module")
def tiny_recurrent(tiny_scorer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of paper 4's captioner with random weights."""
    from tellapart.captioners.vision_encoders import load_vision
    from tellapart.recipe.schema import NewRecurrent
    from tellapart.scenes import Scenes
    from tellapart.training.new_models import build_recurrent

    folder = tmp_path_factory.mktemp("recurrent")
    texts = [text for scene in Scenes(60, detail=0.8) for text in scene.references]
    torch.manual_seed(0)
    new = NewRecurrent(kind="recurrent", vision=str(tiny_scorer), width=16, min_count=1)
    build_recurrent(new, texts, "tiny", *load_vision(str(tiny_scorer))).save(folder)
    return folder


@pytest.fixture(scope="module")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a LLaMA with random weights, and a few instructions in Alpaca's layout beside it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from tellapart.models.word_tokenizer import word_tokenizer

    folder = tmp_path_factory.mktemp("llama")
    told = [{"instruction": f"say {word}", "input": "", "output": f"{word} it is"} for word in "abcdefghijklmnopqrst"]
    (folder / "alpaca_data.json").write_text(json.dumps(told))
    tokenizer = word_tokenizer([text for entry in told for text in entry.values()])
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **size, **ends)
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings(path: Path, captioner: Path, scorer: Path) -> list[str]:
    """What stands for names, data and size; objective, optimizer and what is trained stay those of the recipe."""
    published = read_recipe(path)
    changed = [
        *data_of(published, captioner),
        *([f"scorer.name='{scorer}'"] if published.scorer is not None else []),
        "training.steps=2",
        "training.batch_size=20",
        "training.learning_rate=1e-3",
        "training.log_every=1",
        "training.checkpoint_every=2",
        "validation.every=2",
        "validation.decoding={kind='greedy', max_tokens=5}",
        "evaluation.lookalike=5",
    ]
    if published.captioner is not None and published.captioner.new is not None:
        changed += [f"captioner.new.vision='{scorer}'", "captioner.new.width=16", "captioner.new.min_count=1"]
    else:
        assert published.captioner is not None and published.captioner.name is not None
        options = published.captioner.name.partition("?")[2]
        prompt = f"?{options}" if options.startswith("prompt=") else ""
        changed.append(f"captioner.name='{captioner}{prompt}'")
    if published.objective.kind == "reinforce":
        changed.append("objective.decoding.max_tokens=5")
    if published.bags is not None:
        changed.append("bags.schedule=[[0, 2], [1, 3]]")
    if published.captioner is not None and published.captioner.lora is not None and "alpaca" not in path.stem:
        changed.append("captioner.lora.modules=['c_attn', 'attn.c_proj', 'convolution']")  # the tower is a ResNet
    return changed


def data_of(published: Recipe, captioner: Path) -> list[str]:
    """Scenes for pictures, and a few instructions where the recipe's data are instructions."""
    if str(published.data.train).startswith("instructions:"):
        return [f"data.{part}='instructions:{captioner}/alpaca_data.json'" for part in ("train", "validation")]
    sizes = {"train": 40, "validation": 20, "test": 20}
    return [f'data.{part}="scenes:plain?n={n}&split={part}"' for part, n in sizes.items()]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_of_a_full_size_row_runs_on_tiny_models(
    path: Path,
    tiny_captioner: Path,
    tiny_scorer: Path,
    tiny_blip: Path,
    tiny_recurrent: Path,
    tiny_llama: Path,
    tmp_path: Path,
) -> None:
    others = {"blip": tiny_blip, "sle": tiny_recurrent, "alpaca": tiny_llama}
    start = next((model for kind, model in others.items() if kind in path.stem.split("_")), tiny_captioner)
    recipe = read_recipe(path, settings(path, start, tiny_scorer))
    setup = TrainingSetup(recipe, upstream)
    before = parameters(setup.learner)
    run = Run(tmp_path, recipe)
    run.stamp("cpu")
    fit(setup, run)
    steps = [json.loads(line) for line in run.log_path.read_text().splitlines()]
    assert [line["step"] for line in steps if "loss" in line and "event" not in line] == [1, 2]
    after = parameters(setup.learner)
    assert all(torch.isfinite(tensor).all() for tensor in after.values())
    moved = {name.split(".")[0] for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert recipe.captioner is not None and recipe.captioner.train is not None
    assert moved == set(recipe.captioner.train)


def parameters(captioner: Captioner) -> dict[str, torch.Tensor]:
    """A copy of a captioner's parameters, as ``part.name``."""
    return {
        f"{part}.{name}": parameter.detach().clone()
        for part, module in captioner.parts().items()
        for name, parameter in module.named_parameters()
    }


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_says_which_paper_it_is_of(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.name == path.stem
    assert re.search(r"[Pp]aper [1-4]\b", recipe.about)
    assert f"recipes/papers/{path.name}" in PAGE.read_text(), "docs/papers.md does not name it"


def test_steps_are_the_papers_epochs() -> None:
    """The arithmetic that the recipes' comments tell, on the sizes of Karpathy's COCO."""
    pictures, pairs = 113_287, 566_747
    steps = {path.stem: read_recipe(path).training.steps for path in RECIPES}
    assert steps["smile_blip_coco"] == steps["smile_clipcap_coco"] == 5 * (pairs // 128)
    assert steps["discritune_clipcap_coco"] == 20 * (pictures // 100)
    assert steps["discritune_blip_coco"] == pictures // 100
    mle = read_recipe(ROOT / "recipes" / "papers" / "mle_clipcap_coco.toml").training
    assert (mle.steps, mle.warmup, mle.schedule, mle.batch_size * mle.captions_per_picture) == (
        30000,
        1000,
        "linear",
        40,
    )
    bags = read_recipe(ROOT / "recipes" / "papers" / "sr_lv_bagcurri_coco.toml").bags
    assert bags is not None
    sizes = [[size for start, size in bags.stages if start <= epoch][-1] for epoch in range(20)]
    epochs = [pictures // size // (100 // size) for size in sizes]
    assert sum(epochs[:19]) < steps["sr_lv_bagcurri_coco"] <= sum(epochs) == 23_124


# What the papers (and, where they are silent, the authors' programs) train with. Paper 4 gives neither rate nor batch.
PUBLISHED: dict[str, dict[str, Any]] = {
    "smile_blip_coco": {
        "training.batch_size": 128, "training.learning_rate": 1e-5, "training.weight_decay": 0.05,
        "training.schedule": "cosine", "training.schedule_every": 566_747 // 128,
        "training.max_reference_tokens": 40 - 4,
        "training.optimizer": "adamw", "captioner.dropout": 0.1, "captioner.train": ("vision", "language_model"),
        "captioner.name": "Salesforce/blip-image-captioning-base?prompt=a picture of ",
        "objective.subset": "own", "objective.first_token": "mle", "objective.mle_weight": 0.0,
        "objective.label_smoothing": 0.0, "evaluation.decoding.beams": 3, "evaluation.decoding.max_tokens": 75 - 4,
        "data.clean": "blip", "training.augment": "blip",
    },
    "smile_alpaca": {"training.batch_size": 8},
    "mle_clipcap_coco": {
        "training.learning_rate": 2e-5, "training.optimizer": "adamw", "evaluation.decoding.max_tokens": 50 - 10,
        "captioner.name": "clipcap?vision=openai/clip-vit-base-patch32&language_model=gpt2&mapper=mlp&prefix_length=10"
        "&stop=.",
    },
    **{
        name: {
            "training.batch_size": 100, "training.steps": 23_000, "training.learning_rate": rate, "training.warmup": 0,
            "training.schedule": "constant", "training.optimizer": "adamw", "captioner.lora.rank": 32,
            "captioner.lora.alpha": 16, "objective.decoding.kind": "sample", "objective.decoding.temperature": 0.3,
            "objective.length_normalization": "words", "objective.baseline": baseline, "evaluation.decoding.beams": 5,
            "objective.decoding.max_tokens": 50 - 10, "validation.decoding.max_tokens": 50 - 10,
            "evaluation.decoding.max_tokens": 50 - 10, "captioner.dropout": dropout,
        }
        for name, rate, baseline, dropout in (
            ("sr_l_coco", 9e-8, "running_mean", None), ("sr_lv_bagcurri_coco", 9e-8, "running_mean", 0),
            ("cider_coco", 1e-6, "greedy", None), ("cider_sr_bagcurri_coco", 1e-7, "greedy", 0),
        )
    },
    **{
        name: {
            "training.batch_size": 100, "training.learning_rate": 1e-7, "training.schedule": "constant",
            "training.optimizer": "adam", "objective.decoding.kind": "greedy", "objective.dropout_in_rollout": True,
            "objective.baseline": "running_mean", **more,
        }
        for name, more in (
            (
                "discritune_clipcap_coco",
                {"objective.length_normalization": "length+1", "objective.decoding.max_tokens": 40 - 10},
            ),
            (
                "discritune_blip_coco",
                {
                    "objective.length_normalization": "length", "objective.decoding.max_tokens": 40 - 4,
                    "captioner.dropout": 0.1,
                    "captioner.name": "Salesforce/blip-image-captioning-base?prompt=a picture of ",
                },
            ),
        )
    },
    "sle_coco": {
        "objective.decoding.samples": 5, "objective.exploration.alpha": 0.75, "objective.baseline": "greedy",
        "objective.length_normalization": "none", "training.optimizer": "adam", "evaluation.decoding.beams": 5,
    },
    "sle_mle_coco": {
        "captioner.new.width": 512, "captioner.new.vision": "microsoft/resnet-152", "training.optimizer": "adam",
        "evaluation.decoding.beams": 5,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_has_the_published_settings(name: str) -> None:
    recipe = read_recipe(ROOT / "recipes" / "papers" / f"{name}.toml")
    for key, wanted in PUBLISHED[name].items():
        found: Any = recipe
        for part in key.split("."):
            found = getattr(found, part)
        assert found == wanted, key


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_gradients_are_clipped_only_where_the_recipe_says_why(path: Path) -> None:
    """No paper names a limit; paper 1's language models learn with a program (LMFlow) that has one."""
    assert read_recipe(path).training.max_grad_norm == (1.0 if path.stem == "smile_alpaca" else 1e9)


@pytest.mark.parametrize("name", ["sr_lv_bagcurri_coco", "cider_sr_bagcurri_coco"])
def test_a_recipe_has_the_published_bags_and_rewards(name: str) -> None:
    """Paper 2: B.2 (200 retrievals), Figure 5, and R = SR + 0.5 · CIDEr (Table 13)."""
    recipe = read_recipe(ROOT / "recipes" / "papers" / f"{name}.toml")
    assert recipe.bags is not None
    assert recipe.bags.neighbours == 200
    assert recipe.bags.stages == ((0, 2), (3, 3), (8, 5), (10, 7), (12, 10), (14, 15), (17, 20))
    found = [(reward.kind, reward.weight) for reward in recipe.objective.reward_options]
    assert found == [("self_retrieval", 1.0), ("cider", 0.5)][: len(found)]
    assert len(found) == (2 if "cider" in name else 1)


# --- docs/papers.md


def links() -> Iterator[tuple[str, str]]:
    """(text, target) of every relative link."""
    for text, target in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", PAGE.read_text()):
        if not target.startswith(("http", "#")):
            yield text, target


@pytest.mark.parametrize(("text", "target"), sorted(set(links())))
def test_a_link_leads_to_the_file_that_has_what_it_names(text: str, target: str) -> None:
    path = (PAGE.parent / target.partition("#")[0]).resolve()
    assert path.exists()
    assert path.is_relative_to(ROOT)
    if path.suffix == ".py":
        assert text.strip("`") in names_in(path)
    if path.suffix == ".toml":
        assert text.strip("`") == path.stem


def names_in(path: Path) -> set[str]:
    """What a module defines at its top: functions, classes, constants, and a class's methods as ``Class.method``."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def commands() -> list[str]:
    """Every ``tellapart train recipes/…`` of the page."""
    return sorted(set(re.findall(r"^tellapart train recipes/[^\n#]+", PAGE.read_text(), flags=re.MULTILINE)))


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_page_is_a_recipe_that_parses(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    path, settings = settings_of(command)
    told = canonical(read_recipe(path, settings))
    for i in range(len(settings)):
        assert canonical_or_none(path, settings[:i] + settings[i + 1 :]) != told, f"{settings[i]} changes nothing"


def test_recipes_and_page_use_keys_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for path, settings in [*((path, []) for path in RECIPES), *map(settings_of, commands())]:
        read_recipe(path, settings)
    tables = mistakes.tables_of(Recipe)
    known = {mistakes.typed((*place, key), tables) for place, keys in tables.items() for key in keys}
    names = "bags|captioner|data|evaluation|objective|scorer|training|validation"
    keys = set(re.findall(rf"\b((?:{names})(?:\.\w+)+)", PAGE.read_text()))
    assert len(keys) > 20
    assert {key for key in keys - known if not re.search(r"\.(md|jsonl)$|^evaluation\.test_sets\.", key)} == set()


def settings_of(command: str) -> tuple[Path, list[str]]:
    """The recipe and what is set; ``--out FOLDER`` aside."""
    path, *options = shlex.split(command)[2:]
    assert set(options[::2]) <= {"--set", "--out"} and len(options) % 2 == 0
    pairs = zip(options[::2], options[1::2], strict=True)
    return Path(path), [value for option, value in pairs if option == "--set"]


def canonical_or_none(path: Path, settings: list[str]) -> dict[str, Any] | None:
    """None for settings that do not go together without one that was left out."""
    try:
        return canonical(read_recipe(path, settings))
    except UsageError:
        return None


@pytest.mark.parametrize("command", [command for command in commands() if "holistic" in command])
def test_what_starts_from_holistic_captions_reads_them_too(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CIDEr reward, bags and measured CIDEr read references: those of the start's own kind, long ones."""
    monkeypatch.chdir(ROOT)
    recipe = read_recipe(*settings_of(command))
    assert recipe.captioner is not None and recipe.captioner.name is not None
    assert recipe.captioner.name.startswith(("clipcap-holistic", "clipcap?"))
    files = (recipe.data.train, recipe.data.validation, recipe.data.test)
    assert files == tuple(f"holistic/{part}.jsonl" for part in ("train", "validation", "test"))
    assert recipe.bags is None or recipe.bags.captions == "references"
    decodings = [recipe.validation.decoding, recipe.evaluation.decoding]
    decodings += [recipe.objective.decoding] if recipe.objective.kind == "reinforce" else []
    assert {decoding.max_tokens for decoding in decodings} == {40}


# What each paper numbers, so that nothing of it is left out of the page.
NUMBERED: dict[int, dict[str, list[Any]]] = {
    1: {"Eq.": [*range(1, 5)], "Algorithm": [1], "Table": [*range(1, 11)], "Figure": [*range(1, 6)]},
    2: {"Eq.": [1], "Algorithm": [1, 2], "Table": [*range(1, 15)], "Figure": [*range(1, 10)]},
    3: {"Eq.": [1], "Table": [*range(1, 15)], "Figure": [*range(1, 4)]},
    4: {"Eq.": [*range(1, 17)], "Algorithm": [1], "Table": [*range(1, 5)], "Figure": [*range(1, 5)]},
}


@pytest.mark.parametrize("paper", NUMBERED)
def test_the_page_has_a_row_for_all_that_a_paper_numbers(paper: int) -> None:
    section = re.split(r"^## Paper \d", PAGE.read_text(), flags=re.MULTILINE)[paper]
    told = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    expected = {f"{kind} {number}" for kind, numbers in NUMBERED[paper].items() for number in numbers}
    assert {name for cell in told for name in numbered(cell)} == expected


def numbered(cell: str) -> Iterator[str]:
    """``Table 12, 13`` is two of them; ``Eq. 5-6`` too. What is not numbered has none."""
    kind, _, numbers = cell.partition(" ")
    if kind not in ("Eq.", "Algorithm", "Table", "Figure"):
        return
    for part in numbers.split(","):
        first, _, last = part.strip().partition("-")
        yield from (f"{kind} {number}" for number in range(int(first), int(last or first) + 1))


def test_the_page_names_every_claim_and_no_other() -> None:
    claims = ROOT.parent / "shared" / "claims.md"
    if not claims.is_file():
        pytest.skip(f"no list of claims at {claims}")
    listed = set(re.findall(r"^\| ([a-z]+(?:-[a-z]+)*) \| [1-4],", claims.read_text(), flags=re.MULTILINE))
    assert len(listed) == 28
    assert {name for name in listed if f"`{name}`" in PAGE.read_text()} == listed
