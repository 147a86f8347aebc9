"""Selects an evaluation's metrics: all available metrics, or those that the user names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

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
from tellapart.utils.registry import first_doc_line

ALL = "all"
_OF_FILE_SETS = re.compile(r"(recall@\d+|mean_rank)\.(bag\d+|hard|imagecode)")


def choose(names: Sequence[str] | None, context: EvalContext) -> tuple[dict[str, Metric], list[str]]:
    """Returns the metrics to compute, by name, and notes on omitted metrics.

    Without names, selects all available metrics except those that need a tagger, tables, Java or a judge. ``["all"]``
    includes these too, and notes list the omitted metrics with their requirements. Other names are metric names and
    aliases (`tellapart.metrics.registry`), or dotted paths to functions. Raises `UsageError` for an unknown name (and
    suggests the nearest one) and for a metric with unmet requirements (and says which option to add).
    """
    if names is None:
        return _choose_default(context)
    if [name.lower() for name in names] == [ALL]:
        return _choose_all(context)
    plain, table = _look_up(names, partial(_metrics_in, context))
    chosen = {key: table[key] for name in plain for key in _keys(name, table, context)}
    for metric in chosen.values():
        if metric.check is not None:
            metric.check()
    return chosen, []


def needs_of(names: Sequence[str] | None, *whole: str) -> set[str]:
    """Returns what the named metrics require. ``whole``: names that stand for every metric, such as `ALL`.

    Ignores unknown names, which `choose` rejects. Raises `UsageError` for a dotted path that cannot be loaded.
    """
    if any(name.lower() in whole for name in names or ()):
        return {need for metric in METRICS.entries(broken=say_once) for need in metric.needs}
    bases = [re.sub(r"\.(oracle|best)$", "", name, flags=re.IGNORECASE) for name in names or ()]
    plain, table = _look_up(bases, in_order)
    return {need for name in plain for key in resolve(name, table) for need in table[key].needs}


def _look_up(
    names: Sequence[str], arrange: Callable[[Sequence[Metric]], dict[str, Metric]]
) -> tuple[list[str], dict[str, Metric]]:
    """Loads the dotted paths among the names. Returns the names, in which the loaded metrics' names replace the paths,
    and the table of metrics. Installed packages are searched only for names that are neither built in nor paths.
    """
    outside = {name: of_dotted_path(name) for name in names if ":" in name and is_dotted(name)}
    plain = [outside[name].name if name in outside else name for name in names]
    table = arrange([*METRICS.builtin().values(), *outside.values()])
    if not all(resolve(name, table) for name in plain):
        table = arrange([*METRICS.entries(broken=say_once), *outside.values()])
    return plain, table


def of_dotted_path(path: str) -> Metric:
    """Loads a metric from a dotted path such as ``my_metrics:shouting``: a `Metric`, or a function of captions and
    references.

    Raises `UsageError` if the code is not allowed to run, if the path leads to something else, or if the name is
    already taken.
    """
    part = load_allowed(path, "metric", f"metric '{path}'")
    if not isinstance(part, Metric) and not callable(part):
        raise UsageError(f"metric '{path}' is a {type(part).__name__}; expected a function or a Metric")
    name = path.partition(":")[2]
    metric = part if isinstance(part, Metric) else Metric(name=name, factory=part, help=first_doc_line(part))
    if metric.name in METRICS.builtin():
        raise UsageError(f"metric '{path}': the name '{metric.name}' is already taken; rename it")
    return metric


def _metrics_in(context: EvalContext, registered: Iterable[Metric]) -> dict[str, Metric]:
    """Returns the registered metrics and those for candidate sets from files, by name. If there are several captions
    per picture, includes the `.oracle` and `.best` variants.
    """
    metrics = list(registered)
    for pools, sets in context.file_sets.items():
        ks = (1, 5) if min(map(len, sets.sets)) > 5 else (1,)  # recall@5 among five is always 1
        metrics += [*(recall(k, pools) for k in ks), mean_rank(pools)]
    table = in_order(metrics)
    if context.several:
        table |= {choice.name: choice for metric in list(table.values()) for choice in with_choices(metric)}
    return table


def _plain_metrics(context: EvalContext) -> dict[str, Metric]:
    """Returns all metrics without the variants of one chosen caption, which are computed only if requested by name."""
    table = _metrics_in(context, METRICS.entries(broken=say_once))
    return {name: metric for name, metric in table.items() if not name.endswith(KEY_SUFFIXES)}


def _choose_default(context: EvalContext) -> tuple[dict[str, Metric], list[str]]:
    """Returns the available metrics without a check, and a note on those that need more pictures."""
    table = _plain_metrics(context)
    missing = {name: first_missing(metric.needs, context) for name, metric in table.items()}
    able = {name: metric for name, metric in table.items() if metric.check is None and missing[name] is None}
    sizes = {"hundred", "two", "six"} if context.scorer is not None else set()
    few = {need for need in sizes if not NEEDS[need].has(context)}
    parts = _grouped({name: str(missing[name]) for name, metric in table.items() if few & set(metric.needs)})
    return able, [f"not computed because of missing requirements: {'; '.join(parts)}"] if parts else []


def _choose_all(context: EvalContext) -> tuple[dict[str, Metric], list[str]]:
    """Returns every metric that can run. For each missing requirement, a note lists the metrics omitted because
    of it.
    """
    table, lacking = _plain_metrics(context), dict[str, str]()
    for name, metric in table.items():
        labels = [NEEDS[need].label for need in metric.needs if not NEEDS[need].has(context)]
        try:
            if labels:
                lacking[name] = f"needs {', '.join(labels)}"
            elif metric.check is not None:
                metric.check()
        except TellapartError as error:
            lacking[name] = str(error)
    notes = [f"--metrics all omits {omitted}" for omitted in _grouped(lacking)]
    if context.several:
        notes.append(
            f"--metrics all omits the {' and '.join(KEY_SUFFIXES)} variants; to compute them, list them by name"
        )
    if lacking:
        notes.append("request an omitted metric by name to see what it requires")
    return {name: metric for name, metric in table.items() if name not in lacking}, notes


def _grouped(reasons: Mapping[str, str]) -> list[str]:
    """Formats ``NAME, NAME (reason)`` for each reason."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return [f"{', '.join(own)} ({reason})" for reason, own in names.items()]


def _keys(name: str, table: Mapping[str, Metric], context: EvalContext) -> list[str]:
    """Returns the keys of the metrics that a name stands for. If there are several, returns only the available ones.
    Raises `UsageError` if there are none.
    """
    keys = resolve(name, table)
    if not keys:
        if _OF_FILE_SETS.fullmatch(name) or normalized(name) in ("truematch", "meanrank"):
            raise UsageError(f"metric '{name}' requires candidate sets of that name; add --bags FILE")
        base, _, suffix = name.rpartition(".")
        if name.lower().endswith(KEY_SUFFIXES) and resolve(base, table):
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
