"""Output of perftest is read in all its forms.

`run` builds the output of versions that cannot run here: units of MB/sec (before 2024-08), MiB/sec
or Gb/sec, with and without messages about CPU frequencies, memory of a GPU, processor use.
tests/recorded/perftest has what two versions of Debian's programs print.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.link import perftest as text

HEADER = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]\n"
NOISE = (
    "Conflicting CPU frequency values detected: 800.000000 != 3177.498000. CPU Frequency is not"
    " max.\n"
)
# The text of one page where its lines were joined, as a reader may paste it.
JOINED = (
    "RDMA_Read BW Test Dual-port : OFF Device : mlx5_bond_0 Number of qps : 20 Mtu : 1024[B] Link"
    " type : Ethernet GID index : 3 #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec]"
    " MsgRate[Mpps] Conflicting CPU frequency values detected: 800.000000 != 3177.498000. CPU"
    " Frequency is not max. 2 20000 0.058511 0.058226 3.639132 Conflicting CPU frequency values"
    " detected: 799.996000 != 3384.422000. CPU Frequency is not max. ... 4194304 20000 165.55"
    " 165.55 0.004934 8388608 20000 165.65 165.63 0.002468 ------"
)
LATENCY = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]   "
    " t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
    " 2       1000          1.57           9.65         1.84     \t       2.04        \t0.69  "
    " \t\t5.02    \t\t9.65   \n"
)


@pytest.mark.parametrize(
    ("unit", "bytes_per_s"), [("Gb/sec", 1e9 / 8), ("MB/sec", 1 << 20), ("MiB/sec", 1 << 20)]
)
def test_the_unit_of_the_header_counts(unit, bytes_per_s):
    output = (
        HEADER.format(unit)
        + " 65536      5000             110.78            110.45\t\t     0.176487\n"
    )
    assert text.bandwidth(output, 65536).rate == pytest.approx(110.45 * bytes_per_s)


def test_lines_about_cpu_frequency_are_passed_over():
    output = (
        HEADER.format("Gb/sec")
        + NOISE
        + " 65536      1000             390.34            389.03\t\t     0.744912\n"
        + NOISE
    )
    assert text.bandwidth(output, 65536).rate == pytest.approx(389.03e9 / 8)


def test_a_text_on_one_line_is_read():
    bandwidth = text.bandwidth(JOINED, 8388608)
    assert (bandwidth.rate, bandwidth.mtu) == (pytest.approx(165.63e9 / 8), 1024)
    assert text.bandwidth(JOINED, 2).rate == pytest.approx(0.058226e9 / 8)


def test_a_header_printed_twice_is_read():
    output = (
        HEADER.format("MiB/sec") * 2
        + NOISE
        + " 1000       5000             4104.91            4100.02\t\t     4.2\n"
    )
    assert text.bandwidth(output, 1000).rate == pytest.approx(4100.02 * (1 << 20))


def test_columns_of_processor_use_are_ignored():
    output = (
        HEADER.format("Gb/sec").rstrip()
        + "   CPU_Util[%]\n 65536      279928           0.00               97.50             "
        " 0.093293\t    12.34\n"
    )
    assert text.bandwidth(output, 65536).rate == pytest.approx(97.5e9 / 8)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "65536 5000 1.0 2.0 3.0",
        HEADER.format("Gb/sec"),
        HEADER.format("Gb/sec") + "2 5000 1.0 2.0 3.0",
        HEADER.format("furlong") + "65536 5000 1.0 2.0 3.0",
    ],
)
def test_output_without_a_row_of_the_size_gives_nothing(output):
    assert text.bandwidth(output, 65536) is None


def test_latency_with_and_without_percentiles():
    latency = text.latency(LATENCY)
    assert (latency.typical, latency.p99, latency.count) == (
        pytest.approx(1.84e-6),
        pytest.approx(5.02e-6),
        1000,
    )
    short = (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n"
        " 2 1000 1.27 3.34 1.33\n"
    )
    assert (text.latency(short).typical, text.latency(short).p99) == (pytest.approx(1.33e-6), None)
    assert text.latency("Did not detect devices") is None


def test_version_and_gpu_support(perftest):
    assert text.version((perftest / "ib_write_bw_version.txt").read_text()) == perftest.name
    assert text.version("command not found") == ""
    assert text.sends_from_gpu("      --use_cuda=<cuda device id> Use CUDA specific device")
    assert not text.sends_from_gpu((perftest / "ib_write_bw_help.txt").read_text())


def test_the_last_message_is_the_complaint(perftest):
    assert (
        text.complaint((perftest / "ib_write_bw_no_device.txt").read_text())
        == "Unable to find the Infiniband/RoCE device"
    )
    assert text.complaint("----\n") == ""


def test_an_unknown_option_is_the_complaint_and_not_the_usage(perftest):
    output = (perftest / "ib_write_bw_use_cuda.txt").read_text()
    older = perftest.name == "6.06"
    assert text.complaint(output) == (
        "ib_write_bw: unrecognized option '--use_cuda=0'" if older else "Unsupported memory type"
    )


def test_texts_without_a_result_have_none(perftest):
    for file in perftest.glob("*.txt"):
        assert text.bandwidth(file.read_text(), 1 << 20) is None
        assert text.latency(file.read_text()) is None


@given(st.text())
def test_no_text_breaks_the_reader(output):
    text.bandwidth(output, 2)
    text.latency(output)
    text.complaint(output)


LINE = "-" * 87 + "\n"
GPU_LINES = (
    "initializing CUDA\n"
    "Picking device No. 0\n"
    "[pid = 4242, dev = 0] device name = [NVIDIA H100]\n"
    "cuMemAlloc() of 8388608 bytes\n"
)
UNITS = {"Gb/sec": 1e9 / 8, "MB/sec": 1 << 20, "MiB/sec": 1 << 20}


def run(rows, *, unit, noise, gpu=False, mtu=4096, bidirectional=False, cpu=""):
    """The output of a bandwidth test; `rows` are (size, iterations, peak, average, messages),
    `noise` comes before and after each.
    """
    head = (
        f"{LINE}                    RDMA_Write BW Test\n"
        f" Dual-port       : OFF\t\tDevice         :"
        " mlx5_0\n"
    )
    head += " Number of qps   : 4\t\tTransport type : IB\n"
    head += (
        f" Mtu             : {mtu}[B]\n Link type       : Ethernet\n GID index       : 3\n{LINE}"
    )
    head += (
        " local address: LID 0000 QPN 0x11ca PSN 0x6302b0 RKey 0x17fddc VAddr 0x007f88e1e5d000\n"
    )
    head += " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:14\n" + LINE
    title = (
        f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]  "
        f" MsgRate[Mpps]{'    CPU_Util[%]' if cpu else ''}\n"
    )
    table = noise.join(
        f" {size:<10} {n:<14} {peak:<18} {mean:<17}\t     {rate:<8}{cpu}\n"
        for size, n, peak, mean, rate in rows
    )
    return (
        (GPU_LINES if gpu else "")
        + head
        + title * (2 if bidirectional else 1)
        + noise
        + table
        + noise
        + LINE
    )


@pytest.fixture(params=["6.06", "6.24"])
def perftest(recorded, request):
    """The folder of one version's recorded texts."""
    return recorded / "perftest" / request.param


