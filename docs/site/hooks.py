"""What MkDocs does beyond its own: equations as MathML, roles of docstrings, and links to files beside docs/.

Pages write equations as ``$...$`` and ``$$...$$``; code is left alone. An equation that does not parse, or holds a
command that is not known, ends the build.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

#: Where files from beside docs/ go in the site.
BESIDE = "repository"

LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)")


def mathml(latex: str, display: str) -> str:
    """An equation in LaTeX as MathML."""
    try:
        markup = convert(latex.strip(), display=display)
        words = "".join(ElementTree.fromstring(markup).itertext())
    except Exception as error:  # the parser has many ways to fail
        raise PluginError(f"Equation does not parse: {latex!r} ({type(error).__name__}: {error})") from error
    if "\\" in words:
        raise PluginError(f"Equation has an unknown command: {latex!r}")
    return markup


class Displayed(Preprocessor):
    """``$$...$$`` on lines of its own, and the ``.. math::`` of docstrings."""

    DOLLARS = re.compile(r"^\$\$(.+?)\$\$[ \t]*$", re.MULTILINE | re.DOTALL)
    DIRECTIVE = re.compile(r"^\.\. math::\n((?:[ \t]+\S.*(?:\n|$)|\n)+)", re.MULTILINE)

    def run(self, lines: list[str]) -> list[str]:
        """Put equations into the stash of finished HTML."""
        text = self.DOLLARS.sub(self._stash, "\n".join(lines))
        return self.DIRECTIVE.sub(self._stash, text).split("\n")

    def _stash(self, match: re.Match[str]) -> str:
        html = f'<div class="equation">{mathml(match[1], "block")}</div>'
        return f"\n\n{self.md.htmlStash.store(html)}\n\n"


class Inline(InlineProcessor):
    """``$...$`` in a sentence."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:
        """The equation as finished HTML."""
        return self.md.htmlStash.store(mathml(m[1], "inline")), m.start(0), m.end(0)


class Role(InlineProcessor):
    """A cross-reference of a docstring: its last word, as code."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[ElementTree.Element, int, int]:
        """Code without the role."""
        code = ElementTree.Element("code")
        code.text = m[1].lstrip("~.").removeprefix("rose_carla.")
        return code, m.start(0), m.end(0)


class Additions(Extension):
    """The three above, in the order in which Markdown needs them."""

    def extendMarkdown(self, md: Markdown) -> None:
        """After fences (25), before code spans (190) for roles and right after them for equations."""
        md.preprocessors.register(Displayed(md), "displayed", 24)
        md.inlinePatterns.register(Role(r":(?:class|func|meth|mod|attr):`([^`]+)`", md), "role", 195)
        md.inlinePatterns.register(Inline(r"(?<![\\$\w])\$(?![\s$])([^$]+?)(?<![\s\\])\$(?![\w$])", md), "inline", 185)


def on_config(config):
    """Markdown with equations; also for docstrings."""
    config.markdown_extensions.append(Additions())
    return config


def on_files(files, config):
    """Files from beside docs/ that pages link to become part of the site."""
    docs = Path(config.docs_dir)
    for page in [file for file in files if file.is_documentation_page()]:
        for link in LINK.findall(page.content_string):
            target = _beside(docs, page.src_uri, link)
            if target and files.get_file_from_path(f"{BESIDE}/{target}") is None:
                copy = File.generated(config, f"{BESIDE}/{target}", abs_src_path=str(docs.parent / target))
                # a page of its own would have to be in the nav
                copy.dest_uri = copy.dest_uri.replace(".html", ".md") if target.endswith(".md") else copy.dest_uri
                files.append(copy)
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to files beside docs/ lead to their copies."""

    def led(match: re.Match[str]) -> str:
        target = _beside(Path(config.docs_dir), page.file.src_uri, match[1])
        if not target:
            return match[1]
        return os.path.relpath(f"{BESIDE}/{target}", os.path.dirname(page.file.src_uri) or ".")

    return LINK.sub(led, markdown)


def _beside(docs: Path, page: str, link: str) -> str | None:
    """The file of the repository that a page links to, if it is not below docs/."""
    target = (docs / page).parent.joinpath(link).resolve()
    if target.is_file() and target.is_relative_to(docs.parent) and not target.is_relative_to(docs):
        return target.relative_to(docs.parent).as_posix()
    return None
