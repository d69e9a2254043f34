#!/bin/busybox sh
# Second stage and process 1 of every machine: configure the network, start sshd, start the services
# concurrently. The files of this machine are in /run/lab (see guest_files.py). Milestones go to the console,
# which the supervisor reads: "storagetest: WORD …".
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
cd /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
echo "storagetest: init"
. /run/lab/machine.env
mkdir -p /dev/pts /dev/shm /run/sshd /run/lock /run/lab/log
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
echo "$LAB_HOSTNAME" >/proc/sys/kernel/hostname
# QEMU's user network may start a connection with a lower sequence number than that of a closed one with the same
# ports. A machine that remembers the closed one ignores it, and QEMU tries again only 6 s later.
echo 0 >/proc/sys/net/ipv4/tcp_max_tw_buckets
ip link set lo up
# Jumbo frames: 4 KiB are one packet and not three. Emulated, NFS then writes twice as many of them in a second.
ip link set eth0 mtu 9000 up
ip address add "$LAB_ADDRESS/24" dev eth0
ip link set eth1 up
ip address add 10.0.2.15/24 dev eth1
# -r: a connection is served by a fork, not by a new program; in emulation that is half of a login (0.9 to 0.45 s).
/usr/sbin/sshd -r -f /run/lab/sshd_config || echo "storagetest: failed: sshd"
cp /run/lab/hosts /etc/hosts
echo "$LAB_HOSTNAME" >/etc/hostname
ln -sf /proc/self/mounts /etc/mtab

# Concurrently with the services. The snapshot is made when it waits for input and they are ready.
[ ! -e /run/lab/save ] || python3 -ISu /run/lab/resume.py </dev/console >/dev/console 2>&1 &

services=
for script in /run/lab/services/*.sh; do
    [ -e "$script" ] || break
    name=${script##*/}
    name=${name%.sh}
    (
        status=0
        busybox sh -eu "$script" >"/run/lab/log/$name" 2>&1 </dev/null || status=$?
        case $status in
            0) echo "storagetest: serving $name" ;;
            77) echo "storagetest: without $name" ;;
            *) echo "storagetest: failed: $name: $(tail -n 1 "/run/lab/log/$name")" ;;
        esac
    ) &
    services="$services $!"
done
[ -z "$services" ] || wait $services # without arguments it would wait for resume.py too
until [ ! -e /run/lab/save ]; do # resume.py removes it
    sleep 0.1
done
echo "storagetest: ready"

# Process 1 must not exit and must reap orphans; wait does both.
while :; do
    sleep 99999d &
    wait $!
done