figures = st.floats(0.01, 400_000).map(lambda value: f"{value:.2f}")


@given(
    st.integers(1, 1 << 23),
    figures,
    st.sampled_from(sorted(UNITS)),
    st.sampled_from(["", NOISE, NOISE * 3]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([256, 1024, 4096]),
    st.sampled_from(["", "\t    12.34"]),
)
def test_any_run_of_any_version_is_read_back(size, mean, unit, noise, gpu, bidirectional, mtu, cpu):
    output = run(
        [(size, 5000, "0.00", mean, "0.187")],
        unit=unit,
        noise=noise,
        gpu=gpu,
        mtu=mtu,
        bidirectional=bidirectional,
        cpu=cpu,
    )
    bandwidth = text.bandwidth(output, size)
    assert (bandwidth.rate, bandwidth.mtu) == (pytest.approx(float(mean) * UNITS[unit]), mtu)


@given(
    st.lists(
        st.tuples(st.integers(1, 1 << 23), figures),
        min_size=1,
        max_size=8,
        unique_by=lambda row: row[0],
    ),
    st.sampled_from(["", NOISE]),
)
def test_each_size_of_a_table_is_read(rows, noise):
    output = run(
        [(size, 1000, mean, mean, "1.5") for size, mean in rows], unit="MiB/sec", noise=noise
    )
    for size, mean in rows:
        assert text.bandwidth(output, size).rate == pytest.approx(float(mean) * (1 << 20))


@given(st.lists(figures, min_size=3, max_size=7), st.sampled_from(["", NOISE]))
def test_any_table_of_latency_is_read(values, noise):
    header = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n"
    latency = text.latency(
        f"{header}{noise} 2       1000          {'   '.join(values)}\n{noise}{LINE}"
    )
    assert latency.typical == pytest.approx(float(values[2]) * 1e-6)
    assert latency.p99 == (pytest.approx(float(values[5]) * 1e-6) if len(values) > 5 else None)
