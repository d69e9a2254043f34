"""Which case kills which mutant, of those that could: for who writes ``kills=``.

    python tests/mutants/posix_matrix.py matrix.json [AREA ...]

An area is a module of mutants (``posix_AREA_mutants``); :data:`MODULES` lists which of the suite's modules
could notice one. The result is JSON: mutant → case → [outcome, message], for what did not pass.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from body_cases import collected
from fuse_mount import FuseError
from posix_mutants import MUTANTS
from posix_mutation_run import HONEST, run_on

from storagetest.runner.client_cases import ClientCaseResult, ClientCaseStatus

MODULES = {
    "attribute": "times mode_owner create link sparse data statfs open remove rename",
    "data": "data sparse mmap direct open",
    "directory": "directories create remove",
    "lock": "locks",
    "name": "names rename link create remove open",
    "open": "open create mode_owner remove",
    "permission": "mode_owner open remove rename create times link xattr acl directories data",
    "xattr": "xattr acl",
}


def main(out: str, *areas: str) -> None:
    cases = collected("posix")
    document: dict[str, dict[str, list[str]]] = {}
    with ThreadPoolExecutor(2) as pool:
        runs = {files: pool.submit(run_on, files, cases) for files in HONEST}
        for name, mutant in MUTANTS.items():
            area = mutant.files.split("_")[1]
            if not areas or area in areas:
                could = [one for one in cases if _module(one.call.module) in MODULES[area].split()]
                runs[name] = pool.submit(run_on, mutant.files, could)
        for name, run in runs.items():
            try:
                document[name] = _not_passed(run.result())
            except FuseError as error:
                print(f"{name}: {error}", flush=True)
                continue
            print(name, len(document[name]), flush=True)
            Path(out).write_text(json.dumps(document, indent=1), encoding="utf-8")


def _module(path: Path) -> str:
    return path.stem.removeprefix("test_")


def _not_passed(answers: dict[str, ClientCaseResult]) -> dict[str, list[str]]:
    return {
        case: [one.status.value, one.message[:300]]
        for case, one in answers.items()
        if one.status is not ClientCaseStatus.PASSED
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
