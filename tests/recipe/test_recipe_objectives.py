"""Rewards, exploration and LoRA in recipes: what is written is what is made, and what cannot work is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tellapart.errors import UsageError
from tellapart.metrics.cider import CiderD
from tellapart.objectives.baselines import RunningMean, leave_one_out
from tellapart.objectives.reinforce import Reinforce
from tellapart.recipe.reading import check_recipe, read_recipe, to_toml
from tellapart.recipe.schema import Recipe
from tellapart.rewards import Alternating, Averaged, CiderReward, MetricReward, SelfRetrieval
from tellapart.training.build import TrainingSetup
from tellapart.training.checks import check_setup
from tellapart.training.fingerprint import content_of
from tellapart.training.objective import objective_of
from tellapart.training.runs import train, upstream
from tellapart.types import Batch, Rollout
from tellapart.utils.allowed_code import allow_code

RECIPES = Path(__file__).parents[2] / "recipes"
SAMPLES = 'objective.decoding={kind="sample", samples=5}'
RECIPE = """
name = "small"
[data]
train = "scenes:plain?n=60"
validation = "scenes:plain?n=30&split=validation"
[captioner]
name = "scenes"
[scorer]
name = "scenes"
[objective]
kind = "reinforce"
[training]
steps = 6
learning_rate = 1e-3
"""


def read(tmp_path: Path, *settings: str, text: str = RECIPE) -> Recipe:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return read_recipe(path, settings)


def made(table: dict[str, Any], **objective: Any) -> Reinforce:
    setup = TrainingSetup(check_recipe(table | {"objective": {"kind": "reinforce", **objective}}, "test"), upstream)
    found = objective_of(setup)
    assert isinstance(found, Reinforce)
    return found


def test_the_simple_form_is_self_retrieval_and_its_fingerprint_is_that_of_the_whole(tmp_path: Path) -> None:
    plain = read(tmp_path)
    rewards = 'objective.rewards=[{kind="self_retrieval", weight=1.0}]'
    written = read(tmp_path, rewards, "training.gradient_accumulation_steps=1")
    assert written == plain and content_of(written).fingerprint == content_of(plain).fingerprint


def test_kinds_of_rewards_have_different_fingerprints(tmp_path: Path) -> None:
    kinds = ['{kind="cider"}', '{kind="bleu"}', '{kind="self_retrieval", score="cosine"}']
    recipes = [read(tmp_path, f"objective.rewards=[{kind}]") for kind in kinds]
    assert len({content_of(recipe).fingerprint for recipe in recipes}) == 3


def test_rewards_survive_the_round_trip_through_toml(tmp_path: Path) -> None:
    own = '{kind="custom", reward="my.module:make", options={name="a \\"b\\"", sizes=[1, 2], deep={x=1.5}}}'
    recipe = read(tmp_path, f'objective.rewards=[{{kind="cider", idf="batch", weight=0.5}}, {own}]', SAMPLES)
    again = read(tmp_path, text=to_toml(recipe))
    assert again == recipe and content_of(again).fingerprint == content_of(recipe).fingerprint


def test_names_in_a_reward_stand_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLAPART_DATA", "/elsewhere")
    rewards = 'objective.rewards=[{kind="self_retrieval", scorers=["a.toml", "scenes"]}, {kind="cider", idf="f.json"}]'
    first, second = read(tmp_path, rewards).objective.rewards  # type: ignore[union-attr]
    assert first.scorers == (str(tmp_path / "a.toml"), "scenes") and second.idf == str(tmp_path / "f.json")
    third = read(tmp_path, 'objective.rewards=[{kind="cider", idf="$TELLAPART_DATA/f.json"}]').objective
    assert third.rewards[0].idf == "/elsewhere/f.json"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (['objective.rewards=[{kind="cyder"}]'], "unknown objective.rewards 'cyder'; did you mean 'cider'?"),
        (
            ["objective.rewards=[{weight=2}]"],
            "'objective.rewards.kind' is missing; expected one of bleu, calibration, cider, claims, consensus, custom, "
            "exact_truth, likelihood, meteor, paid_words, pmi, self_retrieval, spice",
        ),
        (
            ['objective.rewards=[{kind="cider", weigth=2}]'],
            "unknown key 'objective.rewards.weigth'; did you mean 'weight'?",
        ),
        (["objective.rewards=[]"], "objective.rewards must have at least 1 item"),
        (
            ['objective.rewards=[{kind="cider", idf="trainig"}]'],
            "objective.rewards.idf: 'trainig' is not a known source",
        ),
        (['objective.rewards=[{kind="cider", end=true}]'], "objective.rewards: end = true requires token ids,"),
        (['objective.rewards=[{kind="bleu", n=5}]'], "objective.rewards.n must be less than or equal to 4; found 5"),
        (['objective.rewards=[{kind="custom", reward="make it"}]'], "objective.rewards.reward must match pattern"),
        (
            ['objective.rewards=[{kind="self_retrieval", score="cosine", candidates="bag"}]'],
            "objective.rewards: score = 'cosine' does not",
        ),
        (
            ['objective.rewards=[{kind="self_retrieval", combine="alternate"}]'],
            "objective.rewards: combine = 'alternate'",
        ),
        (
            ['objective={kind="self_distillation", scorers=["a"], select="random"}'],
            "objective: select = 'random' does not use a scorer,",
        ),
        (
            ['objective={kind="self_distillation", decoding={kind="sample", samples=3}}'],
            "objective: decoding.samples is 3, but",
        ),
        (
            ['objective.rewards=[{kind="self_retrieval", combine="lowest", scorers=["a"]}]'],
            "objective.rewards: combine = 'lowest' requires at least two",
        ),
        (
            ['objective.rewards=[{kind="self_retrieval", candidates="bag"}]'],
            "candidates = 'bag' compares a picture with its bag",
        ),
        ([SAMPLES, "objective.exploration.alpha=1.5"], "objective.exploration.alpha must be less than or equal to 1"),
        (
            [SAMPLES, "objective.exploration={distance='edit', reference='own'}"],
            "objective.exploration: distance = 'edit' is",
        ),
        (["objective.exploration={}"], "objective: exploration compares the samples of a picture; set"),
        (["objective.baseline=leave_one_out"], "objective: baseline = 'leave_one_out' compares the samples of"),
        (
            ["objective.baseline=greedy", "objective.dropout_in_rollout=false"],
            "objective: baseline = 'greedy' with greedy decoding",
        ),
        (
            ["captioner.lora={}", "captioner.train=['mapper']"],
            "[captioner.lora] adapts an existing vision encoder or language",
        ),
        (["captioner={new={vision='scenes'}, lora={}}"], "[captioner.lora] adapts"),
        (["captioner.lora.rnk=4"], "unknown key 'captioner.lora.rnk'; did you mean 'rank'?"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(tmp_path: Path, settings: list[str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, *settings)
    assert str(caught.value).removeprefix(f"{tmp_path / 'recipe.toml'}: ").startswith(told)
    assert "\n" not in str(caught.value)


def test_a_contrastive_step_is_not_taken_in_parts(tmp_path: Path) -> None:
    text = RECIPE.replace('kind = "reinforce"', 'kind = "contrastive"').replace('[captioner]\nname = "scenes"\n', "")
    with pytest.raises(UsageError, match=r"training.gradient_accumulation_steps splits the batch"):
        read(tmp_path, "training.gradient_accumulation_steps=2", text=text)


def test_cider_alone_needs_no_scorer(tmp_path: Path) -> None:
    text = RECIPE.replace('[scorer]\nname = "scenes"\n', "")
    cider = 'objective.rewards=[{kind="cider"}]'
    recipe = read(tmp_path, cider, text=text)
    assert recipe.scorer is None and recipe.select == "cider"
    with pytest.raises(UsageError, match=r"\[scorer\] is missing"):
        read(tmp_path, cider, "validation.select=recall@1.random100", text=text)


PRESETS = [path for path in sorted(RECIPES.glob("scenes_*.toml")) if 'kind = "reinforce"' in path.read_text()]


@pytest.mark.long
@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_every_preset_takes_steps(path: Path, tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """The objective, LoRA and training of the preset, on tiny models: two steps and a result."""
    preset = read_recipe(path)
    table = preset.model_dump(exclude_none=True)
    captioner = {key: table["captioner"][key] for key in ("train", "lora") if key in table["captioner"]}
    tiny_recipe["objective"] = table["objective"] | {"decoding": table["objective"]["decoding"] | {"max_tokens": 6}}
    tiny_recipe["captioner"] |= captioner
    tiny_recipe["training"] = table["training"] | {"steps": 2, "batch_size": 10, "log_every": 1}
    tiny_recipe["validation"] |= {"select": preset.validation.select}
    run = train(check_recipe(tiny_recipe, path.name), tmp_path / "run", evaluate=False)
    assert run.trained


def test_a_recipe_says_rewards_weights_and_baselines(tiny_recipe: dict[str, Any]) -> None:
    rewards = [
        {"kind": "self_retrieval", "score": "cosine"},
        {"kind": "cider", "weight": 0.5},
        {"kind": "bleu", "n": 2},
    ]
    found = made(tiny_recipe, rewards=rewards)
    kinds = [(type(term.reward), term.weight, term.name) for term in found.terms]
    assert kinds == [(SelfRetrieval, 1.0, "self_retrieval"), (CiderReward, 0.5, "cider"), (MetricReward, 1.0, "bleu")]
    baselines = [term.baseline for term in found.terms]
    assert all(isinstance(kept, RunningMean) for kept in baselines) and len({id(kept) for kept in baselines}) == 3
    samples = {"kind": "sample", "samples": 2}
    assert made(tiny_recipe, baseline="leave_one_out", decoding=samples).terms[0].baseline is leave_one_out
    assert made(tiny_recipe, baseline="greedy", decoding=samples).terms[0].baseline == "greedy"


def test_several_scorers_are_averaged_or_take_turns(tiny_recipe: dict[str, Any], tiny_scorer: Path) -> None:
    table = {"kind": "self_retrieval", "scorers": [str(tiny_scorer), "scenes"]}
    averaged, turns = (
        made(tiny_recipe, rewards=[table | {"combine": how}]).terms[0].reward for how in ("average", "alternate")
    )
    assert isinstance(averaged, Averaged) and isinstance(turns, Alternating)
    names = [reward.scorer.name for reward in turns.rewards]  # type: ignore[attr-defined]
    assert names == [str(tiny_scorer), "scenes"]


def test_document_frequencies_are_those_that_the_recipe_names(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    CiderD([["a red cube"], ["a ball"]]).frequencies([["a red cube"]], "frozen").save(tmp_path / "f.json")
    sources = {"training": "references,n=60", "batch": "batch", str(tmp_path / "f.json"): "frozen,n=1"}
    for idf, source in sources.items():
        reward = made(tiny_recipe, rewards=[{"kind": "cider", "idf": idf}]).terms[0].reward
        assert isinstance(reward, CiderReward) and f"|idf:{source}|" in reward.cider.signature


def test_cider_of_token_ids_knows_the_end(tiny_recipe: dict[str, Any]) -> None:
    objective = made(tiny_recipe, rewards=[{"kind": "cider", "words": "tokens", "end": True}])
    setup = TrainingSetup(check_recipe(tiny_recipe, "test"), upstream)
    batch = setup.training_set().batch(0)
    rows = setup.learner.tokenize([item.references[0] for item in batch.items])
    tokens, valid = setup.learner.pad(rows)
    cut = Rollout(tokens, valid & (tokens != setup.learner.end), [""] * 20)
    reward = objective.terms[0].reward
    assert bool((reward(Rollout(tokens, valid, [""] * 20), batch) > reward(cut, batch)).all())


def test_a_reward_of_the_users_own_is_one_dotted_path(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_rewards.py").write_text(
        "def brief(per_word):\n"
        "    return lambda rollout, batch: rollout.valid_RT.sum(1).view(-1, rollout.samples) * -per_word\n"
        "def broken():\n    raise OSError('no such\\nfile')\n"
        "def number():\n    return 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    allow_code("my_reward:brief", *(f"my_rewards:{name}" for name in ("brief", "breif", "broken", "number")))
    own = {"kind": "custom", "reward": "my_rewards:brief", "options": {"per_word": 2}}
    tiny_recipe["objective"] |= {"rewards": [own]}
    run = train(check_recipe(tiny_recipe, "test"), tmp_path / "run", evaluate=False)
    assert run.trained and '"reward": -' in run.log_path.read_text()
    told = Rollout(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool), ["", ""])
    reward = made(tiny_recipe, rewards=[own]).terms[0].reward
    assert reward(told, Batch([], torch.arange(2), torch.zeros(2, 1))).tolist() == [[-6], [-6]]
    for path, options, message in (
        ("my_reward:brief", {}, "'; expected an importable module; set PYTHONPATH=FOLDER"),
        ("my_rewards:breif", {}, "module my_rewards has no attribute 'breif'"),
        ("my_rewards:brief", {"per_wrd": 2}, r"the call \(per_wrd=2\) failed: TypeError"),
        ("my_rewards:broken", {}, r"failed: OSError: no such file$"),
        ("my_rewards:number", {}, "returned a int; expected a callable"),
    ):
        table = {"kind": "custom", "reward": path, "options": options}
        with pytest.raises(UsageError, match=message) as caught:
            check_setup(
                TrainingSetup(
                    check_recipe(tiny_recipe | {"objective": {"kind": "reinforce", "rewards": [table]}}, "t"), upstream
                )
            )
        assert "\n" not in str(caught.value)


def test_a_reward_that_needs_references_is_refused_on_pictures_without(
    tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    """Before any model is found, loaded or trained."""
    from PIL import Image

    for n in range(3):
        Image.new("RGB", (32, 32), (50 * n, 0, 0)).save(tmp_path / f"{n}.png")
    tiny_recipe["data"] |= {"train": f"folder:{tmp_path}"}
    tiny_recipe["captioner"] = {"name": "./nowhere"}
    for kind in ("cider", "bleu"):
        table = tiny_recipe | {"objective": {"kind": "reinforce", "rewards": [{"kind": kind}]}}
        with pytest.raises(
            UsageError, match=rf"3 of 3 pictures have no reference \(first: .*\); reward '{kind}' compares"
        ):
            check_setup(TrainingSetup(check_recipe(table, "test"), upstream))
    caption_rewards: list[dict[str, Any]] = [
        {"kind": "self_retrieval", "score": "accuracy"},
        {"kind": "paid_words", "per": "caption"},
        {"kind": "consensus"},
    ]
    for reward in caption_rewards:
        table = tiny_recipe | {"objective": {"kind": "reinforce", "rewards": [reward | {"within": 1.5}]}}
        with pytest.raises(UsageError, match=rf"3 of 3 pictures have .*; 'within' of reward '{reward['kind']}' counts"):
            check_setup(TrainingSetup(check_recipe(table, "test"), upstream))
        table = tiny_recipe | {"objective": {"kind": "reinforce", "rewards": [reward]}}
        check_setup(TrainingSetup(check_recipe(table, "test"), upstream))


def test_validation_that_compares_with_references_is_refused_without_and_other_validation_goes_without_a_loss(
    tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    from PIL import Image

    from tellapart.training.validation import Validator

    for n in range(12):
        Image.new("RGB", (36, 24), (20 * n, 0, 0)).save(tmp_path / f"{n}.png")
    tiny_recipe["data"] |= {"validation": f"folder:{tmp_path}"}
    mle = tiny_recipe | {"objective": {"kind": "mle"}}
    for select in ("loss", "cider"):
        table = mle | {"validation": {**tiny_recipe["validation"], "select": select}}
        with pytest.raises(UsageError, match=f"12 of 12 pictures have no reference.*validation.select is '{select}'"):
            check_setup(TrainingSetup(check_recipe(table, "test"), upstream))
    recalled = mle | {"validation": {**tiny_recipe["validation"], "select": "recall@1.lookalike"}}
    setup = TrainingSetup(check_recipe(recalled, "test"), lambda name: name)
    check_setup(setup)
    values = Validator(setup).run()
    assert "recall@1.lookalike" in values and not {"loss", "cider"} & set(values)


def test_a_file_of_frequencies_that_is_none_is_refused_before_training(
    tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    table = tiny_recipe | {"objective": {"kind": "reinforce", "rewards": [{"kind": "cider", "idf": "none.json"}]}}
    with pytest.raises(UsageError, match=r"cannot read document frequencies from .*none\.json \("):
        check_setup(TrainingSetup(check_recipe(table, "test", tmp_path), upstream))
