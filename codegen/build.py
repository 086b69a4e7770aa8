"""Adapters become a Python package: written whole or not at all, the same specs giving the same bytes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any, Protocol

from adapterc.dsl.adapter import Adapter, Header, Rule
from adapterc.dsl.ast import names
from adapterc.dsl.types import TensorType

from .layout import docstring
from .module import Source, module_text
from .patch_error import OUTPUT_FOLDER, REFUSED_RULE, UNSUPPORTED_RULE, PatchError

MANIFEST = "manifest.json"
MARK = "adapterc patches"


class VerdictLike(Protocol):
    """The part of verify's `Verdict` that building reads."""

    @property
    def rule(self) -> str: ...
    @property
    def adapter(self) -> str: ...
    @property
    def klass(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def how(self) -> str: ...
    def ok(self, header: Header) -> bool: ...


@dataclass(frozen=True)
class RuleRecord:
    """One rule in the manifest."""

    name: str
    place: str
    kind: str
    klass: str
    status: str
    how: str
    certificate: str | None = None


@dataclass(frozen=True)
class AdapterRecord:
    """One adapter in the manifest."""

    name: str
    spec: str
    sha256: str
    lifetime: str
    gap: str | None
    module_sha256: str
    rules: tuple[RuleRecord, ...]


@dataclass(frozen=True)
class Manifest:
    """What the package was made of. `versions` names the tool and the libraries; nothing here depends on when or where it was built."""

    format: str
    versions: Mapping[str, str]
    adapters: tuple[AdapterRecord, ...]

    def text(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def build(
    adapters: Iterable[Adapter],
    verdicts: Sequence[VerdictLike],
    out_dir: Path | str,
    versions: Mapping[str, str],
    certificates: Mapping[str, str] | None = None,
) -> Manifest:
    """Write the package of the adapters to `out_dir` and return its manifest.

    `certificates` maps "adapter.rule" to the hash of its certificate. Raises PatchError: ADC402 when a verdict does not allow a rule or is missing,
    ADC401 when the folder cannot be written or holds something else; and SpecError ADC403 for a rule without a Python form.
    """
    ordered = tuple(sorted(adapters, key=lambda adapter: adapter.name))
    found = {(v.adapter, v.rule): v for v in verdicts}
    for adapter in ordered:
        _allowed(adapter, found)
    files, manifest = package_files(ordered, found, versions, certificates or {})
    _write_whole(Path(out_dir), files)
    return manifest


def _allowed(adapter: Adapter, verdicts: Mapping[tuple[str, str], VerdictLike]) -> None:
    for rule in adapter.rules:
        header = rule.header
        name = f"{header.adapter}.{header.name}"
        verdict = verdicts.get((header.adapter, header.name))
        if verdict is None:
            raise PatchError(
                REFUSED_RULE, f"{name} has no verdict, and an unchecked rule is not built.", str(header.span), "Run `adapterc check` on it."
            )
        read = _values_read(rule)
        if read is not None:
            raise PatchError(
                UNSUPPORTED_RULE,
                f"{name} holds under a condition on the values of `{read}`, which no graph knows.",
                str(header.span),
                "Guard it with sizes, scalars or config.",
            )
        if not verdict.ok(header):
            raise PatchError(
                REFUSED_RULE,
                f"{name} is {verdict.klass} ({verdict.status}), which the spec does not allow.",
                str(header.span),
                "See `adapterc check`.",
            )


def _values_read(rule: Rule) -> str | None:
    """A tensor whose values the rule's `when:` reads."""
    typed = (*getattr(rule, "where", ()), *getattr(rule, "inputs", ()))
    tensors = {name for name, kind in typed if isinstance(kind, TensorType)}
    read = tensors & names(rule.header.when) if rule.header.when is not None else set()
    return min(read, default=None)


def package_files(
    adapters: Sequence[Adapter],
    verdicts: Mapping[tuple[str, str], VerdictLike],
    versions: Mapping[str, str],
    certificates: Mapping[str, str],
) -> tuple[dict[str, str], Manifest]:
    """The files of the package by name, and its manifest."""
    files: dict[str, str] = {}
    records = []
    for adapter in adapters:
        shown = f"{PurePath(adapter.file).parent.name}/{PurePath(adapter.file).name}".lstrip("/")
        said = {v.rule: f"{v.klass} {v.status}" for (name, _), v in verdicts.items() if name == adapter.name}
        text = module_text(adapter, Source(shown, said))
        files[f"{adapter.name}.py"] = text
        rules = tuple(_record(rule.header, type(rule).__name__.lower(), shown, verdicts, certificates) for rule in adapter.rules)
        records.append(AdapterRecord(adapter.name, shown, adapter.source_sha256, adapter.lifetime, adapter.gap, _sha(text), rules))
    manifest = Manifest(MARK, dict(sorted(versions.items())), tuple(records))
    files["__init__.py"] = _init_text(adapters)
    files[MANIFEST] = manifest.text()
    return files, manifest


def _record(
    header: Header, kind: str, shown: str, verdicts: Mapping[tuple[str, str], VerdictLike], certificates: Mapping[str, str]
) -> RuleRecord:
    verdict = verdicts[header.adapter, header.name]
    return RuleRecord(
        header.name,
        f"{shown}:{header.span.line}",
        kind,
        verdict.klass,
        verdict.status,
        verdict.how,
        certificates.get(f"{header.adapter}.{header.name}"),
    )


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _init_text(adapters: Sequence[Adapter]) -> str:
    listed = "\n".join(f"{a.name}: {a.summary}" for a in adapters)
    head = docstring(
        f"Patches that let stock models run on spyre, generated from adapter specs; change the specs, not these files.\n\n{listed}\n\n"
        "The model stays what it was: rules rewrite the graph that is compiled for device spyre, and nothing else."
    )
    names = [a.name for a in adapters]
    imports = f"from . import {', '.join(sorted(names))}"
    if len(imports) > 100:
        imports = "from . import (\n" + "".join(f"    {n},\n" for n in sorted(names)) + ")"
    rules = "".join(f"    *{name}.RULES,\n" for name in names)
    return f'''{head}

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from adapterc.codegen.runtime import Handle, PatchSet, Rule

{imports}

RULES: tuple[Rule, ...] = (
{rules})
PATCHES = PatchSet(RULES)


def install(model: torch.nn.Module) -> Handle:
    """Install the patches on one model; the handle's `remove()` takes them off again."""
    return PATCHES.install(model)


@contextmanager
def patched(model: torch.nn.Module) -> Iterator[Handle]:
    """The model with patches inside the `with` block, and as it was behind it."""
    with PATCHES.patched(model) as handle:
        yield handle
'''


def _write_whole(out_dir: Path, files: Mapping[str, str]) -> None:
    """Write to a folder next to the target and move it into place, so that a failure leaves the target as it was."""
    _check_target(out_dir)
    parent = out_dir.absolute().parent
    temporary: Path | None = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", dir=parent))
        for name, text in sorted(files.items()):
            with open(temporary / name, "w", encoding="utf-8", newline="\n") as handle:
                handle.write(text)
                handle.flush()
                os.fsync(handle.fileno())
        temporary.chmod(0o755)
        _move(temporary, out_dir)
    except OSError as error:
        raise PatchError(
            OUTPUT_FOLDER, f"{out_dir} was not written: {_why(error)}.", hint="Nothing there has changed; give another folder with -o."
        ) from error
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary, ignore_errors=True)


def _check_target(out_dir: Path) -> None:
    if out_dir.is_symlink() or (out_dir.exists() and not out_dir.is_dir()):
        raise PatchError(
            OUTPUT_FOLDER, f"{out_dir} is a file, and the patches are a folder.", hint="Move it away or give another folder with -o."
        )
    if out_dir.is_dir() and any(out_dir.iterdir()) and not _ours(out_dir):
        raise PatchError(
            OUTPUT_FOLDER, f"{out_dir} holds something that adapterc did not write.", hint="Give an empty or a new folder with -o."
        )


def _ours(folder: Path) -> bool:
    """Whether the folder is a package that build wrote, and nothing else."""
    try:
        manifest: Any = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(manifest, dict) or manifest.get("format") != MARK:
        return False
    expected = {MANIFEST, "__init__.py", "__pycache__", *(f"{a['name']}.py" for a in manifest["adapters"])}
    return {entry.name for entry in folder.iterdir()} <= expected


def _move(temporary: Path, target: Path) -> None:
    if not target.exists():
        os.rename(temporary, target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    os.rename(target, aside / target.name)
    try:
        os.rename(temporary, target)
    except OSError:
        os.rename(aside / target.name, target)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _why(error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "the disk is full"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"no permission to write in {error.filename or 'that folder'}"
    return error.strerror or str(error)
