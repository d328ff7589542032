"""PCI devices of recorded machines, and configuration spaces of any bytes."""

from types import SimpleNamespace

from healthy import healthy
from healthy_pcie import DEVICES, bridges, config, gpu_bdf, port_bdf
from hypothesis import given
from hypothesis import strategies as st
from tree import Tree

from busbw.host.gpu import GpuUse, load, loads, read_load
from busbw.host.pci import PcieLink, errors, links, read_devices, read_link, shared
from busbw.host.pci import bridges as above
from busbw.host.pci_config import PciConfig, read_config


def test_devices_and_the_bridges_above_them():
    devices = read_devices(healthy().source())
    gpu, nic = devices[gpu_bdf(2)], devices[port_bdf(2)]
    assert gpu.gpu and not gpu.network and nic.network and not nic.gpu
    assert gpu.above == bridges(2, gpu=True) and nic.above == bridges(2, gpu=False)
    assert shared(gpu, nic) == 2 and shared(gpu, devices[port_bdf(3)]) == 0


def test_links_up_to_the_root_port_skip_the_switch_itself():
    gpu = read_devices(healthy().source())[gpu_bdf(0)]
    root, up, down = bridges(0, gpu=True)
    assert links(gpu) == [(down, gpu_bdf(0)), (root, up)]


def test_device_without_a_place_has_its_own_link_alone():
    tree = Tree().files(f"{DEVICES}/0000:00:06.0", vendor="0x10de", **{"class": "0x030200"})
    device = read_devices(tree.source())["0000:00:06.0"]
    assert device.above is None and links(device) == [("", "0000:00:06.0")]
    assert above("../../../devices/pci0000:00/0000:00:06.0", "0000:00:06.0") == ()


def test_function_of_a_physical_one_is_virtual():
    tree = Tree().files(f"{DEVICES}/0000:00:06.1", vendor="0x15b3", **{"class": "0x020000"})
    tree.link(f"{DEVICES}/0000:00:06.1/physfn", "../0000:00:06.0")
    assert read_devices(tree.source())["0000:00:06.1"].virtual


def test_link_values_that_mean_unknown():
    tree = Tree().files(
        f"{DEVICES}/a",
        current_link_speed="Unknown",
        max_link_speed="8 GT/s",
        current_link_width="0",
        max_link_width="255",
    )
    assert read_link(tree.source(), "a") == PcieLink(None, None, None, 8.0)
    tree.files(f"{DEVICES}/a", current_link_width="1", max_link_width="32")
    assert read_link(tree.source(), "a") == PcieLink(1, 32, None, 8.0)
    tree.files(f"{DEVICES}/a", current_link_width="33", max_link_width="63")
    assert read_link(tree.source(), "a") == PcieLink(None, None, None, 8.0)


def test_error_counts_without_their_total():
    assert errors("Bad TLP 3\nRxErr 0\nnonsense\nTOTAL_ERR_COR 3") == {"Bad TLP": 3, "RxErr": 0}


def test_registers_of_a_configuration_space():
    space = PciConfig(config(payload=512, read_request=4096, relaxed=True, acs=0x1D, ats=True))
    assert (space.max_payload, space.max_read_request, space.relaxed_ordering) == (512, 4096, True)
    assert (space.acs, space.ats, space.extended) == (0x1D, True, True)


def test_extended_capabilities_are_followed_to_the_last():
    data = bytearray(4096)
    # the two low bits of the next offset are reserved
    data[256:260] = (0x14D << 20 | 1 << 16 | 0x0001).to_bytes(4, "little")
    data[260:264] = b"\xff" * 4
    data[0x14C:0x154] = (1 << 16 | 0x000D).to_bytes(4, "little") + bytes((0xFF, 0, 0x1D, 0))
    assert PciConfig(bytes(data)).acs == 0x1D


def test_configuration_space_without_capabilities():
    space = PciConfig(config()[:256])
    assert (space.acs, space.ats, space.extended) == (None, None, False)
    assert PciConfig(bytes(4096)).control is None


def test_configuration_space_of_a_lost_device():
    space = PciConfig(b"\xff" * 4096)
    assert (space.acs, space.ats, space.present) == (None, None, False)


def test_configuration_space_needs_root_beyond_its_header():
    tree = Tree().data(f"{DEVICES}/a/config", config()[:64])
    assert (
        read_config(tree.source(), "a")
        == f"{DEVICES}/a/config: only its first 64 bytes are readable; the rest needs root"
    )


@given(st.binary(max_size=5000))
def test_any_bytes_are_a_configuration_space(data):
    space = PciConfig(data)
    assert space.max_payload is None or 128 <= space.max_payload <= 16384
    assert space.max_read_request is None or 128 <= space.max_read_request <= 16384
    assert space.acs is None or 0 <= space.acs <= 0xFFFF
    assert space.ats in (None, True, False) and space.relaxed_ordering in (None, True, False)


def test_lists_of_capabilities_that_loop_end():
    data = bytearray(512)
    data[6], data[0x34] = 1 << 4, 0x40
    data[0x40:0x42], data[0x48:0x4A] = bytes((0x09, 0x48)), bytes((0x09, 0x40))
    data[256:260], data[264:268] = (
        (after << 20 | 1 << 16 | 0x0003).to_bytes(4, "little") for after in (264, 256)
    )
    space = PciConfig(bytes(data))
    assert (space.control, space.acs) == (None, None)


@given(st.text())
def test_any_text_is_a_list_of_errors(text):
    assert all(count >= 0 for count in errors(text).values())


def test_load_of_gpus_from_nvml():
    """A stand-in shaped like `pynvml`: the second GPU is lost."""

    class NVMLError(Exception):
        pass

    def handle(index):
        if index:
            raise NVMLError
        return "gpu"

    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetPciInfo=lambda _: SimpleNamespace(busId="00000000:1B:00.0"),
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=97, memory=3),
        nvmlDeviceGetPowerUsage=lambda _: 699_600,
        nvmlDeviceGetEnforcedPowerLimit=handle,
    )
    assert read_load(nvml) == '{"0000:1b:00.0": 97}'
    assert loads(nvml) == [GpuUse(0, 97, 700, None)]
    nvml.nvmlDeviceGetUtilizationRates = handle
    assert (read_load(nvml), loads(nvml)) == ("{}", [GpuUse(0, None, 700, None)])
    nvml.nvmlDeviceGetUtilizationRates, nvml.nvmlDeviceGetPciInfo = (
        (lambda _: SimpleNamespace(gpu=97)),
        handle,
    )
    assert read_load(nvml) == "{}"
    nvml.nvmlDeviceGetCount = lambda: handle(1)
    assert (read_load(nvml), loads(nvml)) == ("{}", [])


def test_load_of_gpus_from_a_recording():
    assert load(Tree().call("nvml_load", '{"0000:1b:00.0": 97}').source()) == {"0000:1b:00.0": 97}
    assert load(Tree().source()) == {}
