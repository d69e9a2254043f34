"""Reports of finished runs and verdicts: each prints or writes them without further computation.

- ``base``: :class:`~storagetest.report.base.Record`, one finished case;
- ``metric_values``: a record's values as text, the same in every report;
- ``jsonl``: results.jsonl, written and read; ``terminal``: the table; ``junit``: properties;
- ``baseline``, ``compare``, ``coverage``: stored runs, comparisons and counts;
- ``chart``, ``latency_chart``, ``timeline``: drawings; ``templates``: the HTML templates;
- ``allure``: Allure's results and HTML report; ``page``: the comparison report;
- ``formats``: one module per report format; ``cli``: ``storagetest report``.
"""
