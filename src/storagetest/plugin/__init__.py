"""The pytest plugin: one parameter per target variant, fixtures that attach it, gates that judge it.

The entry point is :mod:`storagetest.plugin.hooks`. Every pytest loads it, so it declares options, marks and
fixtures and imports the rest at the first use: :mod:`storagetest.plugin.run_hooks`, whose hooks are thin and
call one of the other modules:

- ``options``: the ``--st-*`` options and the markers;
- ``run_state``: what one pytest process knows (configuration, hosts, what has broken);
- ``parametrize``: which variants a test function runs on, and in what order;
- ``fixtures``: ``variant``, ``client``, ``attachment``, ``measure``;
- ``outcomes``: how an error, a failure and INVALID are told apart;
- ``output.record_transport``: records on their way from a worker to the reporters;
- ``xdist_scheduler``: one target stays on one xdist worker.
"""
