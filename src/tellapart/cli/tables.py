"""``tellapart tables``: reproduces the papers' tables, on the papers' data or on `scenes`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import rich
import rich.console
import rich.table
import typer

from tellapart.cli.app import RESEARCH, App
from tellapart.cli.options import Device, Json, RecipePrecision, Settings, precision_settings
from tellapart.cli.output import show
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.study.analysis import analyse
from tellapart.study.design import open_study
from tellapart.study.store import STORE, AnswerStore
from tellapart.utils.comma_lists import comma_list
from tellapart.utils.messages import say
from tellapart.utils.recipe_names import fill_in
from tellapart.utils.typed_command import typed_command

if TYPE_CHECKING:
    from tellapart.recipe.table_figures import Value
    from tellapart.recipe.table_plan import Given, Plan, Step

app = App()


@dataclass(frozen=True)
class TableOptions:
    """The options of ``tellapart tables``, except for the tables themselves.

    Args:
        world: data: the papers' data under $TELLAPART_DATA. scenes: synthetic scenes (paper 2).
        rows: Run only these rows (names as listed by --dry-run).
        captions: Captions for a system, used instead of running it. Repeatable.
        captioner: Captioner for a system, such as my_ofa:make. Repeatable.
        llm_judge: Judge for paper 1, table 7, as openai:MODEL@URL. See eval --llm-judge.
        llm: LLM for 2:F2. See boost --llm.
        mllm: MLLM for 2:F2. See boost --mllm.
        out: Folder for runs, captions and results.
        dry_run: Print the commands without running them.
        seeds: Seeds for --world scenes: quick (0), dev (0-5), or a list such as 0,1. Default: quick.
    """

    world: Literal["data", "scenes"] = "data"
    rows: Annotated[str | None, typer.Option(metavar="A,B")] = None
    captions: Annotated[list[str] | None, typer.Option(metavar="SYSTEM=FILE")] = None
    captioner: Annotated[list[str] | None, typer.Option(metavar="SYSTEM=NAME")] = None
    llm_judge: Annotated[str | None, typer.Option(metavar="BACKEND")] = None
    llm: Annotated[str | None, typer.Option(metavar="BACKEND")] = None
    mllm: Annotated[str | None, typer.Option(metavar="BACKEND")] = None
    out: Path = Path("runs/tables")
    dry_run: bool = False
    settings: Settings = None
    seeds: str | None = None

    def given(self, precision: str) -> Given:
        """Returns the user's captions and captioners by system. Raises `UsageError` for missing files."""
        from tellapart.recipe.table_plan import Given, absent_metrics

        return Given(
            files={system: existing(path) for system, path in pairs_of("--captions", self.captions)},
            captioners=dict(pairs_of("--captioner", self.captioner)),
            settings=(*(self.settings or []), *precision_settings(precision)),
            without=absent_metrics(self.llm_judge or ""),
            judge=self.llm_judge or "",
            llm=self.llm or "",
            mllm=self.mllm or "",
        )


@app.command(rich_help_panel=RESEARCH)
def tables(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PAPER:TABLE]...")] = None,
    *,
    options: TableOptions,
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    as_json: Json = False,
) -> None:
    """Reproduce a table from a paper, next to the published figures; train, caption and evaluate as needed.

    Models, captions and results from earlier commands are reused. Interrupted runs resume when you repeat the command.

    Args:
        names: PAPER:TABLE: 2:5, 3:1-5, 1:F4 (figure 4); 4 for all tables of paper 4. Default: all.
    """
    from tellapart.recipe import paper_tables, table_plan

    chosen = paper_tables.find_tables(names or [])
    if options.world == "scenes":
        if options != TableOptions(world="scenes", out=options.out, seeds=options.seeds):
            raise UsageError(
                "--dry-run, --rows, --captions, --captioner, --set, --llm-judge, --llm and --mllm "
                "require the papers' data; remove --world scenes"
            )
        ids = [(paper.number, table.id) for paper, table in chosen]
        on_scenes(ids, bool(names), options.seeds or "quick", device, precision, as_json)
        return
    if options.seeds is not None:
        raise UsageError("--seeds requires --world scenes; to set the seed of a recipe, use --set seed=1")
    given = options.given(precision)
    only = comma_list(options.rows or "")
    plans = [table_plan.make_plan(paper, table, options.out, only, given) for paper, table in chosen]
    known = {system for plan in plans for system in plan.paper.systems}
    for system in (*given.files, *given.captioners):
        if system not in known:
            raise UsageError(f"--captions, --captioner: no row uses the system '{system}'{nearest(system, known)}")
    if options.dry_run:
        last = typed_command().replace(" --dry-run", "") + "  # prints the results of these commands"
        values = [dry_json(plan) for plan in plans]
        show({"tables": values}, lambda: "\n\n".join([*map(dry_text, plans, values), last]), as_json)
        return
    run_plans(plans, ["--device", device] if device != "auto" else [])
    values = [as_values(plan) for plan in plans]
    show({"tables": values}, lambda: rich.console.Group(*map(as_rich, plans, values)), as_json)


