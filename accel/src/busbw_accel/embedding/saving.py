"""Checkpoints of a table that ranks share: complete or refused, for any number of ranks.

A folder has `manifest` and one folder `save-<number>`, in which each rank writes its shard in parts
that fit into memory: `shard-<rank>-of-<ranks>.part-<number>`. The manifest names that folder and
counts its rows. Rank 0 replaces it once all parts are on disk, in one step: until then the
checkpoint before is complete.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from busbw.core.errors import BusbwError, UsageError
from busbw_accel import checkpoint
from busbw_accel.embedding.exchange import IdExchange, owners
from busbw_accel.embedding.settings import TableSettings
from busbw_accel.embedding.table import EmbeddingTable

KIND, PART_KIND = "dynamic embedding", "part of a dynamic embedding"
MANIFEST = "manifest"
PART_BYTES = 256 << 20
_STATES = 3  # at most: a row and two moments


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """The shard of a rank, or why it was not written."""

    rows: int = 0
    parts: int = 0
    error: str = ""


def save(
    folder: str | os.PathLike[str],
    table: EmbeddingTable,
    dim: int,
    settings: TableSettings,
    exchange: IdExchange | None,
) -> None:
    target = Path(folder)
    rank, ranks = (0, 1) if exchange is None else (exchange.rank, exchange.ranks)
    begun = _begin_save(target) if rank == 0 else ("", "")
    name, error = begun if exchange is None else exchange.gather(begun)[0]
    written = WrittenShard(error=error)
    if not error:
        try:
            written = _write_shard(target / name, table, rank, ranks, dim)
        except (BusbwError, OSError, RuntimeError) as reason:  # torch raises RuntimeErrors
            written = WrittenShard(error=str(reason))
    shards = [written] if exchange is None else exchange.gather(written)
    failed = [shard.error for shard in shards]
    if rank == 0 and not any(failed):
        facts = {"dim": dim, "optimizer": settings.optimizer, "step": table.step}
        failed[0] = _commit(target, name, shards, facts)
    if rank == 0 and any(failed) and name:
        shutil.rmtree(target / name, ignore_errors=True)
    _raise_first(target, failed if exchange is None else exchange.gather(failed)[0])


def load(
    folder: str | os.PathLike[str],
    table: EmbeddingTable,
    dim: int,
    settings: TableSettings,
    exchange: IdExchange | None,
) -> None:
    rank, ranks = (0, 1) if exchange is None else (exchange.rank, exchange.ranks)
    error, hint, rows = "", "", 0
    try:
        if len(table):
            raise UsageError(
                f"the table has {len(table)} rows already", "load into a new DynamicEmbedding"
            )
        manifest = _read_manifest(Path(folder), dim, settings)
        expected = sum(manifest["rows"])
        for chunk in _read_shards(Path(folder), manifest, rank, ranks):
            owned = owners(chunk["ids"], ranks) == rank
            rows += int(owned.sum())
            table.load({name: values[owned] for name, values in chunk.items()})
        table.step = manifest["step"]
    except BusbwError as failed:
        error, hint = failed.message, failed.hint
    except RuntimeError as failed:  # of torch, for example without memory
        error, hint = str(failed).splitlines()[0], "load into a new DynamicEmbedding"
    reports = [(error, hint, rows)] if exchange is None else exchange.gather((error, hint, rows))
    for other, (reason, advice, _) in enumerate(reports):
        if reason:
            raise UsageError(reason if ranks == 1 else f"rank {other}: {reason}", advice)
    loaded = sum(rows for _, _, rows in reports)
    if loaded != expected:
        raise UsageError(
            f"the checkpoint {folder} has {expected} rows, and {loaded} were read",
            "load the one before it",
        )


def _begin_save(target: Path) -> tuple[str, str]:
    """Make the folder of a new save. Returns its name, and why it could not be made."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        name = f"save-{max(_list_saves(target), default=0) + 1:06d}"
        (target / name).mkdir()
    except OSError as error:
        return "", f"{target} cannot be written: {error.strerror or error}"
    return name, ""


