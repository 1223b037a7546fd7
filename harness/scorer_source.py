"""Whether a Python would find MODULE:FUNCTION, and whether that takes (answer, row), without running any of it.

Also run as a script by other interpreters than bench's own (`python -P scorer_source.py MODULE:FUNCTION` prints JSON),
so it needs the standard library only.
"""

import ast
import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

_DYNAMIC = frozenset({"globals", "exec", "eval", "vars", "setattr", "locals"})  # may make names that nobody reads here


def find_module(name: str) -> "tuple[Path | None, str]":
    """(source file, "") of a module that this Python would import; else None and why, "" where it is no Python source.

    Unlike importlib.util.find_spec it imports no parents, which would run them. All of the interpreter's finders are
    asked, as an import does: a package that is installed editable may have one of its own.
    """
    path: list[str] | None = None
    found = None
    parts = name.split(".")
    for number in range(1, len(parts) + 1):
        part = ".".join(parts[:number])
        try:
            specs = (finder.find_spec(part, path, None) for finder in sys.meta_path)
            found = next((spec for spec in specs if spec is not None), None)
        except (ImportError, KeyError, ValueError, AttributeError, OSError) as error:
            return None, f"{part} can't be looked for ({type(error).__name__}: {error})"
        if found is None:
            inside = f" in {parts[number - 2]}" if number > 1 else ""
            return None, f"there is no module {part}{inside}"
        path = list(found.submodule_search_locations or ())
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return None, "" if found is not None and found.origin is not None else f"{name} is a folder without a module"
    return Path(found.origin), ""


def look(reward: str) -> "dict[str, str | None]":
    """What this Python makes of MODULE:FUNCTION.

    Returns:
        `wrong`: why it can't be used; `unknown`: what can't be told without running it; both None: it is a function.
        `missing`: "yes" where the module itself is not found.
    """
    module, _, name = reward.partition(":")
    source, why = find_module(module)
    if source is None:
        if why:
            return {"wrong": why, "unknown": None, "missing": "yes"}
        return {"wrong": None, "unknown": f"{module} is no Python source", "missing": None}
    try:
        tree = ast.parse(source.read_bytes(), str(source))
    except (SyntaxError, ValueError, RecursionError) as error:
        return {"wrong": f"{source} is no Python that can be read: {error}", "unknown": None, "missing": None}
    except OSError as error:
        return {"wrong": f"{source} can't be read: {error.strerror}", "unknown": None, "missing": None}
    bound = list(_bound(tree.body))
    mine = [node for found, node in bound if found == name]
    wrong = [_wrong(node, name, source) for node in mine]
    if mine:
        why_not = wrong[-1] if None not in wrong else None
        return {"wrong": why_not, "unknown": None, "missing": None}
    names = [found for found, _ in bound]
    if "*" in names or "__getattr__" in names or any(_is_dynamic(node) for node in ast.walk(tree)):
        return {"wrong": None, "unknown": f"{source} may make {name} only when it runs", "missing": None}
    close = difflib.get_close_matches(name, [n for n in names if not n.startswith("__")], 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return {"wrong": f"{source} has no function {name}{hint}", "unknown": None, "missing": None}


def _bound(body: "list[ast.stmt]") -> "Iterator[tuple[str, ast.AST]]":
    """Names that a module's own level binds, with what binds them; those of its branches too."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for each in node.names:
                yield each.asname or each.name.partition(".")[0], node
        for child in ast.iter_child_nodes(node):
            for inner in ast.walk(child) if not isinstance(child, ast.stmt) else ():
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id, node
        for field in ("body", "orelse", "finalbody"):
            yield from _bound(getattr(node, field, []))
        for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            yield from _bound(part.body)


def _is_dynamic(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _DYNAMIC


def _wrong(node: ast.AST, name: str, source: Path) -> "str | None":
    """Why what binds the name can't be called with (answer, row); None where it can, or that is not told by this."""
    where = f"{source}, line {getattr(node, 'lineno', 0)}"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.decorator_list:
        return None
    if isinstance(node, ast.AsyncFunctionDef):
        return f"{where}: {name} is async; allowed is a plain function, which is called in a thread"
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant):
        return f"{where}: {name} is a value and no function"
    if not isinstance(node, ast.FunctionDef):
        return None
    given = node.args
    places = len(given.posonlyargs) + len(given.args)
    needed = places - len(given.defaults)
    by_name = [arg.arg for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    if needed > 2 or (places < 2 and given.vararg is None) or by_name:
        return f"{where}: {name} can't be called with (answer, row)"
    return None


if __name__ == "__main__":
    print(json.dumps({**look(sys.argv[1]), "python": sys.executable}))
