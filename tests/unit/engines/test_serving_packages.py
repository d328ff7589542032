"""Where the all-reduce of serving engines comes from, and what each sums."""

import logging
import warnings
from pathlib import Path

import pytest

from busbw.core.dtypes import dtype
from busbw.core.errors import NoMeasurement
from busbw.engines import serving_packages
from busbw.engines.serving_packages import (
    FLASHINFER_SUM,
    HIDDEN,
    VLLM_SUM,
    Package,
    Summing,
    named,
    tokens,
)

WANTED = {"size": 0, "add": 2, "fuse": ("left", "output")}
RIGHT = "class Kinds: ...\ndef size(): return 7\ndef add(a, b): ...\ndef fuse(left, right=1, *, output=None): ...\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """A package whose module the test writes into tmp_path."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(serving_packages.importlib.sys.modules, "fake_kernels", raising=False)
    return Package("Fake", "fake-kernels", "fake_kernels", WANTED, ("Kinds",))


def write(folder: Path, text: str) -> None:
    (folder / "fake_kernels.py").write_text(text)


def test_a_package_with_the_functions_is_loaded(tmp_path: Path, package: Package) -> None:
    write(tmp_path, RIGHT)
    assert package.load().size() == 7


def test_what_a_package_warns_about_is_not_shown(tmp_path: Path, package: Package) -> None:
    warn = "import logging, warnings\nwarnings.warn('no trace')\n"
    write(tmp_path, warn + RIGHT + "log = logging.getLogger('fake_kernels.memory')\n")
    with warnings.catch_warnings(record=True) as shown:
        module = package.load()
    assert not shown
    assert not module.log.isEnabledFor(logging.WARNING)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "Fake is not installed (pip install fake-kernels)"),
        ("raise OSError('libx.so: no such file\\nmore')", "imported: libx.so: no such file"),
        ("import gone_kernels", "Fake cannot be imported: No module named 'gone_kernels'"),
        (RIGHT.replace("add(a, b)", "add(a)"), "Fake has another add than busbw can call"),
        (RIGHT.replace("def add", "def sum"), "Fake has another add than busbw can call"),
        (RIGHT.replace("output", "out"), "Fake has another fuse than busbw can call"),
        (RIGHT.replace("Kinds", "Kind"), "Fake has no Kinds"),
        (RIGHT.replace("left,", "left, world,"), "Fake has another fuse than busbw can call"),
    ],
)
def test_a_missing_or_differing_package_is_named(
    tmp_path: Path, package: Package, text: str | None, reason: str
) -> None:
    if text is not None:
        write(tmp_path, text)
    with pytest.raises(NoMeasurement) as raised:
        package.load()
    assert raised.value.message.endswith(reason)
    summing = Summing("Fake", (package,), (2,), 1 << 20, max_without_nvlink=8)
    assert summing.why_not(2, dtype("half")) == raised.value.message


def test_the_second_package_is_used_without_the_first(tmp_path: Path, package: Package) -> None:
    write(tmp_path, RIGHT)
    missing = Package("Gone", "gone", "gone_kernels", {})
    used, _ = Summing("Fake", (missing, package), (2,), 1 << 20, max_without_nvlink=8).load()
    assert used is package


def test_vllm_is_not_used_by_more_than_two_gpus_without_nvlink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from busbw.core.topology import Gpu
    from busbw.host.gpu import GpuList

    gpus = [Gpu(index, "GPU", "0000:1b:00.0", nvlink=0) for index in range(4)]
    monkeypatch.setattr(serving_packages, "read_gpus", lambda _: GpuList(gpus))
    assert VLLM_SUM.why_not(4, dtype("half")) == "vLLM needs NVLink for more than 2 GPUs"


@pytest.mark.parametrize(
    ("summing", "ranks", "kind", "reason"),
    [
        (VLLM_SUM, 3, "half", "vLLM has kernels for 2, 4, 6, 8 GPUs, not for 3"),
        (FLASHINFER_SUM, 6, "half", "FlashInfer has kernels for 2, 4, 8 GPUs, not for 6"),
        (VLLM_SUM, 2, "double", "vLLM sums float, half, bfloat16, not double"),
    ],
)
def test_other_numbers_of_gpus_and_types_are_named(
    summing: Summing, ranks: int, kind: str, reason: str
) -> None:
    assert summing.why_not(ranks, dtype(kind)) == reason


@pytest.mark.parametrize(
    ("summing", "size", "reason"),
    [
        (VLLM_SUM, 16, ""),
        (VLLM_SUM, 4 << 20, ""),
        (VLLM_SUM, 1000, "vLLM sums multiples of 16 bytes"),
        (VLLM_SUM, 8 << 20, "vLLM sums at most 8388592 bytes"),
        (FLASHINFER_SUM, 64 << 20, ""),
        (FLASHINFER_SUM, 128 << 20, "FlashInfer sums at most 67108864 bytes"),
    ],
)
def test_sizes_that_are_refused(summing: Summing, size: int, reason: str) -> None:
    assert summing.refusal(size) == reason


@pytest.mark.parametrize("count", [8, 512, 1000, HIDDEN, 3 * HIDDEN // 2, 1 << 25])
def test_tokens_hold_all_elements_in_whole_units_of_a_thread(count: int) -> None:
    number, hidden = tokens(count)
    assert number * hidden == count
    assert hidden <= HIDDEN
    assert hidden % 8 == 0


def test_an_error_of_any_kind_is_named_by_its_first_line() -> None:
    with pytest.raises(NoMeasurement, match=r"^no kernels: cannot find nvcc$"), named("no kernels"):
        raise FileNotFoundError("cannot find nvcc\nin /usr")
    with pytest.raises(NoMeasurement, match=r"^no kernels: KeyError$"), named("no kernels"):
        raise KeyError
