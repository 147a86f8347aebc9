"""The one training loop: any objective, any learner, one run folder."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
import torch

from tellapart.errors import TellapartError, UsageError
from tellapart.models import ranks
from tellapart.models.memory import FreedMemory
from tellapart.objectives.base import Loss, Objective, StepContext
from tellapart.training.batches import TrainingSet
from tellapart.training.display import open_trackers, progress_bar, progress_note
from tellapart.training.optimizer import (
    TrainableParts,
    load_optimizer,
    load_weights,
    make_optimizer,
    make_scheduler,
    memory_of,
    save_state,
)
from tellapart.training.run_folder import Run
from tellapart.training.setup import TrainingSetup
from tellapart.training.validation import Validation
from tellapart.utils.messages import say

TIMED = 4  # steps after which their time is told
NOTHING = -1  # the step to which a log is cut where no checkpoint was written: validation comes before that of step 0


def fit(setup: TrainingSetup, run: Run) -> None:
    """Train ``setup``'s recipe from the last checkpoint of ``run`` (or the start) to ``model/`` in its folder.

    One loop for all objectives: paper 4's algorithm 1 (cross-entropy, then rewards) is two runs, the second of which
    names the first as its captioner. Returns nothing; log, checkpoints and ``model/`` are in ``run.folder``. ``model/``
    is what was best by ``validation.select``, the untouched start included (paper 1, section 3.3: by self-retrieval).
    Raises `TellapartError` for a loss that is not finite, for validations that never gave a finite value, and for a
    checkpoint of another model; `UsageError` for a part that the learner does not have.
    """
    recipe, learner = setup.recipe, setup.learner
    settings = recipe.training
    validation, validated = Validation(setup), math.nan
    with ranks.main_first("pictures are encoded"):  # once; the other ranks find their features
        data, objective = setup.training_set(), setup.objective()
        validation.prepare()
    check_ranks(objective, setup.recipe.objective.kind)
    trainable = trainable_parts(setup)
    learner.model.train()
    state: dict[str, Any] = {"step": 0, "best_value": None, "best_step": None, "objective": {}}
    if (last := run.last()) is not None:  # resume from the last checkpoint
        load_weights(last.folder, trainable)
        objective.load_state_dict(last.objective)
        state = {"step": last.step, "best_value": last.best_value, "best_step": last.best_step}
    ranks.same_everywhere(trainable.tensors().values())
    trainable.shard()
    optimizer = make_optimizer(trainable, settings)
    scheduler = make_scheduler(optimizer, settings)
    if last is not None:
        load_optimizer(last.folder, trainable, optimizer, scheduler)
    run.cut_log(state["step"] if last is not None else NOTHING)
    select, memory = validation.select, memory_of(trainable, optimizer)

    def checkpoint(step: int) -> None:
        memory.update(memory_of(trainable, optimizer))
        optimizer.zero_grad(set_to_none=True)  # the main rank gathers the optimizer's state: not on top of gradients
        state.update(step=step, objective=objective.state_dict())
        run.save(state, lambda to: save_state(to, trainable, optimizer, scheduler))
        if not ranks.is_main():
            save_state(None, trainable, optimizer, scheduler)

    def validate(step: int) -> bool:
        """Validate, keep the best, and return whether ``validation.until`` is reached."""
        nonlocal validated
        with trainable.whole():
            values = validation.run()
            validated = values[select]
            value = -validated if select == "loss" else validated
            better = math.isfinite(value) and (state["best_value"] is None or value > state["best_value"])
            if better:
                state.update(best_value=value, best_step=step)
                run.save_best(step, learner.save)
        run.log(event="validation", step=step, best=better, n=len(validation.items), **values)
        goal = recipe.validation.until
        reached = goal is not None and (validated <= goal if select == "loss" else validated >= goal)
        if reached:
            run.log(event="reached", step=step, **{select: validated})
            say(f"{select} is {validated:g}, {goal:g} or better, at step {step}: training stops")
        return reached

    reached, freed, first, timed = False, FreedMemory(), state["step"], 0.0
    if last is None and not (reached := validate(0)):
        checkpoint(0)
    with (
        open_trackers(settings.trackers, recipe.name, run.folder) as track,
        progress_bar(f"training {recipe.name}", settings.steps, state["step"]) as bar,
    ):
        for step in range(state["step"], 0 if reached else settings.steps):
            logs = train_step(setup, data, objective, trainable, optimizer, scheduler, step)
            done = step + 1
            freed.give_back()
            bar(progress_note(logs, select, validated, state))
            if done == first + 1:  # slower than those that follow
                timed = time.monotonic()
            elif done == first + TIMED:
                say_minutes((time.monotonic() - timed) / (TIMED - 1), settings.steps - done)
            if done % settings.log_every == 0 or done == settings.steps:
                run.log(step=done, **logs)
                track(logs, done)
            if (done % recipe.validation.every == 0 or done == settings.steps) and validate(done):
                break  # without a checkpoint, as at step 0: a resumed run comes here again, and trains no further
            if done % settings.checkpoint_every == 0 or done == settings.steps:
                checkpoint(done)
    if state["best_step"] is None:
        raise TellapartError(f"validation gave no finite {select}; see {run.log_path}")
    memory["peak"] = memory_of(trainable, optimizer)["peak"]
    run.note(memory=[json.loads(each) for each in ranks.gather_texts([json.dumps(memory)])])
    run.publish(run.best_folder(state["best_step"]))
    ranks.barrier("the model is written")


def say_minutes(seconds_a_step: float, steps: int) -> None:
    """How long these steps will take, where it is a minute or more."""
    if (minutes := seconds_a_step * steps / 60) >= 1:
        say(f"about {minutes:,.0f} minutes for the {steps:,} steps that are left, validation not counted")


def train_step(
    setup: TrainingSetup,
    data: TrainingSet,
    objective: Objective[Any],
    trainable: TrainableParts,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    step: int,
) -> dict[str, float]:
    """One step. It draws its own randomness from (seed, step), so nothing but weights carries over.

    What is drawn for an item belongs to it alone (`Batch.seeds`); torch's own generator serves dropout.
    """
    rank = [ranks.index()] if ranks.index() else []  # dropout differs from rank to rank
    torch.manual_seed(int(np.random.default_rng([setup.recipe.seed, step, 2, *rank]).integers(2**62)))
    encode = setup.captioner.encode if setup.vision_learns else None
    batch = data.batch(step)
    if len(batch.rows_B) < ranks.count():
        raise UsageError(
            f"the batch of step {step + 1} has {len(batch.rows_B)} pictures for {ranks.count()} ranks; expected at "
            "least one for each; raise training.batch_size, or start fewer"
        )
    optimizer.zero_grad(set_to_none=True)
    logs: dict[str, float] = {}

    def backward(loss: Loss) -> None:
        if not bool(torch.isfinite(loss.value)):
            raise TellapartError(f"the loss is {float(loss.value)} at step {step + 1}; lower training.learning_rate")
        loss.value.backward()
        for key, value in {"loss": float(loss.value.detach()), **loss.logs}.items():
            logs[key] = logs.get(key, 0.0) + value

    with trainable.whole():
        parts = setup.recipe.training.gradient_accumulation_steps
        objective.step(setup.learner, batch, StepContext(backward, parts, encode, setup.autocast))
        trainable.add_up_gradients()
    logs = ranks.add_up(logs)
    norm = trainable.clip_gradients(setup.recipe.training.max_grad_norm)
    optimizer.step()
    rate = float(scheduler.get_last_lr()[0])
    scheduler.step()
    return {**logs, "gradient_norm": norm, "learning_rate": rate}


def trainable_parts(setup: TrainingSetup) -> TrainableParts:
    """What learns, whole on every rank or in shares. Raises `UsageError` for what cannot be shared out."""
    if setup.recipe.training.sharding == "none":
        return TrainableParts(setup.learner, setup.trained_parts)
    from tellapart.training.sharding import ShardedParts

    return ShardedParts(setup.learner, setup.trained_parts)


def check_ranks(objective: Objective[Any], kind: str) -> None:
    """Raises `UsageError` where several ranks train and the objective does not share a batch between them."""
    if ranks.count() > 1 and not getattr(objective, "shares_batch", False):
        raise UsageError(
            f"objective '{kind}' does not share a batch between {ranks.count()} ranks (it has no shares_batch); "
            "start one process"
        )
