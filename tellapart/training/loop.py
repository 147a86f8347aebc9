"""The one training loop: any objective, any learner, one run folder."""

from __future__ import annotations

import glob
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from tellapart.captioners.lora_weights import is_adapter
from tellapart.errors import TellapartError, UsageError
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import Recipe
from tellapart.training.adopt import adopt
from tellapart.training.fingerprint import content_of, fingerprint_of_0_1
from tellapart.training.run_folder import Run
from tellapart.utils.messages import say

RUNS = Path("runs")
NOTHING = -1  # the step to which a log is cut where no checkpoint was written: validation comes before that of step 0


def train(
    recipe: Recipe,
    folder: Path | None = None,
    *,
    resume: bool = False,
    evaluate: bool = True,
    wait: bool = False,
    adopted: Mapping[str, Path] | None = None,
) -> Run:
    """Train what ``recipe`` says into ``folder`` (default ``runs/NAME-FINGERPRINT``), measure, report.

    Recipes named as models are trained first, where they have not been, or stand for the runs that are ``adopted`` in
    their place, by their names. A finished run is returned as it is. Where another process works on the folder,
    ``wait`` for it. Raises `UsageError` where the folder holds another run, or an unfinished one and ``resume`` is
    False, and where another process works on it and ``wait`` is False.
    """
    recipe = adopt(recipe, adopted or {})
    content = content_of(recipe)
    run = Run(folder or RUNS / f"{recipe.name}-{content.fingerprint}", recipe, content)
    check_same(run)
    if not is_done(run, evaluate):
        if folder is None and not run.started:
            tell_of_older(run, is_upstream=wait)
        with run.lock(wait=wait):
            check_same(run)
            check_resumed(run, resume)
            if not is_done(run, evaluate):  # another process may have done it while this one waited
                complete(run, evaluate, adopted or {})
    return run


def is_done(run: Run, evaluate: bool) -> bool:
    return run.reported if evaluate else run.trained


def check_same(run: Run) -> None:
    """Raises `UsageError` where the folder holds a run of another recipe."""
    if run.started and (difference := run.difference()):
        raise UsageError(f"{run.folder} holds a run of another recipe ({difference}); type: --out with another folder")


def tell_of_older(run: Run, is_upstream: bool) -> None:
    """One line where a trained run of this name is there that is not used, for it was made of something else."""
    if (found := older_run(run)) is None:
        return
    older, difference = found
    if is_upstream:
        why = difference or "tellapart 0.1 recorded neither data nor weights"
        say(
            f"{run.recipe.name} is trained now, for {older} is of something else ({why}); "
            f"to use that run, type: --adopt {older}"
        )
    elif not difference:
        say(f"{older} is this recipe's run by tellapart 0.1; to go on with it, type: --resume --out {older}")


def older_run(run: Run) -> tuple[Path, str] | None:
    """The newest trained run of this recipe's name in the default folder, and how it differs."""
    found = []
    for folder in RUNS.glob(f"{glob.escape(run.recipe.name)}-*"):
        other = Run(folder, run.recipe, run.content)
        if other.trained and other.info.get("name") == run.recipe.name:
            found.append((other.info.get("created", ""), folder, other.difference()))
    return max(found)[1:] if found else None


def check_resumed(run: Run, resume: bool) -> None:
    """Raises `UsageError` where the folder holds an unfinished run and nobody asked to go on with it."""
    if run.started and not run.trained and not resume:
        at = run.last()
        raise UsageError(
            f"{run.folder} holds an unfinished run (step {at.step if at else 0} of {run.recipe.training.steps}); "
            "type: the same command with --resume, or --out with another folder"
        )


def complete(run: Run, evaluate: bool, adopted: Mapping[str, Path]) -> None:
    """What is still to do of a run: train, measure, report."""
    from tellapart.report import build_report
    from tellapart.training.final_evaluation import final_evaluation
    from tellapart.training.setup import TrainingSetup

    goes_on = run.started and run.is_of_0_1
    find = partial(upstream_of_0_1, run) if goes_on else partial(upstream, adopted=adopted)
    setup, started = TrainingSetup(run.recipe, find), time.monotonic()
    if not run.trained:
        setup.load()  # a name that is no model's is told before there is a run
    if not run.started:
        run.stamp(str(setup.device))
    if not run.trained:
        fit(setup, run)
        for line in setup.cut_lines():
            say(line)
    if evaluate and not run.evaluated:
        final_evaluation(setup, run)
    run.finish(seconds=round(run.info.get("seconds", 0) + time.monotonic() - started, 1))
    if evaluate:
        build_report([run.folder])


def upstream(name: str, adopted: Mapping[str, Path] | None = None) -> str:
    """The model behind a name in a recipe: another recipe's result (trained now if need be), or the name.

    Where another process trains that recipe, this one waits.
    """
    if not name.endswith(".toml"):
        return name
    run = train(read_recipe(Path(name)), resume=True, evaluate=False, wait=True, adopted=adopted)
    return str(run.folder)


