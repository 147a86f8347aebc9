"""``replication claims|tradeoff|front|objectives|photos``: the papers' findings, detail and truth, photos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellapart.cli.app import RESEARCH, App
from tellapart.cli.entry import run
from tellapart.cli.options import Device, Json, RecipePrecision, precision_settings
from tellapart.cli.output import show
from tellapart.cli.whole_app import app_of
from tellapart.errors import UsageError, nearest
from tellapart.utils.tables import table_of

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from replication.objectives import Comparison
    from replication.photos import Photos
    from replication.seeds import Seeds

app = App()
MEANS = "means over seeds; 95% intervals over seeds and pictures"


@app.command(rich_help_panel=RESEARCH)
def claims(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Claims to run. Default: all.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use one development seed; intervals are over pictures only.")
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="dev (0-5, the default), verdict (20-24, once, recorded), or numbers: 100,101 to check the claims."
        ),
    ] = None,
    power: Annotated[
        bool, typer.Option("--power", help="Estimate the power of each claim from trained development seeds.")
    ] = False,
    further: Annotated[
        bool,
        typer.Option("--further", help="Run further findings, which are not part of the 28 claims or of a verdict."),
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the claims without running them.")] = False,
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    as_json: Json = False,
) -> None:
    """Replicate the papers' findings in the synthetic world. Interrupted runs resume when you repeat the command."""
    from replication import find_claims, run_claims
    from replication.page import claims_table, results_table
    from replication.seeds import parse_seeds
    from tellapart.models.devices import running_on

    if quick and seeds is not None:
        raise UsageError("--quick uses one development seed, so --seeds has no effect; remove one of them")
    if ids and further:
        raise UsageError("--further runs all further findings, so names have no effect; remove one of them")
    some = find_claims(ids or (), further)
    ids = [claim.id for claim in some] if further else ids
    if listed:
        value = [
            {"id": c.id, "paper": c.paper_number, "place": c.location, "says": c.statement, "pending": c.pending}
            for c in some
        ]
        show({"claims": value}, lambda: claims_table(some), as_json)
        return
    chosen = parse_seeds("quick" if quick else seeds or "dev", "claims")
    settings = precision_settings(precision)
    with running_on(device):
        if power:
            show_power(ids or (), chosen, settings, as_json)
        elif chosen.kind == "verdict":
            show_verdict(ids or (), settings, as_json)
        else:
            results = run_claims(ids or (), chosen.option, settings=settings)
            show({"claims": [result.to_json() for result in results]}, lambda: results_table(results), as_json)


def show_power(ids: Sequence[str], seeds: Seeds, settings: Sequence[str], as_json: bool) -> None:
    from replication import run_power
    from replication.power import power_table

    if seeds.kind == "verdict":
        raise UsageError("--power is computed before a verdict, from development seeds; add --seeds dev")
    found, record = run_power(ids, seeds.option, settings=settings)
    show(record, lambda: power_table(found), as_json)


def show_verdict(ids: Sequence[str], settings: Sequence[str], as_json: bool) -> None:
    from replication import run_verdict
    from replication.page import verdict_table

    if ids:
        raise UsageError("a verdict covers all claims; remove the names")
    found = run_verdict(settings=settings)
    show(found, lambda: verdict_table(found), as_json)


@app.command(rich_help_panel=RESEARCH)
def tradeoff(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[ARM]...", help="Arms to run. Default: those of a verdict.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="quick (0), dev (0-5), verdict (30-34, once), or numbers: 0,1.")] = "quick",
    start: Annotated[str, typer.Option(help="Captioner that all arms start from.")] = "scenes",
    steps: Annotated[
        int, typer.Option(min=1, help="Number of training steps per arm; the detail arm takes five times as many.")
    ] = 70,
    svg: Annotated[Path | None, typer.Option(help="File for a plot (SVG) of R@1 against hallucination.")] = None,
    as_json: Json = False,
) -> None:
    """Compare self-distillation with self-retrieval, controls and the exact ground truth. Resumes after Ctrl-C."""
    from replication import cores
    from replication.seeds import parse_seeds
    from replication.tradeoff import run_tradeoff, verdict
    from replication.tradeoff_arms import DECODED_OTHERWISE, FRONT_DECODED, arms

    known = [*arms(start, steps), *DECODED_OTHERWISE, *FRONT_DECODED]
    for name in names or ():
        if name not in known:
            raise UsageError(f"unknown arm '{name}'{nearest(name, known)}")
    check_folder("--svg", svg)
    chosen = parse_seeds(seeds, "tradeoff")
    if chosen.kind == "verdict":
        if names:
            raise UsageError("a verdict covers all arms; remove the names")
        found = verdict(start=start, steps=steps, workers=cores())
    else:
        found = run_tradeoff(chosen.numbers, names or (), start=start, steps=steps, workers=cores()).to_json()
    if svg is not None:
        from replication.front import Curve, front_svg
        from tellapart.utils.atomic_writes import replace_text

        ours = tuple(name for name in found["systems"] if name == "truthful" or name.startswith("speaker"))
        replace_text(svg, front_svg(found["systems"], [Curve(ours, ours=True)]))
    show(found, lambda: tables_of(found), as_json)


