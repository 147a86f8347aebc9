"""``tellapart study create``: creates the folder of a study that picks, rates or compares captions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tellapart.cli.app import App
from tellapart.cli.options import Count, Json, OptionalCount, Pictures
from tellapart.cli.output import show
from tellapart.errors import UsageError
from tellapart.study.design import CONTROL, ITEMS, Study

creating = App(
    name="create", help="Create the folder for a study, with its items and study.toml.", no_args_is_help=True
)
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
        f"{study.folder}: {made['items']:,} {what}, {', '.join(study.systems)}; blocks: {made['blocks']}, "
        f"participants: {made['participants']}",
        f"next: read {study.folder}/study.toml"
        + (f" and fill in {', '.join(made['to_write'])}" if made["to_write"] else "")
        + f"; then run tellapart study serve {study.folder} --preview",
    ]
    return "\n".join(lines)
