"""The pytest plugin: one parameter per target variant, fixtures that attach it, gates that judge it.

The entry point is :mod:`storagetest.plugin.hooks`. Every pytest process loads it, so it only declares
options, marks and fixtures. At the first use it imports :mod:`storagetest.plugin.run_hooks`, whose hooks call
one of the other modules:

- ``options``: the ``--st-*`` options and the markers;
- ``run_state``: the state of one pytest process (configuration, connections, failed targets);
- ``items``: facts about pytest's items;
- ``parametrize``: which variants a test function runs on, and in what order;
- ``fixtures``: ``variant``, ``client``, ``attachment``, ``measure``;
- ``outcomes``: the outcomes failed, error and INVALID;
- ``output.record_transport``: sends records from a worker to the reporters;
- ``xdist_scheduler``: runs all cases of a target on one xdist worker.
"""
