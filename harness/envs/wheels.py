"""Writes small wheels, and unpacks them: stubs and metadata of an environment, and the project itself."""

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from adapters.base import LocalWheel
from harness.envs.pins import normalise

INSTALLER = "bench"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same wheel has the same bytes
_MODE = 0o100644 << 16


def write_wheel(wheel: LocalWheel, folder: Path) -> Path:
    """Writes a local wheel as pip takes it; its files go to site-packages as they are named."""
    metadata = f"Metadata-Version: 2.1\nName: {wheel.name}\nVersion: {wheel.version}\nSummary: {wheel.why}\n"
    content = {path: text.encode() for path, text in wheel.files.items()}
    return pack(wheel.name, wheel.version, content, folder, {"METADATA": metadata})


def pack(name: str, version: str, files: Mapping[str, bytes], folder: Path, dist_info: Mapping[str, str]) -> Path:
    """Writes a pure-Python wheel with the given files, and METADATA and other files of its .dist-info."""
    stem = f"{normalise(name).replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: {INSTALLER}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content = dict(files)
    content |= {f"{info}/{path}": text.encode() for path, text in {**dist_info, "WHEEL": wheel}.items()}
    content[f"{info}/RECORD"] = _record(content, f"{info}/RECORD")
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in content.items():
            entry = zipfile.ZipInfo(member, _DATE)
            entry.external_attr = _MODE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def unpack(wheel: Path, site_packages: Path) -> None:
    """Installs a pure-Python wheel by unpacking it: all there is to it when it has no scripts and no data."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site_packages)
        info = next(name.split("/")[0] for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
    (site_packages / info / "INSTALLER").write_text(f"{INSTALLER}\n", encoding="utf-8")


def _record(content: Mapping[str, bytes], own: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for path, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow((path, f"sha256={digest}", len(data)))
    writer.writerow((own, "", ""))
    return text.getvalue().encode()
