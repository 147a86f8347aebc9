"""The training loop: any objective, any learner, one run folder; with its validation and its checks."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import accelerate
import accelerate.tracking
import accelerate.utils
import numpy as np
import torch

from tellapart.captioners import generate_captions
from tellapart.data.text_files import read_text
from tellapart.errors import MissingExtra, TellapartError, UsageError, nearest
from tellapart.evaluation.test_sets import CandidateSets, lookalike_sets, random_pools, retrieve
from tellapart.metrics.cider import cider_d
from tellapart.metrics.lexical import length, repetition_rate
from tellapart.models import ranks
from tellapart.objectives.base import OBJECTIVES, Objective
from tellapart.objectives.mle import at_least_float32, mle_of_references
from tellapart.recipe.schema import Recipe
from tellapart.scorers import Scorer
from tellapart.training.build import TrainingSetup, check_references, open_specs, tokenize_references
from tellapart.training.interruption import Interruption
from tellapart.training.run_folder import Run
from tellapart.training.step import (
    ShardedParts,
    TrainableParts,
    load_optimizer,
    load_weights,
    make_optimizer,
    make_scheduler,
    memory_of,
    save_state,
    train_step,
)
from tellapart.types import Item, Rows
from tellapart.utils.messages import Progress, say
from tellapart.utils.registry import check_allowed, code_path
from tellapart.utils.rng import ItemSeeds


def check_setup(setup: TrainingSetup) -> None:
    """Raises `UsageError` where the recipe cannot run here. Loads no model."""
    recipe = setup.recipe
    check_trackers(recipe.training.trackers)
    check_code(recipe)
    if (check := OBJECTIVES.find(recipe.objective.kind).check) is not None:
        check(recipe.objective)
    validation, select = recipe.data.validation, recipe.select
    if recipe.trains == "scorer":
        why = "validation of a scorer finds pictures by their references"
        check_references(validated_items(recipe), validation, why)
    elif select in ("loss", "cider"):
        why = f"validation.select is '{select}', which compares with references"
        check_references(validated_items(recipe), validation, why)
    for reward in recipe.objective.reward_options:
        if "references" in reward.needs():
            why = f"reward '{reward.kind}' compares captions with references"
            check_references(setup.train_data, recipe.data.train, why)
        if "truth" in reward.needs() and (unknown := [item.id for item in setup.train_data if item.truth is None]):
            raise UsageError(
                f"{recipe.data.train}: the content of {unknown[0]} is not known, and reward '{reward.kind}' reads the "
                "exact truth, an upper bound; expected scenes"
            )


def validated_items(recipe: Recipe) -> list[Item]:
    """Returns the pictures that validation would look at, before any is read."""
    return list(islice(open_specs(recipe.data.validation), recipe.validation.limit))


def check_code(recipe: Recipe) -> None:
    """Raises `UsageError` where a model is a user's own code that is not allowed to run, before anything is loaded."""
    captioner = recipe.captioner.name if recipe.captioner else None
    if captioner and (path := code_path(captioner.partition("?")[0], "captioner")) is not None:
        check_allowed(path, "captioner", f"recipe {recipe.name}: captioner.name")
    for key, name in recipe.scorers():
        if (path := code_path(name, "scorer")) is not None:
            check_allowed(path, "scorer", f"recipe {recipe.name}: {key}")


def check_trackers(names: Sequence[str]) -> None:
    """Raises `UsageError` for a tracker that is unknown or not installed, which accelerate would leave out silently."""
    known = [str(kind.value) for kind in accelerate.utils.LoggerType if kind != accelerate.utils.LoggerType.ALL]
    installed = {str(kind.value) for kind in accelerate.tracking.get_available_trackers()}
    for name in names:
        if name not in known:
            raise UsageError(f"training.trackers: unknown tracker '{name}'{nearest(name, known)}")
        if name not in installed:
            if name == "tensorboard":
                raise MissingExtra("tensorboard", "the tracker 'tensorboard'")
            raise UsageError(f"training.trackers: '{name}' is not installed; type: pip install {name}")


Track = Callable[[dict[str, float], int], None]  # logs and step


@contextlib.contextmanager
def open_trackers(names: Sequence[str], project: str, folder: Path) -> Iterator[Track]:
    """Opens accelerate's trackers by name (``tensorboard``, ``wandb``, …), which write into the run's folder."""
    if not names:
        yield lambda logs, step: None
        return
    accelerator = accelerate.Accelerator(log_with=list(names), project_dir=str(folder))
    accelerator.init_trackers(project)
    yield lambda logs, step: accelerator.log(logs, step=step)
    accelerator.end_training()


