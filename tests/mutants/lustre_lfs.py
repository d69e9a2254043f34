"""Stand-in for lfs(1) on :class:`lustre_server.Server`: creates a file over all OSTs, and prints a layout."""

import os
import sys

LAYOUT = "user.layout"


def main(command: str, *words: str) -> None:
    """Run ``setstripe … FILE`` or ``getstripe … FILE``."""
    path = words[-1]
    if "--component-add" in words:  # to a layout that is none
        return
    if command == "setstripe":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        os.setxattr(path, LAYOUT, b"new")
        return
    assert command == "getstripe", command
    osts = os.getxattr(path, LAYOUT).decode().split()
    print(f"lmm_stripe_count:  {len(osts)}\nlmm_stripe_size:   65536\nlmm_pattern:       raid0")
    print("lmm_objects:")
    for ost in osts:
        print(f"      - l_ost_idx: {ost}")


if __name__ == "__main__":
    main(*sys.argv[1:])
