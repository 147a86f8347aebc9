"""The training loop for all objectives and learners."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tellapart.errors import TellapartError, UsageError
from tellapart.models import collectives, ranks
from tellapart.objectives.base import Objective
from tellapart.training.batches import TrainingSet
from tellapart.training.build import TrainingSetup
from tellapart.training.freed_memory import FreedMemory
from tellapart.training.goal import goal_of
from tellapart.training.interruption import Interruption
from tellapart.training.kept_start import kept_start
from tellapart.training.memory import memory_of
from tellapart.training.objective import objective_of
from tellapart.training.optimizer import make_optimizer, make_scheduler
from tellapart.training.run_folder import Run
from tellapart.training.sharding import ShardedParts
from tellapart.training.state import load_optimizer, load_weights, save_state
from tellapart.training.step import train_step
from tellapart.training.trackers import Track, open_trackers
from tellapart.training.trainable import TrainableParts
from tellapart.training.validation import Validator
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

BEFORE_FIRST_CHECKPOINT = -1  # step for `cut_log` if there is no checkpoint: validation runs before step 0 is saved


def progress_note(logs: dict[str, float], select: str, validated: float, state: dict[str, Any]) -> str:
    """Formats the step's loss and reward, the last validation's ``select`` value, and the best value so far.

    ``validated`` is NaN before this process's first validation. A resumed run then shows only the best value.
    """
    shown = [f"{key} {logs[key]:.4g}" for key in ("loss", "reward") if key in logs]
    if state["best_step"] is not None:
        best = -state["best_value"] if select == "loss" else state["best_value"]
        last = "" if math.isnan(validated) else f"{validated:.4g}, "
        shown.append(f"{select} {last}best {best:.4g} at step {state['best_step']:,}")
    return ", ".join(shown)


@dataclass
class Trainer:
    """A run in training: its parts, and the ``state`` that a checkpoint contains besides the weights and optimizer."""

    setup: TrainingSetup
    run: Run
    data: TrainingSet
    objective: Objective[Any]
    validator: Validator
    trainable: TrainableParts
    optimizer: Optimizer
    scheduler: LRScheduler
    goal: float | None
    state: dict[str, Any]
    resumed: bool
    memory: dict[str, int]
    validated: float = math.nan  # value of ``validation.select`` at the last validation

    @classmethod
    def open(cls, setup: TrainingSetup, run: Run) -> Trainer:
        """Creates the trainer for a run. If the run has a checkpoint, resumes from the last one.

        Raises `UsageError` if the learner lacks a part, and `TellapartError` if the checkpoint is from a different
        model.
        """
        recipe, settings, validator = setup.recipe, setup.recipe.training, Validator(setup)
        until = recipe.validation.until
        goal = goal_of(setup.upstream(until) if isinstance(until, str) else until, validator.select)
        with ranks.main_first("encoding pictures"):  # the main rank encodes; all other ranks read the cached features
            data, objective = setup.training_set(), objective_of(setup)
            validator.prepare()
        check_ranks(objective, recipe.objective.kind)
        kind = TrainableParts if settings.sharding == "none" else ShardedParts
        trainable = kind(setup.learner, setup.trained_parts)
        if recipe.trains == "captioner":  # so that the saved model decodes as in the evaluation
            setup.captioner.decoding = recipe.evaluation.decoding
        setup.learner.model.train()
        state: dict[str, Any] = {"step": 0, "best_value": None, "best_step": None}
        if (last := run.last()) is not None:
            load_weights(last.folder, trainable)
            objective.load_state_dict(last.objective)
            state = {key: getattr(last, key) for key in state}
        collectives.same_everywhere(trainable.tensors().values())
        trainable.shard()
        optimizer = make_optimizer(trainable, settings)
        scheduler = make_scheduler(optimizer, settings)
        if last is not None:
            load_optimizer(last.folder, trainable, optimizer, scheduler)
        run.cut_log(state["step"] if last is not None else BEFORE_FIRST_CHECKPOINT)
        return cls(
            setup, run, data, objective, validator, trainable, optimizer, scheduler, goal, state, last is not None,
            memory_of(trainable, optimizer),
        )  # fmt: skip

    def checkpoint(self, step: int) -> None:
        """Writes a checkpoint. All ranks must call this method."""
        parts = self.trainable, self.optimizer
        self.memory.update(memory_of(*parts))
        self.optimizer.zero_grad(set_to_none=True)  # frees gradients before the main rank gathers the optimizer state
        self.state.update(step=step, objective=self.objective.state_dict())
        self.run.save(self.state, lambda to: save_state(to, *parts, self.scheduler))
        if not ranks.is_main():
            save_state(None, *parts, self.scheduler)

    def validate(self, step: int) -> bool:
        """Validates the model and saves it if it is the best so far.

        Returns True if ``validation.until`` is reached.
        """
        select = self.validator.select
        with self.trainable.whole():
            values = self.validator.run()
            self.validated = float(step) if select == "step" else values[select]
            value = -self.validated if select == "loss" else self.validated
            best = self.state["best_value"]
            better = math.isfinite(value) and (best is None or value > best)
            if better:
                self.state.update(best_value=value, best_step=step)
                self.run.save_best(step, self.setup.learner.save)
        self.run.log(event="validation", step=step, best=better, n=len(self.validator.items), **values)
        if self.goal is None or not (self.validated <= self.goal if select == "loss" else self.validated >= self.goal):
            return False
        self.run.log(**{"event": "reached", select: self.validated, "step": step})  # ``select`` may be "step"
        say(f"{select} reached {self.goal:g} ({self.validated:g}) at step {step}; training stops")
        return True

    def steps(self, track: Track, progress: Progress, interruption: Interruption) -> bool:
        """Runs the remaining steps. Returns True if ``validation.until`` is reached."""
        recipe, settings, first = self.setup.recipe, self.setup.recipe.training, self.state["step"]
        freed = FreedMemory()
        for step in range(first, settings.steps):
            logs = train_step(
                self.setup, self.data, self.objective, self.trainable, self.optimizer, self.scheduler, step
            )
            done, last = step + 1, step + 1 == settings.steps
            freed.give_back()
            progress.note = progress_note(logs, self.validator.select, self.validated, self.state)
            progress.advance()
            if done % settings.log_every == 0 or last:
                self.run.log(step=done, **logs)
                track(logs, done)
            if (done % recipe.validation.every == 0 or last) and self.validate(done):
                return True  # without a checkpoint, as at step 0, so that a resumed run stops at the same step
            if (stopping := interruption.requested) or done % settings.checkpoint_every == 0 or last:
                self.checkpoint(done)
            if stopping:
                interruption.end()
        return False

    def publish(self) -> None:
        """Writes the best checkpoint as the run's model, and records each rank's memory use.

        All ranks must call this method. Raises `TellapartError` if no validation returned a finite value.
        """
        best = self.state["best_step"]
        if best is None:
            raise TellapartError(f"no validation returned a finite {self.validator.select}; see {self.run.log_path}")
        self.memory["peak"] = memory_of(self.trainable, self.optimizer)["peak"]
        memories = [json.loads(each) for each in collectives.gather_texts([json.dumps(self.memory)])]
        self.run.note(kept_step=best, memory=memories)
        self.run.publish(self.run.best_folder(best))


def check_ranks(objective: Objective[Any], kind: str) -> None:
    """Raises `UsageError` if there are several ranks and the objective cannot split a batch between them."""
    if ranks.count() > 1 and not getattr(objective, "shares_batch", False):
        raise UsageError(
            f"objective '{kind}' cannot run on {ranks.count()} ranks because it does not declare shares_batch; "
            "start a single process"
        )


def fit(setup: TrainingSetup, run: Run) -> None:
    """Trains the recipe of ``setup`` from the last checkpoint of ``run`` (or from scratch) and writes ``model/``.

    All objectives use the same loop. Paper 4's algorithm 1 (cross-entropy, then rewards) consists of two runs, where
    the second run names the first one as its captioner. ``run.folder`` contains the log, the checkpoints and
    ``model/``, the best model according to ``validation.select``. The best model can be the initial model. (Paper 1,
    section 3.3, selects by self-retrieval.)

    Raises:
        TellapartError: if the loss or all validations are not finite, or if a checkpoint is from a different model.
        UsageError: if the learner lacks a part that the recipe names.
    """
    recipe, trainer = setup.recipe, Trainer.open(setup, run)
    reached = False
    if not trainer.resumed and not (reached := trainer.validate(0)):
        trainer.checkpoint(0)
    if not reached:
        with (
            open_trackers(recipe.training.trackers, recipe.name, run.folder) as track,
            Progress(recipe.training.steps, f"training {recipe.name}", done=trainer.state["step"]) as progress,
            Interruption() as interruption,
        ):
            reached = trainer.steps(track, progress, interruption)
    trainer.publish()
    if trainer.state["best_step"] == 0 and not reached:
        say(f"WARNING: {kept_start(recipe)}")
    ranks.barrier("writing the model")
