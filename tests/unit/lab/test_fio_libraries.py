"""The stubs for libraries that fio is linked to and that no load uses."""

import shutil
import subprocess
from pathlib import Path

import pytest

from storagetest.errors import LabError
from storagetest.lab import fio_libraries

LISTING = """
Symbol table '.dynsym' contains 5 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND glfs_init@GFAPI_3.4.0 (7)
     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND rbd_open
     3: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__
     4: 000000000001d000    12 FUNC    GLOBAL DEFAULT   14 defined
"""


def test_undefined_symbols_are_read_with_their_versions():
    assert fio_libraries.undefined_symbols(LISTING) == [("glfs_init", "GFAPI_3.4.0"), ("rbd_open", "")]


def test_each_version_is_a_node_of_the_version_script():
    symbols = [("a", "V1"), ("b", "V2"), ("c", "V1")]
    assert fio_libraries.version_script(symbols) == "V1 { global: a; c; };\nV2 { global: b; };\n"


@pytest.fixture
def root(tmp_path) -> Path:
    """A tree with this machine's fio, and a link to a library in place of each that is replaced."""
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (tmp_path / "usr/bin").mkdir()
    shutil.copy("/usr/bin/fio", tmp_path / "usr/bin/fio")
    for name in ("librados.so.2", "librbd.so.1", "libgfapi.so.0"):
        (libraries / f"{name}.0.0").touch()
        (libraries / name).symlink_to(f"{name}.0.0")
    return tmp_path


def test_fio_starts_with_the_stubs_and_loads_nothing_of_what_they_replace(root):
    assert fio_libraries.replace(root) == ["libgfapi.so.0", "librados.so.2", "librbd.so.1"]
    libraries = str(root / "usr/lib/x86_64-linux-gnu")
    environ = {"LD_LIBRARY_PATH": libraries, "PATH": "/usr/bin:/bin"}
    loaded = subprocess.run(
        ["ldd", "/usr/bin/fio"], env=environ, capture_output=True, text=True, check=True
    ).stdout
    assert f"{libraries}/librados.so.2" in loaded
    assert "libceph-common" not in loaded
    job = ["fio", "--name=job", "--ioengine=null", "--rw=read", "--size=4k"]
    subprocess.run(job, env=environ, check=True, capture_output=True, cwd=root)


def test_a_tree_without_fio_is_an_error(tmp_path, capsys):
    with pytest.raises(LabError, match="readelf"):
        fio_libraries.replace(tmp_path)
    assert fio_libraries.main([str(tmp_path)]) == 1
    assert "usr/bin/fio" in capsys.readouterr().err
