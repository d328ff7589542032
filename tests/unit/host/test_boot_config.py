"""Files that set RoCE at the start, in a folder used as the root."""

from pathlib import Path

import pytest

from busbw.host.roce_qos import Setter, read_setters, setters
from busbw.host.source import LiveMachine


@pytest.fixture
def write(tmp_path):
    def file(path, text):
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    return file


def test_unit_counts_by_the_script_that_it_starts(tmp_path, write):
    write(
        "usr/local/bin/qos.sh",
        "mlnx_qos -i eth0 --trust dscp\n"
        "echo 106 > /sys/class/infiniband/mlx5_0/tc/1/traffic_class\n",
    )
    unit = write(
        "etc/systemd/system/qos.service", "[Service]\nExecStart=-/usr/local/bin/qos.sh eth0\n"
    )
    expected = Setter(
        "/etc/systemd/system/qos.service", ["mlnx_qos", "traffic_class"], enabled=False
    )
    assert list(setters(tmp_path)) == [expected]
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "qos.service").symlink_to(unit)
    assert list(setters(tmp_path)) == [Setter(expected.path, expected.words, enabled=True)]


def test_a_drop_in_counts_by_its_unit_and_by_what_it_starts(tmp_path, write):
    write("usr/local/bin/qos.sh", "mlnx_qos -i eth0 --trust dscp\n")
    drop_in = write(
        "etc/systemd/system/qos@eth0.service.d/start.conf",
        "[Service]\nExecStartPost=/usr/local/bin/qos.sh\n",
    )
    write(
        "etc/systemd/system/other.service.d/only.conf",
        "[Unit]\nConditionPathExists=/usr/local/bin/qos.sh\n",
    )
    assert [setter.enabled for setter in setters(tmp_path)] == [False]
    requires = tmp_path / "etc/systemd/system/network.target.requires"
    requires.mkdir()
    (requires / "qos@eth1.service").symlink_to(drop_in)
    (setter,) = setters(tmp_path)
    assert setter.path == "/etc/systemd/system/qos@eth0.service.d/start.conf" and setter.enabled


def test_rules_and_scripts_need_no_enabling(tmp_path, write):
    write(
        "etc/udev/rules.d/90-roce.rules",
        'ACTION=="add", SUBSYSTEM=="net", RUN+="/usr/bin/mlnx_qos -i %k --pfc 0,0,0,1,0,0,0,0"',
    )
    script = write("etc/rc.local", "dcb pfc set dev eth0 prio-pfc 3:on")
    assert [(setter.path, setter.enabled) for setter in setters(tmp_path)] == [
        ("/etc/udev/rules.d/90-roce.rules", True),
        ("/etc/rc.local", False),
    ]
    script.chmod(0o755)
    assert all(setter.enabled for setter in setters(tmp_path))


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        (
            "etc/network/interfaces",
            "iface eth0 inet static\n  up mlnx_qos -i eth0 --trust dscp",
            ["mlnx_qos"],
        ),
        (
            "etc/network/interfaces.d/eth0",
            "iface eth0 inet static\n  post-up /usr/local/bin/qos.sh",
            ["dcb -i pfc"],
        ),
        (
            "etc/udev/rules.d/90.rules",
            'ACTION=="add", RUN+="/usr/local/bin/qos.sh %k"',
            ["dcb -i pfc"],
        ),
        (
            "etc/NetworkManager/system-connections/a.nmconnection",
            "[dcb]\npriority-flow-control=0,0,0,1,0,0,0,0",
            ["priority-flow-control"],
        ),
        ("etc/cron.d/qos", "@reboot root /usr/local/bin/qos.sh", ["dcb -i pfc"]),
        (
            "var/lib/lldpad/lldpad.conf",
            "eth0 : { tlvid0080c20b : { enableTx = true; }; };",
            ["tlvid0080c20b"],
        ),
    ],
)
def test_files_of_the_network_count(tmp_path, write, path, text, words):
    write("usr/local/bin/qos.sh", "dcb -i pfc set dev $1 prio-pfc 3:on")
    write(path, text)
    assert list(setters(tmp_path)) == [Setter(f"/{path}", words)]


def test_comments_and_programs_set_nothing(tmp_path, write):
    write("etc/infiniband/openib.conf", "# run mlnx_qos by hand\n ; traffic_class\nONBOOT=yes")
    write("usr/sbin/opensm", "\0ELF traffic_class")
    write("usr/lib/systemd/system/opensm.service", "[Service]\nExecStart=/usr/sbin/opensm")
    assert list(setters(tmp_path)) == []


@pytest.mark.parametrize(
    ("starter", "text"),
    [
        ("etc/systemd/system/multi-user.target.wants/qos@eth2.service", ""),
        ("etc/systemd/system/timers.target.wants/qos@eth2.timer", ""),
        ("etc/udev/rules.d/90.rules", 'SUBSYSTEM=="net", ENV{SYSTEMD_WANTS}+="qos@eth2.service"'),
        ("etc/systemd/system/fabric.target", "[Unit]\nWants=qos@eth2.service other.service"),
    ],
)
def test_template_is_started_by_an_instance(tmp_path, write, starter, text):
    write(
        "etc/systemd/system/qos@.service",
        "[Service]\nExecStart=/usr/bin/mlnx_qos -i %i --pfc 0,0,0,1,0,0,0,0",
    )
    assert not next(setters(tmp_path)).enabled
    write(starter, text)
    assert next(
        setter for setter in setters(tmp_path) if setter.path.endswith("qos@.service")
    ).enabled


def test_other_files_and_missing_scripts_are_passed_over(tmp_path, write):
    write("etc/systemd/system/web.service", "[Service]\nExecStart=/opt/web --port 80\n")
    (tmp_path / "etc/udev").mkdir()
    (tmp_path / "etc/udev/rules.d").symlink_to("/nowhere")
    assert list(setters(tmp_path)) == []


def test_files_of_this_machine_can_be_read():
    read = read_setters(LiveMachine())
    assert isinstance(read, list)
    assert all(Path(setter.path).is_absolute() for setter in read)
