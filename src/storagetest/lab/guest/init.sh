#!/bin/busybox sh
# First stage, in the initramfs: mount the root file system and switch to it. It is an overlayfs of a
# read-only squashfs, the user's overlay and a tmpfs. Every process costs milliseconds under emulation.
/bin/busybox mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1
b=/bin/busybox
fail() { echo "storagetest: failed: $*"; $b poweroff -f; }
for module in /modules/*.ko; do
    $b insmod "$module" || fail "insmod $module"
done
echo "storagetest: kernel"
$b mkdir -p /lower /overlay /upper /root
$b mount -t squashfs -o ro /dev/vda /lower || fail "no root file system"
lower=/lower
if [ -b /dev/vdb ] && [ -e /lab/overlay ]; then
    $b mount -t squashfs -o ro /dev/vdb /overlay || fail "no overlay"
    lower=/overlay:/lower
fi
$b mount -t tmpfs -o mode=755 tmpfs /upper
$b mkdir /upper/data /upper/work
$b mount -t overlay -o lowerdir=$lower,upperdir=/upper/data,workdir=/upper/work overlay /root || fail "no overlayfs"
$b mount -t tmpfs -o mode=755 tmpfs /root/run
$b cp -a /lab /root/run/lab
$b mount --move /dev /root/dev
exec $b switch_root /root /bin/busybox sh /run/lab/boot.sh
