"""From targets.yaml to a :class:`Config`: nothing is contacted, no secret is looked up.

Each section is read on its own, so that one mistake does not hide another; all are reported together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storagetest.config.comparisons import Comparison, read_comparisons
from storagetest.config.hosts import Machines
from storagetest.config.known import KnownIssue, read_known_issues
from storagetest.config.models import PROFILES, Machine, Profile, ProfileEntry, ThresholdRule, Variant
from storagetest.config.overrides import apply_overrides
from storagetest.config.own import OwnWorkloads, read_own
from storagetest.config.targets import Targets
from storagetest.config.thresholds import choose, most, read_rules
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.config.yaml_source import Node, Source, read
from storagetest.errors import ConfigError

if TYPE_CHECKING:
    from storagetest.verdict.base import Threshold

__all__ = ["SECTIONS", "Config", "build", "load"]

SECTIONS = (
    "version",
    "clients",
    "servers",
    "targets",
    "profiles",
    "workloads",
    "thresholds",
    "comparisons",
    "known_issues",
)


@dataclass(frozen=True, slots=True)
class Config:
    """What targets.yaml says, checked whole. ``variants`` are in the file's order.

    ``own`` are the workloads that the file itself names.
    """

    path: Path
    clients: Mapping[str, Machine]
    servers: Mapping[str, Machine]
    variants: tuple[Variant, ...]
    profiles: Mapping[str, Profile]
    thresholds: tuple[ThresholdRule, ...]
    comparisons: tuple[Comparison, ...] = ()
    own: OwnWorkloads = field(default_factory=dict)
    known_issues: tuple[KnownIssue, ...] = ()

    def profile(self, name: str) -> Profile:
        """Return the profile called ``name``; :class:`ConfigError` says which there are."""
        try:
            return self.profiles[name]
        except KeyError:
            raise ConfigError(f"there is no profile {name!r}{suggest(name, self.profiles)}") from None

    def thresholds_for(
        self, variant: Variant, workload: str, parameters: Mapping[str, Any]
    ) -> tuple[Threshold, ...]:
        """Return the gates of one case; their precedence: :mod:`storagetest.config.thresholds`."""
        return choose((self.thresholds, variant.thresholds), workload, parameters)

    def most_thresholds(self, variant: Variant, workload: str) -> int:
        """Return how many gates a case of ``workload`` can have at most on ``variant``."""
        return most((self.thresholds, variant.thresholds), workload)


def load(path: Path | str, overrides: Iterable[str] = ()) -> Config:
    """Read the file at ``path``, with ``--st-set`` ``overrides`` put in.

    Raises :class:`ConfigError`, a line for each problem, each with ``file:line:col``.
    """
    return build(apply_overrides(read(path), overrides))


def build(source: Source) -> Config:
    """Judge a file that has been read. Raises :class:`ConfigError` as :func:`load` does."""
    problems = ValidationErrors()
    sections = _sections(source.root, problems)
    machines = Machines(problems, sections.get("clients"), sections.get("servers"))
    clients, servers = machines.build("clients"), machines.build("servers")
    if "clients" not in sections:
        clients = {"local": Machine("local", "local")}
    profiles = _profiles(sections.get("profiles"), problems)
    path = Path(source.name)
    own = read_own(sections.get("workloads"), path.parent, problems)
    thresholds = sections.get("thresholds")
    rules = read_rules(thresholds, "thresholds", problems) if thresholds else ()
    broken = frozenset(_named(sections.get("clients"))) - set(clients)
    variants = Targets(problems, clients, servers, broken).build(sections.get("targets"), source.root)
    compared = sections.get("comparisons")
    comparisons = read_comparisons(compared, variants, problems) if compared else ()
    known = sections.get("known_issues")
    issues = read_known_issues(known, source.directory, variants, problems) if known else ()
    problems.raise_any()
    return Config(path, clients, servers, variants, profiles, rules, comparisons, own, issues)


def _named(section: Node | None) -> list[str]:
    """Return what somebody meant to name in a section, even where it is no mapping."""
    if section is None:
        return []
    return [*(section.mapping or ()), *(item.raw for item in section.items or ())]


def _sections(root: Node, problems: ValidationErrors) -> Mapping[str, Node]:
    sections = problems.mapping(root, "the file")
    for name, node in sections.items():
        if name not in SECTIONS and not name.startswith(
            "x-"
        ):  # x-…: a place to put anchors, as compose has it
            problems.add(node.key_place, f"{name}: no such section{suggest(name, SECTIONS)}")
    version = sections.get("version")
    if version is None and root.mapping is not None:
        problems.add(root.place, "version is missing: write version: 1 at the top")
    elif version is not None and (version.kind != "a number" or version.value != 1):
        problems.add(
            version.place,
            f"version: {version.raw or version.kind} is not known; this storagetest reads version: 1",
        )
    return sections


def _profiles(section: Node | None, problems: ValidationErrors) -> Mapping[str, Profile]:
    profiles = dict(PROFILES)
    for name, node in problems.mapping(section, "profiles").items() if section else ():
        where = f"profiles.{name}"
        problems.check_name(name, node, where)
        entry = problems.validate(ProfileEntry, node, where)
        if entry is None:
            continue
        start = profiles.get(name, profiles["standard"])
        said = {key: value for key, value in entry.model_dump().items() if value is not None}
        if "size" in said:
            said.setdefault("cold_size", said["size"])
        profile = replace(start, name=name, **said)
        if profile.max_repeats < profile.repeats:
            if "max_repeats" in said:
                place = (node.child("max_repeats") or node).place
                problems.add(
                    place,
                    f"{where}.max_repeats: {profile.max_repeats} is less than repeats, {profile.repeats}",
                )
            profile = replace(profile, max_repeats=profile.repeats)
        profiles[name] = profile
    return profiles
