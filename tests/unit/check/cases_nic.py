"""Cases of the layers NIC and RoCE."""

NIC = {"nic-mtu": lambda tree: tree.file("/sys/class/net/eth3/mtu", "1500")}
