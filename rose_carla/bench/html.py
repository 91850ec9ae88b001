"""A report as one HTML page with everything in it: tables, figures, where they come from. No script, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import pandas as pd
from rose_carla.bench.comparison import BETTER, DIFFERS, WITHIN
from rose_carla.bench.markdown import LEGEND, interval, printed
from rose_carla.bench.measures import condition_words
from rose_carla.bench.table import Column, Table, Value

_CLASSES = {WITHIN: "within", BETTER: "better", DIFFERS: "differs"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1750px; padding: 0 1rem; color: #1c1c1c }
h1 { font-size: 1.6rem } h2 { margin-top: 2.5rem; font-size: 1.25rem } h3 { font-size: 1.05rem; margin: 1.5rem 0 .3rem }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .6rem; text-align: right; vertical-align: top; white-space: nowrap }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff }
thead th { border-bottom: 1px solid #333 } tbody tr { border-bottom: 1px solid #e4e4e4 }
.wide { overflow-x: auto } .small { color: #595959; font-size: 11px; display: block }
.tag { border-radius: 3px; padding: 0 .25em } .within { background: #e3ecf7 } .better { background: #d9efdf }
.differs { background: #fbe3d2 } figure { margin: 1.5rem 0 } figure svg { max-width: 100%; height: auto }
figcaption { color: #595959; font-size: 13px } pre { background: #f5f5f5; padding: .8rem; overflow-x: auto }
sup { line-height: 0 }
.text td, .text th { text-align: left; white-space: normal }
"""


class Page:
    """A page that grows from top to bottom; every text is escaped."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]

    def heading(self, text: str) -> None:
        """Start a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        """Something to be read as typed."""
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def items(self, texts: Sequence[str], numbered: bool = False) -> None:
        """A list."""
        name = "ol" if numbered else "ul"
        self._parts.append(f"<{name}>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</{name}>")

    def table(self, table: Table) -> None:
        """A table of results, the paper's values beside ours, with the reasons for differences."""
        self.heading(table.title)
        for text in (table.note, _LEGEND):
            if text:
                self.text(text)
        numbers = {words: i for i, words in enumerate(table.reasons, start=1)}
        heads = "".join(f"<th>{_head(column)}</th>" for column in table.columns)
        for dataset, rows in table.blocks.items():
            body = "".join(
                f"<tr><td>{escape(row.label)}</td>"
                + "".join(
                    _cell(value, column, numbers) for value, column in zip(row.values, table.columns, strict=True)
                )
                + "</tr>"
                for row in rows
            )
            self._parts.append(
                f"<h3>{escape(dataset)}</h3><div class='wide'><table><thead><tr><th></th>{heads}</tr></thead>"
                f"<tbody>{body}</tbody></table></div>"
            )
        if numbers:
            self._parts.append("<h3>Why values differ</h3>")
            self.items([f"{words}." for words in numbers], numbered=True)

    def frame(self, frame: pd.DataFrame) -> None:
        """Any small frame; numbers are to be formatted before."""
        heads = "".join(f"<th>{escape(str(name))}</th>" for name in frame.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row)}</tr>"
            for row in frame.itertuples(index=False)
        )
        self._parts.append(
            f"<div class='wide text'><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def figure(self, svg: str, caption: str) -> None:
        """A picture that our own plots made."""
        drawing = svg[svg.index("<svg") :]
        self._parts.append(f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>")

    def html(self) -> str:
        """The whole page."""
        return (
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
            f"<meta name='viewport' content='width=device-width, initial-scale=1'><title>{escape(self._title)}</title>"
            f"<style>{_STYLE}</style></head><body>\n" + "\n".join(self._parts) + "\n</body></html>\n"
        )


_LEGEND = LEGEND.replace("*", "")


def _head(column: Column) -> str:
    condition = f"{escape(condition_words(column.condition))}<br>" if column.condition else ""
    return f"{condition}{escape(column.label)} {column.arrow}"


def _cell(value: Value, column: Column, numbers: dict[str, int]) -> str:
    text = escape(value.text)
    text = f"<u>{text}</u>" if value.best_robust else text
    text = f"<b>{text}</b>" if value.best else text
    if between := interval(value, column):
        text += f"<span class='small'>{escape(between)}</span>"
    if value.printed is not None:
        tag = f" <span class='tag {_CLASSES[value.tag]}'>{escape(value.tag)}</span>" if value.tag else ""
        note = f"<sup>{numbers[value.reason]}</sup>" if value.reason else ""
        text += f"<span class='small'>paper {escape(printed(value, column))}{tag}{note}</span>"
    return f"<td>{text}</td>"
