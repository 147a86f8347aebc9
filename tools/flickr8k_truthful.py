"""Plain and truthful self-retrieval on Flickr8k from one start: trained, measured by a scorer that gave no reward.

python tools/flickr8k_truthful.py --seeds 0,1 > docs/flickr8k_truthful.md

Prints a table with intervals and a gallery with losses for each seed, as Markdown. What is trained already is not
trained again, and a run that was stopped goes on. `--set` is given to both arms, `--truthful` to the second alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from run_to_markdown import answer

from tellapart.evaluation.evaluate import evaluate, gallery
from tellapart.metrics.results import Results
from tellapart.recipe.find import find_recipe
from tellapart.recipe.reading import read_recipe
from tellapart.scorers import load_scorer
from tellapart.training.run_folder import Run
from tellapart.training.runs import train, upstream
from tellapart.training.setup import open_specs

START, PLAIN, TRUTHFUL = "start", "self-retrieval", "truthful"
ARMS = {PLAIN: "flickr8k_full_sr", TRUTHFUL: "flickr8k_truthful"}
METRICS = (
    "recall@1.random100", "recall@1.random100-shuffled", "recall@1.lookalike",
    "facts_precision", "facts_recall", "chair_i", "chair_coverage",
    "cider", "length", "repetition_rate",
)  # fmt: skip


def arms(seed: int, settings: list[str], truthful: list[str]) -> dict[str, Run]:
    """The finished run of each arm."""
    own = {PLAIN: [], TRUTHFUL: truthful}
    recipes = {
        arm: read_recipe(find_recipe(name), [f"seed={seed}", *settings, *own[arm]]) for arm, name in ARMS.items()
    }
    starts = {recipe.captioner.name for recipe in recipes.values() if recipe.captioner is not None}
    if len(starts) != 1 or len({recipe.training.steps for recipe in recipes.values()}) != 1:
        raise SystemExit("the arms differ in their start or their steps; set captioner.name and training.steps of both")
    return {arm: train(recipe, resume=True) for arm, recipe in recipes.items()}


def measured(runs: dict[str, Run]) -> tuple[Results, dict[str, Any]]:
    """The start and both arms by the held-out scorer, and the look-alike sets of `gallery`, self-retrieval first."""
    captions = {arm: read_captions(run.folder / "captions" / "after.jsonl") for arm, run in runs.items()}
    captions = {START: read_captions(runs[PLAIN].folder / "captions" / "before.jsonl"), **captions}
    recipe = runs[PLAIN].recipe
    assert recipe.data.test is not None and recipe.scorer is not None
    items = list(open_specs(recipe.data.test))
    (judge,) = recipe.evaluation.eval_scorers
    if judge == recipe.scorer.name:
        raise SystemExit("evaluation.eval_scorers is the scorer that gave the reward; name another one")
    scorer = load_scorer(upstream(judge))
    results = evaluate(captions, items=items, scorer=scorer, metrics=METRICS, pairs="all")
    compared = evaluate(
        {arm: captions[arm] for arm in ARMS}, items=items, scorer=scorer, metrics=["recall@1.lookalike"]
    )
    return results, gallery(compared, items)


def read_captions(path: Path) -> dict[str, str]:
    """Captions of a run by id."""
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {line["id"]: line["caption"] for line in lines}


def table(results: Results) -> list[str]:
    """Metrics down, systems across, and both paired differences of the truthful arm with their intervals."""
    pairs = {(pair.a, pair.b, pair.metric): pair.difference for pair in results.pairs}
    heads = [*results.systems, f"{TRUTHFUL} − {PLAIN}, 95 %", f"{TRUTHFUL} − {START}, 95 %"]
    lines = [f"| metric | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for metric in METRICS:
        cells = [f"{results.systems[name][metric].value:.2f}" for name in results.systems]
        for other in (PLAIN, START):
            found = pairs[other, TRUTHFUL, metric]
            cells.append(f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]")
        lines.append(f"| `{metric}` | {' | '.join(cells)} |")
    return lines


def sets(found: dict[str, Any]) -> list[str]:
    """The gallery's sets in their order: won, lost, missed and found by both."""
    lines = [f"| picture | {PLAIN} | {TRUTHFUL} |", "|---|---|---|"]
    for entry in found["sets"]:
        lines.append(f"| `{entry['target']}` | {' | '.join(answer(entry, arm) for arm in ARMS)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0", help="with commas; those below 10 choose settings")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--truthful", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    for seed in map(int, arguments.seeds.split(",")):
        runs = arms(seed, arguments.settings, arguments.truthful)
        results, shown = measured(runs)
        created = ", ".join(f"{run.folder} of {run.info['created']}" for run in runs.values())
        heading = f"Seed {seed}, {len(results.ids):,} photos, by the held-out scorer; {created}."
        print("\n".join([heading, "", *table(results), "", *sets(shown), ""]), flush=True)


if __name__ == "__main__":
    main()
