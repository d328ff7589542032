"""Checkpoints: whole or refused, and the one before them kept."""

import errno
import os
import resource
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from busbw.core.errors import BusbwError, UsageError  # noqa: E402
from busbw_accel import checkpoint  # noqa: E402

pytestmark = pytest.mark.torch
KIND = "test"


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "saved"
    checkpoint.save({"weights": torch.arange(1000.0), "step": 3}, path, KIND)
    return path


def test_a_checkpoint_is_read_back(saved):
    state = checkpoint.load(saved, KIND)
    assert torch.equal(state["weights"], torch.arange(1000.0))
    assert state["step"] == 3


@pytest.mark.parametrize("share", [0, 0.3, 0.9, 0.999])
def test_a_checkpoint_that_is_cut_off_is_refused(saved, share):
    os.truncate(saved, int(saved.stat().st_size * share))
    with pytest.raises(UsageError, match="cut off or damaged"):
        checkpoint.load(saved, KIND)


def test_a_flipped_bit_is_refused(saved):
    data = bytearray(saved.read_bytes())
    data[data.find(torch.arange(1000.0).numpy().tobytes()) + 2001] ^= 4
    saved.write_bytes(data)
    with pytest.raises(UsageError, match=r"cut off or damaged: the checksum of .*data/0 is wrong"):
        checkpoint.load(saved, KIND)


class Program:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_in_a_checkpoint_is_executed(saved, tmp_path):
    torch.save(
        {"format": checkpoint.FORMAT, "kind": KIND, "state": Program(tmp_path / "made")}, saved
    )
    with pytest.raises(UsageError, match="cut off or damaged"):
        checkpoint.load(saved, KIND)
    assert not (tmp_path / "made").exists()


def test_other_files_are_refused(saved, tmp_path):
    with pytest.raises(
        UsageError,
        match=f"not a checkpoint of another: its format is {checkpoint.FORMAT}, its kind test",
    ):
        checkpoint.load(saved, "another")
    torch.save([1, 2], tmp_path / "list")
    with pytest.raises(
        UsageError, match="not a checkpoint of test: its format is None, its kind None"
    ):
        checkpoint.load(tmp_path / "list", KIND)
    with pytest.raises(UsageError, match="there is no checkpoint"):
        checkpoint.load(tmp_path / "absent", KIND)


def test_a_full_disk_keeps_the_checkpoint_before(saved):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(BusbwError, match="was not written") as raised:
            checkpoint.save({"weights": torch.zeros(1_000_000)}, saved, KIND)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "unchanged" in raised.value.message
    assert checkpoint.load(saved, KIND)["step"] == 3
    assert [entry.name for entry in saved.parent.iterdir()] == ["saved"]


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(BusbwError) as raised:
        checkpoint.save({}, tmp_path / "absent" / "saved", KIND)
    assert (
        raised.value.message
        == f"the checkpoint {tmp_path}/absent/saved was not written, 0 bytes in: No such file or"
        " directory"
    )


def test_a_disk_that_fails_is_named(saved, monkeypatch):
    def fails(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint.os, "fsync", fails)
    with pytest.raises(BusbwError, match="No space left"):
        checkpoint.save({"step": 4}, saved, KIND)
    assert checkpoint.load(saved, KIND)["step"] == 3


def test_a_loaded_state_stays_in_the_file_until_it_is_used(tmp_path):
    checkpoint.save({"weights": torch.ones(1 << 20)}, tmp_path / "saved", "kind")
    loaded = checkpoint.load(tmp_path / "saved", "kind")
    assert str(tmp_path / "saved") in Path("/proc/self/maps").read_text()
    checkpoint.save({"weights": torch.zeros(1 << 20)}, tmp_path / "saved", "kind")
    assert (loaded["weights"] == 1).all()
