"""Tables for the terminal."""

from __future__ import annotations

from rose_carla._lib.text import printable
from rose_carla.bench.measures import condition_words
from rose_carla.bench.table import Table


def shown(table: Table) -> str:
    """A table as text: ``*`` is best of all, ``_`` best of the robust by design."""
    heads = [["", *(column.label for column in table.columns)]]
    if any(column.condition for column in table.columns):
        heads.insert(0, ["", *(condition_words(column.condition) for column in table.columns)])
    blocks = {
        dataset: [
            [
                printable(row.label),
                *(f"{value.text}{'*' if value.best else ''}{'_' if value.best_robust else ''}" for value in row.values),
            ]
            for row in rows
        ]
        for dataset, rows in table.blocks.items()
    }
    lines = [*heads, *(line for block in blocks.values() for line in block)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]

    def aligned(line: list[str]) -> str:
        return "  ".join(
            [line[0].ljust(widths[0]), *(text.rjust(w) for text, w in zip(line[1:], widths[1:], strict=True))]
        )

    text = [table.title, *(aligned(head) for head in heads)]
    for dataset, block in blocks.items():
        text += [dataset, *(f"{aligned(line)}" for line in block)]
    if any(value.best for row in table.rows for value in row.values):
        text += ["", "* best of all methods, _ best of those that are robust by design"]
    return "\n".join([*text, ""])
