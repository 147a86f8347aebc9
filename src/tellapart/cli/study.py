"""``tellapart study``: plans, creates, serves, rehearses, exports and reports user studies."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import rich
import rich.table
import typer

from tellapart.cli.app import DATA, App
from tellapart.cli.options import Count, Json, OptionalCount, Pictures, Port
from tellapart.cli.output import show
from tellapart.cli.study_judges import arena, judges
from tellapart.errors import UsageError, need_extra
from tellapart.study.analysis import analyse
from tellapart.study.design import CONTROL, ITEMS, Study, check_pictures, open_study
from tellapart.study.export import export as write
from tellapart.study.plan import Assumptions, PlannedDesign, cheapest
from tellapart.study.plan import plan as simulate_plans
from tellapart.study.questions import QUESTIONS
from tellapart.study.report import tables, to_json, write_report
from tellapart.study.session import StudySession
from tellapart.study.store import STORE, AnswerStore
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output
from tellapart.utils.tables import table_of

app = App(
    name="study",
    help="Run user studies (match captions to pictures, rate or compare captions); measure how well metrics agree with "
    "people.",
    no_args_is_help=True,
    panel=DATA,
)
creating = App(
    name="create", help=("Create the folder for a study, with its items and study.toml."), no_args_is_help=True
)
app.add_typer(creating)


Folder = Annotated[Path, typer.Argument(help="Folder of the study.")]
Store = Annotated[
    str | None,
    typer.Option("--store", help="Answer store: a file, or postgresql://… Default: answers.sqlite in the folder."),
]


@app.command()
def serve(
    folder: Folder,
    store: Store = None,
    port: Port = 8766,
    public_url: str | None = None,
    preview: bool = False,
    amend: str = "",
) -> None:
    """Serve the study page until Ctrl-C. Repeat the command to continue.

    Args:
        public_url: Public https address, if a proxy forwards requests.
        preview: Preview the study; its answers are discarded.
        amend: Reason for changing the design after the start; shown in the report.
    """
    need_extra("study", "the study page", "starlette", "uvicorn")
    from tellapart.study.server import serve as serve_page

    if public_url and not re.fullmatch(r"https?://[A-Za-z0-9.:\-\[\]]+/?", public_url):
        raise UsageError(f"--public-url {public_url}: expected a URL without a path, such as https://study.example.org")
    if preview and (store or amend):
        raise UsageError("--preview saves nothing, so it cannot be combined with --store or --amend; remove them")
    study = open_study(folder)
    check_pictures(study)
    if (open_keys := study.settings.unwritten()) and not preview:
        raise UsageError(
            f"{folder}/study.toml: {', '.join(open_keys)} {'is' if len(open_keys) == 1 else 'are'} "
            "not filled in (TODO); write what participants should read, or preview the page with "
            "--preview"
        )
    with tempfile.TemporaryDirectory(prefix="tellapart-preview-") as temporary:
        location = str(Path(temporary) / "answers.sqlite") if preview else store
        with open_store(study, location) as answers:
            answers.set_stamp(study.stamp, time.time(), amend)
            session = StudySession(study, answers, proxied=public_url is not None)

            def ready(address: str) -> None:
                where = "nothing is saved" if preview else f"answers are saved in {answers.name}"
                recruitment, link = study.settings.recruitment, public_url or address
                if recruitment.link_key:
                    link = f"{link.rstrip('/')}/?key={recruitment.link_key}"
                say(f"study for {study.quota} participants at {link} (press Ctrl-C to stop; {where})")
                if recruitment.link_key:
                    say(f"link for a recruitment platform: {link}&{recruitment.id_parameter}=IDENTIFIER")

            serve_page(session, port, public_url, ready)


@app.command()
def simulate(
    folder: Path,
    participants: OptionalCount = None,
    hasty: float = 0.15,
    blind: Annotated[float, typer.Option("--random")] = 0.1,
    think: Annotated[float, typer.Option(min=0)] = 0.0,
    at_once: Annotated[int, typer.Option(min=1, max=1000)] = 8,
    seed: int = 0,
    as_json: Json = False,
) -> None:
    """Rehearse a study with scripted participants, who send the same requests as its web page.

    Writes their answers and the report to FOLDER/simulated, separate from real answers.

    Args:
        folder: Folder of a study; or pick, rate or compare for a study of synthetic scenes.
        participants: Number of participants. Default: the study's quota plus 25 percent.
        hasty: Fraction of participants who answer hastily.
        blind: Fraction of participants who answer at random.
        think: Mean thinking time per answer, in seconds.
        at_once: Number of concurrent participants.
        seed: Random seed for the simulated participants.
    """
    need_extra("study", "a rehearsal", "starlette", "uvicorn")
    from tellapart.study.simulate import rehearse, scenes_study

    kind = str(folder) if str(folder) in QUESTIONS and not folder.exists() else ""
    folder = Path(f"rehearsal-{kind}") if kind else folder
    new = bool(kind) and not folder.exists()
    study = scenes_study(kind, folder) if new else open_study(folder)
    try:
        done = rehearse(study, participants, hasty, blind, think=think, at_once=at_once, seed=seed)
    except UsageError:
        if new:
            shutil.rmtree(folder)
        raise
    say(done.line())
    with open_store(study, str(done.store), create=False) as answers:
        results = analyse(study, answers)
    page = done.store.with_name("report.html")
    write_report(results, page, own=True)
    show({**to_json(results), "simulated": done.to_json()}, lambda: tables(results), as_json)
    say(f"report: {page}")


@app.command()
def report(
    folder: Folder,
    store: Store = None,
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    as_json: Json = False,
) -> None:
    """Report the results of a study as tables and a page: intervals, agreement, exclusions and times.

    Args:
        out: Output page. Default: report.html in the study's folder.
    """

    if out is not None:
        check_output(out, ".html", ".htm")
    study = open_study(folder)
    with open_store(study, store, create=False) as answers:
        results = analyse(study, answers)
    page = out or folder / "report.html"
    write_report(results, page, own=out is None)
    show(to_json(results), lambda: tables(results), as_json)
    say(f"report: {page}")


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o")] = Path("answers"),
    store: Store = None,
    with_ids: bool = False,
    as_json: Json = False,
) -> None:
    """Export the answers as JSON and CSV, without identifiers.

    Args:
        out: Output folder for answers.json and answers.csv.
        with_ids: Also write identifiers.csv for payment (personal data).
    """

    study = open_study(folder)
    with open_store(study, store, create=False) as answers:
        done = write(study, answers, out, with_ids=with_ids)
    line = f"{out}: {done['answers']:,} answers from {done['participants']} participants"
    show(
        done,
        lambda: line + (("; identifiers.csv contains personal data: delete it after payment") if with_ids else ""),
        as_json,
    )


@app.command()
def forget(
    folder: Folder,
    identifier: Annotated[str | None, typer.Option("--id")] = None,
    all_ids: bool = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Delete one participant's answers, or all participants' identifiers on the recruitment platform.

    Args:
        identifier: Delete the participant with this identifier, and their answers.
        all_ids: Delete all identifiers and keep the answers, after everyone has been paid.
    """

    if (identifier is None) == (not all_ids):
        raise UsageError(
            "nothing to delete; pass --id IDENTIFIER, or --all-ids to delete all identifiers and keep the answers"
        )
    study = open_study(folder)
    with open_store(study, store, create=False) as answers:
        if identifier is None:
            count = answers.forget_identifiers()
            show({"identifiers": count}, lambda: f"deleted {count:,} identifiers; the answers are kept", as_json)
            return
        if not answers.forget(identifier):
            raise UsageError(f"--id {identifier}: no participant has this identifier")
    show({"identifiers": 1}, lambda: f"deleted the answers and the identifier of {identifier}", as_json)