def _write_shard(
    folder: Path, table: EmbeddingTable, rank: int, ranks: int, dim: int
) -> WrittenShard:
    if not folder.is_dir():
        raise BusbwError(
            f"{folder}, which rank 0 has made, is not there: the folder is not shared by all ranks"
        )
    rows = parts = 0
    for chunk in table.export(max(1, PART_BYTES // (4 * dim * _STATES))):
        # torch.save would write the whole storage of a view.
        state = {
            name: values.clone() if values.untyped_storage().nbytes() > values.nbytes else values
            for name, values in chunk.items()
        }
        checkpoint.save(state, folder / _part_name(rank, ranks, parts), PART_KIND)
        rows, parts = rows + len(chunk["ids"]), parts + 1
    return WrittenShard(rows, parts)


def _commit(target: Path, name: str, shards: list[WrittenShard], facts: Mapping[str, Any]) -> str:
    """Make the new save the checkpoint, and delete the others. Returns why that failed, or ''."""
    ranks = len(shards)
    missing = []
    for rank, shard in enumerate(shards):
        names = [_part_name(rank, ranks, part) for part in range(shard.parts)]
        missing += [part for part in names if not (target / name / part).is_file()]
    if missing:
        return (
            f"rank 0 does not see {missing[0]} in {target / name}: the folder is not shared by all"
            " ranks"
        )
    facts_of_shards = {
        "ranks": ranks,
        "rows": [shard.rows for shard in shards],
        "parts": [shard.parts for shard in shards],
    }
    try:
        checkpoint.save({"save": name, **facts, **facts_of_shards}, target / MANIFEST, KIND)
    except BusbwError as error:
        return str(error)
    for save in _list_saves(target).values():
        if save.name != name:
            shutil.rmtree(save, ignore_errors=True)
    return ""


def _raise_first(target: Path, errors: list[str]) -> None:
    """Raise the first error, in the order of ranks, if there is one."""
    rank, error = next(((rank, error) for rank, error in enumerate(errors) if error), (0, ""))
    if not error:
        return
    who = f"rank {rank}: " if len(errors) > 1 else ""
    unchanged = ""
    if (target / MANIFEST).exists():
        unchanged = f"; the checkpoint that was in {target} is unchanged"
    raise BusbwError(
        f"the embedding was not saved: {who}{error}{unchanged}",
        f"df -h {target} shows the free space",
    )


def _list_saves(target: Path) -> dict[int, Path]:
    """The folders of saves, by number."""
    saves = {}
    for folder in target.glob("save-*"):
        number = folder.name.removeprefix("save-")
        if number.isdigit():
            saves[int(number)] = folder
    return saves


def _read_manifest(target: Path, dim: int, settings: TableSettings) -> Mapping[str, Any]:
    manifest = checkpoint.load(target / MANIFEST, KIND)
    for name, expected in (("dim", dim), ("optimizer", settings.optimizer)):
        if manifest[name] != expected:
            raise UsageError(
                f"the checkpoint {target} has {name} {manifest[name]},"
                f" and the table has {expected}",
                f"make the embedding with {name} {expected}",
            )
    return manifest


def _read_shards(
    target: Path, manifest: Mapping[str, Any], rank: int, ranks: int
) -> Iterator[Mapping[str, torch.Tensor]]:
    """The chunks that may have rows of this rank.

    These are the chunks of its own shard if as many ranks have saved, and otherwise all.
    """
    before = manifest["ranks"]
    for shard in [rank] if before == ranks else range(before):
        rows = 0
        for part in range(manifest["parts"][shard]):
            path = target / manifest["save"] / _part_name(shard, before, part)
            if not path.exists():
                raise UsageError(
                    f"{path.name} is missing in {path.parent}",
                    "every rank must see the folder that the ranks have saved to",
                )
            chunk = checkpoint.load(path, PART_KIND)
            rows += len(chunk["ids"])
            yield chunk
        if rows != manifest["rows"][shard]:
            raise UsageError(
                f"shard {shard} of {target} has {rows} rows, and the manifest says"
                f" {manifest['rows'][shard]}",
                "load the checkpoint before it",
            )


def _part_name(rank: int, ranks: int, part: int) -> str:
    return f"shard-{rank:05d}-of-{ranks:05d}.part-{part:05d}"
