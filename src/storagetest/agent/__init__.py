"""The program that runs on a client: it puts loads of system calls on a mount and reports the results.

Theory. Loads that fio cannot make (metadata, mail-like and tree-like loads, many booting machines) are made
by this program. It runs next to the mount, so the controller's latency is not measured. It needs Python 3.9
and its standard library: :mod:`storagetest.agent.bundle` packs this package into a zip, which precedes the
request on the program's stdin and is imported from memory. Nothing is installed on the client, so nothing has
to be removed, and the version is always the controller's.

Protocol: the request is one JSON object on a line of stdin (some commands then read further lines). The
output is lines, each a JSON object with a key ``t``:

- ``progress``: a report while the command runs;
- ``result``: ``value`` is the command's result; or else
- ``error``: ``kind`` (``os``, ``deadline``, ``died``, ``stopped``, ``request``, ``bug``), ``message``, and
  for ``os`` also ``errno`` (a name such as ``ENOSPC``), ``op`` and ``path``.

The last line is a result or an error; output without one is that of an agent that was killed.

A request names its ``command``, a module of :mod:`storagetest.agent.commands` with a function
``run(request, context)``, and a ``deadline`` in seconds. With ``timeline_interval`` (seconds) its phases also
report how many operations ended in each such interval. To add a command, add a module.

Rules:

1. No module here imports anything of storagetest but this package, and of the standard library only what it
   needs: a start takes a third of a second under emulation, and ``dataclasses`` would double it.
2. Nothing newer than Python 3.9.
3. The parent process never accesses the target: a target that hangs blocks only workers, which are killed.
"""
