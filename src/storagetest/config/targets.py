"""Read the targets section into :class:`~storagetest.config.models.Variant`, one for each combination."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from storagetest.config import matrix
from storagetest.config.base import TargetOptions
from storagetest.config.client_counts import how_many
from storagetest.config.controls import COMMANDS
from storagetest.config.implementations import Implementation
from storagetest.config.kinds import ProtocolKind, WorkloadKind
from storagetest.config.models import NO_CONTROLS, HostConfig, TargetEntry, ThresholdRule, Variant
from storagetest.config.ranges import expand
from storagetest.config.thresholds import read_rules
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.config.yaml_source import YamlNode

TARGET_KEYS = (*TargetEntry.model_fields, "matrix", "exclude", "thresholds")
"""The keys of a target that are not its protocol's options."""


@dataclass(slots=True)
class Targets:
    """Reader of ``targets``: resolves each target's protocol, clients and server, and expands its matrix."""

    problems: ValidationErrors
    clients: Mapping[str, HostConfig]
    servers: Mapping[str, HostConfig]
    protocols: Mapping[str, ProtocolKind]
    workloads: Mapping[str, WorkloadKind]
    broken: frozenset[str] = frozenset()
    """Clients with errors that are already in ``problems``: a reference to them is not another error."""

    ids: dict[str, str] = field(default_factory=dict)
    """Variant id → place of its target."""

    def build(self, section: YamlNode | None, root: YamlNode) -> tuple[Variant, ...]:
        """Return the variants of all targets, in the file's order; adds errors to ``problems``."""
        if section is None:
            if root.mapping is not None and not difflib.get_close_matches("targets", root.mapping, n=1):
                self.problems.add(root.place, "targets is missing; name at least one target")
            return ()
        targets = self.problems.mapping(section, "targets")
        if section.mapping is not None and not targets:
            self.problems.add(section.place, "targets is empty; name at least one target")
        self._check_same_data(targets)
        return tuple(variant for name, node in targets.items() for variant in self._target(name, node))

    def _check_same_data(self, targets: Mapping[str, YamlNode]) -> None:
        """Add an error if ``same_data`` does not name another target."""
        for name, node in targets.items():
            other = node.child("same_data")
            if other is None or other.value is None:
                continue
            where, others = f"targets.{name}.same_data", [each for each in targets if each != name]
            if other.value == name:
                self.problems.add(other.place, f"{where}: this is the target itself; name the other one")
            elif other.value not in targets:
                hint = suggest(str(other.value), others)
                self.problems.add(other.place, f"{where}: unknown target {other.value!r}{hint}")

    def _target(self, name: str, node: YamlNode) -> list[Variant]:
        where = f"targets.{name}"
        self.problems.check_name(name, node, where)
        children = self.problems.mapping(node, where)
        common = replace(
            node, mapping={key: children[key] for key in children if key in TargetEntry.model_fields}
        )
        entry = self.problems.validate(TargetEntry, common, where) if children else None
        if node.mapping is not None and not children:
            self.problems.add(node.place, f"{where}.protocol: this is missing: {', '.join(self.protocols)}")
        thresholds = children.get("thresholds")
        rules: tuple[ThresholdRule, ...] = ()
        if thresholds:
            rules = read_rules(thresholds, f"{where}.thresholds", self.problems, self.workloads)
        if entry is None:
            return []
        protocol = self.protocols.get(entry.protocol)
        if protocol is None:
            hint = suggest(entry.protocol, self.protocols)
            self.problems.add(
                children["protocol"].place, f"{where}.protocol: unknown protocol {entry.protocol!r}{hint}"
            )
            return []
        variant = Variant(
            id=name,
            target=name,
            protocol=entry.protocol,
            options=protocol.Options.model_construct(),
            clients=self._clients(common, where),
            server=self._server(entry, common, where),
            optional=entry.optional,
            implementation=_implementation(entry),
            thresholds=rules,
            matrix={},
            place=node.key_place,
            scale=entry.scale or (1,),
            data_set=entry.data_set,
            same_data=entry.same_data,
            controls=entry.controls or NO_CONTROLS,
        )
        self._check_scale(variant, common, where)
        if variant.server is None:
            place = (common.child("controls") or node).key_place
            for capability in sorted(variant.controls.on_the_server):
                names = COMMANDS[capability]
                what = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'}"
                self.problems.add(place, f"{where}.controls: {what} run on its server; name that")
        return self._expand(variant, node, protocol, where)

    def _clients(self, node: YamlNode, where: str) -> tuple[HostConfig, ...]:
        one, several = node.child("client"), node.child("clients")
        if one is not None and several is not None:
            self.problems.add(one.key_place, f"{where}: client and clients are both set; remove one")
        if several is not None:  # or all, which is no list
            wanted = [(item, name) for item in several.items or () for name in self._expanded(item, where)]
        else:
            wanted = [(one, str(one.value))] if one is not None and one.value is not None else []
        if not wanted:
            return tuple(self.clients.values())
        chosen: dict[str, HostConfig] = {}
        for item, name in wanted:
            if name in self.broken:
                continue
            if name not in self.clients:
                self.problems.add(
                    item.place, f"{where}: unknown client {name!r}{suggest(name, self.clients)}"
                )
            elif name in chosen:
                self.problems.add(item.place, f"{where}: the client {name!r} is listed twice")
            else:
                chosen[name] = self.clients[name]
        return tuple(chosen.values())

    def _expanded(self, item: YamlNode, where: str) -> tuple[str, ...]:
        try:
            return expand(str(item.value))
        except ValueError as error:
            self.problems.add(item.place, f"{where}: {error}")
            return ()

    def _check_scale(self, variant: Variant, node: YamlNode, where: str) -> None:
        """Add an error if ``scale`` is larger than the number of clients."""
        available = len(variant.clients)
        most = max(how_many(count, available) for count in variant.scale)
        if most > available > 0:
            place = (node.child("scale") or node).place
            message = f"{where}.scale: {most} clients are requested, but the target has {available}"
            self.problems.add(place, message)

    def _server(self, entry: TargetEntry, node: YamlNode, where: str) -> HostConfig | None:
        if entry.server is None:
            return None
        server = self.servers.get(entry.server)
        if server is None:
            hint = suggest(entry.server, self.servers)
            place = (node.child("server") or node).place
            self.problems.add(place, f"{where}: unknown server {entry.server!r}{hint}")
        return server

    def _expand(self, base: Variant, node: YamlNode, protocol: ProtocolKind, where: str) -> list[Variant]:
        """Return the variants of a target: ``base``, once for each combination of the matrix."""
        children = node.mapping or {}
        fixed = {key: child for key, child in children.items() if key not in TARGET_KEYS}
        table, exclude = children.get("matrix"), children.get("exclude")
        combinations: list[matrix.Combination] = [{}]
        if table is not None:
            combinations = matrix.expand(
                table, exclude, protocol.Options, fixed, where=where, problems=self.problems
            )
        elif exclude is not None:
            self.problems.add(exclude.key_place, f"{where}.exclude: requires a matrix")
        variants = []
        for combination in combinations:
            written_out = replace(node, mapping={**fixed, **combination})
            options = self.problems.validate(
                protocol.Options,
                written_out,
                where,
                also_known=TARGET_KEYS,
                whole=functools.partial(_impossible, node, combination),
            )
            if options is not None:
                variants.append(self._variant(base, options, combination, where))
        return variants

    def _variant(
        self, base: Variant, options: TargetOptions, combination: matrix.Combination, where: str
    ) -> Variant:
        """Return one variant, and see that its id is its own and gives nothing away."""
        parts = matrix.parts(options, list(combination))
        made = "-".join([base.id, *parts.values()])
        place = next(iter(combination.values())).key_place if combination else base.place
        if made in self.ids:
            other = self.ids[made]
            self.problems.add(
                place, f"{where}: a second variant would be called {made!r} (see {other}); rename or drop one"
            )
        elif any(matrix.shows_address(value.raw) for value in combination.values()):
            self.problems.add(
                place, f"{where}: the variant's id would show an address; write a target for each"
            )
        self.ids.setdefault(made, place)
        return replace(base, id=made, options=options, matrix=parts)


def _implementation(entry: TargetEntry) -> Implementation:
    named = entry.implementation
    return Implementation() if named is None else Implementation(named.name, named.version or "")


def _impossible(node: YamlNode, combination: matrix.Combination, message: str) -> tuple[str, str]:
    """Return place and sentence for options that do not go together: the matrix's value that it speaks of."""
    if not combination:
        return node.key_place, message
    named = [name for name in combination if re.search(rf"\b{re.escape(name)}\b", message)]
    culprit = combination[(named or list(combination))[-1]]
    shown = ", ".join(f"{name}: {value.raw or value.kind}" for name, value in combination.items())
    hint = "; remove it with `exclude`" if len(combination) > 1 else ""
    return culprit.place, f"{message} ({shown}){hint}"
