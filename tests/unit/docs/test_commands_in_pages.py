"""Every `bench` command line that the pages print is one that the program takes: verb, options, choices, arguments."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from harness.cli.verbs import _VERBS, bench

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
# Where a shell would go on with something else, or writes what was printed elsewhere.
END = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>", "2>&1"}
PLACEHOLDER = re.compile(r"\$.*|[A-Z][A-Z0-9_.]*|<.*>|\.\.\.")


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Lines of code blocks, fenced or indented, with the line they begin on; a line that ends in \\ goes on."""
    fenced, whole, at = False, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if not (fenced or line.startswith("    ")):
            whole = ""
            continue
        at = at if whole else number
        whole += line.strip()
        if whole.endswith("\\"):
            whole = whole[:-1]
        else:
            yield at, whole
            whole = ""


def inline(text: str) -> Iterator[tuple[int, str]]:
    """Code within sentences: it may go over the end of a line."""
    without = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    for found in re.finditer(r"(?<!`)`([^`]+)`(?!`)", without):
        yield without.count("\n", 0, found.start()) + 1, " ".join(found[1].split())


def commands(text: str) -> list[tuple[int, list[str]]]:
    """The `bench` command lines of a page: where, and their words after `bench`."""
    found = []
    for number, line in (*blocks(text), *inline(text)):
        line = re.sub(r"\$\(.*?\)", "RUN", line)  # what the shell puts in
        line = re.sub(r"(?<=\s)\[|\](?=\s|$)|(?<=\s)\.\.\.", "", line)  # what may be left out, or repeated
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quotation mark of another language
            continue
        starts = [place for place, word in enumerate(words) if word == "bench" and begins(words[:place])]
        for start in starts:
            own = list(until_end(words[start + 1 :]))
            if own and re.fullmatch(r"[a-z]+|-.*", own[0]):
                found.append((number, own))
    return found


def until_end(words: list[str]) -> Iterator[str]:
    """The words of the first command."""
    for word in words:
        if word in END:
            return
        yield word.removesuffix(";")
        if word.endswith(";"):
            return


def begins(before: list[str]) -> bool:
    """Whether a command can stand after these words: none, && and the like, NAME=VALUE, or a starter of jobs."""
    while before and re.fullmatch(r"[A-Z_]+=.*", before[-1]):
        before = before[:-1]
    return not before or before[-1] in {*END, "do", "then", "$"} or before[0] == "srun"


def wrong(words: list[str]) -> str:
    """What the program has against these words; empty if nothing. Arguments may be missing, as in a sentence."""
    command: click.Command = bench
    context = click.Context(bench, info_name="bench")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            return f"no verb {name}"
        command, context = found, click.Context(found, info_name=name, parent=context)
    try:
        values, rest, _ = command.make_parser(context).parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    if rest:
        return f"what is {' '.join(rest)}?"
    for parameter in command.params:
        given = values.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice):
            for value in given if isinstance(given, list | tuple) else [given]:
                if isinstance(value, str) and not PLACEHOLDER.fullmatch(value) and value not in parameter.type.choices:
                    return f"{parameter.name}: {value} is none of {', '.join(map(str, parameter.type.choices))}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_program_takes_every_command_of_the_page(page: Path) -> None:
    said = [
        f"{page.name}:{number}: bench {' '.join(words)}: {problem}"
        for number, words in commands(page.read_text(encoding="utf-8"))
        if (problem := wrong(list(words)))
    ]
    assert said == []


def test_usage_s_table_has_every_verb() -> None:
    page = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| verb \|.*?\n(?=\n)", page, flags=re.MULTILINE | re.DOTALL)
    told = [name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z]+)`", row.split("|")[1])]
    assert sorted(told) == sorted(_VERBS)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, section = unquote(target).partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target}"
        if section and path.suffix == ".md":
            assert section in anchors(path.read_text(encoding="utf-8")), f"{page.name}: {target}"


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("bench fly", "no verb fly"),
        ("bench baseline bless RUN", "no verb bless"),
        ("bench run --framework skyrl --placment async", "--placment"),
        ("bench export RUN --too perfetto", "--too"),
        ("bench check RUN --baseline DIR --format yaml", "yaml is none of"),
        ("bench score plan.json RUN again", "what is again"),
        ("bench plan RUN --gpus 8 | head", ""),
        ("BENCH_CACHE=/x bench env list && bench list runs", ""),
        ("bench report RUN... [-o FOLDER]", ""),
        ("bench publish --add RUN [--ad RUN ...]", "--ad"),
        ("bench report $(ls -d runs/*) -o", "requires an argument"),
        ("for run in a b; do bench lint $run; done", ""),
        ('srun --ntasks=1 bench run --placement "$placement" --stepps 8', "--stepps"),
        ("for run in a b; do bench lint $run --loud; done", "--loud"),
    ],
)
def test_a_line_is_refused_for_what_is_wrong_with_it(line: str, problem: str) -> None:
    found = commands(f"    {line}\n")
    assert found
    said = " ".join(wrong(list(words)) for _, words in found).strip()
    assert problem in said if problem else said == ""


def test_commands_are_found_in_blocks_and_in_sentences() -> None:
    page = (
        "Text, `bench list\nruns`.\n\n    bench run --steps 8 \\\n        --seed 2   # so\n\n```sh\nbench doctor\n```\n"
    )
    assert commands(page) == [
        (4, ["run", "--steps", "8", "--seed", "2"]),
        (8, ["doctor"]),
        (1, ["list", "runs"]),
    ]
    assert sum(len(commands(page.read_text(encoding="utf-8"))) for page in PAGES) > 100
