"""``benchmarks rollout``: samples captions with the shipped captioner and computes the policy gradient.

The reference is transformers' ``generate``, followed by one padded pass that encodes the picture again for each
caption. As in the demo, 50 pictures have four samples each. ``--model NAME`` times a whole training step at full size
(`step_rows`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar, cast

from benchmarks.rows import Comparison, Row, RunResult
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

if TYPE_CHECKING:
    import torch

    from tellapart.captioners.clipcap import ClipCap
    from tellapart.types import Rollout

Found = TypeVar("Found")

PICTURES, SAMPLES, TOKENS = 50, 4, 35
TOLERANCE = 1e-3  # for float32 sums over all tokens in different orders
NOT_COMPARED = float("nan")  # samples differ, because the two draw different random numbers


def rows(repeat: int, only: str = "", model: str = "") -> list[Row]:
    """Measures the rows whose name contains ``only``, in milliseconds, with ``repeat`` alternating runs per side."""
    if model:
        from benchmarks.step_rows import step_rows

        return step_rows(model, repeat, only)
    bench = _RolloutStep()
    greedy = Decoding(max_tokens=TOKENS)
    sampled = Decoding(kind="sample", samples=SAMPLES, max_tokens=TOKENS)
    comparisons = [
        Comparison(work, 0, "ms", partial(run, decoding, reference=False), partial(run, decoding, reference=True), gap)
        for work, run, decoding, gap in (
            ("captions, greedy", bench.write, greedy, 0.0),
            ("captions, sampled", bench.write, sampled, 0.0),
            ("their log-probabilities, forward and backward", bench.score, sampled, TOLERANCE),
        )
    ]
    size = f"{PICTURES} pictures × {SAMPLES}"
    if not (chosen := [comparison for comparison in comparisons if only.lower() in comparison.work]):
        raise UsageError(f"no row contains '{only}'; available: {', '.join(c.work for c in comparisons)}")
    with Progress(2 * repeat * len(chosen), "measuring, ours and theirs") as progress:
        say(f"measuring: {size}, {', '.join(comparison.work for comparison in chosen)}")
        return [comparison.run(repeat, progress) for comparison in chosen]


class _RolloutStep:
    """The shipped captioner with encoded pictures. Each round samples its own captions."""

    @cached_property
    def captioner(self) -> ClipCap:
        from tellapart.captioners import load_captioner

        captioner = cast("ClipCap", load_captioner("scenes", "cpu", "fp32"))
        captioner.model.requires_grad_(False)
        captioner.model.language_model.requires_grad_(True)
        captioner.model.train(False)
        return captioner

    @cached_property
    def visual(self) -> torch.Tensor:
        import torch

        from tellapart.scenes import Scenes

        with torch.no_grad():
            pictures = [scene.image() for scene in Scenes(PICTURES, split="test")]
            return torch.as_tensor(self.captioner.encode(self.captioner.pixels(pictures)))

    def write(self, decoding: Decoding, number: int, *, reference: bool) -> RunResult:
        amount, rollout = self._timed(lambda: self._generate(decoding, number, reference=reference))
        return RunResult(amount, NOT_COMPARED if decoding.kind == "sample" else rollout.tokens_RT.numpy())

    def _generate(self, decoding: Decoding, number: int, *, reference: bool) -> Rollout:
        import torch

        from benchmarks import transformers_generate
        from tellapart.captioners.decoding import to_rollout

        captioner = self.captioner
        torch.manual_seed(number)
        if not reference:
            return captioner.generate(self.visual, decoding)
        tokens_RT = transformers_generate.generate(captioner, self.visual, decoding)
        return to_rollout(tokens_RT, captioner.tokenizer, [captioner.end], decoding.samples)

    def score(self, decoding: Decoding, number: int, *, reference: bool) -> RunResult:
        rollout = self._generate(decoding, number, reference=False)
        amount, log_p = self._timed(lambda: self._backward(rollout, reference=reference))
        gradients = [parameter.grad for parameter in self.captioner.model.parameters() if parameter.grad is not None]
        values = [log_p, *(float(gradient.norm()) for gradient in gradients)]
        self.captioner.model.zero_grad()
        return RunResult(amount, values)

    def _backward(self, rollout: Rollout, *, reference: bool) -> float:
        """Returns the mean log p of the tokens, after computing its gradients."""
        import torch

        from tellapart.objectives.caption_log_probs import token_log_probs

        logits_RTV = (padded if reference else type(self.captioner).logits)(
            self.captioner, self.visual, rollout.tokens_RT, rollout.valid_RT
        )
        log_p = (token_log_probs(logits_RTV, rollout.tokens_RT, 1.0) * rollout.valid_RT).sum() / rollout.valid_RT.sum()
        torch.autograd.backward(log_p)
        return float(log_p.detach())

    def _timed(self, work: Callable[[], Found]) -> tuple[float, Found]:
        self.visual  # noqa: B018  (computed before the clock runs)
        start = time.perf_counter()
        found = work()
        return 1e3 * (time.perf_counter() - start), found


def padded(captioner: ClipCap, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
    """Computes logits R×T×V in one pass over pictures, tokens and padding."""
    import torch

    model, prefix_BPH = captioner.model.language_model, captioner.model.mapper(visual)
    embeds_RTH = model.get_input_embeddings()(tokens_RT[:, :-1])
    inputs = torch.cat([prefix_BPH.repeat_interleave(SAMPLES, dim=0), embeds_RTH], dim=1)
    logits_RPV: torch.Tensor = model(inputs_embeds=inputs, use_cache=False).logits
    return logits_RPV[:, prefix_BPH.shape[1] - 1 :]
