"""The checker: every rule proved, tested to its edge, or refuted with a counterexample.

`check_rule` and `check_adapter` give verdicts; `problems` applies the policy of a spec to one; `render_verdict` explains it.
"""

from adapterc.verify.check import check_adapter, check_rule
from adapterc.verify.render import render_verdict
from adapterc.verify.verdict import Counterexample, Evidence, Verdict, problems

__all__ = ["Counterexample", "Evidence", "Verdict", "check_adapter", "check_rule", "problems", "render_verdict"]
