"""The pages of the manual as what is to be run: README.md and docs/*.md.

a page's Markdown -> [`Block`]s in their order, each with its commands, or with the reason why it is not run.

Comments of HTML, which no reader sees, stand directly above a block and say what the page itself cannot:

    <!-- not run: REASON -->      this block of commands is not run, and why
    <!-- given: COMMANDS -->      what the reader has already when they come to this block; a line each, run before it
    <!-- between: COMMANDS -->    the commands of this block are alternatives: what is run before each but the first
    <!-- prints -->               this block (json, text) is what the last command before it prints
    <!-- file: PATH -->           this block is a file that the reader writes
    <!-- stops with: STATUS -->   the last command of this block ends with that exit code
"""

import functools
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELLS = {"sh", "bash", "shell", "console"}
KINDS = ("not run", "given", "between", "prints", "file", "stops with")
REASON_CHARACTERS_MIN = 20  # less is no reason


class Mistake(Exception):
    """A page that cannot be understood; the text names the page and the line."""


@dataclass
class Command:
    """One command of a block: its text, the line it begins at, and the lines that it prints, if the block says so."""

    text: str
    line: int
    prints: list[str] | None = None


@dataclass
class Block:
    """One fenced block, with the comments above it. `heading` is the text of the last heading before it."""

    page: str
    heading: str
    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def is_commands(self):
        return self.language in SHELLS

    @functools.cached_property
    def commands(self):
        if self.language == "console":
            return console_commands(self)
        return list(shell_commands(self.text, self.line + 1))

    def marked(self, kind):
        """The commands of a comment above this block."""
        return list(shell_commands(self.marks.get(kind, ""), self.line))


FENCE = re.compile(r"( *)(`{3,})([^`]*)$")
COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)


def blocks(page, text=None):
    """The blocks of `page`, a path below the repository's root."""
    lines = (text if text is not None else (ROOT / page).read_text(encoding="utf-8")).split("\n")
    found, heading, marks, number = [], "", {}, 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if fence := FENCE.match(line):
            indent, ticks, language = len(fence[1]), fence[2], fence[3].strip()
            start, body = number, []
            while number < len(lines) and lines[number].strip() != ticks:
                body.append(lines[number][indent:])
                number += 1
            if number == len(lines):
                raise Mistake(f"{page}:{start}: this block does not end")
            number += 1
            found.append(Block(page, heading, start, language, "\n".join(body), marks))
            check_marks(found[-1])
            marks = {}
        elif line.strip().startswith("<!--"):
            start, comment = number, line
            while "-->" not in comment and number < len(lines):
                comment += "\n" + lines[number]
                number += 1
            kind, _, rest = (COMMENT.search(comment) or ["", ""])[1].strip().partition(":")
            if kind in KINDS:
                if kind in marks:
                    raise Mistake(f"{page}:{start}: two comments `{kind}` above one block")
                marks[kind] = "\n".join(each.strip() for each in rest.strip().split("\n"))
        elif line.strip():
            if marks:
                raise Mistake(f"{page}:{number}: a comment `{next(iter(marks))}` stands above no block")
            if title := re.match(r"#+ +(.*)", line):
                heading = title[1].strip()
    return found


def check_marks(block):
    wrong = None
    if not block.is_commands and block.marks.keys() & {"not run", "given", "between", "stops with"}:
        wrong = "this block has no commands, so nothing can be said about running it"
    elif block.is_commands and block.marks.keys() & {"prints", "file"}:
        wrong = "a block of commands is neither output nor a file"
    elif "not run" in block.marks and len(block.marks["not run"]) < REASON_CHARACTERS_MIN:
        wrong = f"`not run` needs a reason, not {block.marks['not run']!r}"
    elif "not run" in block.marks and len(block.marks) > 1:
        wrong = "a block that is not run needs nothing else said about it"
    elif "file" in block.marks and not block.marks["file"]:
        wrong = "`file` needs a path"
    if wrong:
        raise Mistake(f"{block.place}: {wrong}")


def is_whole(text):
    """Whether bash has all of a command in `text`: no open quote, no open `{`, no line that goes on."""
    if re.search(r"(^|[^\\])(\\\\)*\\$", text):
        return False
    return subprocess.run(["bash", "-n"], input=text + "\n", capture_output=True, text=True).returncode == 0


def shell_commands(text, line):
    """The commands of a block of sh: comments alone and empty lines are none."""
    parts = []
    for offset, part in enumerate(text.split("\n")):
        if not parts and (not part.strip() or part.lstrip().startswith("#")):
            continue
        parts.append((part, line + offset))
        whole = "\n".join(each for each, _ in parts)
        if is_whole(whole):
            yield Command(whole, parts[0][1])
            parts = []
    if parts:
        raise Mistake(f"line {parts[0][1]}: a command that does not end: {parts[0][0]}")


def console_commands(block):
    """The commands of a block of `console`: lines after `$ `, each with the lines that it prints."""
    found = []
    for offset, line in enumerate(block.text.split("\n")):
        last = found[-1] if found else None
        if last and last.prints == [] and not is_whole(last.text):
            last.text += "\n" + line.removeprefix("> ")
        elif line.startswith("$ "):
            found.append(Command(line[2:], block.line + 1 + offset, []))
        elif last:
            last.prints.append(line)
        else:
            raise Mistake(f"{block.place}: a block of `console` begins with `$ `")
    return found


def links(page):
    """The pages of the manual that `page` links to."""
    text, here = (ROOT / page).read_text(encoding="utf-8"), (ROOT / page).parent
    targets = {(here / target.partition("#")[0]).resolve() for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target}
    return {str(target.relative_to(ROOT)) for target in targets if target.suffix == ".md" and target.is_file() and target.is_relative_to(ROOT)}
