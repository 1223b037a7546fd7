"""Pictures as they are written: drawn at once, or by a process beside this one, or left out."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from results.spread import beside, cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "figures"  # of a report's folder, where its pictures lie
Draw = Callable[[], "Figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture as written: its file stem, what it shows, and in words what can be read off it.

    `path` is None when there was nothing to draw, and `text` says why.
    """

    name: str
    text: str
    path: Path | None


@dataclass(slots=True)
class _Drawing:
    """A picture that another process draws."""

    draw: Draw
    stem: Path
    done: "Future[None]"


_LEFT_OUT: ContextVar[Callable[[str], bool]] = ContextVar("left_out", default=lambda name: False)
_BESIDE: ContextVar[Callable[[Draw, Path], None] | None] = ContextVar("beside", default=None)


@contextmanager
def left_out(which: Callable[[str], bool]) -> Iterator[None]:
    """Pictures with such names are spoken of and not drawn: for a page that draws its own in their place."""
    before = _LEFT_OUT.set(which)
    try:
        yield
    finally:
        _LEFT_OUT.reset(before)


@contextmanager
def drawn_beside() -> Iterator[None]:
    """Pictures are drawn by other processes, while this one goes on; all are there at the end of the block.

    What draws them is a function of a module with its arguments bound (`functools.partial`), all of which can be
    pickled. Pictures hold Python's lock while they are drawn, and matplotlib while it is imported: to this process
    neither happens. Should one of the others be killed, what they leave is drawn here.

    Raises:
        Exception: what a drawing raises.
    """
    drawings: list[_Drawing] = []
    with beside(_ready, 2 if cores() > 2 else 1) as submit:  # each needs half a second of a core for its imports

        def begin(draw: Draw, stem: Path) -> None:
            try:
                drawings.append(_Drawing(draw, stem, submit(partial(_save, draw, stem))))
            except BrokenProcessPool:
                _save(draw, stem)

        before = _BESIDE.set(begin)
        try:
            yield
        finally:
            _BESIDE.reset(before)
        for drawing in drawings:
            try:
                drawing.done.result()
            except BrokenProcessPool:
                _save(drawing.draw, drawing.stem)


def write_picture(name: str, text: str, draw: Draw, folder: Path) -> Picture:
    """Draws and writes one picture, or has it drawn beside, unless it is left out.

    Raises:
        OSError: the folder cannot be written.
    """
    if not _LEFT_OUT.get()(f"{name}.png"):
        folder.mkdir(parents=True, exist_ok=True)
        (_BESIDE.get() or _save)(draw, folder / name)
    return Picture(name=name, text=text, path=folder / f"{name}.png")


def no_picture(name: str, text: str, folder: Path) -> Picture:
    """What is said where there is nothing to draw; a picture that an earlier report left is removed."""
    remove(name, folder)
    return Picture(name=name, text=text, path=None)


def remove(name: str, folder: Path) -> None:
    """Removes a picture that an earlier report left and this one does not have."""
    for suffix in (".png", ".svg"):
        (folder / f"{name}{suffix}").unlink(missing_ok=True)


def _save(draw: Draw, stem: Path) -> None:
    from reports import style  # with numpy, which is not needed to start the processes that draw

    with style.styled():
        style.save(draw(), stem)


def _ready() -> None:
    """What each picture needs, imported before the first is asked for."""
    import matplotlib.figure  # noqa: F401
