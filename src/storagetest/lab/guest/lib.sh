# What the service scripts share; each sources it. All of them run under busybox's shell, whose own mkdir, ln,
# mount and so on cost a tenth of starting a program under emulation.
LAB=/run/lab
SECRETS=$LAB/secrets

WITHOUT=77 # the exit status of a service that this machine has no means to offer

# wait_until SECONDS COMMAND …
wait_until() {
    deadline=$(($(cut -d. -f1 /proc/uptime) + $1))
    shift
    until "$@"; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt $deadline ] || return 1
        sleep 0.2
    done
}

# second_address ADDRESS: one more on the lab's network, for what is served on more than one path.
second_address() {
    ip address replace "$1/24" dev eth0
}

# LNet takes the network's name when its module is loaded. Lustre counts its requests in debugfs.
lustre_network() {
    mkdir -p /etc/modprobe.d
    echo "options lnet networks=tcp(eth0)" >/etc/modprobe.d/lustre.conf
    mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
}

# one_at_a_time COMMAND …: services start side by side, and busybox's modprobe takes a module that another one
# is still loading for loaded.
one_at_a_time() {
    (
        flock 9
        "$@"
    ) 9>$LAB/lock
}

modules() {
    one_at_a_time modprobe -a "$@"
}

configfs() {
    one_at_a_time mount_configfs
}

mount_configfs() {
    modprobe configfs
    mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
}

# disks NAME=MIB …: make /dev/mapper/NAME for each, a disk in memory that takes memory only where it was
# written and gives it back on discard. NAME=MIB/MOST is one that can grow. It stands behind a linear device-mapper table, so that a fault
# (flakey, delay, error) is a swap of that table under whatever uses the disk.
disks() {
    configfs
    modules dm-mod
    one_at_a_time modprobe null_blk nr_devices=0
    tables=
    for disk in "$@"; do
        name=${disk%=*}
        size=${disk#*=}
        most=${size#*/}
        size=${size%/*}
        nullb=/sys/kernel/config/nullb/$name
        mkdir "$nullb"
        for setting in size=$most blocksize=512 max_sectors=2048 memory_backed=1 discard=1 irqmode=0 power=1; do
            echo "${setting#*=}" >"$nullb/${setting%=*}"
        done
        device=/dev/$name # older kernels call it by its index
        [ -b "$device" ] || device=/dev/nullb$(cat "$nullb/index")
        tables="$tables;$name,,,,0 $((size * 2048)) linear $device 0"
    done
    # Without udev the library has to make the nodes itself.
    DM_DISABLE_UDEV=1 dmsetup create --concise "${tables#;}"
}

# resize NAME MIB: give one of the disks another size, whoever uses it.
resize() {
    device=$(DM_DISABLE_UDEV=1 dmsetup table "$1" | cut -d' ' -f4)
    DM_DISABLE_UDEV=1 dmsetup reload "$1" --table "0 $(($2 * 2048)) linear $device 0"
    DM_DISABLE_UDEV=1 dmsetup resume "$1"
}
