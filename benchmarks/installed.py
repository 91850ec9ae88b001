"""What is installed beside this project: versions, licences, sizes, who asked for it, and known vulnerabilities.

Run as ``make audit`` or ``python benchmarks/installed.py [--advisories FILE]``, where the file is what ``pip-audit
--format json`` wrote. Asked for by "rose-carla[plots]" means by our extra of that name, "--no-deps" by a file of
requirements; both are direct dependencies. What nobody asked for came with Python or was installed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

US = "rose-carla"
NO_DEPS = sorted((Path(__file__).parents[1] / "requirements").glob("no-deps*.txt"))
REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[([^]]*)\])?")
EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)""")


@dataclass(frozen=True)
class Row:
    """One installed distribution."""

    name: str
    version: str
    licence: str
    megabytes: float
    asked_for_by: tuple[str, ...]

    @property
    def direct(self) -> bool:
        """Whether this project itself asks for it."""
        return any(one == "--no-deps" or one.partition("[")[0] == US for one in self.asked_for_by)


def normal(name: str) -> str:
    """A name as the package index compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(found: Distribution) -> str:
    """The licence that a distribution states, in the first of the three places that has it."""
    about = found.metadata
    if expression := about.get("License-Expression"):  # not about[...]: importlib_metadata's raises
        return expression
    classifiers = [line.split(" :: ")[-1] for line in about.get_all("Classifier", []) if line.startswith("License ::")]
    if any(line != "OSI Approved" for line in classifiers):
        return ", ".join(line for line in classifiers if line != "OSI Approved")
    told = (about.get("License") or "").strip()
    return told.splitlines()[0] if told not in ("", "UNKNOWN") else "not stated"


def megabytes(found: Distribution) -> float:
    """What its files take on disk."""
    paths = [Path(found.locate_file(file)) for file in found.files or []]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def asked_for(found: Distribution, extras: Iterable[str]) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Everything that a distribution with some extras requires: the extra in whose name, whose name, whose extras."""
    for line in found.requires or []:
        what, _, marker = line.partition(";")
        name, wanted = REQUIREMENT.match(what).groups()
        inner = frozenset(normal(one.strip()) for one in (wanted or "").split(",") if one.strip())
        named = EXTRA.findall(marker)
        for extra in [one for one in map(normal, named) if one in extras] if named else [""]:
            yield extra, normal(name), inner


def rows(found: Iterable[Distribution], no_deps: Iterable[str] = ()) -> list[Row]:
    """All distributions but ourselves, by name; ``no_deps`` are the names in files of requirements."""
    known: dict[str, Distribution] = {}
    for one in found:
        known.setdefault(normal(one.metadata["Name"]), one)  # the first on the path is the one that gets imported
    askers: dict[str, set[str]] = defaultdict(set)
    for name in no_deps:
        askers[normal(name)].add("--no-deps")
    ours = known[US].metadata.get_all("Provides-Extra", []) if US in known else []
    waiting = [(name, frozenset(map(normal, ours)) if name == US else frozenset()) for name in known]
    done = set(waiting)
    while waiting:
        asker, extras = waiting.pop()
        for extra, name, inner in asked_for(known[asker], extras):
            if name in known and name != asker:
                askers[name].add(f"{asker}[{extra}]" if extra else asker)
                if (name, inner) not in done:
                    done.add((name, inner))
                    waiting.append((name, inner))
    return [
        Row(name, one.version, licence(one), megabytes(one), tuple(sorted(askers[name])))
        for name, one in sorted(known.items())
        if name != US
    ]


def table(found: list[Row]) -> str:
    """The listing, and what it adds up to."""
    head = ("name", "version", "MB", "direct", "licence", "asked for by")
    cells = [
        (
            row.name,
            row.version,
            f"{row.megabytes:.1f}",
            "direct" if row.direct else "",
            row.licence if len(row.licence) <= 40 else row.licence[:37] + "...",
            ", ".join(row.asked_for_by) or "nobody",
        )
        for row in found
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)][:-1]
    lines = ["  ".join([*map(str.ljust, line, widths), line[-1]]) for line in (head, *cells)]
    size, direct = sum(row.megabytes for row in found), sum(row.direct for row in found)
    nobodys = sum(not row.asked_for_by for row in found)
    total = f"{len(found)} distributions, {size:,.0f} MB: {direct} direct, {len(found) - direct - nobodys} indirect, "
    return "\n".join([*lines, f"{total}{nobodys} that nobody asked for"])


def vulnerabilities(advisories: Path) -> tuple[list[str], str]:
    """What pip-audit found, a line for each, and of how many distributions it could read the advisories."""
    audited = json.loads(advisories.read_text())["dependencies"] if advisories.exists() else []
    read = [one for one in audited if "skip_reason" not in one]
    if not read:  # of which pip-audit makes "no known vulnerabilities"
        return [], "The advisories could not be reached: nothing is known about vulnerabilities."
    flaws = [
        f"{one['name']} {one['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for one in read
        for flaw in one["vulns"]
    ]
    return flaws, f"{len(flaws)} known vulnerabilities; advisories read for {len(read)} of {len(audited)} distributions"


def main() -> int:
    """Print the listing; the exit code is 1 if there is a known vulnerability."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--advisories", type=Path, help="what pip-audit --format json wrote")
    advisories = parser.parse_args().advisories
    named = [line for file in NO_DEPS for line in file.read_text().splitlines() if not line.startswith("#")]
    print(table(rows(distributions(), [re.split("[=<>~!]", line)[0] for line in named])))
    if advisories is None:
        return 0
    flaws, summary = vulnerabilities(advisories)
    print(*flaws, summary, sep="\n")
    return int(bool(flaws))


if __name__ == "__main__":
    sys.exit(main())
