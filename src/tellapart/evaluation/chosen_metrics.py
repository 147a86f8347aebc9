"""Selects an evaluation's metrics: all available metrics, or those that the user names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tellapart.errors import TellapartError, UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.metrics.recall import mean_rank, recall
from tellapart.evaluation.needs import NEEDS, first_missing
from tellapart.evaluation.selected_caption import with_choices
from tellapart.metrics.metric import Metric
from tellapart.metrics.metric_names import normalized, resolve, suggestion
from tellapart.metrics.registry import METRICS, in_order
from tellapart.metrics.result_keys import KEY_SUFFIXES
from tellapart.utils.allowed_code import is_dotted
from tellapart.utils.code_loading import load_allowed
from tellapart.utils.messages import say_once
from tellapart.utils.registry import first_line

ALL = "all"
_OF_FILE_SETS = re.compile(r"(recall@\d+|mean_rank)\.(bag\d+|hard|imagecode)")


def metrics_of(context: EvalContext, registered: Iterable[Metric]) -> dict[str, Metric]:
    """Returns the registered metrics and those for candidate sets from files, by name. If there are several captions
    per picture, includes the `.oracle` and `.best` variants.
    """
    table = in_order([*registered, *_of_file_sets(context)])
    if context.several:
        table |= {choice.name: choice for metric in list(table.values()) for choice in with_choices(metric)}
    return table


def choose(names: Sequence[str] | None, context: EvalContext) -> tuple[dict[str, Metric], list[str]]:
    """Returns the metrics to compute, by name, and notes on omitted metrics.

    Without names, selects all available metrics except those that need a tagger, tables, Java or a judge. ``["all"]``
    includes these too, and notes list the omitted metrics with their requirements. Other names are metric names and
    aliases (`tellapart.metrics.registry`), or dotted paths to functions. Raises `UsageError` for an unknown name (and
    suggests the nearest one) and for a metric with unmet requirements (and says which option to add).
    """
    if names is not None and [name.lower() for name in names] == [ALL]:
        return _choose_all(context)
    if names is None:
        table = metrics_of(context, METRICS.entries(broken=say_once))
        able = {
            name: metric
            for name, metric in table.items()
            if metric.check is None and not name.endswith(KEY_SUFFIXES) and first_missing(metric.needs, context) is None
        }
        return able, _notes_on_few(table, context)
    outside = {name: of_dotted_path(name) for name in names if ":" in name and is_dotted(name)}
    table = metrics_of(context, [*METRICS.builtin().values(), *outside.values()])
    names = [outside[name].name if name in outside else name for name in names]
    if not all(resolve(name, table) for name in names):
        table = metrics_of(context, [*METRICS.entries(broken=say_once), *outside.values()])
    chosen = {key: table[key] for name in names for key in _keys(name, table, context)}
    for metric in chosen.values():
        if metric.check is not None:
            metric.check()
    return chosen, []


def needs_of(names: Sequence[str] | None, *whole: str) -> set[str]:
    """Returns what the named metrics require. ``whole``: names that stand for every metric, such as `ALL`.

    Ignores unknown names, which `choose` rejects. Raises `UsageError` for a dotted path that cannot be loaded.
    """
    names = names or ()
    if any(name.lower() in whole for name in names):
        return {need for metric in METRICS.entries(broken=say_once) for need in metric.needs}
    outside = [of_dotted_path(name) for name in names if ":" in name and is_dotted(name)]
    plain = [re.sub(r"\.(oracle|best)$", "", name.lower()) for name in names if ":" not in name]
    table = METRICS.builtin()
    if not all(resolve(name, table) for name in plain):
        table = in_order(METRICS.entries(broken=say_once))
    named = [table[key] for name in plain for key in resolve(name, table)]
    return {need for metric in [*outside, *named] for need in metric.needs}


def _choose_all(context: EvalContext) -> tuple[dict[str, Metric], list[str]]:
    """Returns every metric that can run. For each missing requirement, a note lists the metrics omitted because
    of it.
    """
    able, lacking = dict[str, Metric](), dict[str, list[str]]()
    table = metrics_of(context, METRICS.entries(broken=say_once))
    for name, metric in table.items():
        if name.endswith(KEY_SUFFIXES):
            continue
        if missing := _all_missing(metric, context) or _missing_tool(metric):
            lacking.setdefault(missing, []).append(name)
        else:
            able[name] = metric
    notes = [f"--metrics all omits {', '.join(names)} ({missing})" for missing, names in lacking.items()]
    if context.several:
        notes.append(
            f"--metrics all omits the {' and '.join(KEY_SUFFIXES)} variants; to compute them, list them by name"
        )
    return able, [*notes, "request an omitted metric by name to see what it requires"] if lacking else notes


def _all_missing(metric: Metric, context: EvalContext) -> str:
    """Lists the requirements that the context does not meet. Returns "" if it meets all of them."""
    labels = [NEEDS[need].label for need in metric.needs if not NEEDS[need].has(context)]
    return f"needs {', '.join(labels)}" if labels else ""


def _missing_tool(metric: Metric) -> str | None:
    """Returns the message of the metric's check if a tool is missing, or None."""
    try:
        if metric.check is not None:
            metric.check()
    except TellapartError as error:
        return str(error)
    return None