def run_plans(plans: Sequence[Plan], options: Sequence[str]) -> None:
    """Runs the commands whose results are missing. Raises `UsageError` if required data is missing."""
    for plan in plans:
        if absent := plan.needed_files():
            path, why = next(iter(absent.items()))
            raise UsageError(
                f"table {plan.paper.number}:{plan.table.id} requires {path} ({why}), which does "
                f"not exist; to list all required files, run: tellapart tables {plan.paper.number}:{plan.table.id} "
                "--dry-run"
            )
    for plan in plans:
        steps = [step for step in plan.commands() if not step.done]
        for number, step in enumerate(steps, 1):
            run_step(step, f"command {number} of {len(steps)}", options if step.uses_models else [])


def on_scenes(
    chosen: Sequence[tuple[int, str]], named: bool, seeds: str, device: str, precision: str, as_json: bool
) -> None:
    """Runs the tables of paper 2 that have a version on scenes. Raises `UsageError` if a requested table has none."""
    _find_replication()
    from replication import cores, ndlb
    from replication import tables as miniatures
    from replication.seeds import parse_seeds
    from tellapart.models.devices import running_on

    known = {(2, str(table.number)): table.number for table in ndlb.TABLES}
    for number, id in chosen if named else ():
        if (number, id) not in known:
            some = ", ".join(f"2:{number}" for number in known.values())
            raise UsageError(f"table {number}:{id} has no version on scenes; available: {some}")
    numbers = [known[one] for one in chosen if one in known]
    seed_numbers = parse_seeds(seeds, "tables").numbers
    with running_on(device):
        measured = miniatures.run_tables(numbers, seed_numbers, workers=cores(), settings=precision_settings(precision))
    show(
        {"tables": [table.to_json() for table in measured]},
        lambda: rich.console.Group(*(table.to_rich() for table in measured)),
        as_json,
    )


def pairs_of(option: str, values: Sequence[str] | None) -> list[tuple[str, str]]:
    """Parses the SYSTEM=VALUE pairs of a repeatable option. Raises `UsageError` for any other form."""
    pairs = []
    for text in values or ():
        system, _, value = text.partition("=")
        if not system or not value:
            raise UsageError(f"{option} {text}: expected SYSTEM=…, such as {option} capenrich=…")
        pairs.append((system, value))
    return pairs


def existing(path: str) -> Path:
    """Returns the path of a caption file. Raises `UsageError` if it does not exist."""
    if not Path(path).is_file():
        raise UsageError(f"--captions {path}: no such file")
    return Path(path)


def run_step(step: Step, place: str, options: Sequence[str]) -> None:
    """Runs a command in a separate process. Raises `TellapartError` if it fails."""
    say(f"{place}: {step.typed()}")
    words = [sys.executable, "-m", "tellapart", *map(fill_in, step.words), *options]
    done = subprocess.run(words, stdout=sys.stderr, check=False)
    if done.returncode:
        raise TellapartError(f"command exited with status {done.returncode}: {step.typed()}")


def dry_json(plan: Plan) -> dict[str, Any]:
    """Returns a table's commands, and the inputs that are missing, as JSON values."""
    return {
        "table": f"{plan.paper.number}:{plan.table.id}",
        "title": plan.table.title,
        "rows": [{"row": row.system, "labels": list(row.labels)} for row in plan.rows],
        "commands": [{"command": step.typed(), "done": step.done} for step in plan.commands()],
        "missing": plan.missing(),
        "needs": {str(path): why for path, why in plan.needed_files().items()},
    }


