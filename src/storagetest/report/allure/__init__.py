"""Allure: the results that a run writes, and its HTML report as one file. Only ``reporter`` imports Allure.

- ``reporter``: labels, values and diagnostics of a case; ``categories``: why a case did not pass;
- ``html``: the HTML report; ``nodejs``: the Node.js and npm packages that generate it;
- ``single_file`` and ``offline``: the generator's directory as one page that loads nothing.
"""
