"""What environments share on disk. Synthetic ones here: a folder with RECORDs; real builds in test_env_share_builds."""

import base64
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from filelock import FileLock

from harness.envs import Status, list_environments, remove, share_environments
from harness.envs import share as sharing
from harness.envs.share import PART, SMALLEST, share, usages
from harness.envs.store import complete_folders

BIG = bytes(range(256)) * 64
SITE = "venv/lib/python3.11/site-packages"


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def environment(
    root: Path, name: str, files: Mapping[str, bytes], *, born: int = 0, listed: Mapping[str, bytes] | None = None
) -> Path:
    """A finished environment with one distribution. `listed`: what RECORD claims of files, where that is not true."""
    folder = root / f"{name}-0123456789ab"
    site = folder / SITE
    info = site / "demo-1.0.dist-info"
    info.mkdir(parents=True)
    rows = []
    for path, data in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        claim = (listed or {}).get(path, data)
        rows.append(f"{path},sha256={digest(claim)},{len(claim)}\n")
    (info / "RECORD").write_text("".join(rows) + "demo-1.0.dist-info/RECORD,,\n", encoding="utf-8")
    (folder / "venv/bin").mkdir(parents=True)
    (folder / "venv/bin/python").write_text("", encoding="utf-8")
    marker = {
        "name": name,
        "digest": "0123456789ab",
        "created_utc": f"2026-01-01T00:00:{born:02}+00:00",
        "seconds": 1.0,
        "size_bytes": 1,
        "python": "3.11.1",
        "site_packages": [str(site)],
        "packages": {},
    }
    (folder / "complete.json").write_text(json.dumps(marker), encoding="utf-8")
    return folder


@pytest.fixture
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "envs").mkdir(parents=True)
    return tmp_path / "cache" / "envs"


def linked(one: Path, other: Path, path: str) -> bool:
    return (one / SITE / path).samefile(other / SITE / path)


def test_identical_files_become_one_and_the_older_ones_stay(envs: Path) -> None:
    old = environment(envs, "old", {"lib/a.so": BIG, "lib/b.so": BIG + b"old"})
    new = environment(envs, "new", {"lib/a.so": BIG, "lib/b.so": BIG + b"new", "c.bin": BIG})
    inode = (old / SITE / "lib/a.so").stat().st_ino
    done = share(new, [old])
    assert (done.files, done.size_bytes) == (2, 2 * len(BIG))  # c.bin too: found by its content, not its name
    assert (done.sources, done.refused) == ((old.name,), None)
    assert (new / SITE / "lib/a.so").stat().st_ino == (old / SITE / "lib/a.so").stat().st_ino == inode
    assert (new / SITE / "lib/b.so").read_bytes() == BIG + b"new"
    assert (old / SITE / "lib/b.so").read_bytes() == BIG + b"old"
    again = share(new, [old])
    assert (again.files, again.size_bytes, again.sources) == (0, 0, ())


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("lib/small.so", BIG[: SMALLEST - 1]),
        ("lib/module.py", BIG),  # edited by hand; and its .pyc holds its mtime
        ("lib/__pycache__/module.cpython-311.pyc", BIG),
        ("paths.pth", BIG),
        ("demo-1.0.dist-info/licenses/LICENSE", BIG),
    ],
)
def test_what_is_an_environments_own_is_not_shared(envs: Path, path: str, data: bytes) -> None:
    old, new = (environment(envs, name, {path: data, "lib/a.so": BIG}) for name in ("old", "new"))
    assert share(new, [old]).files == 1
    assert linked(new, old, "lib/a.so")
    assert not linked(new, old, path)


def test_the_smallest_that_is_shared(envs: Path) -> None:
    old, new = (environment(envs, name, {"a.h": BIG[:SMALLEST]}) for name in ("old", "new"))
    assert share(new, [old]).files == 1


def test_a_record_that_lies_is_found_out_by_the_bytes(envs: Path) -> None:
    changed = b"x" + BIG[1:]
    old = environment(envs, "old", {"a.so": BIG})
    new = environment(envs, "new", {"a.so": changed}, listed={"a.so": BIG})
    assert share(new, [old]).files == 0
    assert (new / SITE / "a.so").read_bytes() == changed
    assert (old / SITE / "a.so").read_bytes() == BIG


def test_another_mode_is_another_file(envs: Path) -> None:
    old, new = (environment(envs, name, {"a.so": BIG}) for name in ("old", "new"))
    (new / SITE / "a.so").chmod(0o755)
    assert share(new, [old]).files == 0


