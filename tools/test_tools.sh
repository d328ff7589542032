#!/bin/sh
# Install, as root on Debian 12 or newer, the programs that tests look for. Rust is not among them: https://rustup.rs.
# No service is started now: tests start their own. On a machine with systemd some start at the next boot.
set -eu
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    binutils chromium fish g++ gcc groff hostname iproute2 libpmix-dev mandoc munge nftables openssh-client openssh-server perftest \
    procps prometheus prometheus-alertmanager prometheus-node-exporter slurm-client slurmctld slurmd systemd util-linux zsh >/dev/null
