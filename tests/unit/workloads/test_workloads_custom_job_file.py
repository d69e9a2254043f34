"""Users' job files: what is taken, what is refused and where; nothing reaches beyond the attachment."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.errors import ConfigError
from storagetest.workloads._custom.job_file import read_jobs

OLTP = """\
; an order database
[global]
ioengine=libaio
direct=1
bs=8k            # a page
runtime=60
size=10g

[pages]
rw = randrw
rwmixread = 70
iodepth=16
numjobs=2
[log]
rw=write
bs=16k
fdatasync=1
description=commits; one after another
"""


def test_a_file_is_its_jobs_with_what_holds_for_all():
    pages, log = read_jobs(OLTP, "oltp.fio")
    assert (pages.name, pages.directions, pages.in_flight) == ("pages", ("read", "write"), 32)
    assert pages.options == {
        "ioengine": "libaio", "direct": "1", "bs": "8k", "rw": "randrw", "rwmixread": "70", "iodepth": "16",
        "numjobs": "2",
    }  # fmt: skip
    assert (log.name, log.directions, log.in_flight) == ("log", ("write",), 1)
    assert log.options["bs"] == "16k"
    assert "size" not in log.options
    assert "description" not in log.options


def test_a_name_alone_switches_on_and_other_names_mean_the_same():
    (job,) = read_jobs("[a]\nreadwrite=randread\nblocksize=4k\nnorandommap\n", "f")
    assert job.options == {"ioengine": "psync", "rw": "randread", "bs": "4k", "norandommap": "1"}
    assert not job.makes_its_data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f:1:1: no [job] section, only [global]"),
        ("[global]\nbs=4k\n", "f:1:1: no [job] section, only [global]"),
        ("bs=4k\n[a]\n", "f:1:1: 'bs=4k' is before the first [job]"),
        ("[a]\n  filename=/dev/sda\n", "f:2:3: filename: a job file must not name files"),
        ("[a]\ndirectory=../..\n", "f:2:1: directory: a job file must not name"),
        ("[a]\nfilename_format=x\n", "f:2:1: filename_format: a job file must not name"),
        ("[a]\noffset=1g\n", "f:2:1: offset: a job file must not name"),
        ("[a]\nexec_prerun=rm -rf /\n", "f:2:1: exec_prerun: a job file must only define I/O"),
        ("[a]\nexec_postrun=x\n", "f:2:1: exec_postrun: a job file must only define I/O"),
        ("include other.fio\n[a]\n", "f:1:1: 'include other.fio' is before"),
        ("[a]\ninclude other.fio\n", "f:2:1: include: a job file must only define I/O"),
        ("[a]\nioengine=exec\n", "f:1:1: [a]: ioengine=exec: expected one of io_uring,"),
        ("[a]\nioengine=external:/tmp/x.so\n", "f:1:1: [a]: ioengine=external:/tmp/x.so: expected one of"),
        ("[a]\nioengine=filedelete\n", "ioengine=filedelete: expected one of"),
        ("[a]\nwrite_bw_log=/etc/passwd\n", "f:2:1: write_bw_log: this option is not supported in job files"),
        ("[a]\nread_iolog=x\n", "f:2:1: read_iolog: this option is not supported"),
        ("[a]\nverify=crc32c\n", "f:2:1: verify: this option is not supported"),
        ("[a]\nunlink=1\n", "f:2:1: unlink: this option is not supported"),
        ("[a]\nFILENAME=/dev/sda\n", "f:2:1: FILENAME: this option is not supported"),
        ("[a]\nstonewall\n", "f:2:1: stonewall: all jobs of a file run at the same time"),
        ("[a]\nrw=randtrim\n", "f:1:1: [a]: rw=randtrim: expected one of read,"),
        ("[a]\nrw=\n", "f:2:1: rw: the value after the = is missing"),
        ("[a]\nbs=${SIZE}\n", "f:2:1: bs: '${SIZE}' is not accepted: no variables"),
        ("[a]\nbs=`id`\n", "is not accepted"),
        ('[a]\nbs="4k"\n', "is not accepted"),
        ("[a]\nbs=4k --filename=/dev/sda\n", "is not accepted"),
        ("[a]\niodepth=0\n", "f:1:1: [a]: iodepth=0: expected a number from 1 to 9999"),
        ("[a]\nnumjobs=many\n", "[a]: numjobs=many: expected a number"),
        ("[a]\nioengine=libaio\n", "libaio without direct=1"),
        ("[a]\nrw=randrw\nrwmixread=100\n", "rwmixread=100 is not a mix: use rw=read"),
        ("[a b]\n", "f:1:1: [a b]: a job's name leads"),
        ("[a]\n[b]\n[a]\n", "f:3:1: [a] is defined twice"),
    ],
)
def test_refused_option_has_location_and_reason(text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_jobs(text, "f")


@given(st.text(alphabet="[]=;# \n\t$`'\"/.%:-aefhilmnrstwxz_0189é", max_size=200))
def test_no_text_is_a_traceback_and_none_names_a_place(text):
    try:
        jobs = read_jobs(text, "f")
    except ConfigError as error:
        assert error.place is not None
    else:
        for job in jobs:
            assert not {"filename", "directory", "exec_prerun"} & set(job.options)
            assert not any(set(value) & set(" $`'\"") for value in job.options.values())
