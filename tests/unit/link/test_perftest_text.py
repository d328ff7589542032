"""Output of perftest is read in all its forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.link import perftest_text as text

HEADER = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]\n"
NOISE = "Conflicting CPU frequency values detected: 800.000000 != 3177.498000. CPU Frequency is not max.\n"
# The text of one page where its lines were joined, as a reader may paste it.
JOINED = (
    "RDMA_Read BW Test Dual-port : OFF Device : mlx5_bond_0 Number of qps : 20 Mtu : 1024[B] Link type : Ethernet GID index : 3 "
    "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps] Conflicting CPU frequency values detected: 800.000000 != "
    "3177.498000. CPU Frequency is not max. 2 20000 0.058511 0.058226 3.639132 Conflicting CPU frequency values detected: 799.996000 != "
    "3384.422000. CPU Frequency is not max. ... 4194304 20000 165.55 165.55 0.004934 8388608 20000 165.65 165.63 0.002468 ------"
)
LATENCY = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]"
    "   99.9% percentile[usec] \n"
    " 2       1000          1.57           9.65         1.84     \t       2.04        \t0.69   \t\t5.02    \t\t9.65   \n"
)


@pytest.mark.parametrize(("unit", "bytes_per_s"), [("Gb/sec", 1e9 / 8), ("MB/sec", 1 << 20), ("MiB/sec", 1 << 20)])
def test_the_unit_of_the_header_counts(unit, bytes_per_s):
    said = HEADER.format(unit) + " 65536      5000             110.78            110.45\t\t     0.176487\n"
    assert text.bandwidth(said, 65536).rate == pytest.approx(110.45 * bytes_per_s)


def test_lines_about_cpu_frequency_are_passed_over():
    said = HEADER.format("Gb/sec") + NOISE + " 65536      1000             390.34            389.03\t\t     0.744912\n" + NOISE
    assert text.bandwidth(said, 65536).rate == pytest.approx(389.03e9 / 8)


def test_a_text_on_one_line_is_read():
    found = text.bandwidth(JOINED, 8388608)
    assert (found.rate, found.mtu) == (pytest.approx(165.63e9 / 8), 1024)
    assert text.bandwidth(JOINED, 2).rate == pytest.approx(0.058226e9 / 8)


def test_a_header_printed_twice_is_read():
    said = HEADER.format("MiB/sec") * 2 + NOISE + " 1000       5000             4104.91            4100.02\t\t     4.2\n"
    assert text.bandwidth(said, 1000).rate == pytest.approx(4100.02 * (1 << 20))


def test_columns_of_processor_use_are_ignored():
    said = (
        HEADER.format("Gb/sec").rstrip()
        + "   CPU_Util[%]\n 65536      279928           0.00               97.50              0.093293\t    12.34\n"
    )
    assert text.bandwidth(said, 65536).rate == pytest.approx(97.5e9 / 8)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "65536 5000 1.0 2.0 3.0",
        HEADER.format("Gb/sec"),
        HEADER.format("Gb/sec") + "2 5000 1.0 2.0 3.0",
        HEADER.format("furlong") + "65536 5000 1.0 2.0 3.0",
    ],
)
def test_what_has_no_row_of_the_size_gives_nothing(said):
    assert text.bandwidth(said, 65536) is None


def test_latency_with_and_without_percentiles():
    found = text.latency(LATENCY)
    assert (found.typical, found.p99, found.count) == (pytest.approx(1.84e-6), pytest.approx(5.02e-6), 1000)
    short = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n 2 1000 1.27 3.34 1.33\n"
    assert (text.latency(short).typical, text.latency(short).p99) == (pytest.approx(1.33e-6), None)
    assert text.latency("Did not detect devices") is None


def test_version_and_gpu_support():
    assert text.version("Version: 6.06\n") == "6.06"
    assert text.version("command not found") == ""
    assert text.sends_from_gpu("      --use_cuda=<cuda device id> Use CUDA specific device")
    assert not text.sends_from_gpu("      --report_gbits  Report Max/Average BW")


def test_the_last_message_is_the_complaint():
    said = " Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device\n-----\n"
    assert text.complaint(said) == "Unable to find the Infiniband/RoCE device"
    assert text.complaint("----\n") == ""


@given(st.text())
def test_no_text_breaks_the_reader(said):
    text.bandwidth(said, 2)
    text.latency(said)
    text.complaint(said)


@given(st.integers(1, 1 << 23), st.floats(0, 3200), st.sampled_from(["", NOISE]))
def test_any_row_is_read_back(size, rate, noise):
    said = HEADER.format("Gb/sec") + noise + f" {size:<10} 5000 {rate:>20.2f} {rate:>20.2f} {0.01:>20.6f}\n" + noise
    assert text.bandwidth(said, size).rate == pytest.approx(float(f"{rate:.2f}") * 1e9 / 8)