@app.command(rich_help_panel=RESEARCH)
def front(
    seeds: Annotated[str, typer.Option(help="quick (0), dev (0-5), verdict (50-54, once), or numbers: 0,1.")] = "quick",
    power: Annotated[
        bool, typer.Option("--power", help="Estimate the statistical power of each part from trained seeds.")
    ] = False,
    svg: Annotated[Path | None, typer.Option(help="File for a plot (SVG) of the curves.")] = None,
    as_json: Json = False,
) -> None:
    """Compare detail and hallucination of captioners as curves; repeat the command to resume after Ctrl-C."""
    from replication import front as compared
    from replication.power import power_table
    from replication.seeds import VERDICTS, parse_seeds

    check_folder("--svg", svg)
    chosen = parse_seeds(seeds, compared.COMMAND)
    if power:
        if svg is not None:
            raise UsageError("--power does not measure curves to plot; remove --svg")
        if chosen.kind == "verdict":
            raise UsageError("--power is computed before a verdict, from development seeds; add --seeds 0,1")
        each, record = compared.front_power(chosen)
        show(record, lambda: power_table(each, len(VERDICTS[compared.COMMAND])), as_json)
        return
    found = compared.front_verdict() if chosen.kind == "verdict" else compared.run_front(chosen.numbers)
    if svg is not None:
        from tellapart.utils.atomic_writes import replace_text

        replace_text(svg, compared.front_svg(found["systems"], compared.CURVES))
    show(found, lambda: front_tables(found), as_json)


def front_tables(found: dict[str, Any]) -> Group:
    """Returns the table of all rows, the outcome of each claim, and the verdicts so far."""
    from rich.console import Group

    from replication.front import CLAIMS, RECORDS
    from replication.page import verdict_table
    from replication.tradeoff import table_lines

    header, *rows = table_lines(found)
    return Group(table_of(header, rows, MEANS), verdict_table(found, CLAIMS, RECORDS))


