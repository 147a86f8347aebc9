"""``tellapart bench rollout``: a reward's captions written, and scored for its gradient, by the captioner that ships.

The usual way is transformers' ``generate``, and one padded pass in which each caption reads its picture anew. As in the
demo, 50 pictures have four samples each.
"""

from __future__ import annotations

import time
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tellapart.bench.rows import Contest, Row, Taken
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding
from tellapart.progress import Progress
from tellapart.utils.messages import say

if TYPE_CHECKING:
    import torch

    from tellapart.types import Rollout

PICTURES, SAMPLES, TOKENS = 50, 4, 35
TOLERANCE = 1e-3  # sums over all tokens in float32, added up in another order
NOT_COMPARED = float("nan")  # samples: other draws


def rows(repeat: int, only: str = "") -> list[Row]:
    """Milliseconds of each work that contains ``only``, ``repeat`` times each, in turns."""
    bench = _Step()
    greedy = Decoding(max_tokens=TOKENS)
    sampled = Decoding(kind="sample", samples=SAMPLES, max_tokens=TOKENS)
    contests = [
        Contest(work, 0, "ms", partial(way, decoding, usual=False), partial(way, decoding, usual=True), gap)
        for work, way, decoding, gap in (
            ("captions, greedy", bench.write, greedy, 0.0),
            ("captions, sampled", bench.write, sampled, 0.0),
            ("their log-probabilities, forward and backward", bench.score, sampled, TOLERANCE),
        )
    ]
    size = f"{PICTURES} pictures × {SAMPLES}"
    if not (chosen := [contest for contest in contests if only.lower() in contest.work]):
        raise UsageError(f"no work contains '{only}'; the works are: {', '.join(c.work for c in contests)}")
    with Progress(2 * repeat * len(chosen), "measuring, ours and theirs") as progress:
        say(f"measuring: {size}, {', '.join(contest.work for contest in chosen)}")
        return [contest.hold(repeat, progress) for contest in chosen]


class _Step:
    """The captioner that ships, and pictures that it has looked at; a round has its own captions."""

    @cached_property
    def captioner(self) -> Any:
        from tellapart.captioners import load_captioner

        captioner: Any = load_captioner("scenes")
        captioner.model.requires_grad_(False)
        captioner.model.language_model.requires_grad_(True)
        captioner.model.eval()
        return captioner

    @cached_property
    def visual(self) -> torch.Tensor:
        import torch

        from tellapart.scenes import Scenes

        with torch.no_grad():
            pictures = [scene.image() for scene in Scenes(PICTURES, split="test")]
            return torch.as_tensor(self.captioner.encode(self.captioner.pixels(pictures)))

    def write(self, decoding: Decoding, number: int, *, usual: bool) -> Taken:
        amount, rollout = self._timed(lambda: self._captions(decoding, number, usual=usual))
        return Taken(amount, NOT_COMPARED if decoding.kind == "sample" else rollout.tokens_RT.numpy())

    def _captions(self, decoding: Decoding, number: int, *, usual: bool) -> Rollout:
        import torch

        from tellapart.models.decoding import to_rollout

        captioner = self.captioner
        torch.manual_seed(number)
        if not usual:
            return captioner.generate(self.visual, decoding)
        with torch.no_grad():
            prefix_BPH = captioner.model.mapper(self.visual)
            tokens_RT = captioner.generate_with_transformers(
                captioner.model.language_model, prefix_BPH, decoding, captioner.end
            )
        return to_rollout(tokens_RT, captioner.tokenizer, [captioner.end], decoding.samples)

    def score(self, decoding: Decoding, number: int, *, usual: bool) -> Taken:
        rollout = self._captions(decoding, number, usual=False)
        amount, log_p = self._timed(lambda: self._backward(rollout, usual=usual))
        gradients = [parameter.grad for parameter in self.captioner.model.parameters() if parameter.grad is not None]
        told = [log_p, *(float(gradient.norm()) for gradient in gradients)]
        self.captioner.model.zero_grad()
        return Taken(amount, told)

    def _backward(self, rollout: Rollout, *, usual: bool) -> float:
        """The mean over tokens of log p, with its gradient."""
        from tellapart.objectives.base import token_log_probs

        logits_RTV = (padded if usual else type(self.captioner).logits)(
            self.captioner, self.visual, rollout.tokens_RT, rollout.valid_RT
        )
        log_p = (token_log_probs(logits_RTV, rollout.tokens_RT, 1.0) * rollout.valid_RT).sum() / rollout.valid_RT.sum()
        log_p.backward()
        return float(log_p.detach())

    def _timed(self, work: Any) -> tuple[float, Any]:
        self.visual  # noqa: B018  (made before the clock runs)
        start = time.perf_counter()
        found = work()
        return 1e3 * (time.perf_counter() - start), found


def padded(captioner: Any, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
    """Scores R×T×V by one pass over pictures, words and padding."""
    import torch

    model, prefix_BPH = captioner.model.language_model, captioner.model.mapper(visual)
    embeds_RTH = model.get_input_embeddings()(tokens_RT[:, :-1])
    inputs = torch.cat([prefix_BPH.repeat_interleave(SAMPLES, dim=0), embeds_RTH], dim=1)
    return model(inputs_embeds=inputs, use_cache=False).logits[:, prefix_BPH.shape[1] - 1 :]