def upstream_of_0_1(run: Run, name: str) -> str:
    """The model behind a name in the recipe of a run that 0.1 began: the one that it began with.

    A judge, which is only asked for at the end, may be trained now. Raises `UsageError` where another recipe's run is
    gone: today's would be another model.
    """
    if not name.endswith(".toml"):
        return name
    recipe = read_recipe(Path(name))
    folder = RUNS / f"{recipe.name}-{fingerprint_of_0_1(recipe)}"
    if (folder / "model" / "config.json").is_file():
        return str(folder)
    if name in run.recipe.evaluation.eval_scorers:
        return upstream(name)
    raise UsageError(
        f"{run.folder} was begun by tellapart 0.1 with {folder}, which is not there; put it back, or type: --out with "
        "another folder, to train anew"
    )


def fit(setup: Any, run: Run) -> None:
    """Train ``setup``'s recipe from the last checkpoint of ``run`` (or the start) to ``model/`` in its folder.

    One loop for all objectives: paper 4's algorithm 1 (cross-entropy, then rewards) is two runs, the second of which
    names the first as its captioner. Returns nothing; log, checkpoints and ``model/`` are in ``run.folder``. ``model/``
    is what was best by ``validation.select``, the untouched start included (paper 1, section 3.3: by self-retrieval).
    Raises `TellapartError` for a loss that is not finite, for validations that never gave a finite value, and for a
    checkpoint of another model; `UsageError` for a part that the learner does not have.
    """
    recipe, learner = setup.recipe, setup.learner
    settings = recipe.training
    data, objective = setup.training_set(), setup.objective()
    trainable = TrainableParts(learner, setup.trained_parts)
    learner.model.train()
    optimizer = make_optimizer(trainable, settings)
    scheduler = make_scheduler(optimizer, settings)
    state: dict[str, Any] = {"step": 0, "best_value": None, "best_step": None, "objective": {}}
    if (last := run.last()) is not None:
        restore(last.folder, trainable, optimizer, scheduler)
        objective.load_state_dict(last.objective)
        state = {"step": last.step, "best_value": last.best_value, "best_step": last.best_step}
    run.cut_log(state["step"] if last is not None else NOTHING)
    select, validated = setup.select, math.nan

    def checkpoint(step: int) -> None:
        state.update(step=step, objective=objective.state_dict())
        run.save(state, lambda to: store(to, trainable, optimizer, scheduler))

    def validate(step: int) -> None:
        nonlocal validated
        values = setup.validate()
        validated = values[select]
        value = -validated if select == "loss" else validated
        better = math.isfinite(value) and (state["best_value"] is None or value > state["best_value"])
        if better:
            state.update(best_value=value, best_step=step)
            run.save_best(step, learner.save)
        run.log(event="validation", step=step, best=better, n=len(setup.validation_items), **values)

    if state["step"] == 0:
        validate(0)
        checkpoint(0)
    with setup.trackers(run) as track, setup.bar("training", settings.steps, state["step"]) as bar:
        for step in range(state["step"], settings.steps):
            logs = train_step(setup, data, objective, trainable, optimizer, scheduler, step)
            done = step + 1
            bar(progress_note(logs, select, validated, state))
            if done % settings.log_every == 0 or done == settings.steps:
                run.log(step=done, **logs)
                track(logs, done)
            if done % recipe.validation.every == 0 or done == settings.steps:
                validate(done)
            if done % settings.checkpoint_every == 0 or done == settings.steps:
                checkpoint(done)
    if state["best_step"] is None:
        raise TellapartError(f"validation gave no finite {setup.select}; see {run.log_path}")
    run.publish(run.best_folder(state["best_step"]))


def progress_note(logs: dict[str, float], select: str, validated: float, state: dict[str, Any]) -> str:
    """Loss and reward of the step, the last validation's value of ``select``, and the best one so far and its step.

    ``validated`` is NaN before the first validation of this process: a run that was resumed shows the best alone.
    """
    shown = [f"{key} {logs[key]:.4g}" for key in ("loss", "reward") if key in logs]
    if state["best_step"] is not None:
        best = -state["best_value"] if select == "loss" else state["best_value"]
        last = "" if math.isnan(validated) else f"{validated:.4g}, "
        shown.append(f"{select} {last}best {best:.4g} at step {state['best_step']:,}")
    return ", ".join(shown)


