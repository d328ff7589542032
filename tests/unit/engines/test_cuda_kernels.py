"""Code compiled by NVRTC is cached on disk completely or not at all, and a corrupt file is ignored.

NVRTC needs no GPU.
"""

import math
from types import SimpleNamespace

import pytest

from busbw.core.cache_folder import cache_folder
from busbw.core.dtypes import DTYPES
from busbw.core.errors import NoMeasurement
from busbw.core.redops import REDOPS
from busbw.engines import cuda_kernels
from busbw.engines.cuda_kernels import (
    BATCH,
    SIZE,
    Cubins,
    Found,
    HostCopies,
    compile_source,
    elements,
)

FLOAT, SUM = DTYPES[7], REDOPS[0]


@pytest.fixture
def nvrtc():
    return pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")


def test_the_kernel_template_arguments_follow_from_the_tables():
    assert elements(FLOAT, SUM) == "Elements<32, 0, 24, 8, -126, 104, op_sum>"
    assert elements(DTYPES[0], None) == "Elements<8, 1, 0, 0, 0, 0, op_none>"


def test_a_found_error_gives_its_first_offset():
    assert Found(1, (1 << 64) - 1 - 5).first == 5


def test_the_kernel_cache_follows_xdg_cache_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("kernels") == tmp_path / "busbw" / "kernels"


@pytest.mark.parametrize("op", [None, *REDOPS], ids=lambda op: op.name if op else "moved")
@pytest.mark.parametrize("dtype", [DTYPES[5], DTYPES[8], DTYPES[10]], ids=lambda dtype: dtype.name)
def test_nvrtc_compiles_the_source(nvrtc, dtype, op):
    code = Cubins(90, None).get(dtype, op)
    assert code.startswith(b"\x7fELF") and b"probe" in code


def test_compiled_code_is_cached_and_a_corrupt_file_replaced(nvrtc, tmp_path):
    code = Cubins(90, tmp_path).get(FLOAT, SUM)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    stamp = file.stat().st_mtime_ns
    assert Cubins(90, tmp_path).get(FLOAT, SUM) == code
    assert file.stat().st_mtime_ns == stamp, "compiled again although it was cached"
    file.write_bytes(content[:-7])
    assert Cubins(90, tmp_path).get(FLOAT, SUM) == code
    assert file.read_bytes() == content
    assert Cubins(90, tmp_path).get(FLOAT, None) != code, "the code of another operator"


def test_a_type_and_operator_are_compiled_once():
    cubins = Cubins(90, None)
    assert cubins.start(FLOAT, SUM) is cubins.start(FLOAT, SUM)


def test_an_unwritable_cache_is_ignored(nvrtc, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert Cubins(90, blocked / "kernels").get(FLOAT, SUM).startswith(b"\x7fELF")


def test_a_compilation_error_quotes_the_compiler(nvrtc):
    with pytest.raises(NoMeasurement, match="nonsense"):
        compile_source(b"nonsense;", "int", b"sm_90")


def test_an_architecture_newer_than_nvrtc_gets_ptx(nvrtc):
    newest = max(nvrtc.nvrtcGetSupportedArchs()[-1])
    assert b".target sm_%d" % newest in Cubins(999, None).get(FLOAT, SUM)


@pytest.mark.parametrize(("to_device", "copy"), [(True, "HtoD"), (False, "DtoH")])
def test_the_rate_of_copies_is_that_of_a_batch_between_two_events(monkeypatch, to_device, copy):
    class Recorded(list):
        record = list.append

        def seconds(self, first, last):
            return 0.5 if self == [first, last] else math.nan

    called = []
    monkeypatch.setattr(cuda_kernels, "call", lambda name, *_: called.append(name))
    copies = HostCopies.__new__(HostCopies)
    copies._host = copies._device = 0
    copies._stream, copies._events = SimpleNamespace(raw=0), Recorded()
    assert copies.run(0, to_device=to_device) == BATCH * SIZE / 0.5
    assert called == [*[f"cuMemcpy{copy}Async"] * BATCH, "cuStreamSynchronize"]
