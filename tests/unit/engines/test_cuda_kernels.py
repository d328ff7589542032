"""Code made by NVRTC is kept on disk whole or not at all, and a spoilt file is as good as none. NVRTC needs no GPU."""

import pytest

from busbw.core.dtypes import DTYPES
from busbw.core.errors import NoMeasurement
from busbw.core.redops import REDOPS
from busbw.engines.cuda_kernels import Cubins, Found, cache_folder, compile_source, elements

FLOAT, SUM = DTYPES[7], REDOPS[0]


@pytest.fixture
def nvrtc():
    return pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")


def test_elements_names_the_row_of_the_table():
    assert elements(FLOAT, SUM) == "Elements<32, 0, 24, 8, -126, 104, op_sum>"
    assert elements(DTYPES[0], None) == "Elements<8, 1, 0, 0, 0, 0, op_none>"


def test_nothing_found_is_all_zero_memory_and_the_first_offset_wins():
    assert Found(1, (1 << 64) - 1 - 5).first == 5


def test_cache_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "busbw" / "kernels"


@pytest.mark.parametrize("op", [None, *REDOPS], ids=lambda op: op.name if op else "moved")
@pytest.mark.parametrize("dtype", [DTYPES[5], DTYPES[8], DTYPES[10]], ids=lambda dtype: dtype.name)
def test_nvrtc_takes_the_source(nvrtc, dtype, op):
    code = Cubins(90, None).get(dtype, op)
    assert code.startswith(b"\x7fELF") and b"probe" in code


def test_code_is_kept_and_a_spoilt_file_is_made_again(nvrtc, tmp_path):
    code = Cubins(90, tmp_path).get(FLOAT, SUM)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    stamp = file.stat().st_mtime_ns
    assert Cubins(90, tmp_path).get(FLOAT, SUM) == code
    assert file.stat().st_mtime_ns == stamp, "compiled again although it was kept"
    file.write_bytes(whole[:-7])
    assert Cubins(90, tmp_path).get(FLOAT, SUM) == code
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_does_no_harm(nvrtc, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert Cubins(90, blocked / "kernels").get(FLOAT, SUM).startswith(b"\x7fELF")


def test_a_source_that_does_not_compile_is_told_with_the_compilers_words(nvrtc):
    with pytest.raises(NoMeasurement, match="nonsense"):
        compile_source(b"nonsense;", "int", b"sm_90")


def test_an_architecture_newer_than_nvrtc_gets_ptx(nvrtc):
    assert b".target sm_" in Cubins(999, None).get(FLOAT, SUM)
