"""Convert the sections ``clients`` and ``servers`` to :class:`.HostConfig`, with the jump hosts resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storagetest.config.models import HostConfig, LocalEntry, SlurmEntry, SshEntry
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.config.yaml_source import YamlNode

_NOWHERE = YamlNode("", "")


@dataclass(slots=True)
class HostConfigs:
    """Reader of ``clients`` and ``servers``, whose entries may refer to each other (``jump``)."""

    problems: ValidationErrors
    sections: Mapping[str, YamlNode]
    """The sections of the file."""

    machines: dict[tuple[str, str], HostConfig | None] = field(default_factory=dict)
    resolving: list[tuple[str, str]] = field(default_factory=list)

    def build(self, section: str) -> Mapping[str, HostConfig]:
        """Return the machines of ``section``, ``clients`` or ``servers``; adds errors to ``problems``."""
        node = self.sections.get(section)
        if node is None:
            return {}
        names = self.problems.mapping(node, section)
        if node.mapping is not None and not names:
            self.problems.add(node.place, f"{section}: empty; remove the section, or name a host")
        machines: dict[str, HostConfig] = {}
        refused: set[str] = set()
        for name, entry in names.items():
            if entry.key_place in refused:  # the same entry, of another host of its range
                continue
            machine = self._machine(section, name)
            if machine is None:
                refused.add(entry.key_place)
            else:
                machines[name] = machine
        return machines

    def _machine(self, section: str, name: str) -> HostConfig | None:
        """Return the machine called ``name``, or None after adding its errors to ``problems``."""
        key = (section, name)
        if key not in self.machines:
            node = self.sections.get(section, _NOWHERE).child(name) or _NOWHERE
            self.problems.check_name(name, node, f"{section}.{name}")
            self.resolving.append(key)
            self.machines[key] = self._read(section, name, node, f"{section}.{name}")
            self.resolving.pop()
        return self.machines[key]

    def _read(self, section: str, name: str, node: YamlNode, where: str) -> HostConfig | None:
        transport = node.child("transport")
        if node.mapping is not None and transport is None:
            self.problems.add(node.key_place, f"{where}.transport: this is missing: local, ssh or slurm")
            return None
        if transport is not None and transport.value not in {"local", "ssh", "slurm"}:
            text = transport.raw or transport.kind
            self.problems.add(transport.place, f"{where}.transport: {text} is not local, ssh or slurm")
            return None
        if transport is not None and transport.value == "local":
            local = self.problems.validate(LocalEntry, node, where)
            return HostConfig(name, "local", place=node.key_place) if local else None
        if transport is not None and transport.value == "slurm":
            of_job = self.problems.validate(SlurmEntry, node, where)
            if of_job is None:
                return None
            return HostConfig(name, "slurm", place=node.key_place, node=of_job.node, job=of_job.job or 0)
        entry = self.problems.validate(SshEntry, node, where)
        return self._over_ssh(section, name, entry, node, where) if entry else None

    def _over_ssh(
        self, section: str, name: str, entry: SshEntry, node: YamlNode, where: str
    ) -> HostConfig | None:
        jump = None
        hop = node.child("jump")
        if isinstance(entry.jump, SshEntry) and hop is not None:
            jump = self._over_ssh(section, f"{name}'s jump", entry.jump, hop, f"{where}.jump")
        elif isinstance(entry.jump, str) and hop is not None:
            jump = self._named_jump(section, entry.jump, hop, f"{where}.jump")
        if entry.jump is not None and jump is None:
            return None
        fields = {key: getattr(entry, key) for key in SshEntry.model_fields if key != "jump"}
        return HostConfig(name, jump=jump, place=node.key_place, **fields)

    def _named_jump(self, section: str, name: str, hop: YamlNode, where: str) -> HostConfig | None:
        sections = (section, "servers" if section == "clients" else "clients")
        known = {one: self.sections.get(one, _NOWHERE).mapping or {} for one in sections}
        home = next((one for one in sections if name in known[one]), None)
        if home is None:
            hint = suggest(name, [*known["clients"], *known["servers"]])
            self.problems.add(hop.place, f"{where}: unknown client or server {name!r}{hint}")
            return None
        if (home, name) in self.resolving:
            circle = [one for _, one in self.resolving[self.resolving.index((home, name)) :]]
            self.problems.add(hop.place, f"{where}: the jumps go in a circle: {' → '.join([*circle, name])}")
            return None
        machine = self._machine(home, name)
        if machine is not None and machine.transport != "ssh":
            self.problems.add(
                hop.place, f"{where}: {name!r} is not reached over ssh, so nothing can go through it"
            )
            return None
        return machine
