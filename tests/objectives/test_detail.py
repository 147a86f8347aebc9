"""Levels of detail: which level a picture has in a step, what is learned there, and that captions are asked for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli
from stepping import micro_batches
from tiny_blip import save_blip

from tellapart.captioners import load_captioner
from tellapart.captions.provenance import Provenance
from tellapart.errors import TellapartError, UsageError
from tellapart.inference.captions_file import system_name
from tellapart.objectives.detail import Levels
from tellapart.objectives.reinforce import Reinforce
from tellapart.objectives.self_distillation import SelfDistillation
from tellapart.recipe.presets import objective_table
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import NewRecurrent
from tellapart.training.build import TrainingSetup
from tellapart.training.fingerprint import canonical
from tellapart.training.learner import checked_levels
from tellapart.training.new_models import build_recurrent
from tellapart.training.objective import objective_of
from tellapart.types import Batch, Item

LEVELS = [{"prompt": "little", "speaker": 0.05}, {"prompt": ""}, {"prompt": "everything", "speaker": 0.001}]
PRICES = (0.05, 0.0078, 0.001)


def batch_of(count: int, step: int) -> Batch:
    items = [Item(f"picture {number}", None) for number in range(count)]  # type: ignore[arg-type]
    return Batch(items, torch.arange(count), torch.zeros(count, 1), step=step, seed=3)


def test_a_level_is_of_picture_and_step_whatever_part_of_the_batch_is_seen_and_all_come_as_often() -> None:
    levels, drawn = Levels(["little", "", "everything"]), []
    for step in range(4):
        batch = batch_of(300, step)
        level_B = levels.of(batch)
        drawn.append(level_B)
        parts = [Levels(levels.prompts).of(part) for part in batch.split(7)]  # of a run that was resumed, or a rank
        assert torch.equal(torch.cat(parts), level_B)
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.cat(drawn).bincount(minlength=3).tolist() == pytest.approx([400] * 3, rel=0.15)
    assert Levels().of(Batch([], torch.arange(2), torch.zeros(2, 1))).tolist() == [0, 0]


@pytest.fixture(scope="module")
def shipped() -> dict[str, Any]:
    """The shipped models on a few pictures, by the preset."""
    return {
        "name": "small",
        "data": {"train": "scenes:plain?split=train&n=12&seed=5", "validation": "scenes:plain?split=validation&n=4"},
        "captioner": {"name": "scenes", "dropout": 0.0},
        "scorer": {"name": "scenes"},
        "objective": objective_table("self-distillation"),
        "training": {"steps": 2, "batch_size": 12, "learning_rate": 1e-4},
    }


def distilled(table: dict[str, Any], **changes: Any) -> tuple[SelfDistillation, TrainingSetup]:
    recipe = check_recipe({**table, "objective": {**table["objective"], **changes}}, "test")
    setup = TrainingSetup(recipe, lambda name: name)
    objective = objective_of(setup)
    assert isinstance(objective, SelfDistillation)
    return objective, setup


@pytest.mark.long
def test_each_level_learns_what_its_price_alone_would_choose_behind_its_prompt(shipped: dict[str, Any]) -> None:
    objective, setup = distilled(shipped, detail=LEVELS)
    learner, batch = setup.captioner, setup.training_set().batch(0)
    learner.model.eval()
    levels, texts = objective.levels.of(batch).tolist(), objective.captions(batch)
    assert set(levels) == {0, 1, 2}
    choices = [objective.cfg.model_copy(update={"speaker": price, "detail": ()}) for price in PRICES]
    alone = [SelfDistillation(objective.describer, objective.listener, one).captions(batch) for one in choices]
    assert texts == [alone[level][b] for b, level in enumerate(levels)]
    words = [sum(len(text.split()) for text in one) for one in alone]
    assert words[0] < words[1] < words[2]

    total, tokens = 0.0, 0
    for b, (level, text) in enumerate(zip(levels, texts, strict=True)):
        asked = load_captioner(f"scenes?prompt={LEVELS[level]['prompt']}", "cpu", "fp32")
        tokens_RT, valid_RT = asked.pad(asked.tokenize([text]))
        log_p_RTV = asked.logits(batch.visual[b : b + 1], tokens_RT, valid_RT).detach().log_softmax(-1)
        total -= float(log_p_RTV.gather(-1, tokens_RT[..., None]).sum())
        tokens += tokens_RT.numel()
    for chunks in (1, 4):
        loss = sum(float(part.value.detach()) for part in micro_batches(objective, learner, batch, chunks))
        assert loss == pytest.approx(total / tokens, rel=1e-4)

    resumed, _ = distilled(shipped, detail=LEVELS)
    resumed.load_state_dict(json.loads(json.dumps(objective.state_dict())))
    batch.step = 1
    assert resumed.captions(batch) == objective.captions(batch) != texts


@pytest.mark.long
def test_one_level_without_a_prompt_is_the_objective_as_it_is_without_levels(shipped: dict[str, Any]) -> None:
    one, setup = distilled(shipped, detail=[{"prompt": ""}])
    plain = SelfDistillation(one.describer, one.listener, one.cfg.model_copy(update={"detail": ()}))
    learner, batch = setup.captioner, setup.training_set().batch(0)
    learner.model.eval()
    losses = [micro_batches(each, learner, batch, 2) for each in (plain, one)]
    assert [float(part.value) for part in losses[0]] == [float(part.value) for part in losses[1]]
    assert plain.state_dict() == one.state_dict()


def test_a_recipe_without_levels_is_the_same_recipe_as_before(tiny_recipe: dict[str, Any]) -> None:
    for objective in (tiny_recipe["objective"], {"kind": "self_distillation"}):
        tables = [canonical(check_recipe({**tiny_recipe, "objective": each}, "test"))
                  for each in (objective, {**objective, "detail": []})]  # fmt: skip
        assert tables[0] == tables[1] and "detail" not in tables[0]["objective"]


REWARDED = {
    "kind": "reinforce",
    "rewards": [{"kind": "self_retrieval"}, {"kind": "likelihood", "weight": 0.75}],
    "decoding": {"kind": "sample", "samples": 3, "max_tokens": 6},
    "baseline": "leave_one_out",
}
PAID = [{"prompt": "red", "speaker": 2.0}, {"prompt": ""}, {"prompt": "a large", "speaker": 0.0}]


def rewarded(table: dict[str, Any], **changes: Any) -> tuple[Reinforce, TrainingSetup]:
    recipe = check_recipe({**table, "objective": {**REWARDED, **changes}}, "test")
    setup = TrainingSetup(recipe, lambda name: name)
    setup.learner.model.eval()
    objective = objective_of(setup)
    assert isinstance(objective, Reinforce)
    return objective, setup


@pytest.mark.long
def test_policy_gradients_write_and_score_behind_the_prompt_and_pay_the_price_of_the_level(
    tiny_recipe: dict[str, Any],
) -> None:
    objective, setup = rewarded(tiny_recipe, detail=PAID)
    learner, batch = setup.captioner, setup.training_set().batch(0)
    level_B, cfg = objective.levels.of(batch), objective.cfg
    assert set(level_B.tolist()) == {0, 1, 2}
    rollout = objective.write(learner, batch.visual, batch, cfg.decoding, dropout=False)
    logits_RTV = objective.levels.logits(learner, batch.visual, rollout, batch)
    for b, level in enumerate(level_B.tolist()):
        place = slice(b, b + 1)
        asked = load_captioner(f"{tiny_recipe['captioner']['name']}?prompt={PAID[level]['prompt']}", "cpu", "fp32")
        own, seeds = rollout[place], batch.seeds
        assert seeds is not None
        assert own.texts == asked.generate(batch.visual[place], cfg.decoding, seeds[place]).texts
        alone = asked.logits(batch.visual[place], own.tokens_RT, own.valid_RT)
        torch.testing.assert_close(logits_RTV[3 * b : 3 * b + 3][own.valid_RT], alone[own.valid_RT])

    found, logs = objective.advantages(rollout, None, batch)
    free, paid = (rewarded(tiny_recipe, rewards=[one])[0].advantages(rollout, None, batch)[0]
                  for one in REWARDED["rewards"])  # fmt: skip
    price_B = torch.tensor([2.0, 0.75, 0.0])[level_B]
    torch.testing.assert_close(found, free + price_B[:, None] * paid / 0.75)
    rewards = [term.reward(rollout, batch) for term in objective.terms]
    assert logs["reward"] == pytest.approx(float((rewards[0] + price_B[:, None] * rewards[1]).mean()), rel=1e-4)


def test_policy_gradients_with_one_level_without_a_prompt_are_those_without_levels(
    tiny_recipe: dict[str, Any],
) -> None:
    (plain, setup), (one, _) = rewarded(tiny_recipe), rewarded(tiny_recipe, detail=[{"prompt": ""}])
    batch = setup.training_set().batch(0)
    losses = [micro_batches(each, setup.captioner, batch, 2) for each in (plain, one)]
    assert [(float(part.value), part.logs) for part in losses[0]] == [
        (float(part.value), part.logs) for part in losses[1]
    ]


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        ([{"prompt": "a", "speaker": 0.1}], "detail has 0 levels without a prompt; expected exactly one,"),
        ([{}, {"prompt": ""}], "detail has 2 levels without a prompt; expected exactly one,"),
        (
            [{"prompt": "a", "speaker": 0.1}, {}, {"prompt": "a", "speaker": 0.0}],
            "detail uses the prompt 'a' twice; give each",
        ),
        ([{"prompt": "a"}, {}], "detail: the level with the prompt 'a' sets no"),
        ([{"speaker": 0.1}], "detail: the level without a prompt sets speaker ="),
        ([{}, {"prompt": "a", "speaker": 0.1}], "detail has the speaker weights 0.0078, 0.1; expected"),
    ],
)
def test_levels_that_contradict_each_other(shipped: dict[str, Any], detail: list[Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_recipe({**shipped, "objective": {**shipped["objective"], "detail": detail}}, "test")


def test_levels_need_a_price_that_counts(shipped: dict[str, Any]) -> None:
    for changes, told in (
        (
            {**REWARDED, "rewards": [{"kind": "self_retrieval"}], "detail": PAID},
            "detail sets the weight of the likelihood",
        ),
        ({**shipped["objective"], "select": "random", "detail": LEVELS}, "select = 'random' ignores speaker weights,"),
    ):
        with pytest.raises(UsageError, match=told):
            check_recipe({**shipped, "objective": changes}, "test")


@pytest.mark.long
@pytest.mark.parametrize("family", ["scenes", "blip"])
def test_a_trained_captioner_is_asked_for_detail(
    family: str, cli: Cli, tmp_path: Path, tiny_captioner: Path, tiny_scorer: Path
) -> None:
    """From training to captions, for a ClipCap on scenes and a BLIP in transformers' own layout."""
    (tmp_path / "blip").mkdir()
    model = tiny_captioner if family == "scenes" else save_blip(tmp_path / "blip", ["a", "red", "large", "star", "on"])
    out, world = tmp_path / "out", "scenes:plain?n=24&split=train"
    detail = '[{prompt = "red", speaker = 2.0}, {prompt = ""}, {prompt = "a large", speaker = 0.0}]'
    done = cli(
        "finetune", model, world, "--scorer", tiny_scorer, "-o", out, "--steps", 1, "--max-tokens", 5,
        "--objective", "truthful-self-retrieval", "--set", f"objective.detail={detail}",
    )  # fmt: skip
    assert done.status == 0, done.err
    kept = json.loads((out / "model" / "tellapart.json").read_text())
    assert kept["detail"] == [[0.0, "red"], [0.5, ""], [1.0, "a large"]]

    plain = load_captioner(str(out))
    asked: dict[float, Any] = {value: load_captioner(f"{out}?detail={value}") for value in (0, 0.2, 0.3, 0.5, 0.9, 1)}
    for value, prompt in ((0, "red"), (0.2, "red"), (0.3, ""), (0.5, ""), (0.9, "a large"), (1, "a large")):
        expected: Any = plain.with_prompt(prompt)
        read = "prompt_ids" if family == "scenes" else "start"
        assert getattr(asked[value], read) == getattr(expected, read)
        assert asked[value].chosen == ({"prompt": prompt} if prompt else {})

    captions, pictures = tmp_path / "captions.jsonl", "scenes:plain?n=3&split=test"
    assert cli("caption", f"{out}?detail=1", pictures, "-o", captions).status == 0
    assert (Provenance.open(captions).settings or {})["captioner"] == f"{out}?detail=1"
    named = cli("-q", "caption", f"{out}?prompt=a large", pictures, "-o", "-").out
    assert captions.read_text() == named and len(named.splitlines()) == 3
    assert "0 captions written" in cli("caption", f"{out}?detail=1", pictures, "-o", captions).err
    assert "started with a different captioner" in cli("caption", f"{out}?detail=0", pictures, "-o", captions).line
    for arguments, told in (
        ((f"{out}?detail=0", pictures, "--prompt", "red"), ": prompt and detail cannot be combined, because detail"),
        (
            (f"{model}?detail=0", pictures),
            f"{model} was not trained with levels of detail; remove ?detail=, or train a",
        ),
        ((f"{out}?detial=1", pictures), "unknown option 'detial=1'; did you mean 'detail'?"),
        ((f"{out}?detail=2", pictures), "detail is 2; expected a number from 0 (least detail) to 1 (most detail)"),
        ((f"{out}?detail=much", pictures), "detail must be a number; got 'much'"),
        (("openai:m@http://127.0.0.1:9/v1?detail=0", pictures), "openai:m: unknown setting 'detail'"),
    ):
        assert told in cli("caption", *arguments, "-o", "-").line


