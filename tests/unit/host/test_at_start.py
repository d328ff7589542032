"""Files that set RoCE at the start, in a folder that stands for the root."""

from pathlib import Path

import pytest

from busbw.host.at_start import Setter, read_setters, setters
from busbw.host.source import Live


@pytest.fixture
def write(tmp_path):
    def file(path, text):
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    return file


def test_unit_counts_by_the_script_that_it_starts(tmp_path, write):
    write("usr/local/bin/qos.sh", "mlnx_qos -i eth0 --trust dscp\necho 106 > /sys/class/infiniband/mlx5_0/tc/1/traffic_class\n")
    unit = write("etc/systemd/system/qos.service", "[Service]\nExecStart=-/usr/local/bin/qos.sh eth0\n")
    expected = Setter("/etc/systemd/system/qos.service", ["mlnx_qos", "traffic_class"], enabled=False)
    assert list(setters(tmp_path)) == [expected]
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "qos.service").symlink_to(unit)
    assert list(setters(tmp_path)) == [Setter(expected.path, expected.words, enabled=True)]


def test_rules_and_scripts_need_no_enabling(tmp_path, write):
    write("etc/udev/rules.d/90-roce.rules", 'ACTION=="add", SUBSYSTEM=="net", RUN+="/usr/bin/mlnx_qos -i %k --pfc 0,0,0,1,0,0,0,0"')
    write("etc/rc.local", "dcb pfc set dev eth0 prio-pfc 3:on")
    assert [(one.path, one.enabled) for one in setters(tmp_path)] == [("/etc/udev/rules.d/90-roce.rules", True), ("/etc/rc.local", True)]


def test_other_files_and_missing_scripts_are_passed_over(tmp_path, write):
    write("etc/systemd/system/web.service", "[Service]\nExecStart=/opt/web --port 80\n")
    (tmp_path / "etc/udev").mkdir()
    (tmp_path / "etc/udev/rules.d").symlink_to("/nowhere")
    assert list(setters(tmp_path)) == []


def test_files_of_this_machine_can_be_read():
    found = read_setters(Live())
    assert isinstance(found, list)
    assert all(Path(one.path).is_absolute() for one in found)
