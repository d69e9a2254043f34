"""Subscribers of finished runs and verdicts: each prints or files what it is given and computes nothing.

- ``base``: what they are given (:class:`~storagetest.report.base.Record`) and what they are;
- ``figures``: a record's values as text, the same in every report;
- ``jsonl``: results.jsonl, written and read; ``terminal``: the table; ``junit``: properties;
- ``allure`` and ``categories``: what Allure is told; ``html``, ``node`` and ``offline``: its page, made here;
- ``cli``: ``storagetest report``.
"""
