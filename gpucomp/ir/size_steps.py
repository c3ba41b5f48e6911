"""Steps of whole-number arithmetic, by which native code finds the numbers of a set of sizes. This module imports nothing.

A step is five words: what it does, the place of its result, and three places ``a``, ``b`` and ``c``. All places are of one
array of words, which starts with what is given. The steps are done in order. They end at the first one that fails:
for that set of sizes, others find the numbers, or say what is wrong.

A result that does not fit 64 bits is a failure.
"""

from __future__ import annotations

WORDS = 5  # of a step

ADD_PRODUCT = 0  # a * b + c
QUOTIENT = 1  # a / b, rounded down; b must be positive
EXACT = 2  # a / b without a rest; b must be positive
ROUNDED_UP = 3  # a, up to a multiple of b, which must be positive
LEAST = 4  # of a and b
GREATEST = 5  # of a and b
WITHIN = 6  # a, which must be at least b and at most c
UNEQUAL = 7  # a, which must not be b
SHIFT = 8  # ``number_of(SHIFT, a)`` of gpucomp.ir.run_numbers; a must be at most 2**31
MAGIC = 9  # ``number_of(MAGIC, a)``; a must be at most 2**31
PART = 10  # how many of the c words from b on are at most a, less one, and at least 0. They rise
FIRST_LEAST = 11  # the number of the first that is the least of the c words from b on; a is not used
AT = 12  # the word at the place that is said by word number a of those from b on
LESS = 13  # 1 if a is less than b, else 0
STORE = 14  # a + b, into the other array, in which the place of the result is
COST = 15  # nanoseconds of a launch of a tasks, see gpucomp.runtime.estimates. From b on: how many arguments there are, and
# for each the place of its bytes, and those of an element. c: multiply-adds a nanosecond, 0 unless it is a contraction

BYTES_A_NS = 8
