"""From a recipe's objective to the parts that it is made of: rewards, baselines, exploration."""

from __future__ import annotations

from typing import Any

from tellapart.errors import UsageError, nearest
from tellapart.metrics.cider import DocumentFrequencies
from tellapart.models.plugins import call_factory, code_path, installed
from tellapart.objectives import Smile
from tellapart.objectives.exploration import Exploration
from tellapart.objectives.reinforce import Reinforce, RewardTerm
from tellapart.objectives.shift import alternative_forms
from tellapart.recipe import objectives as tables
from tellapart.rewards import Alternating, Averaged, Bleu, Cider, RunningMean, SelfRetrieval, leave_one_out, no_baseline
from tellapart.rewards.base import Baseline, Reward
from tellapart.rewards.distances import distance_by_name


def reinforce_of(settings: tables.Reinforce, stage: Any) -> Reinforce:
    """REINFORCE as the recipe says. ``stage`` has the run's scorer, data, features and start (`stages.Stage`)."""
    names = [table.kind for table in settings.rewards]
    terms = [
        RewardTerm(
            reward_of(table, stage),
            baseline_of(settings.baseline),
            table.weight,
            table.kind if names.count(table.kind) == 1 else f"{table.kind}{place}",
        )
        for place, table in enumerate(settings.rewards, 1)
    ]
    return Reinforce(
        terms,
        settings.decoding,
        normalise=settings.normalise,
        dropout_in_rollout=settings.dropout_in_rollout,
        exploration=exploration_of(settings.exploration) if settings.exploration else None,
        whiten=settings.whiten,
        entropy=settings.entropy,
        kl=settings.kl,
        kl_temperature=settings.kl_temperature,
        start=stage.start() if settings.kl else None,
    )


def smile_of(settings: tables.Smile, learner: Any) -> Smile:
    """SMILE for this captioner. Raises `UsageError` for what its vocabulary does not have."""
    V = len(learner.tokenizer) if (head := learner.head()) is None else len(head[0])
    if settings.subset == "random" and settings.random_size > V:
        raise UsageError(
            f"objective.random_size is {settings.random_size}, and the vocabulary of {learner.name} has {V} words; "
            "lower it (the paper's is 10)"
        )
    shift_V = alternative_forms(learner.tokenizer, V, settings.shift) if settings.first == "shift" else None
    told = settings.model_dump(exclude={"kind", "shift"})
    return Smile(**told, shift_V=shift_V)


def reward_of(table: tables.RewardTable, stage: Any) -> Reward:
    """A reward from its table, with the training pictures' features and references."""
    if isinstance(table, tables.SelfRetrieval):
        scorers = [stage.judge(name) for name in table.scorers] or [stage.scorer]
        each = [
            SelfRetrieval(
                scorer, stage.store.features(stage.train_items, scorer.encoder), score=table.score, among=table.among
            )
            for scorer in scorers
        ]
        if len(each) == 1:
            return each[0]
        return Averaged(each) if table.combine == "average" else Alternating(each)
    if isinstance(table, tables.Cider):
        return cider_of(table, stage)
    if isinstance(table, tables.Bleu):
        return Bleu(table.n)
    return own_reward(table)


def cider_of(table: tables.Cider, stage: Any) -> Cider:
    idf: Any = {"training": "references", "batch": "batch"}.get(table.idf) or DocumentFrequencies.load(table.idf)
    references: list[Any] = [list(item.references) for item in stage.train_items]
    if table.words == "text":
        return Cider(references, idf=idf)
    rows = iter(stage.learner.tokenize([text for texts in references for text in texts]))
    held = [[next(rows) for _ in texts] for texts in references]
    return Cider(held, idf=idf, end_token=stage.learner.end, end=table.end)


def own_reward(table: tables.Own) -> Reward:
    """A user's reward: ``reward = "my.module:factory"`` is called with ``options`` and makes the callable.

    Raises `UsageError` of one line where it is not allowed to run, there is no such module or function, it fails, or it
    makes no callable.
    """
    key = f"objective.rewards.reward = '{table.reward}'"
    if (path := code_path(table.reward, "reward")) is None:
        hint = nearest(table.reward, known) if (known := installed("reward")) else ""
        raise UsageError(f"{key}: reward '{table.reward}' is of no installed package{hint}; expected module:factory")
    reward = call_factory(path, "reward", key, table.options)
    if not callable(reward):
        raise UsageError(f"{key} made a {type(reward).__name__}; expected a callable over (rollout, batch)")
    return reward


def baseline_of(name: str) -> Baseline | tables.Greedy:
    """A fresh baseline by its name in a recipe."""
    if name == "running_mean":
        return RunningMean()
    if name == "greedy":
        return "greedy"
    return {"leave_one_out": leave_one_out, "none": no_baseline}[name]


def exploration_of(table: tables.Exploration) -> Exploration:
    return Exploration(distance_by_name(table.distance, table.reference), table.alpha, table.baseline)


def check_rewards(settings: tables.Reinforce, stage: Any) -> None:
    """Before any model is loaded or trained: the user's own rewards are there, and so are references where needed."""
    for table in settings.rewards:
        if isinstance(table, tables.Own):
            own_reward(table)
        elif isinstance(table, tables.Cider) and table.idf.endswith(".json"):
            DocumentFrequencies.load(table.idf)
        if isinstance(table, tables.Cider | tables.Bleu):
            bare = [item.id for item in stage.train_data if not item.references]
            if bare:
                raise UsageError(
                    f"{stage.recipe.data.train}: {len(bare)} of {len(stage.train_data)} pictures have no reference, "
                    f"such as {bare[0]}; reward '{table.kind}' compares captions with references"
                )