def of_dotted_path(path: str) -> Metric:
    """Loads a metric from a dotted path such as ``my_metrics:shouting``: a `Metric`, or a function of captions and
    references.

    Raises `UsageError` if the code is not allowed to run, if the path leads to something else, or if the name is
    already taken.
    """
    part = load_allowed(path, "metric", f"metric '{path}'")
    if not isinstance(part, Metric) and not callable(part):
        raise UsageError(f"metric '{path}' is a {type(part).__name__}; expected a function or a Metric")
    own = path.partition(":")[2]
    metric = part if isinstance(part, Metric) else Metric(name=own, factory=part, help=first_line(part))
    if metric.name in METRICS.builtin():
        raise UsageError(f"metric '{path}': the name '{metric.name}' is already taken; rename it")
    return metric


def _of_file_sets(context: EvalContext) -> list[Metric]:
    found: list[Metric] = []
    for pools, sets in context.file_sets.items():
        found.append(recall(1, pools))
        if min(map(len, sets.sets)) > 5:  # recall@5 among five is always 1
            found.append(recall(5, pools))
        found.append(mean_rank(pools))
    return found


def _notes_on_few(table: Mapping[str, Metric], context: EvalContext) -> list[str]:
    few = [need for need in ("hundred", "two", "six") if context.scorer is not None and not NEEDS[need].has(context)]
    lacking: dict[str, list[str]] = {}
    for name, metric in table.items():
        if not name.endswith(KEY_SUFFIXES) and any(need in few for need in metric.needs):
            lacking.setdefault(str(first_missing(metric.needs, context)), []).append(name)
    parts = [f"{', '.join(names)} ({missing})" for missing, names in lacking.items()]
    return [f"not computed because of missing requirements: {'; '.join(parts)}"] if parts else []


def _keys(name: str, table: Mapping[str, Metric], context: EvalContext) -> list[str]:
    """Returns the keys of the metrics that a name stands for. If there are several, returns only the available ones.
    Raises `UsageError` if there are none.
    """
    keys = resolve(name, table)
    if not keys:
        if _OF_FILE_SETS.fullmatch(name) or normalized(name) in ("truematch", "meanrank"):
            raise UsageError(f"metric '{name}' requires candidate sets of that name; add --bags FILE")
        if name.lower().endswith(KEY_SUFFIXES) and resolve(name.rpartition(".")[0], table):
            base, _, suffix = name.rpartition(".")
            if context.several:
                raise UsageError(
                    f"metric '{name}': '{base}' measures all captions of a picture together, so it has no .{suffix}; "
                    f"request {base}"
                )
            raise UsageError(f"metric '{name}' requires {NEEDS['several'].message}")
        if name in METRICS.installed():
            METRICS.find(name)  # raises the reason why it cannot be loaded
        raise UsageError(f"unknown metric '{name}'{suggestion(name, table)}")
    missing = {key: first_missing(table[key].needs, context) for key in keys}
    able = [key for key in keys if missing[key] is None]
    if not able:
        raise UsageError(f"metric '{name}' requires {missing[keys[0]]}")
    return able