def train_step(
    setup: Any, data: Any, objective: Any, trainable: TrainableParts, optimizer: Any, scheduler: Any, step: int
) -> dict[str, float]:
    """One step. It draws its own randomness from (seed, step), so nothing but weights carries over.

    What is drawn for an item belongs to it alone (`Batch.seeds`); torch's own generator serves dropout.
    """
    torch.manual_seed(int(np.random.default_rng([setup.recipe.seed, step, 2]).integers(2**62)))
    encode = setup.learner.encode if setup.vision_learns else None
    losses = objective.losses(
        setup.learner, data.batch(step), setup.recipe.training.gradient_accumulation_steps, encode
    )
    optimizer.zero_grad(set_to_none=True)
    told: dict[str, float] = {}
    while (loss := next_of(losses, setup.autocast())) is not None:
        if not bool(torch.isfinite(loss.value)):
            raise TellapartError(f"the loss is {float(loss.value)} at step {step + 1}; lower training.learning_rate")
        loss.value.backward()
        for key, value in {"loss": float(loss.value.detach()), **loss.logs}.items():
            told[key] = told.get(key, 0.0) + value
    norm = torch.nn.utils.clip_grad_norm_(trainable.parameters, setup.recipe.training.max_grad_norm)
    optimizer.step()
    rate = scheduler.get_last_lr()[0]
    scheduler.step()
    return {**told, "gradient_norm": float(norm), "learning_rate": rate}


def next_of(losses: Iterator[Any], context: torch.autocast) -> Any:
    """The next part's loss, made under ``context``, which its backward pass must not be under; None after the last."""
    with context:
        return next(losses, None)


class TrainableParts:
    """The parts that learn: their parameters, for the optimizer, and all their tensors, for a checkpoint.

    A part with LoRA learns in LoRA's parameters alone. All else is frozen. Raises `UsageError` for a part that the
    learner does not have.
    """

    def __init__(self, learner: Any, parts: tuple[str, ...]) -> None:
        learner.model.requires_grad_(False)
        modules = learner.parts()
        if unknown := [part for part in parts if part not in modules]:
            raise UsageError(f"{learner.name} has no part '{unknown[0]}'; it has: {', '.join(modules)}")
        self.modules = {part: modules[part] for part in parts}
        self.adapted = {part for part in parts if any(map(is_adapter, modules[part].state_dict()))}
        for part, module in self.modules.items():
            for name, parameter in module.named_parameters():
                parameter.requires_grad_(part not in self.adapted or is_adapter(name))
        learning = (p for module in self.modules.values() for p in module.parameters() if p.requires_grad)
        self.parameters = list({id(p): p for p in learning}.values())

    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers (the running means of a batch norm move too) by name; tied ones once.

        Of a part with LoRA only what it adds, and buffers: its other parameters stay as they are.
        """
        named: dict[str, torch.Tensor] = {}
        for part, module in self.modules.items():
            buffers = dict(module.named_buffers())
            for name, tensor in module.state_dict().items():
                if part not in self.adapted or is_adapter(name) or name in buffers:
                    named[f"{part}.{name}"] = tensor
        once = {tensor.data_ptr(): name for name, tensor in reversed(named.items())}
        return {name: named[name] for name in once.values()}


def make_optimizer(trainable: TrainableParts, settings: Any) -> torch.optim.Optimizer:
    """Adam or AdamW; vectors and scalars (norms, biases, the scale) are not decayed."""
    matrices = [p for p in trainable.parameters if p.ndim > 1]
    vectors = [p for p in trainable.parameters if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind([g for g in groups if g["params"]], lr=settings.learning_rate, betas=settings.betas)


def make_scheduler(optimizer: torch.optim.Optimizer, settings: Any) -> Any:
    """The rate as the recipe says; after the warm-up it changes each ``schedule_every`` steps."""
    from transformers import get_scheduler

    name = "constant_with_warmup" if settings.schedule == "constant" else settings.schedule
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=settings.warmup, num_training_steps=settings.steps)
    every, warmup = settings.schedule_every, settings.warmup
    if every == 1:
        return scheduler
    factor = scheduler.lr_lambdas[0]
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: factor(max(step - step % every, min(step, warmup)))
    )


def store(folder: Path, trainable: TrainableParts, optimizer: Any, scheduler: Any) -> None:
    """What a resume reads."""
    save_file(
        {name: t.detach().contiguous() for name, t in trainable.tensors().items()}, folder / "weights.safetensors"
    )
    torch.save({"optimiser": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, folder / "optimiser.pt")


def restore(folder: Path, trainable: TrainableParts, optimizer: Any, scheduler: Any) -> None:
    """Back to where `store` was called. Raises `TellapartError` for a checkpoint of another model."""
    weights, tensors = load_file(folder / "weights.safetensors"), trainable.tensors()
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in tensors.items()}:
        raise TellapartError(f"{folder} is a checkpoint of another model; start again with another --out")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(weights[name])
    saved = torch.load(folder / "optimiser.pt", weights_only=True)
    optimizer.load_state_dict(saved["optimiser"])
    scheduler.load_state_dict(saved["scheduler"])
