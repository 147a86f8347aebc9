"""Plain and truthful self-retrieval on Flickr8k from one start: trained, measured by a scorer that gave no reward.

python tools/flickr8k_truthful.py --seeds 0,1 > docs/flickr8k_truthful.md

Prints a table with intervals, over all seeds, and a gallery with losses of the first seed, as Markdown. What is trained
already is not trained again, and a run that was stopped goes on. `--set` is given to both arms, `--truthful` to the
second alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from run_to_markdown import answer

from tellapart.captioners import load_captioner
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.gallery import gallery
from tellapart.metrics.results import Results
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.scorers import load_scorer
from tellapart.training.build import TrainingSetup
from tellapart.training.final_captions import captioner_systems
from tellapart.training.run_folder import Run
from tellapart.training.runs import train, upstream
from tellapart.training.sources import open_specs

START, PLAIN, TRUTHFUL = "start", "self-retrieval", "truthful"
ALIKE = {START: "start, consensus", PLAIN: "self-retrieval, consensus"}  # decoded as the truthful arm is
ARMS = {PLAIN: "flickr8k_full_sr", TRUTHFUL: "flickr8k_truthful"}
METRICS = (
    "recall@1.random100", "recall@1.random100-shuffled", "recall@1.lookalike",
    "facts_precision", "facts_recall", "facts_precision_object", "facts_recall_object",
    "cider", "length", "repetition_rate",
)  # fmt: skip
BOUNDS = ("recall@1.random100", "facts_precision", "cider")
Captions = dict[str, str]


def arms(seed: int, settings: list[str], truthful: list[str]) -> dict[str, Run]:
    """Returns the finished run of each arm."""
    own = {PLAIN: [], TRUTHFUL: truthful}
    recipes = {
        arm: read_recipe(find_recipe(name), [f"seed={seed}", *settings, *own[arm]]) for arm, name in ARMS.items()
    }
    starts = {recipe.captioner.name for recipe in recipes.values() if recipe.captioner is not None}
    if len(starts) != 1 or len({recipe.training.steps for recipe in recipes.values()}) != 1:
        raise SystemExit("the arms differ in start or steps; set captioner.name and training.steps of both")
    return {arm: train(recipe, resume=True) for arm, recipe in recipes.items()}


def captions_of(runs: dict[str, Run]) -> dict[str, Captions]:
    """Of the start and of both arms, and of the start and plain self-retrieval decoded as the truthful arm is."""
    folders = {arm: run.folder / "captions" for arm, run in runs.items()}
    setup = TrainingSetup(runs[TRUTHFUL].recipe, upstream)
    (decoded,) = captioner_systems(
        setup, {PLAIN: load_captioner(str(runs[PLAIN].folder))}, setup.test_items, setup.recipe.evaluation.decoding
    ).values()
    return {
        START: read_captions(folders[PLAIN] / "before.jsonl"),
        ALIKE[START]: read_captions(folders[TRUTHFUL] / "before.jsonl"),
        PLAIN: read_captions(folders[PLAIN] / "after.jsonl"),
        ALIKE[PLAIN]: decoded,
        TRUTHFUL: read_captions(folders[TRUTHFUL] / "after.jsonl"),
    }


def measured(seeds: list[dict[str, Captions]], run: Run) -> tuple[Results, dict[str, Any]]:
    """All systems by the held-out scorer, as means over their seeds; the first seed's look-alike sets of `gallery`."""
    recipe = run.recipe
    assert recipe.data.test is not None and recipe.scorer is not None
    items = list(open_specs(recipe.data.test))
    (judge,) = recipe.evaluation.eval_scorers
    gave_reward = {recipe.scorer.name}.union(
        *(reward.scorer_names() for reward in getattr(recipe.objective, "rewards", ()))
    )
    if judge in gave_reward:
        raise SystemExit("evaluation.eval_scorers contains a scorer that gave the reward; use another one")
    scorer = load_scorer(upstream(judge))
    together = {name: {item.id: [seed[name][item.id] for seed in seeds] for item in items} for name in seeds[0]}
    results = evaluate(together, items=items, scorer=scorer, metrics=METRICS, pairs="all")
    compared = {arm: seeds[0][arm] for arm in ARMS}
    shown = evaluate(compared, items=items, scorer=scorer, metrics=["recall@1.lookalike"])
    return results, gallery(shown, items)


def read_captions(path: Path) -> Captions:
    """Reads the captions of a run by id."""
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {line["id"]: line["caption"] for line in lines}


def table(results: Results) -> list[str]:
    """Metrics down, systems across, and the paired differences of the truthful arm with their intervals."""
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


def by_seed(captions: dict[int, dict[str, Captions]], runs: list[dict[str, Run]]) -> list[str]:
    """Returns one row per seed: R@1 / precision of facts / CIDEr of each system, and the dates of its runs."""
    lines = [f"| seed | {' | '.join(captions[min(captions)])} | runs of |", "|---|" + "---:|" * 5 + "---|"]
    for (seed, own), of_seed in zip(captions.items(), runs, strict=True):
        results, _ = measured([own], of_seed[TRUTHFUL])
        cells = [" / ".join(f"{found[metric].value:.1f}" for metric in BOUNDS) for found in results.systems.values()]
        created = ", ".join(run.info["created"] for run in of_seed.values())
        lines.append(f"| {seed} | {' | '.join(cells)} | {created} |")
    return lines


def sets(found: dict[str, Any]) -> list[str]:
    """Sorts the gallery's sets: won, lost, missed by both, found by both."""
    lines = [f"| picture | {PLAIN} | {TRUTHFUL} |", "|---|---|---|"]
    for entry in found["sets"]:
        lines.append(f"| `{entry['target']}` | {' | '.join(answer(entry, arm) for arm in ARMS)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0", help="comma-separated; those below 10 are for tuning")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--truthful", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    runs = [arms(seed, arguments.settings, arguments.truthful) for seed in seeds]
    captions = [captions_of(of_seed) for of_seed in runs]
    results, shown = measured(captions, runs[0][TRUTHFUL])
    heading = f"Mean over seeds {arguments.seeds}, {len(results.ids):,} photos, by the held-out scorer."
    print("\n".join([heading, "", *table(results), ""]))
    print("\n".join([*by_seed(dict(zip(seeds, captions, strict=True)), runs), ""]))
    print("\n".join([*sets(shown), ""]), flush=True)


if __name__ == "__main__":
    main()
