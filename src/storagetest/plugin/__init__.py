"""The pytest plugin: one parameter per target variant, fixtures that attach it, gates that judge it.

The entry point is :mod:`storagetest.plugin.hooks`; every hook there is thin and calls one of the other
modules:

- ``options``: the ``--st-*`` options and the markers;
- ``state``: what one pytest process knows (configuration, hosts, what has broken);
- ``matrix``: which variants a test function runs on, and in what order;
- ``fixtures``: ``variant``, ``client``, ``attachment``, ``measure``;
- ``outcomes``: how an error, a failure and INVALID are told apart;
- ``transport``: records on their way from a worker to the reporters;
- ``schedule``: one target stays on one xdist worker.
"""