def test_what_is_trained_further_without_levels_has_none(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    setup = TrainingSetup(check_recipe({**tiny_recipe, "objective": {**REWARDED, "detail": PAID}}, "t"), lambda n: n)
    setup.captioner.save(tmp_path / "levels")
    further = {**tiny_recipe, "captioner": {"name": f"{tmp_path / 'levels'}?detail=0"}, "objective": {"kind": "mle"}}
    learner = TrainingSetup(check_recipe(further, "t"), lambda name: name).captioner
    assert learner.levels == () and learner.chosen == {"prompt": "red"}
    options = tmp_path / "levels" / "tellapart.json"
    options.write_text('{"detail": [0.5, "red"]}')
    (tmp_path / "levels" / "SHA256SUMS").unlink()
    with pytest.raises(TellapartError, match=r"expected pairs of a number from 0 to 1 and a prompt"):
        load_captioner(str(tmp_path / "levels"))


def test_prompts_that_the_captioner_cannot_tell_apart(tiny_recipe: dict[str, Any]) -> None:
    for prompt, told in (
        ("plentiful", "does not know all words in the prompt 'plentiful'"),
        ("a  large", "cannot distinguish the prompts 'a large' and 'a  large';"),
    ):
        detail = [{"prompt": prompt, "speaker": 2.0}, {"prompt": ""}, {"prompt": "a large", "speaker": 0.0}]
        table = {**tiny_recipe, "objective": {**REWARDED, "detail": detail}}
        with pytest.raises(UsageError, match=told):
            _ = TrainingSetup(check_recipe(table, "t"), lambda name: name).captioner
    recurrent = build_recurrent(NewRecurrent(kind="recurrent", width=8), ["a red star"], "lstm", width=4)
    with pytest.raises(UsageError, match="lstm does not accept a prompt, but got 'red';"):
        checked_levels(recurrent, ((0.0, "red"), (1.0, "")))


def test_each_amount_of_detail_is_a_system_of_its_own() -> None:
    assert [system_name(f"runs/apart{mark}?detail={value}") for mark in ("", "/") for value in ("0", "0.25")] == [
        "apart-detail-0", "apart-detail-0.25",
    ] * 2  # fmt: skip