def open_store(study: Study, location: str | None, *, create: bool = True) -> AnswerStore:
    """Opens the answer store that ``--store`` specifies, by default the one in the study's folder."""

    return AnswerStore.open(study, location or study.folder / STORE, create=create)


PictureCount = Annotated[int | None, typer.Option("--pictures", min=1, help="Number of pictures. Default: 100.")]


@dataclass(frozen=True, kw_only=True)
class StudyMaterial:
    """Sources of a study's captions, and its output folder.

    Args:
        captions: Caption file of a system; the system is named after it. Repeatable.
        references: Human captions. Default: the data's references. Repeatable.
        out: New folder for the study.
    """

    captions: list[Path] | None = None
    references: list[Path] | None = None
    out: Annotated[Path, typer.Option("--out", "-o")] = Path("study")


@dataclass(frozen=True, kw_only=True)
class Design:
    """Options shared by all kinds of studies; the fields are those of `tellapart.study.create.StudyPlan`.

    Args:
        human: Include human captions as a system: the first reference, a random one, or none.
        block: Items per participant.
        controls: Control items per participant.
        raters: Participants per block.
        seed: Random seed for the items and their order.
        title: Title on the study page.
    """

    human: str | None = None
    block: Count = 100
    controls: Annotated[int, typer.Option(min=0, max=50)] = 5
    raters: OptionalCount = None
    seed: int = 0
    title: str = ""