def dry_text(plan: Plan, value: dict[str, Any]) -> str:
    """Returns a table's commands, ``value``, as shell lines, with missing files as comments."""
    from tellapart.recipe.table_figures import table_notes

    return "\n".join([
        f"# Table {value['table']}, {value['title']}",
        f"# rows: {', '.join(dict.fromkeys(row['row'] for row in value['rows']))}",
        *(f"# {note}" for note in table_notes(plan)),
        *(f"# requires {path}: {why}" for path, why in value["needs"].items()),
        *(step["command"] + ("  # done" if step["done"] else "") for step in value["commands"]),
    ])  # fmt: skip


def as_values(plan: Plan) -> dict[str, Any]:
    """Returns a table with our figures, their intervals and the paper's figures as JSON values."""
    from tellapart.recipe import table_figures

    found, absent = table_figures.figures(plan, study_figures(plan)), plan.missing()
    values, intervals = ({cell: figure[part] for cell, figure in found.items()} for part in (0, 1))
    names = [column.name for column in plan.table.columns]
    rows = [
        {
            "labels": dict(zip(plan.table.labels, row.labels, strict=True)),
            "system": row.system,
            "ours": {name: values.get((place, column)) for column, name in enumerate(names)},
            "intervals": {name: intervals.get((place, column)) for column, name in enumerate(names)},
            "paper": {name: figure if figure != "" else None for name, figure in zip(names, row.paper, strict=True)},
            **({"missing": absent[row.system]} if row.system in absent else {}),
        }
        for place, row in enumerate(plan.table.rows)
        if row in plan.rows
    ]
    return {"table": f"{plan.paper.number}:{plan.table.id}", "title": plan.table.title, "rows": rows}


def as_rich(plan: Plan, value: dict[str, Any]) -> rich.table.Table:
    """Returns a table's ``value`` for the terminal. Each cell contains our figure, its interval, and the paper's
    figure.
    """
    from tellapart.recipe.table_figures import table_notes

    title = f"Paper {plan.paper.number}, Table {plan.table.id}: {plan.table.title}. Ours [95% interval] (the paper's)"
    shown = rich.table.Table(title=title, caption="\n".join(table_notes(plan)) or None, caption_justify="left")
    for label in plan.table.labels:
        shown.add_column(label)
    for column in plan.table.columns:
        shown.add_column(column.name, justify="right")
    for row in value["rows"]:
        cells = []
        for column in plan.table.columns:
            ours = cell_text(row["ours"][column.name], "g" if column.setting else ".4g")
            if interval := row["intervals"][column.name]:
                ours += f" [{interval[0]:.4g}, {interval[1]:.4g}]"
            cells.append(f"{ours} ({cell_text(row['paper'][column.name], 'g')})")
        shown.add_row(*row["labels"].values(), *cells)
    return shown


def cell_text(figure: Value | None, places: str) -> str:
    """Formats a cell as text. If it contains one value per step, each value is on its own line."""
    if isinstance(figure, list):
        return "\n".join(f"step {step:,}: {value:.4g}" for step, value in figure)
    if figure is None or figure == "":
        return "–"
    return figure if isinstance(figure, str) else format(figure, places)


def study_figures(plan: Plan) -> Mapping[str, Mapping[str, float]]:
    """Returns the figures from a table's user study, by system and metric; empty until people have answered."""
    folder = plan.study_folder
    if not (folder / STORE).is_file():
        return {}
    study = open_study(folder)
    with AnswerStore.open(study, folder / STORE, create=False) as answers:
        systems = analyse(study, answers).systems
    return {name: {metric: found.value for metric, found in own.items()} for name, own in systems.items()}


def _find_replication() -> None:
    """Adds the clone's root, which contains ``replication``, to the path. Raises `TellapartError` outside a clone."""
    if importlib.util.find_spec("replication") is None:
        sys.path.append(str(Path(__file__).parents[3]))
    if importlib.util.find_spec("replication") is None:
        raise TellapartError(
            "tables on scenes require the replication/ folder of a git clone; in the clone, run: pip install -e ."
        )
