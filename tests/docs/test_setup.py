"""The documentation lists exactly the packages that script/setup installs."""

import re

from blocks import ROOT

SECTION = "## What `script/demo` and `script/test` install\n"


def test_the_page_lists_the_packages_of_the_setup():
    script = (ROOT / "script/setup").read_text(encoding="utf-8")
    (always,) = re.findall(r"^packages=\((.*?)\)", script, re.MULTILINE | re.DOTALL)
    (in_ci,) = re.findall(r"packages\+=\((.*?)\)", script)
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    section = page.partition(SECTION)[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (.*?) \| `(.*?)` \|$", section, re.MULTILINE))
    documented = rows.pop("only if `CI` is set").split()
    assert sorted(documented) == sorted(in_ci.split())
    assert sorted(" ".join(rows.values()).split()) == sorted(always.split())
