"""Checks of the machine code that nvcc makes of kernels/: no card is needed.

sass.py reads what cuobjdump lists, flow.py finds its loops, rules.py says what a kernel must and must
not have, expected.py has the exceptions, cards.py the cards and how many blocks fit them, issue.py
simulates one multiprocessor. check.py runs all of it over the objects of a build.
tests/scripts/machine_code_test.py shows that each rule finds a planted mistake (planted.cu,
planted_early.cu).
"""
