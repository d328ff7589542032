#!/bin/sh
# Round trips of busbw lab with delay and loss, as root under a kernel with sch_netem: `tools/uml.sh sh benchmarks/lab_uml.sh`.
set -u
trips() { # pings, options of `busbw lab up`
    pings=$1
    shift
    echo "busbw lab up${*:+ $*}"
    if busbw lab up "$@" --no-sshd > /tmp/up 2>&1; then
        busbw lab exec h1 -- ping -q -c "$pings" -i 0.002 10.77.0.2 | tail -n 2
        busbw lab down > /dev/null 2>&1
    else
        cat /tmp/up
    fi
}
uname -r
trips 1000
trips 1000 --delay 50us --loss 0.01%
trips 2000 --delay 5ms --loss 10%
trips 2000 --delay 20ms --loss 10%
trips 1000 --rate 20mbit --delay 5ms --loss 0.5%
trips 300 --hosts 3 --delay 10ms --loss 1%