@app.command(rich_help_panel=RESEARCH)
def objectives(
    seeds: Annotated[str, typer.Option(help="quick (0), dev (0-5), verdict (60-64, once), or numbers: 0,1.")] = "quick",
    power: Annotated[
        bool, typer.Option("--power", help="Estimate the statistical power of each part from trained seeds.")
    ] = False,
    subset: Annotated[
        bool,
        typer.Option(
            "--subset-losses", help="Compare likelihood losses (MLE, SMILE, GEM and sparsemax) instead of rewards."
        ),
    ] = False,
    on_photos: Annotated[
        bool, typer.Option("--photos", help="Compare on Flickr8k with pretrained encoders; verdict: 70-72.")
    ] = False,
    workers: Annotated[int, typer.Option(min=0, help="Number of training processes. Default: one per core.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare recent objectives and rewards with self-retrieval on scenes or photos. Resumes after Ctrl-C."""
    from replication.objectives import ON_SCENES, subset_losses
    from replication.photo_objectives import ON_PHOTOS
    from replication.power import power_table
    from replication.seeds import VERDICTS, parse_seeds

    compared = ON_PHOTOS if on_photos else ON_SCENES
    chosen = parse_seeds(seeds, compared.command)
    if chosen.kind == "verdict" and (power or subset):
        option = "--power" if power else "--subset-losses"
        raise UsageError(f"{option} uses development seeds, which the verdict must not use; add {option} --seeds 0,1")
    if subset and (power or on_photos):
        why = "has no criteria and so no power" if power else "is measured on scenes only"
        raise UsageError(f"--subset-losses {why}; remove {'--power' if power else '--photos'} or --subset-losses")
    if power:
        each, record = compared.power(chosen)
        show(record, lambda: power_table(each, len(VERDICTS[compared.command])), as_json)
        return
    if subset:
        losses = subset_losses(chosen.numbers, workers=workers)
        show(losses, lambda: systems_table(losses), as_json)
        return
    found = compared.verdict(workers) if chosen.kind == "verdict" else compared.run(chosen.numbers, workers)
    show(found, lambda: objectives_tables(found, compared), as_json)


def systems_table(found: dict[str, Any]) -> Table:
    """Returns the table of all rows: means over seeds, with intervals."""
    from replication.tradeoff import format_cell

    measures = next(iter(found["systems"].values()))
    rows = [(row, *map(format_cell, values.values())) for row, values in found["systems"].items()]
    return table_of(("arm", *measures), rows, MEANS)


def objectives_tables(found: dict[str, Any], compared: Comparison) -> Group:
    """Returns the table of all rows, the outcome of each comparison with its Holm-corrected p-value, and the verdicts
    so far.
    """
    from rich.console import Group

    from replication.page import verdict_table

    lines = [f"{id}: p {p:.4f} by Holm over all comparisons" for id, p in found["holm"].items()]
    return Group(systems_table(found), verdict_table(found, compared.claims, compared.records), *lines)


@app.command(rich_help_panel=RESEARCH)
def photos(
    seeds: Annotated[
        str, typer.Option(help="Comma-separated seeds, below 10 for tuning. With --findings: verdict (40-42, once).")
    ] = "0",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a recipe key for every arm. Repeatable.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page about all arms. Default: runs/photos.html.")] = None,
    findings: Annotated[
        bool, typer.Option("--findings", help="Show the papers' central findings, one row with an interval each.")
    ] = False,
    rows: Annotated[str | None, typer.Option(metavar="ID,…", help="Comma-separated findings. Default: all.")] = None,
    power: Annotated[
        bool, typer.Option("--power", help="Estimate the statistical power of each finding from trained seeds.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the findings without running them.")] = False,
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    as_json: Json = False,
) -> None:
    """Train and measure the papers' objectives on Flickr8k with pretrained encoders. Resumes after Ctrl-C."""
    from replication.photos import run_photos
    from replication.seeds import parse_seeds
    from tellapart.models.devices import running_on

    check_folder("--page", page)
    chosen, ids = parse_seeds(seeds, "photos"), [row for row in (rows or "").split(",") if row]
    keys = [*precision_settings(precision), *(settings or ())]
    with running_on(device):
        if findings:
            if page is not None:
                raise UsageError(
                    "--page shows the table of systems, which --findings does not produce; remove one of them"
                )
            show_findings(ids, chosen, keys, as_json, power=power, listed=listed)
            return
        idle = {"--rows": bool(ids), "--power": power, "--list": listed, "--seeds verdict": chosen.kind == "verdict"}
        for option in (name for name, given in idle.items() if given):
            raise UsageError(f"{option} requires --findings; add --findings")
        found = run_photos(chosen.numbers, keys, page)
    show(found.to_json(), lambda: photos_table(found), as_json)


def show_findings(
    ids: Sequence[str], seeds: Seeds, settings: Sequence[str], as_json: bool, *, power: bool, listed: bool
) -> None:
    """Runs ``photos --findings``: shows the list, the power, the verdict or the rows."""
    from replication import photo_findings as found_on
    from replication.page import claims_table, results_table, verdict_table
    from replication.power import power_table
    from replication.replay import select_claims
    from replication.seeds import VERDICTS

    if listed:
        some = select_claims(ids, found_on.CLAIMS, found_on.LISTED_BY)
        value = [{"id": c.id, "paper": c.paper_number, "place": c.location, "says": c.statement} for c in some]
        show({"rows": value}, lambda: claims_table(some), as_json)
    elif power:
        if seeds.kind == "verdict":
            raise UsageError("--power is computed before a verdict, from development seeds; add --seeds 0,1")
        planned, (each, record) = len(VERDICTS["photos"]), found_on.findings_power(ids, seeds, settings)
        show(record, lambda: power_table(each, planned), as_json)
    elif seeds.kind == "verdict":
        if ids:
            raise UsageError("a verdict covers all findings; remove --rows")
        given = found_on.findings_verdict(settings)
        show(given, lambda: verdict_table(given, found_on.CLAIMS, found_on.RECORDS), as_json)
    else:
        results = found_on.run_findings(ids, seeds.numbers, settings)
        show({"rows": [result.to_json() for result in results]}, lambda: results_table(results), as_json)


def check_folder(option: str, file: Path | None) -> None:
    """Raises `UsageError` if the folder for an output file does not exist."""
    if file is not None and not file.parent.is_dir():
        raise UsageError(
            f"{option} is {file}, but the folder {file.parent} does not exist; create it, or use another file"
        )


def photos_table(found: Photos) -> Group:
    """Returns the table of systems on photos, and the path of their page."""
    from rich.console import Group

    from replication.photos import table_lines

    header, *rows = table_lines(found)
    count = len(found.results.ids)
    title = f"{count:,} test photos, seeds {', '.join(map(str, found.seeds))}, by the held-out scorer"
    return Group(table_of(header, rows, title), f"page: {found.page}")


def tables_of(found: dict[str, Any]) -> Group:
    """Returns the table of arms, the parts of the rule, and a verdict's stamp."""
    from rich.console import Group

    from replication.stamp import stamp_line
    from replication.tradeoff import format_cell, table_lines

    header, *rows = table_lines(found)
    table = table_of(header, rows, f"seeds {', '.join(map(str, found['seeds']))}; 95% intervals")
    holds = [(part["says"], format_cell(part), "yes" if part["holds"] else "no") for part in found["parts"]]
    rule = table_of(("against self-retrieval", "difference", "holds"), holds)
    closed = {name: share for name, share in found["closed"].items() if share is not None}
    lines = [f"closed of the gap to the exact truth's reward, {name}: {100 * s:.0f} %" for name, s in closed.items()]
    if stamp := found["stamp"]:
        lines.append(stamp_line(stamp))
    return Group(table, *([rule] if found["parts"] else []), *lines)


def main() -> None:
    """Runs ``python -m replication COMMAND``."""
    run(app_of([app]), "python -m replication")


if __name__ == "__main__":
    main()