def truncation_lines(scorers: Sequence[Scorer]) -> list[str]:
    """Returns a line for each scorer that captions were too long for: it reads as much as its window holds."""
    return [
        f"{scorer.cut_texts:,} captions were longer than the window of {scorer.window} tokens of {scorer.name}; it "
        "scored what fits"
        for scorer in scorers
        if scorer.cut_texts
    ]


def progress_note(logs: dict[str, float], select: str, validated: float, state: dict[str, Any]) -> str:
    """Returns loss and reward of the step, the last validation's value of ``select``, and the best so far.

    ``validated`` is NaN before the first validation of this process: a run that was resumed shows the best alone.
    """
    shown = [f"{key} {logs[key]:.4g}" for key in ("loss", "reward") if key in logs]
    if state["best_step"] is not None:
        best = -state["best_value"] if select == "loss" else state["best_value"]
        last = "" if math.isnan(validated) else f"{validated:.4g}, "
        shown.append(f"{select} {last}best {best:.4g} at step {state['best_step']:,}")
    return ", ".join(shown)


VALIDATED = 100  # pictures whose features are held at once
HELD = 2**21  # values in their rows on a CPU: of BLIP at 384 pixels four, each with 42 MB of keys and values of patches


class Validator:
    """Validation of a run's learner. What stays the same from step to step is computed once, on first use."""

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup = setup

    @property
    def items(self) -> list[Item]:
        return self.setup.validation_items

    def prepare(self) -> None:
        """Encodes what validation looks at."""
        _ = self.pictures
        if self.setup.scorer is not None:
            _ = self.lookalikes

    def run(self) -> dict[str, float]:
        """Computes every metric on the validation pictures, with dropout off: recalls and CIDEr-D in percent, loss in
        nats."""
        self.setup.learner.model.eval()
        with torch.no_grad():
            values = self._of_scorer() if self.setup.recipe.trains == "scorer" else self._of_captioner()
        self.setup.learner.model.train()
        return values

    def _of_captioner(self) -> dict[str, float]:
        values: dict[str, float] = {}
        share, pictures = ranks.share(len(self.items)), self.pictures
        recipe, references = self.setup.recipe, [list(item.references) for item in self.items]
        learned = recipe.select == "loss" or (recipe.objective.learns_references and all(references))
        rows = self.token_rows if learned else []
        seeds = ItemSeeds(tuple(item.id for item in self.items), recipe.seed)
        own: list[str] = []
        total, tokens = 0.0, 0
        held, freed = self._held(pictures), FreedMemory()
        for start in range(share.start, share.stop, held):  # patches of all would be 9 GB of a BLIP, for 5,000 pictures
            freed.give_back()
            block = slice(start, min(start + held, share.stop))  # a slice of all that is longer would read it all
            visual: Rows | torch.Tensor = pictures[block]
            if self.setup.reads_pixels:
                visual = self.encode_pixels(pictures[block], self.setup.captioner.encode)
            if learned:
                loss, count = self._loss(visual, rows[block])
                total, tokens = total + loss * count, tokens + count
            own += generate_captions(self.setup.captioner, visual, recipe.validation.decoding, seeds=seeds[block])
        texts = ranks.gather_texts(own)
        if learned:
            summed = ranks.add_up({"loss": total, "tokens": tokens})
            values["loss"] = summed["loss"] / summed["tokens"]
        if recipe.select == "cider" or all(references):
            values["cider"] = 100 * cider_d(texts, references)[0]
        values["length"], values["repetition_rate"] = length(texts, [])[0], repetition_rate(texts, [])[0]
        if self.setup.scorer is not None:
            texts_ND = self.setup.scorer.text_features(texts).cpu().numpy()
            values |= self._recalls(texts_ND, self.image_features_ND, self.lookalikes)
        return values

    @cached_property
    def pictures(self) -> Rows:
        return self.setup.visual(self.items)

    @cached_property
    def token_rows(self) -> list[list[int]]:
        """Tokens of the first reference of each validation picture."""
        return tokenize_references(self.setup, [item.references[0] for item in self.items], "validation references")

    @cached_property
    def image_features_ND(self) -> np.ndarray:
        """The frozen scorer's view of the validation pictures."""
        assert self.setup.scorer is not None
        return np.asarray(self.setup.store.features(self.items, self.setup.scorer.encoder))

    @cached_property
    def lookalikes(self) -> CandidateSets:
        return lookalike_sets(self.image_features_ND, self.setup.recipe.evaluation.lookalike)

    def encode_pixels(self, pixels: Rows, encode: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        held = self._held(pixels)
        blocks = (pixels[start : start + held] for start in range(0, len(pixels), held))
        return torch.cat([at_least_float32(encode(self.setup.pixels.tensor(rows))) for rows in blocks])

    def _held(self, rows: Rows) -> int:
        """Returns how many pictures are held at once: fewer of large rows where memory is the machine's."""
        if self.setup.device.type != "cpu" or not len(rows):
            return VALIDATED
        return max(1, min(VALIDATED, HELD // math.prod(rows[:1].shape[1:])))

    def _loss(self, visual: Rows | torch.Tensor, rows: Sequence[Sequence[int]]) -> tuple[float, int]:
        """Computes the mean negative log-likelihood of a token of these references, in nats, and how many there are."""
        tokens_RT, valid_RT = (x.to(self.setup.device) for x in self.setup.captioner.pad(rows))
        visual_R = torch.as_tensor(visual).to(self.setup.device)
        return float(mle_of_references(self.setup.captioner, visual_R, tokens_RT, valid_RT)), int(valid_RT.sum())

    def _of_scorer(self) -> dict[str, float]:
        """Computes R@1 of the references themselves, mean over the first five."""
        items = self.items
        images_ND = self._scorer_images().cpu().numpy()
        lookalikes = lookalike_sets(images_ND, self.setup.recipe.evaluation.lookalike)
        count = min(5, min(len(item.references) for item in items))
        recalls = []
        for k in range(count):
            texts_ND = self.setup.trained_scorer.text_features([item.references[k] for item in items]).cpu().numpy()
            recalls.append(self._recalls(texts_ND, images_ND, lookalikes))
        return {key: float(np.mean([recall[key] for recall in recalls])) for key in recalls[0]}

    def _scorer_images(self) -> torch.Tensor:
        """Computes the features N×D that the scorer in training gives of the validation pictures."""
        pictures, scorer = self.pictures, self.setup.trained_scorer
        if self.setup.reads_pixels:
            return self.encode_pixels(pictures, scorer.image_features)
        blocks = (torch.as_tensor(np.asarray(pictures[start : start + 100])) for start in range(0, len(pictures), 100))
        return torch.cat([at_least_float32(scorer.image_features(block)) for block in blocks])

    def _recalls(self, texts_ND: np.ndarray, images_ND: np.ndarray, lookalikes: CandidateSets) -> dict[str, float]:
        pools = random_pools(len(images_ND), self._pool_size)
        return {
            key: 100 * retrieve(sets, texts_ND, images_ND).recall(1)
            for key, sets in ((f"recall@1.random{self._pool_size}", pools), ("recall@1.lookalike", lookalikes))
        }

    @property
    def _pool_size(self) -> int:
        """Pictures in a random pool of validation: a hundred, or all where there are fewer."""
        return min(100, len(self.items))

    @property
    def select(self) -> str:
        """The key of the validation value that chooses the checkpoint; it names the size of the pool as it is."""
        select = self.setup.recipe.select
        return f"recall@1.random{self._pool_size}" if select == "recall@1.random100" else select


TIMED = 4  # steps after which their time is told
NOTHING = -1  # the step to which a log is cut where no checkpoint was written: validation comes before that of step 0


def goal_of(until: float | str | None, select: str) -> float | None:
    """Returns the value at which training stops; that of a run is the best that its validations logged.

    Raises `UsageError` for what is no run, or one that never logged ``select``.
    """
    if not isinstance(until, str):
        return until
    try:
        records = [json.loads(line) for line in read_text(Path(until) / "log.jsonl").splitlines()]
    except UsageError as error:
        raise UsageError(f"validation.until: expected a number or the folder of a run ({error})") from None
    values = [record[select] for record in records if record.get("event") == "validation" and select in record]
    if not values:
        raise UsageError(f"validation.until: {until} has no validation by {select}; train that run first")
    return float(min(values) if select == "loss" else max(values))


def fit(setup: TrainingSetup, run: Run) -> None:
    """Trains ``setup``'s recipe from the last checkpoint of ``run`` (or the start) to ``model/`` in its folder.

    One loop for all objectives: paper 4's algorithm 1 (cross-entropy, then rewards) is two runs, the second of which
    names the first as its captioner. Returns nothing; log, checkpoints and ``model/`` are in ``run.folder``. ``model/``
    is what was best by ``validation.select``, the untouched start included (paper 1, section 3.3: by self-retrieval).
    Raises `TellapartError` for a loss that is not finite, for validations that never gave a finite value, and for a
    checkpoint of another model; `UsageError` for a part that the learner does not have.
    """
    recipe, learner = setup.recipe, setup.learner
    settings = recipe.training
    validation, validated = Validator(setup), math.nan
    goal = goal_of(recipe.validation.until, validation.select)
    with ranks.main_first("pictures are encoded"):  # once; the other ranks find their features
        data, objective = setup.training_set(), setup.objective()
        validation.prepare()
    check_ranks(objective, setup.recipe.objective.kind)
    kind = TrainableParts if settings.sharding == "none" else ShardedParts
    trainable = kind(setup.learner, setup.trained_parts)
    if recipe.trains == "captioner":  # what is saved decodes as it is evaluated
        setup.captioner.decoding = recipe.evaluation.decoding
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
        """Validates, keeps the best, and returns whether ``validation.until`` is reached."""
        nonlocal validated
        with trainable.whole():
            values = validation.run()
            validated = float(step) if select == "step" else values[select]
            value = -validated if select == "loss" else validated
            better = math.isfinite(value) and (state["best_value"] is None or value > state["best_value"])
            if better:
                state.update(best_value=value, best_step=step)
                run.save_best(step, learner.save)
        run.log(event="validation", step=step, best=better, n=len(validation.items), **values)
        reached = goal is not None and (validated <= goal if select == "loss" else validated >= goal)
        if reached:
            run.log(event="reached", step=step, **{select: validated})
            say(f"{select} is {validated:g}, {goal:g} or better, at step {step}: training stops")
        return reached

    reached, freed, clock = False, FreedMemory(), StepClock(state["step"], settings.steps)
    if last is None and not (reached := validate(0)):
        checkpoint(0)
    with (
        open_trackers(settings.trackers, recipe.name, run.folder) as track,
        Progress(settings.steps, f"training {recipe.name}", done=state["step"]) as progress,
        Interruption() as interruption,
    ):
        for step in range(state["step"], 0 if reached else settings.steps):
            logs = train_step(setup, data, objective, trainable, optimizer, scheduler, step)
            done = step + 1
            freed.give_back()
            progress.note = progress_note(logs, select, validated, state)
            progress.advance()
            clock.advance(done)
            if done % settings.log_every == 0 or done == settings.steps:
                run.log(step=done, **logs)
                track(logs, done)
            if (done % recipe.validation.every == 0 or done == settings.steps) and validate(done):
                break  # without a checkpoint, as at step 0: a resumed run comes here again, and trains no further
            if (stopping := interruption.requested) or done % settings.checkpoint_every == 0 or done == settings.steps:
                checkpoint(done)
            if stopping:
                interruption.end()
    if state["best_step"] is None:
        raise TellapartError(f"validation gave no finite {select}; see {run.log_path}")
    memory["peak"] = memory_of(trainable, optimizer)["peak"]
    memories = [json.loads(each) for each in ranks.gather_texts([json.dumps(memory)])]
    run.note(kept_step=state["best_step"], memory=memories)
    run.publish(run.best_folder(state["best_step"]))
    if state["best_step"] == 0 and not reached:
        say(f"WARNING: {kept_start(recipe)}")
    ranks.barrier("the model is written")


def kept_start(recipe: Recipe) -> str:
    """Returns the line that says that no step of training was kept."""
    return (
        f"validation kept step 0: no step of training had a better {recipe.select}, so the saved model has the weights "
        "that training started from; train longer, change training.learning_rate, or set validation.select"
    )


class StepClock:
    """Says after a few steps how long the others will take. The first one, which is slower, is not counted."""

    def __init__(self, first: int, steps: int) -> None:
        self._first, self._steps, self._started = first, steps, 0.0

    def advance(self, done: int) -> None:
        """Records that ``done`` steps of the run are done."""
        if done == self._first + 1:
            self._started = time.monotonic()
        elif done == self._first + TIMED:
            say_minutes((time.monotonic() - self._started) / (TIMED - 1), self._steps - done)


def say_minutes(seconds_a_step: float, steps: int) -> None:
    """Says how long these steps will take, where it is a minute or more."""
    if (minutes := seconds_a_step * steps / 60) >= 1:
        say(f"about {minutes:,.0f} minutes for the {steps:,} steps that are left, validation not counted")


def check_ranks(objective: Objective[Any], kind: str) -> None:
    """Raises `UsageError` where several ranks train and the objective does not share a batch between them."""
    if ranks.count() > 1 and not getattr(objective, "shares_batch", False):
        raise UsageError(
            f"objective '{kind}' does not share a batch between {ranks.count()} ranks (it has no shares_batch); "
            "start one process"
        )


class FreedMemory:
    """Gives back to the system, every so many ``seconds``, what the C library keeps of freed memory.

    Tensors of many sizes leave holes in glibc's heap, which it keeps: in a long training on a CPU as much again as is
    used (docs/research). A call takes a tenth of a second for a few gigabytes.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds, self._last = seconds, time.monotonic()
        # Other C libraries have no such call, and need none.
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    def give_back(self) -> None:
        if self._trim is not None and time.monotonic() - self._last >= self._seconds:
            self._trim(0)
            self._last = time.monotonic()
