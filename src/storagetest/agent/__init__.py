"""The program that runs on a client: puts loads of system calls on a mount, and says what came of it.

Theory. What fio cannot do (metadata, mail-like and tree-like loads, many processes that boot) is done here,
by one program that runs next to the mount, so that no latency of ours is measured. It needs Python 3.9 with
its standard library and nothing of ours: :mod:`storagetest.agent.bundle` packs this package into a zip, which
travels in front of the request on the program's stdin and is imported from memory. Nothing is installed on
the client, so nothing is left there, and no version can be an old one.

The conversation: one request in, a JSON object on a line (``hand`` then reads further lines of its own);
lines out, each a JSON object with a key ``t``:

- ``progress``: what begins now;
- ``result``: ``value`` is what the command found; or else
- ``error``: ``kind`` (``os``, ``deadline``, ``died``, ``stopped``, ``request``, ``bug``), ``message``, and
  for ``os`` also ``errno`` (a name such as ``ENOSPC``), ``op`` and ``path``.

The last line is a result or an error; output without one is that of an agent that was killed.

A request names its ``command``, a module of :mod:`storagetest.agent.commands` with a function
``run(request, job)``, and a ``deadline`` in seconds. With ``course`` (seconds) its phases also say how many
operations ended in each such part of them. Adding a command is adding a module.

Rules:

1. No module here imports anything of ours but this package, or more of the standard library than it needs: a
   start costs a third of a second under emulation, and ``dataclasses`` would double it.
2. Nothing newer than Python 3.9.
3. The parent process never touches the target: a target that hangs holds up workers, which are killed.
"""