@creating.command()
def pick(
    data: Pictures,
    scorer: Annotated[str, typer.Option("--scorer")],
    *,
    sets: OptionalCount = None,
    candidates: Annotated[int, typer.Option(min=2, max=10)] = 10,
    max_cosine: float = 0.8,
    material: StudyMaterial,
    design: Design,
    as_json: Json = False,
) -> None:
    """Create a study in which people pick, from among look-alikes, the picture that a caption describes.

    Args:
        scorer: Scorer whose features define which pictures look alike.
        sets: Maximum number of look-alike sets. Default: 500.
        candidates: Pictures per set, including the target.
        max_cosine: Maximum similarity of a distractor to the target.
    """
    create("pick", data, material, design, as_json, scorer, items=sets, candidates=candidates, max_cosine=max_cosine)


@creating.command()
def rate(
    data: Pictures, *, pictures: PictureCount = None, material: StudyMaterial, design: Design, as_json: Json = False
) -> None:
    """Create a study in which people rate captions from 1 to 5: descriptiveness, accuracy, fluency."""
    create("rate", data, material, design, as_json, items=pictures)


@creating.command()
def compare(
    data: Pictures, *, pictures: PictureCount = None, material: StudyMaterial, design: Design, as_json: Json = False
) -> None:
    """Create a study in which people compare two captions of a picture."""
    create("compare", data, material, design, as_json, items=pictures)


def create(
    kind: str,
    data: list[str],
    material: StudyMaterial,
    design: Design,
    as_json: bool,
    scorer: str | None = None,
    **more: Any,
) -> None:
    """Reads the material, creates the study, and prints a summary. ``more``: further fields of the plan."""
    from tellapart.study import create as creation
    from tellapart.study import material as sources

    plan = creation.StudyPlan(kind=kind, **asdict(design), **more)
    if (material.out / ITEMS).exists():
        raise UsageError(f"{material.out} already contains a study; choose another folder with -o")
    read = sources.read_material(data, material.captions or (), material.references or (), scorer)
    study = creation.create_study(material.out, read, plan)
    show(summary(study), lambda: summary_line(study), as_json)


def summary(study: Study) -> dict[str, Any]:
    """Describes a new study as JSON values."""

    return {
        "folder": str(study.folder),
        "kind": study.kind,
        "systems": list(study.systems),
        "items": study.units,
        "controls": len(study.of_role[CONTROL]),
        "blocks": len(study.blocks),
        "raters": study.settings.sampling.raters,
        "participants": study.quota,
        "stamp": study.stamp,
        "to_write": study.settings.unwritten(),
    }


