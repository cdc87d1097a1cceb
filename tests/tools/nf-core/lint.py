"""Runs the checks of `nf-core modules lint` that need no network, and prints the checks that a module fails.

    lint.py DIRECTORY

DIRECTORY is a clone of a repository of modules: it must be a git repository. The schemas of nf-core/modules are not in this
repository. Where DIRECTORY has empty ones, meta.yml is still compared with main.nf.
"""

import logging
import os
import sys
from pathlib import Path

from nf_core.modules.lint import ModuleLint

logging.disable(logging.WARNING)
directory = Path(sys.argv[1]).resolve()
# The clone that nf-core keeps in its home is named after the path of the remote, which must be relative.
os.chdir(directory.parent)
checks = ("main_nf", "meta_yml", "module_todos", "module_deprecations", "module_tests")
lint = ModuleLint(directory, remote_url=directory.name, branch="main", hide_progress=True)
lint.lint(all_modules=True, key=checks, print_results=False)
print(f"passed {len(lint.passed)}")
for kind, results in (("warned", lint.warned), ("failed", lint.failed)):
    for result in results:
        print(f"{kind} {result.component_name} {result.lint_test} {result.message}")
