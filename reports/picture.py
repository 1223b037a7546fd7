"""Pictures as they are written: by this process or one beside it, placed one by one or together, or left out."""

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.protocol.unfinished import made_apart, remove_left
from results.spread import beside, cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "figures"  # of a report's folder, where its pictures lie
Draw = Callable[[], "Figure"]
_KINDS = (".png", ".svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture as written: its file stem, what it shows, and in words what can be read off it.

    `path` is None when there was nothing to draw, and `text` says why.
    """

    name: str
    text: str
    path: Path | None


@dataclass(slots=True)
class _DrawnBeside:
    """A picture that another process draws."""

    draw: Draw
    stem: Path
    done: "Future[None]"


@dataclass(slots=True)
class _Together:
    """The pictures of one folder that get their places, and lose them, at the same time."""

    folder: Path
    making: ExitStack
    apart: Path | None = None  # where they are until then: nothing is made before there is one
    gone: list[str] = field(default_factory=list)

    def stem(self, name: str) -> Path:
        """Where a picture is drawn to."""
        if self.apart is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.making.callback(_remove_empty, self.folder)
            remove_left(self.folder)
            self.apart = self.making.enter_context(made_apart(self.folder))
        return self.apart / name

    def settle(self) -> None:
        """Gives those that were drawn their places, and removes the others."""
        for name in self.gone:
            _remove(name, self.folder)
        for drawn in sorted(self.apart.iterdir()) if self.apart is not None else ():
            if drawn.suffix in _KINDS:
                drawn.replace(self.folder / drawn.name)


_TOGETHER: ContextVar[_Together | None] = ContextVar("together", default=None)
_LEFT_OUT: ContextVar[Callable[[str], bool]] = ContextVar("left_out", default=lambda name: False)
_BESIDE: ContextVar[Callable[[Draw, Path], None] | None] = ContextVar("beside", default=None)


@contextmanager
def placed_together(folder: Path) -> Iterator[None]:
    """Pictures in `folder` get their places at the end of the block, and what it removes there goes then.

    Where it raises, `folder` is as it was: a report that fails leaves no pictures beside the page of an earlier one.

    Raises:
        OSError: the folder cannot be written.
    """
    with ExitStack() as making:
        pictures = _Together(folder, making)
        before = _TOGETHER.set(pictures)
        try:
            yield
        finally:
            _TOGETHER.reset(before)
        pictures.settle()


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
    drawings: list[_DrawnBeside] = []
    with beside(_ready, 2 if cores() > 2 else 1) as submit:  # each needs half a second of a core for its imports

        def begin(draw: Draw, stem: Path) -> None:
            try:
                drawings.append(_DrawnBeside(draw, stem, submit(partial(_save, draw, stem))))
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
        pictures = _TOGETHER.get()
        if pictures is not None and pictures.folder == folder:
            stem = pictures.stem(name)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            stem = folder / name
        (_BESIDE.get() or _save)(draw, stem)
    return Picture(name=name, text=text, path=folder / f"{name}.png")


def no_picture(name: str, text: str, folder: Path) -> Picture:
    """What is said where there is nothing to draw; a picture that an earlier report left is removed."""
    remove(name, folder)
    return Picture(name=name, text=text, path=None)


def remove(name: str, folder: Path) -> None:
    """Removes a picture that an earlier report left and this one does not have."""
    pictures = _TOGETHER.get()
    if pictures is not None and pictures.folder == folder:
        pictures.gone.append(name)
    else:
        _remove(name, folder)


def _remove(name: str, folder: Path) -> None:
    for kind in _KINDS:
        (folder / f"{name}{kind}").unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # there is something in it
        folder.rmdir()


def _save(draw: Draw, stem: Path) -> None:
    from reports import style  # with numpy, which is not needed to start the processes that draw

    with style.styled():
        style.save(draw(), stem)


def _ready() -> None:
    """What each picture needs, imported before the first is asked for."""
    import matplotlib.figure  # noqa: F401

    gc.freeze()  # what was imported stays: it need not be looked through again and again