def summary_line(study: Study) -> str:
    """Describes a new study as lines of text."""
    made = summary(study)
    what = "look-alike sets" if study.kind == "pick" else "pictures"
    lines = [
        (
            f"{study.folder}: {made['items']:,} {what}, {', '.join(study.systems)}; blocks: {made['blocks']}, "
            f"participants: {made['participants']}"
        ),
        f"next: read {study.folder}/study.toml"
        + (f" and fill in {', '.join(made['to_write'])}" if made["to_write"] else "")
        + f"; then run tellapart study serve {study.folder} --preview",
    ]
    return "\n".join(lines)


@app.command()
def plan(
    kind: str,
    difference: Annotated[float, typer.Option()],
    base: float | None = None,
    agreement: Annotated[float, typer.Option(min=0, max=0.99)] = 0.3,
    systems: Annotated[int, typer.Option(min=2)] = 3,
    items: str | None = None,
    raters: str | None = None,
    block: Count = 100,
    pay: Annotated[float, typer.Option(min=0)] = 0.0,
    fee: Annotated[float, typer.Option(min=0)] = 0.0,
    power: Annotated[float, typer.Option(min=0.01, max=0.999)] = 0.8,
    budget: Annotated[float | None, typer.Option(min=0)] = None,
    studies: Annotated[int, typer.Option(min=20)] = 200,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Simulate how many participants and items are needed to detect a difference, and at what cost.

    Args:
        kind: Kind of study: pick, rate or compare.
        difference: Difference to detect: 0.05 is five percentage points (rate: points on the 5-point scale).
        base: Score of the lower-scoring system. Default: 0.4 for pick, 3.5 for rate.
        agreement: Agreement between two participants (Krippendorff's alpha).
        systems: Number of systems, including human captions.
        items: Comma-separated numbers of sets or pictures. Default: 100,200,500.
        raters: Comma-separated numbers of participants per block. Default: 1,2,3,5,8.
        block: Items per participant.
        pay: Payment per participant.
        fee: Platform fee as a fraction of the payment, such as 0.33.
        power: Target power.
        budget: Maximum cost.
        studies: Number of simulated studies per design.
        seed: Random seed for the simulation.
    """

    if budget is not None and not pay:
        raise UsageError("--budget requires --pay, the payment per participant; add it")
    if kind == "compare" and base is not None:
        raise UsageError("--base cannot be combined with compare, where equal systems score 0.5; remove it")
    default = {"pick": 0.4, "rate": 3.5, "compare": 0.5}.get(kind, 0.5)
    assumed = Assumptions(kind, default if base is None else base, difference, agreement, systems, block, pay, fee)
    sizes, each = numbers("--items", items or "100,200,500"), numbers("--raters", raters or "1,2,3,5,8")
    rows = simulate_plans(assumed, sizes, each,
                          studies=studies, seed=seed)  # fmt: skip
    best = cheapest(rows, power, budget)
    show(
        {"assumptions": asdict(assumed), "rows": [asdict(row) for row in rows], "cheapest": best and asdict(best)},
        lambda: plan_table(rows, best, power),
        as_json,
    )


def numbers(option: str, text: str) -> list[int]:
    """Parses comma-separated integers of at least 1."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError(f"{option} {text}: expected integers separated by commas, such as 100,200")
    return found


def plan_table(rows: list[PlannedDesign], best: PlannedDesign | None, power: float) -> rich.table.Table:
    """Returns a table of the designs, cheapest first."""
    title = (
        (f"the first design with a power of {100 * power:g}% is marked")
        if best
        else f"no design has a power of {100 * power:g}%"
    )
    heads = ("", "items", "raters per block", "participants", "answers", "cost", "power")
    cells = [
        ("→" if row is best else "", f"{row.items:,}", str(row.raters), f"{row.participants:,}", f"{row.answers:,}",
         f"{row.cost:,.2f}" if row.cost else "–", f"{100 * row.power:.0f}%")
        for row in rows
    ]  # fmt: skip
    return table_of(heads, cells, f"Designs, cheapest first; {title}")


app.command()(judges)
app.command()(arena)
