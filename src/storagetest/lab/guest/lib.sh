# Functions for the service scripts, which source it. They run in busybox's shell: under emulation its
# built-in mkdir, ln and mount take a tenth of the time of a new process.
LAB=/run/lab
SECRETS=$LAB/secrets

WITHOUT=77 # exit status of a service that is not available on this machine

# wait_until SECONDS COMMAND …: run COMMAND until it succeeds; fail after SECONDS
wait_until() {
    deadline=$(($(cut -d. -f1 /proc/uptime) + $1))
    shift
    until "$@"; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt $deadline ] || return 1
        sleep 0.2
    done
}

# second_address ADDRESS: add an address on the data network, for targets with two paths
second_address() {
    ip address replace "$1/24" dev eth0
}

# Configure LNet before its module is loaded, and mount debugfs, which has Lustre's request counters.
lustre_network() {
    mkdir -p /etc/modprobe.d
    echo "options lnet networks=tcp(eth0)" >/etc/modprobe.d/lustre.conf
    mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
}

# one_at_a_time COMMAND …: run COMMAND under a lock. Services start concurrently, and busybox's modprobe
# treats a module as loaded while another modprobe still loads it.
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

# disks NAME=MIB …: create a disk in memory /dev/mapper/NAME for each argument. It uses memory for written
# blocks only and frees it on discard. NAME=MIB/MAX creates a disk that can grow to MAX. Each has a linear
# device-mapper table, so a fault (flakey, delay, error) can be injected by a change of the table while the
# disk is in use.
disks() {
    configfs
    modules dm-mod
    one_at_a_time modprobe null_blk nr_devices=0
    tables=
    for disk in "$@"; do
        name=${disk%=*}
        size=${disk#*=}
        max=${size#*/}
        size=${size%/*}
        nullb=/sys/kernel/config/nullb/$name
        mkdir "$nullb"
        for setting in size=$max blocksize=512 max_sectors=2048 memory_backed=1 discard=1 irqmode=0 power=1; do
            echo "${setting#*=}" >"$nullb/${setting%=*}"
        done
        device=/dev/$name # older kernels name the device by its index
        [ -b "$device" ] || device=/dev/nullb$(cat "$nullb/index")
        tables="$tables;$name,,,,0 $((size * 2048)) linear $device 0"
    done
    # Without udev, libdevmapper must create the device nodes.
    DM_DISABLE_UDEV=1 dmsetup create --concise "${tables#;}"
}

# resize NAME MIB: change the size of a disk while it is in use
resize() {
    device=$(DM_DISABLE_UDEV=1 dmsetup table "$1" | cut -d' ' -f4)
    DM_DISABLE_UDEV=1 dmsetup reload "$1" --table "0 $(($2 * 2048)) linear $device 0"
    DM_DISABLE_UDEV=1 dmsetup resume "$1"
}
