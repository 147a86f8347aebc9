"""The base of all metrics computed by an LLM judge.

Their names contain the judge's name and the dates of its answers. A value is NaN if the judge abstains. The prompts are
our own unless ``Judge.prompts`` overrides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tellapart.evaluation.context import EvalContext
from tellapart.metrics.corpus_scores import PERCENT
from tellapart.metrics.metric import ContextMetric
from tellapart.metrics.metric_info import CLOSE, Candidates, MetricInfo
from tellapart.metrics.registry import metric, on_request


@dataclass(frozen=True, kw_only=True)
class JudgeMetric(ContextMetric):
    """A per-caption metric computed by a judge. ``prompts``: the names of the metric's prompts, for the signature."""

    prompts: tuple[str, ...] = ()

    def tag(self, context: EvalContext) -> str:
        """Returns the judge's name and the dates of its answers."""
        return context.loaded_judge.tag()

    def variant(self, context: EvalContext) -> str:
        """Returns the method, its prompts, the judge's name and the dates of its answers."""
        judge = context.loaded_judge
        prompts = ",".join(judge.prompt(name).signature for name in self.prompts)
        return f"{super().variant(context)}|{prompts}|judge:{judge.tag()}|abstained:{judge.abstained[self.prompts[0]]}"

    def info(self, candidates: Candidates | None = None, scorer: str = "") -> MetricInfo:
        """Returns the metric's label and help. ``scorer``: the judge's tag."""
        own = super().info(candidates)
        return own if not scorer else replace(own, label=f"{own.label} ({scorer})", help=f"{own.help}, by {scorer}")


# Only on request, because judges cost money.
judge_metric = partial(metric, kind=JudgeMetric, direction="higher", group=CLOSE, check=on_request, bounds=PERCENT)


def bullets(texts: Sequence[str]) -> str:
    """Formats texts as a list for a prompt."""
    return "\n".join(f"- {text}" for text in texts)
