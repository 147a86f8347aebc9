"""Times one self-retrieval step, part by part, with `tellapart.training` and with a plain implementation, on the same
work.

The plain implementation encodes the pictures with both towers in every step, generates with transformers' ``generate``
from features that are repeated for every sample, pads the scorer's texts to 77 tokens, computes the logits of all
positions in all rows, and uses the optimizer's default settings. Both draw the same numbers, so they write the same
captions.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers.activations import ACT2FN

from benchmarks.full_size import clip_scorer, full_size_captioner
from tellapart.captioners.blip import Blip
from tellapart.captioners.clipcap import ClipCap
from tellapart.captioners.lora import is_lora_weight
from tellapart.models.decoding import Decoding
from tellapart.objectives.baselines import leave_one_out
from tellapart.objectives.caption_log_probs import token_log_probs
from tellapart.objectives.reinforce import Reinforce
from tellapart.objectives.reward_terms import RewardTerm
from tellapart.recipe.schema import Training
from tellapart.rewards.retrieval import SelfRetrieval
from tellapart.training.optimizer import make_optimizer, make_scheduler
from tellapart.training.step import train_step
from tellapart.training.trainable import TrainableParts
from tellapart.types import Batch, Item, Rollout, StepContext

PARTS = ("vision", "generate", "text tower", "score forward", "backward", "optimizer")
STEP = "step"
Milliseconds = dict[str, float]


@dataclass(frozen=True)
class Work:
    """``samples`` captions for each of ``pictures`` pictures. Each caption has ``shortest`` to ``longest`` tokens,
    including the end token.
    """

    samples: int
    pictures: int
    shortest: int
    longest: int

    @property
    def decoding(self) -> Decoding:
        return Decoding(kind="sample", samples=self.samples, max_tokens=self.longest)


@dataclass
class ForcedLengths:
    """Replaces a batch's seeds. The random numbers that it returns end each caption exactly at its length.

    The end token is the last token in the vocabulary, so a number close to 1 draws it.
    """

    work: Work
    number: int

    def __len__(self) -> int:
        return self.work.pictures

    def uniform(self, *_: Any) -> torch.Tensor:
        """Returns the random numbers uniform_RT."""
        generator = torch.Generator().manual_seed(self.number)
        R, T = self.work.pictures * self.work.samples, self.work.longest
        uniform_RT = 0.9 * torch.rand(R, T, dtype=torch.float64, generator=generator)
        last_R = torch.randint(self.work.shortest, T + 1, (R,), generator=generator) - 1
        uniform_RT[torch.arange(R), last_R] = 1 - 1e-12
        return uniform_RT


@dataclass
class Clock:
    """Adds up the milliseconds that each part takes."""

    device: torch.device
    parts: Milliseconds = field(default_factory=dict)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = self.now()
        yield
        self.add(part, start)

    def add(self, part: str, start: float) -> None:
        self.parts[part] = self.parts.get(part, 0.0) + 1e3 * (self.now() - start)

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            with self(part):
                return function(*args, **options)

        return call


class TrainingStep:
    """A full-size model with everything that a step needs. ``ours`` and ``theirs`` run one step each."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name, self.device = name, device
        self.prepared: Prepared | None = None
        torch.manual_seed(0)

    @cached_property
    def captioner(self) -> Any:
        captioner = full_size_captioner(self.name)
        captioner.model.to(self.device)
        captioner.model.train()
        return captioner

    @cached_property
    def plain_scorer(self) -> Any:
        return as_transformers_makes_it(self.scorer)

    @cached_property
    def plain_captioner(self) -> Any:
        return as_transformers_makes_it(self.captioner)

    @cached_property
    def plain_trainable(self) -> TrainableParts:
        return TrainableParts(self.plain_captioner, tuple(self.trainable.modules))

    @cached_property
    def scorer(self) -> Any:
        scorer = clip_scorer()
        scorer.model.to(self.device)
        return scorer

    @cached_property
    def trainable(self) -> TrainableParts:
        parts = tuple(part for part in self.captioner.parts() if part != "vision")
        adapted = any(map(is_lora_weight, self.captioner.model.state_dict()))
        return TrainableParts(self.captioner, ("language_model",) if adapted else parts)

    @cached_property
    def settings(self) -> Training:
        return Training(steps=10**6, batch_size=2, learning_rate=1e-7)

    @cached_property
    def our_optimizer(self) -> torch.optim.Optimizer:
        return make_optimizer(self.trainable, self.settings)

    @cached_property
    def scheduler(self) -> torch.optim.lr_scheduler.LRScheduler:
        return make_scheduler(self.our_optimizer, self.settings)

    @cached_property
    def their_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.plain_trainable.parameters, lr=self.settings.learning_rate)

    def pictures(self, work: Work) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns random pixels for the captioner and for the scorer."""
        from PIL import Image

        noise = np.random.default_rng(0).integers(0, 256, (work.pictures, 336, 504, 3), dtype=np.uint8)
        images = [Image.fromarray(picture) for picture in noise]
        return self.captioner.pixels(images), self.scorer.pixels(images)

    def prepare(self, work: Work) -> Prepared:
        """Prepares our side's cached features and their side's pixels. Caches the last result."""
        if self.prepared is not None and self.prepared.work == work:
            return self.prepared
        pixels, scorer_pixels = self.pictures(work)
        with torch.no_grad():
            visual = self.captioner.encode(pixels.to(self.device, self.pixel_dtype)).float()
            features_BD = self.scorer.image_features(scorer_pixels).cpu().numpy()
        self.prepared = Prepared(work, pixels, scorer_pixels, visual, features_BD)
        return self.prepared

    @property
    def pixel_dtype(self) -> torch.dtype:
        return next(self.captioner.parts()["vision"].parameters()).dtype

    def autocast(self, bf16: bool) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=bf16)

    def ours(self, prepared: Prepared, number: int, *, bf16: bool) -> Milliseconds:
        """Runs one `train_step` of the training loop."""
        clock, work = Clock(self.device), prepared.work
        with replaced_methods(self.captioner, self.scorer, self.our_optimizer, clock, ForcedLengths(work, number)):
            reward = SelfRetrieval(self.scorer, prepared.features_BD)
            term = RewardTerm(reward, leave_one_out if work.samples > 1 else zero)
            objective = Reinforce([term], Reinforce.Config(decoding=work.decoding))
            recipe = SimpleNamespace(seed=0, training=self.settings)
            context = StepContext(autocast=lambda: self.autocast(bf16))
            setup: Any = SimpleNamespace(recipe=recipe, learner=self.captioner, step_context=context)
            rows_B = torch.arange(work.pictures)
            items = [Item(f"{row}", picture=None) for row in rows_B]  # type: ignore[arg-type]
            data: Any = SimpleNamespace(batch=lambda step: Batch(items, rows_B, prepared.visual, step=step))
            with clock(STEP):
                train_step(setup, data, objective, self.trainable, self.our_optimizer, self.scheduler, number)
        rest = sum(clock.parts.get(part, 0.0) for part in PARTS)
        return {**dict.fromkeys(PARTS, 0.0), **clock.parts, "backward": clock.parts[STEP] - rest}

    def theirs(self, prepared: Prepared, number: int, *, bf16: bool) -> Milliseconds:
        """Runs the plain implementation."""
        clock, work, scorer = Clock(self.device), prepared.work, self.plain_scorer
        with clock(STEP):
            with clock("vision"), torch.no_grad(), self.autocast(bf16):
                visual = self.plain_captioner.encode(prepared.pixels.to(self.device, self.pixel_dtype))
                visual_R = visual.repeat_interleave(work.samples, dim=0)
                image_BD = scorer.image_features(prepared.scorer_pixels)
            with clock("generate"), torch.no_grad(), self.autocast(bf16):
                rollout = self.plain_rollout(visual_R, work, number)
            with clock("text tower"), torch.no_grad():
                encoded = scorer.tokenizer(
                    rollout.texts, padding="max_length", truncation=True, max_length=77, return_tensors="pt"
                )
                read = {key: encoded[key].to(self.device) for key in ("input_ids", "attention_mask")}
                text_RD = F.normalize(scorer.model.get_text_features(**read).pooler_output.float(), dim=-1)
                target_R = torch.arange(work.pictures, device=self.device).repeat_interleave(work.samples)
                match_RB = scorer.scale * text_RD @ image_BD.float().T
                reward_R = match_RB.log_softmax(1).gather(1, target_R[:, None]).squeeze(1)
            with clock("score forward"), self.autocast(bf16):
                logits_RTV = self.plain_logits(visual_R, rollout)
                log_p_RT = token_log_probs(logits_RTV, rollout.tokens_RT) * rollout.valid_RT
                log_p_R = log_p_RT.sum(1) / rollout.valid_RT.sum(1)
                loss = -((reward_R - reward_R.mean()) * log_p_R).mean()
            self.their_optimizer.zero_grad()
            with clock("backward"):
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.plain_trainable.parameters, self.settings.max_grad_norm)
            with clock("optimizer"):
                self.their_optimizer.step()
        return clock.parts

    def plain_rollout(self, visual_R: torch.Tensor, work: Work, number: int) -> Rollout:
        """Generates captions with transformers' ``generate``, one per row of ``visual_R``."""
        from benchmarks import transformers_generate
        from tellapart.captioners.decoding import to_rollout

        captioner, decoding = self.plain_captioner, work.decoding.model_copy(update={"samples": 1})
        uniform_RT = ForcedLengths(work, number).uniform().to(self.device)
        tokens_RT = transformers_generate.generate(captioner, visual_R, decoding, uniform_RT)
        return to_rollout(tokens_RT, captioner.tokenizer, [captioner.end], 1)

    def plain_logits(self, visual_R: torch.Tensor, rollout: Rollout) -> torch.Tensor:
        """Returns logits (R×T×V), after computing the logits of all positions."""
        captioner, tokens_RT = self.plain_captioner, rollout.tokens_RT
        if isinstance(captioner, ClipCap):
            model, prefix_RPH = captioner.model.language_model, captioner.model.mapper(visual_R)
            embeds_RTH = model.get_input_embeddings()(tokens_RT[:, :-1])
            inputs = torch.cat([prefix_RPH, embeds_RTH.to(prefix_RPH.dtype)], dim=1)
            logits_RPV: torch.Tensor = model(inputs_embeds=inputs, use_cache=False).logits
            return logits_RPV[:, prefix_RPH.shape[1] - 1 :]
        if isinstance(captioner, Blip):
            read_RT = torch.cat([captioner._start(len(tokens_RT)), tokens_RT[:, :-1]], dim=1)
            logits_RTV: torch.Tensor = captioner.model.text_decoder(
                input_ids=read_RT, encoder_hidden_states=visual_R, use_cache=False
            ).logits
            return logits_RTV[:, len(captioner.start) - 1 :]
        rows_RTV: torch.Tensor = captioner._run(visual_R, tokens_RT, rollout.valid_RT)
        return rows_RTV

    def gap(self, prepared: Prepared) -> float:
        """Returns the largest difference between both sides' log-probabilities of the same captions without dropout."""
        self.captioner.model.eval()
        self.plain_captioner.model.eval()
        with torch.no_grad():
            # Earlier steps have made the weights diverge.
            for plain, ours in zip(
                self.plain_captioner.model.parameters(), self.captioner.model.parameters(), strict=True
            ):
                plain.copy_(ours)
            rollout = self.captioner.generate(prepared.visual, prepared.work.decoding, ForcedLengths(prepared.work, 0))
            visual_R = prepared.visual.repeat_interleave(prepared.work.samples, dim=0)
            ours, theirs = (
                token_log_probs(logits_RTV, rollout.tokens_RT)[rollout.valid_RT]
                for logits_RTV in (
                    self.captioner.logits(prepared.visual, rollout.tokens_RT, rollout.valid_RT),
                    self.plain_logits(visual_R, rollout),
                )
            )
        self.captioner.model.train()
        self.plain_captioner.model.train()
        return float((ours - theirs).abs().max())


