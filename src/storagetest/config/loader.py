"""Read targets.yaml into a :class:`Config`, without contacting a host or reading a secret.

Each section is read separately, so that one error does not hide another; all errors are reported together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from storagetest.config.base import SecretText
from storagetest.config.comparisons import Comparison, read_comparisons
from storagetest.config.custom_workloads import read_custom_workloads
from storagetest.config.hosts import HostConfigs
from storagetest.config.kinds import WorkloadKind, protocol_kinds, workload_kinds
from storagetest.config.known_issues import KnownIssue, read_known_issues
from storagetest.config.models import PROFILES, HostConfig, Profile, ProfileEntry, ThresholdRule, Variant
from storagetest.config.overrides import apply_overrides
from storagetest.config.ranges import expand_keys
from storagetest.config.roles import read_roles
from storagetest.config.searches import Search, read_searches
from storagetest.config.targets import Targets
from storagetest.config.thresholds import choose, find_workload, most, read_rules
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.config.yaml_source import YamlNode, YamlSource, read
from storagetest.errors import ConfigError

if TYPE_CHECKING:
    from storagetest.verdict.base import Threshold

SECTIONS = (
    "version",
    "clients",
    "servers",
    "targets",
    "profiles",
    "workloads",
    "thresholds",
    "comparisons",
    "searches",
    "roles",
    "known_issues",
)


@dataclass(frozen=True, slots=True)
class Config:
    """The checked contents of targets.yaml. ``variants`` are in the file's order.

    ``workloads`` are the registered and the custom workloads, which the file defines; ``custom_workloads``
    are the names of the latter. ``roles`` are the variants of published experiments' roles.
    """

    path: Path
    clients: Mapping[str, HostConfig]
    servers: Mapping[str, HostConfig]
    variants: tuple[Variant, ...]
    profiles: Mapping[str, Profile]
    workloads: Mapping[str, WorkloadKind]
    custom_workloads: tuple[str, ...]
    thresholds: tuple[ThresholdRule, ...]
    comparisons: tuple[Comparison, ...] = ()
    known_issues: tuple[KnownIssue, ...] = ()
    searches: tuple[Search, ...] = ()
    roles: Mapping[str, Variant] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        """Return the sentences of :meth:`plain_secrets`, and one for each target with insecure options."""
        insecure = {
            variant.target: f"{variant.place}: {variant.target}: {variant.options.insecure}"
            for variant in self.variants
            if variant.options.insecure
        }
        return [*self.plain_secrets(), *insecure.values()]

    def plain_secrets(self) -> list[str]:
        """Return a sentence for each secret that the file contains itself, instead of a reference."""
        hosts = [*self.clients.values(), *self.servers.values()]
        found = {host.password.plain_at: "password" for host in hosts if host.password is not None}
        for variant in self.variants:
            found |= dict(_plain_secrets(variant.options))
        return [
            f"{place}: {key} is plain text in the file. Write ${{env:NAME}} or ${{file:PATH}}"
            for place, key in found.items()
            if place
        ]

    def profile(self, name: str) -> Profile:
        """Return the profile called ``name``. Raises :class:`ConfigError`, which lists the profiles."""
        try:
            return self.profiles[name]
        except KeyError:
            raise ConfigError(f"unknown profile {name!r}{suggest(name, self.profiles)}") from None

    def workload(self, name: str) -> WorkloadKind:
        """Return the workload called ``name``. Raises :class:`ConfigError`, which suggests a similar name."""
        return find_workload(name, self.workloads)

    def thresholds_for(
        self, variant: Variant, workload: str, parameters: Mapping[str, Any]
    ) -> tuple[Threshold, ...]:
        """Return the gates of one case; :mod:`storagetest.config.thresholds` defines their precedence.

        Raises :class:`ConfigError` if there is no such workload.
        """
        return choose((self.thresholds, variant.thresholds), self.workload(workload), parameters)

    def most_thresholds(self, variant: Variant, workload: str) -> int:
        """Return the maximum number of gates of a case of ``workload`` on ``variant``."""
        return most((self.thresholds, variant.thresholds), self.workload(workload))


def load(path: Path | str, overrides: Iterable[str] = ()) -> Config:
    """Read the file at ``path`` and apply the ``--st-set`` ``overrides``.

    Raises :class:`ConfigError`, a line for each problem, each with ``file:line:col``.
    """
    return build(apply_overrides(read(path), overrides))


def build(source: YamlSource) -> Config:
    """Validate a parsed file. Raises :class:`ConfigError` like :func:`load`."""
    problems = ValidationErrors()
    sections = dict(_sections(source.root, problems))
    for name in {"clients", "servers"} & sections.keys():
        sections[name] = expand_keys(sections[name], name, problems)
    machines = HostConfigs(problems, sections)
    clients, servers = machines.build("clients"), machines.build("servers")
    if "clients" not in sections:
        clients = {"local": HostConfig("local", "local")}
    profiles = _profiles(sections.get("profiles"), problems)
    path = Path(source.name)
    registered = workload_kinds()
    custom = read_custom_workloads(sections.get("workloads"), path.parent, registered, problems)
    workloads = {**registered, **custom}
    thresholds = sections.get("thresholds")
    rules = read_rules(thresholds, "thresholds", problems, workloads) if thresholds else ()
    broken = frozenset(_named(sections.get("clients"))) - set(clients)
    targets = Targets(problems, clients, servers, protocol_kinds(), workloads, broken)
    variants = targets.build(sections.get("targets"), source.root)
    compared = sections.get("comparisons")
    comparisons = read_comparisons(compared, variants, workloads, problems) if compared else ()
    sought = sections.get("searches")
    searches = read_searches(sought, variants, workloads, problems) if sought else ()
    cast = sections.get("roles")
    roles = read_roles(cast, variants, problems) if cast else {}
    known = sections.get("known_issues")
    issues = read_known_issues(known, source.directory, variants, problems) if known else ()
    problems.raise_any()
    return Config(
        path,
        clients,
        servers,
        variants,
        profiles,
        workloads,
        tuple(custom),
        rules,
        comparisons,
        issues,
        searches,
        roles,
    )


def _plain_secrets(model: BaseModel) -> Iterator[tuple[str, str]]:
    """Yield place and key of the secrets of a target that the file contains itself."""
    for key, value in model:
        if isinstance(value, BaseModel):
            yield from _plain_secrets(value)
        elif isinstance(value, SecretText) and key != "wire":  # an address, which is only read like a secret
            yield value.plain_at, key


def _named(section: YamlNode | None) -> list[str]:
    """Return the names in a section, even if it is a list by mistake."""
    if section is None:
        return []
    return [*(section.mapping or ()), *(item.raw for item in section.items or ())]


def _sections(root: YamlNode, problems: ValidationErrors) -> Mapping[str, YamlNode]:
    sections = problems.mapping(root, "the file")
    for name, node in sections.items():
        # x-…: a place to put anchors, as compose has it
        if name not in SECTIONS and not name.startswith("x-"):
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


def _profiles(section: YamlNode | None, problems: ValidationErrors) -> Mapping[str, Profile]:
    profiles = dict(PROFILES)
    for name, node in problems.mapping(section, "profiles").items() if section else ():
        where = f"profiles.{name}"
        problems.check_name(name, node, where)
        entry = problems.validate(ProfileEntry, node, where)
        if entry is None:
            continue
        start = profiles.get(name, profiles["standard"])
        fields = {key: value for key, value in entry.model_dump().items() if value is not None}
        if "size" in fields:
            fields.setdefault("cold_size", fields["size"])
        profile = replace(start, name=name, **fields)
        if "max_repeats" in fields and profile.max_repeats < profile.repeats:
            place = (node.child("max_repeats") or node).place
            message = f"{where}.max_repeats: {profile.max_repeats} is less than repeats, {profile.repeats}"
            problems.add(place, message)
        profiles[name] = replace(profile, max_repeats=max(profile.repeats, profile.max_repeats))
    return profiles
