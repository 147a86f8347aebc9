"""``tellapart finetune``: trains a captioner on pictures without a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from tellapart.cli.app import TRAINING, App, Command
from tellapart.cli.launch import Nproc, in_processes
from tellapart.cli.options import Device, Json, Overwrite, RecipePrecision, Settings, precision_settings
from tellapart.cli.output import show_run
from tellapart.errors import UsageError

app = App()


def objectives(incomplete: str) -> list[str]:
    """Completes the names of objectives in the shell."""
    from tellapart.recipe.presets import objective_names

    return [name for name in objective_names() if name.startswith(incomplete)]


class FinetuneCommand(Command):
    """A command whose help lists the objectives, including those from installed packages."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See `click.Command.format_help`."""
        from tellapart.recipe.presets import default_objective, objective_names

        for option in self.params:
            if option.name == "objective" and isinstance(option, TyperOption):
                option.help = (
                    f"Objective: {', '.join(objective_names())}. Default: {default_objective(photos=True)} "
                    f"({default_objective(photos=False)} on scenes)."
                )
        super().format_help(ctx, formatter)


@app.command(cls=FinetuneCommand, rich_help_panel=TRAINING)
def finetune(
    model: Annotated[str, typer.Argument(help="Captioner: folder, run, hub name, or 'scenes'.")],
    pictures: Annotated[list[str], typer.Argument(help="Folders of pictures, or data sets as kind:path?key=value.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the model is written to OUT/model.")],
    objective: Annotated[str | None, typer.Option(help="Objective.", autocompletion=objectives)] = None,
    scorer: Annotated[
        str | None, typer.Option(help="Scorer: folder, run, or hub name. Default: CLIP ViT-B/32.")
    ] = None,
    lora: Annotated[bool, typer.Option("--lora", help="Train LoRA weights, and merge them at the end.")] = False,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Number of training steps; a larger number extends an existing run. Default: 300."),
    ] = None,
    epochs: Annotated[float | None, typer.Option(min=0.01, help="Number of epochs, instead of --steps.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=2, help="Batch size in pictures. Default: 50, or all pictures if there are fewer.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate. Default: 3e-5, or 3e-4 with --lora.")] = None,
    max_tokens: Annotated[int, typer.Option(min=2, help="Maximum caption length, in tokens.")] = 30,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 0,
    settings: Settings = None,
    overwrite: Overwrite = False,
    push_to_hub: Annotated[
        str | None,
        typer.Option(
            "--push-to-hub",
            metavar="USER/NAME",
            help="Hub repository to upload the model and its card to (requires HF_TOKEN or hf auth login).",
        ),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Make the repository private (requires --push-to-hub).")
    ] = False,
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    nproc: Nproc = None,
    as_json: Json = False,
) -> None:
    """Train a captioner on your pictures. Interrupted runs resume when you repeat the command."""
    from tellapart.models import devices, ranks
    from tellapart.training.finetune import run_finetune
    from tellapart.training.plan import plan

    if private and push_to_hub is None:
        raise UsageError("--private requires --push-to-hub USER/NAME; add it, or remove --private")
    with devices.running_on(device):
        in_processes(nproc)
        ranks.start()
        recipe = plan(
            model,
            pictures,
            objective=objective,
            scorer=scorer,
            lora=lora,
            steps=steps,
            epochs=epochs,
            batch_size=batch_size,
            rate=rate,
            max_tokens=max_tokens,
            seed=seed,
            settings=(*(settings or ()), *precision_settings(precision)),
            folder=out,
            overwrite=overwrite,
        )
        run = run_finetune(recipe, out, hub_id=push_to_hub, private=private, overwrite=overwrite)
    if ranks.is_main():
        show_run(run.folder, as_json)