@pytest.mark.parametrize("side", ["old", "new"])
def test_links_are_neither_followed_nor_replaced(envs: Path, side: str, tmp_path: Path) -> None:
    old = environment(envs, "old", {"lib/a.so": BIG, "b.so": BIG})
    new = environment(envs, "new", {"lib/a.so": BIG + b"2", "b.so": BIG + b"2"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.so").write_bytes(BIG)
    linking, other = (old, new) if side == "old" else (new, old)
    for path, data in (("lib/a.so", BIG), ("b.so", BIG)):
        (other / SITE / path).write_bytes(data)
    shutil.rmtree(linking / SITE / "lib")
    (linking / SITE / "lib").symlink_to(tmp_path / "elsewhere")
    (linking / SITE / "b.so").unlink()
    (linking / SITE / "b.so").symlink_to(tmp_path / "elsewhere" / "a.so")
    for folder in (old, new):
        rows = "".join(f"{path},sha256={digest(BIG)},{len(BIG)}\n" for path in ("lib/a.so", "b.so"))
        (folder / SITE / "demo-1.0.dist-info/RECORD").write_text(rows, encoding="utf-8")
    assert share(new, [old]).files == 0
    assert (linking / SITE / "lib").is_symlink()
    assert (linking / SITE / "b.so").is_symlink()
    assert (tmp_path / "elsewhere" / "a.so").stat().st_nlink == 1


@pytest.mark.parametrize("path", ["../../../bin/tool", "{absolute}"])
def test_files_outside_site_packages_are_not_touched(envs: Path, path: str) -> None:
    old, new = (environment(envs, name, {}) for name in ("old", "new"))
    outside = []
    for folder in (old, new):
        named = path.format(absolute=folder / "venv/bin/tool")
        file = folder / "venv/bin/tool"
        file.write_bytes(BIG)
        outside.append(file)
        record = folder / SITE / "demo-1.0.dist-info/RECORD"
        record.write_text(f"{named},sha256={digest(BIG)},{len(BIG)}\n", encoding="utf-8")
    assert share(new, [old]).files == 0
    assert not outside[0].samefile(outside[1])


@pytest.mark.parametrize("record", [b"\xff\xfe", b"a.so\n", b"a.so,sha256=x,many\n", b"a.so,md5=x,16384\n", b",,\n\n"])
def test_a_record_that_cannot_be_used_shares_nothing(envs: Path, record: bytes) -> None:
    old, new = (environment(envs, name, {"a.so": BIG}) for name in ("old", "new"))
    (old / SITE / "demo-1.0.dist-info/RECORD").write_bytes(record)
    assert share(new, [old]).files == 0


def test_a_file_that_changes_while_it_is_compared_is_left(envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (environment(envs, name, {"a.so": BIG}) for name in ("old", "new"))
    compare = sharing._same_bytes

    def slow(source: str, path: str) -> bool:
        same = compare(source, path)
        Path(path).write_bytes(b"y" + BIG[1:])
        return same

    monkeypatch.setattr(sharing, "_same_bytes", slow)
    assert share(new, [old]).files == 0
    assert (new / SITE / "a.so").read_bytes() == b"y" + BIG[1:]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EPERM, errno.ENOSPC])
def test_a_file_system_without_hard_links_is_said_and_harmless(
    envs: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    old, new = (environment(envs, name, {"a.so": BIG, "b.so": BIG + b"2"}) for name in ("old", "new"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    done = share(new, [old])
    assert done.files == 0
    assert done.refused is not None
    assert os.strerror(code) in done.refused
    assert (new / SITE / "a.so").read_bytes() == BIG


def test_too_many_links_to_one_file_are_said_of_that_file_only(envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (environment(envs, name, {"a.so": BIG, "b.so": BIG + b"2"}) for name in ("old", "new"))
    link = os.link

    def full(source: str, target: Path, **options: bool) -> None:
        if source.endswith("a.so"):
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        link(source, target, **options)

    monkeypatch.setattr(os, "link", full)
    done = share(new, [old])
    assert (done.files, done.refused) == (1, None)
    assert linked(new, old, "b.so")


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_never_across_file_systems(envs: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert elsewhere.stat().st_dev != envs.stat().st_dev
    monkeypatch.setattr(sharing, "_same_bytes", None)  # not even read
    old, new = environment(elsewhere, "old", {"a.so": BIG}), environment(envs, "new", {"a.so": BIG})
    done = share(new, [old])
    assert (done.files, done.refused) == (0, None)


@pytest.mark.parametrize("at", ["link", "replace"])
def test_an_interruption_leaves_whole_files_and_the_next_call_finishes(
    envs: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    files = {f"lib{i}.so": BIG + bytes([i]) for i in range(6)}
    old, new = (environment(envs, name, files) for name in ("old", "new"))
    real, calls = getattr(os, at), []

    def interrupted(*args: object, **options: object) -> None:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, at, interrupted)
        with pytest.raises(KeyboardInterrupt):
            share(new, [old])
    for folder in (old, new):
        assert {path.name: path.read_bytes() for path in (folder / SITE).glob("*.so")} == files
    os.link(old / SITE / "lib5.so", new / PART)  # as a SIGKILL between the two steps leaves it
    assert share(new, [old]).files == 4
    assert all(linked(new, old, path) for path in files)
    assert not (new / PART).exists()


def test_a_source_that_is_removed_meanwhile_does_no_harm(envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, new = (environment(envs, name, {"a.so": BIG}) for name in ("first", "second", "new"))
    link = os.link

    def gone(source: str, target: Path, **options: bool) -> None:
        if first.exists():
            shutil.rmtree(first)
        link(source, target, **options)

    monkeypatch.setattr(os, "link", gone)
    done = share(new, [first, second])
    assert (done.files, done.sources) == (1, (second.name,))


def test_removing_one_leaves_the_other_whole(envs: Path) -> None:
    old, new = (environment(envs, name, {"a.so": BIG}) for name in ("old", "new"))
    share(new, [old])
    assert remove("old") == [old]
    assert (new / SITE / "a.so").read_bytes() == BIG
    assert (new / SITE / "a.so").stat().st_nlink == 1


def test_sizes_count_what_is_shared_once(envs: Path) -> None:
    old = environment(envs, "old", {"a.so": BIG, "old.bin": b"1" * 5000})
    new = environment(envs, "new", {"a.so": BIG, "new.bin": b"2" * 7000})
    os.link(new / SITE / "new.bin", new / SITE / "twice.bin")  # within one environment: nothing shared
    apart, all_apart = usages([old, new])
    assert all_apart == sum(usage.size_bytes for usage in apart.values())
    assert [usage.shared_bytes for usage in apart.values()] == [0, 0]
    share(new, [old])
    together, all_together = usages([old, new])
    assert [usage.shared_bytes for usage in together.values()] == [len(BIG), len(BIG)]
    assert [usage.size_bytes for usage in together.values()] == [usage.size_bytes for usage in apart.values()]
    assert all_together == all_apart - len(BIG)
    assert usages([new])[0][new].shared_bytes == 0  # with an environment that is not asked about


def test_share_environments_goes_from_old_to_new_and_leaves_what_is_locked(envs: Path) -> None:
    # Their names are not in the order of their ages.
    oldest = environment(envs, "c", {"a.so": BIG}, born=1)
    locked = environment(envs, "b", {"a.so": BIG, "b.so": BIG + b"2"}, born=2)
    newest = environment(envs, "a", {"a.so": BIG, "b.so": BIG + b"2"}, born=3)
    partial = environment(envs, "p", {"a.so": BIG}, born=4)
    (partial / "complete.json").unlink()
    assert complete_folders() == [oldest, locked, newest]
    with FileLock(locked.with_name(f"{locked.name}.lock")):
        rows = list(share_environments())
    assert [row.folder for row in rows] == [oldest, locked, newest]
    assert rows[1].shared is None
    assert rows[1].left is not None
    assert rows[2].shared is not None
    assert (rows[2].shared.files, rows[2].shared.sources) == (2, (oldest.name, locked.name))
    assert not linked(locked, oldest, "a.so")
    assert (partial / SITE / "a.so").stat().st_nlink == 1
    assert [row.shared and row.shared.files for row in share_environments()] == [0, 1, 0]
    assert linked(locked, oldest, "a.so")


def test_list_says_what_is_shared(envs: Path) -> None:
    old, new = (environment(envs, name, {"a.so": BIG}) for name in ("old", "new"))
    share(new, [old])
    rows = list_environments([])
    assert [(row.name, row.status, row.shared_bytes) for row in rows] == [
        ("new", Status.STALE, len(BIG)),
        ("old", Status.STALE, len(BIG)),
    ]
