"""The command ``rose-carla next``."""

from __future__ import annotations

from pathlib import Path

import click
from rose_carla.cli import console, inputs, options
from rose_carla.cli.options import Command, DataChoice, NameType
from rose_carla.cli.recourse import FORMATS, answer_people

#: People at a time.
_CHUNK = 2000
_EPILOG = """\
Examples:
  rose-carla next where_they_are_now.csv --policy policy
  rose-carla next where_they_are_now.csv --policy policy --id applicant --format csv --out next.csv

The file has the columns of the training data, in original units: where people are now, after what they have done so
far. Each person gets one step; success is the chance that it is enough. People who come back get the next one.
"""


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("people", metavar="PEOPLE")
@click.option("--policy", metavar="DIR", required=True, help="folder of 'rose-carla train'")
@options.data_options("--data")
@options.model_option("that of the policy")
@click.option("--method", metavar="NAME", help="module:Class that the policy was trained with, to run it")
@click.option("--id", "id_column", metavar="COL", help="column that identifies people; default: rows numbered from 1")
@click.option("--format", "form", type=NameType("format", FORMATS), default="text", help="text (default), csv or json")
@click.option("--out", metavar="FILE", help="default: stdout")
@click.option("--extrapolate", is_flag=True, help="accept values outside the range of the training data")
def next(
    people: str,
    policy: str,
    data: DataChoice,
    model: str | None,
    method: str | None,
    id_column: str | None,
    form: str,
    out: str | None,
    extrapolate: bool,
) -> int:
    """Say the next step of people from where they are now, for a policy that is trained (- for stdin)."""
    folder = Path(policy)
    console.check_inputs([people], data.source)
    out = console.check_output(out, people, data.source, *inputs.input_files(folder))
    if form != "text":
        console.use_utf8_stdout()
    planner = inputs.load_policy(folder, data, model, method).method
    return answer_people(planner, people, planner.next_steps, id_column, form, out, extrapolate, _CHUNK)
