"""Plans as they are written: a CSV row for each step, a JSON object for each person, or sentences."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from rose_carla._lib.text import csv_safe, printable
from rose_carla.cli.people import plain
from rose_carla.cli.streams import on_screen
from rose_carla.rose.plan import Plan, Success

COLUMNS = (
    "person", "status", "step", "feature", "from", "to", "size", "success", "success_lower", "success_upper", "reason",
)  # fmt: skip
#: Of a success.
_DIGITS = 4
#: What became of a person.
PLAN, ACCEPTED, NO_PLAN, REFUSED = "plan", "accepted", "no plan", "refused"


@dataclass(frozen=True)
class Answer:
    """What a person is told.

    Parameters
    ----------
    label
        Who it is.
    plan
        The plan, if the row could be used.
    note
        Why the row cannot be used, or what else there is to know.
    """

    label: str
    plan: Plan | None
    note: str = ""

    @property
    def reason(self) -> str:
        """Why there are no steps, and the note."""
        return "; ".join(filter(None, ["" if self.plan is None else self.plan.reason, self.note]))

    @property
    def status(self) -> str:
        """One of the four."""
        if self.plan is None:
            return REFUSED
        if not self.plan.found:
            return NO_PLAN
        return PLAN if self.plan.steps else ACCEPTED


def write_csv(answers: Iterable[Answer], file: TextIO, first: bool) -> None:
    """One row for each step, one for everybody who has none; no cell is a formula."""
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    if first:
        writer.writeheader()
    for row in _rows(answers):
        writer.writerow({name: on_screen(str(csv_safe(cell)), file) for name, cell in row.items()})


def _rows(answers: Iterable[Answer]) -> Iterator[dict[str, Any]]:
    for answer in answers:
        about: dict[str, Any] = {"person": answer.label, "status": answer.status, "reason": answer.reason}
        if answer.plan is None or not answer.plan.steps:
            success = {} if answer.plan is None else _columns(answer.plan.success)
            yield {**about, **success}
            continue
        for number, step in enumerate(answer.plan.steps, start=1):
            change = {"feature": step.feature, "from": _text(step.before), "to": _text(step.after)}
            size = {"step": number, "size": plain(step.size)}
            yield {**about, **change, **size, **_columns(step.success)}


def write_json(answers: Iterable[Answer], file: TextIO, first: bool) -> None:
    """One object for each person, each in a line."""
    for answer in answers:
        found: dict[str, Any] = {"person": answer.label, "status": answer.status, "reason": answer.reason}
        if answer.plan is not None:
            found["success"] = _numbers(answer.plan.success)
            found["steps"] = [
                {
                    "feature": step.feature,
                    "from": _number(step.before),
                    "to": _number(step.after),
                    "size": _number(step.size),
                    "success": _numbers(step.success),
                }
                for step in answer.plan.steps
            ]
        text = json.dumps(found, ensure_ascii=False)
        print("".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text), file=file)


def write_text(answers: Iterable[Answer], file: TextIO, first: bool) -> None:
    """As people read them."""
    for answer in answers:
        if answer.plan is None:
            lines = [f"Person {answer.label}: refused, {answer.note}"]
        else:
            lines = [*answer.plan.lines(), *([f"  ({answer.note})"] if answer.note else [])]
        print(*map(printable, lines), sep="\n", file=file)


#: Formats by name; the last argument tells whether these are the first answers of a file.
FORMATS: Mapping[str, Callable[[Iterable[Answer], TextIO, bool], None]] = {
    "csv": write_csv,
    "json": write_json,
    "text": write_text,
}


def _columns(success: Success) -> dict[str, str]:
    numbers = _numbers(success)
    return {
        "success": plain(numbers["probability"]),
        "success_lower": plain(numbers["lower"]),
        "success_upper": plain(numbers["upper"]),
    }


def _numbers(success: Success) -> dict[str, float]:
    """Estimates from some hundred tries: further digits mean nothing."""
    return {name: round(getattr(success, name), _DIGITS) for name in ("probability", "lower", "upper")}


def _text(value: Any) -> str:
    return plain(value) if isinstance(value, float) else str(value)


def _number(value: Any) -> Any:
    """Without rounding errors, and whole numbers as such."""
    if not isinstance(value, float):
        return value
    short = float(plain(value))
    return int(short) if short.is_integer() else short
