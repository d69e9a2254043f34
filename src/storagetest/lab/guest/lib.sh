# What the service scripts share; each sources it.
LAB=/run/lab
SECRETS=$LAB/secrets

configfs() {
    modprobe configfs
    mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config 2>/dev/null ||
        mountpoint -q /sys/kernel/config
}

# disk NAME MIB: make /dev/mapper/NAME, a disk in memory that takes memory only where it was written and
# gives it back on discard. It stands behind a linear device-mapper table, so that a fault (flakey, delay,
# error) is a swap of that table under whatever uses the disk.
disk() {
    configfs
    modprobe -a dm-mod
    modprobe null_blk nr_devices=0
    nullb=/sys/kernel/config/nullb/$1
    mkdir "$nullb"
    for setting in "size $2" "blocksize 512" "memory_backed 1" "discard 1" "irqmode 0" "power 1"; do
        echo "${setting#* }" >"$nullb/${setting% *}"
    done
    dmsetup create "$1" --noudevsync --table "0 $(($2 * 2048)) linear /dev/nullb$(cat "$nullb/index") 0"
}