def as_transformers_makes_it(part: Any) -> Any:
    """Returns a copy of a captioner or scorer in which the layers that `speed_up` replaced are the original ones."""
    plain = copy.copy(part)
    plain.model = copy.deepcopy(part.model)
    for module in list(plain.model.modules()):
        vars(module).pop("forward", None)
        for name, child in module.named_children():
            if isinstance(child, torch.nn.GELU) and child.approximate == "tanh":
                setattr(module, name, ACT2FN["gelu_new"])
    return plain


@dataclass(frozen=True)
class Prepared:
    """The input for both sides, and our side's cached features."""

    work: Work
    pixels: torch.Tensor
    scorer_pixels: torch.Tensor
    visual: torch.Tensor
    features_BD: np.ndarray


def zero(reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Returns the baseline for pictures that have a single caption, which is zero."""
    return torch.zeros_like(reward_BS)


@contextmanager
def replaced_methods(
    captioner: Any, scorer: Any, optimizer: torch.optim.Optimizer, clock: Clock, seeds: ForcedLengths
) -> Iterator[None]:
    """Temporarily times each part, and makes the captions end at the lengths that ``seeds`` specifies."""
    generate = captioner.generate
    captioner.generate = clock.timed("generate", lambda visual, decoding, *_: generate(visual, decoding, seeds))
    captioner.logits = clock.timed("score forward", captioner.logits)
    scorer.text_features = clock.timed("text tower", scorer.text_features)
    start = [0.0]
    hooks = [
        optimizer.register_step_pre_hook(lambda *_: start.__setitem__(0, clock.now())),
        optimizer.register_step_post_hook(lambda *_: clock.add("optimizer", start[0])),
    ]
    try:
        yield
    finally:
        del captioner.generate, captioner.logits, scorer.text_features
        for hook in hooks:
            hook.remove()
