"""A check as JUnit XML, as CI systems read it: a suite per cell, a case per gate and one for the runs themselves."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from reports.checked.page import value_line
from results.baselines.check import CellCheck

# Characters that XML 1.0 has no way to write.
_FORBIDDEN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535))


def junit(cells: Sequence[CellCheck]) -> bytes:
    """The XML. An underpowered gate is an error, which no reader shows as green."""
    root = ElementTree.Element("testsuites", name="bench check")
    for cell in cells:
        cases = [("runs", cell.problems, cell.thin)]
        for one in cell.gates:
            said = one.why or value_line(one)
            cases.append(
                (
                    one.measure.name,
                    (said,) if one.failed else (),
                    (said,) if one.underpowered and not one.failed else (),
                )
            )
        failed = sum(bool(bad) for _, bad, _ in cases)
        unsure = sum(bool(weak) and not bad for _, bad, weak in cases)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=cell.cell.translate(_FORBIDDEN),
            tests=str(len(cases)),
            failures=str(failed),
            errors=str(unsure),
            skipped="0",
        )
        for name, bad, unsure_of in cases:
            case = ElementTree.SubElement(suite, "testcase", classname=cell.cell.translate(_FORBIDDEN), name=name)
            if bad:
                _say(case, "failure", "regression", bad)
            elif unsure_of:
                _say(case, "error", "underpowered", unsure_of)
        if cell.doubts:
            ElementTree.SubElement(suite, "system-out").text = "\n".join(cell.doubts).translate(_FORBIDDEN)
    ElementTree.indent(root)
    made: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def write_junit(path: Path, cells: Sequence[CellCheck]) -> None:
    """Writes it.

    Raises:
        OSError: it can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(junit(cells))


def _say(case: ElementTree.Element, tag: str, kind: str, said: Sequence[str]) -> None:
    text = "\n".join(said).translate(_FORBIDDEN)
    ElementTree.SubElement(case, tag, type=kind, message=text.splitlines()[0] if text else kind).text = text
