#!/bin/sh
# uml.sh COMMAND...: runs a command under a kernel of User Mode Linux that has sch_netem, sch_tbf and bridges, for labs with delay and loss on
# machines whose kernel lacks them. Its file system is that of this machine, except for empty /tmp, /run and /dev/shm. It has one processor.
# Both outputs of the command come out on stdout, and its exit code is that of this script, which is 3 if the kernel ended first.
# Debian: apt-get install user-mode-linux kmod. UML_MEMORY (4G) and UML_SECONDS (600) limit it.
set -eu
[ $# -gt 0 ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
kernel=
ended() {
    [ -z "$kernel" ] || ! kill "$kernel" 2> /dev/null || wait "$kernel" || true
    rm -rf "$work" # with the environment, which may hold secrets
}
quoted() { for word in "$@"; do printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done; }
work=$(mktemp -d /var/tmp/uml.XXXXXX)
trap ended EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
cat > "$work/init" <<INIT
#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys
for folder in /tmp /run /dev/shm; do mkdir -p \$folder; mount -t tmpfs tmp \$folder; done
mkdir -p /dev/pts /run/modules/lib; mount -t devpts pts /dev/pts
. '$work/environment'; rm '$work/environment'
ln -s /usr/lib/uml/modules /run/modules/lib/modules
modprobe -d /run/modules -a sch_netem sch_tbf veth bridge
ip link set lo up
(cd $(quoted "$PWD") && $(quoted "$@")) > '$work/out' 2>&1
echo \$? > '$work/code'
sync
echo o > /proc/sysrq-trigger
sleep 9
INIT
chmod +x "$work/init"
export -p > "$work/environment"; touch "$work/out"
timeout "${UML_SECONDS:-600}" linux rootfstype=hostfs rootflags=/ rw "mem=${UML_MEMORY:-4G}" "init=$work/init" con=null con0=fd:0,fd:1 \
    < /dev/null > "$work/kernel" 2>&1 &
kernel=$!
tail -f -n +1 --pid=$kernel "$work/out" & # ends after the kernel, with all that it wrote
shown=$!
wait $kernel || true
kernel=
wait $shown || true
[ -s "$work/code" ] || { tail -n 20 "$work/kernel" >&2; echo "error: the kernel ended before the command did" >&2; exit 3; }
exit "$(cat "$work/code")"
