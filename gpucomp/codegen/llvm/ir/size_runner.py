"""The native function that does the steps of ``gpucomp.ir.size_steps``: part of every program that a process can load."""

from __future__ import annotations

from gpucomp.ir import size_steps as op
from gpucomp.ir.run_numbers import BITS

SIZES = f"""
declare {{ i64, i1 }} @llvm.smul.with.overflow.i64(i64, i64)
declare {{ i64, i1 }} @llvm.sadd.with.overflow.i64(i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
declare double @llvm.sqrt.f64(double)

; count steps {{ i64 what, i64 to, i64 a, i64 b, i64 c }} on the words v; the results of "store" go into the words other.
; What it gives is 0, or 1 + the number of the step that fails.
define i64 @gc_sizes(ptr %steps, i64 %count, ptr %v, ptr %other) #1 {{
entry:
  fence release ; a thread that sees a number that is written here also sees what was written before
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %step, label %end
step:
  %k = phi i64 [ 0, %entry ], [ %next, %onward ]
  %at = getelementptr [{op.WORDS} x i64], ptr %steps, i64 %k
  %toat = getelementptr i64, ptr %at, i64 1
  %aat = getelementptr i64, ptr %at, i64 2
  %bat = getelementptr i64, ptr %at, i64 3
  %cat = getelementptr i64, ptr %at, i64 4
  %what = load i64, ptr %at
  %to = load i64, ptr %toat
  %aplace = load i64, ptr %aat
  %bplace = load i64, ptr %bat
  %cplace = load i64, ptr %cat
  %afrom = getelementptr i64, ptr %v, i64 %aplace
  %bfrom = getelementptr i64, ptr %v, i64 %bplace
  %cfrom = getelementptr i64, ptr %v, i64 %cplace
  %a = load i64, ptr %afrom
  %b = load i64, ptr %bfrom
  %c = load i64, ptr %cfrom
  %next = add i64 %k, 1
  switch i64 %what, label %end [
    i64 {op.ADD_PRODUCT}, label %product
    i64 {op.QUOTIENT}, label %quotient
    i64 {op.EXACT}, label %quotient
    i64 {op.ROUNDED_UP}, label %quotient
    i64 {op.LEAST}, label %least
    i64 {op.GREATEST}, label %greatest
    i64 {op.WITHIN}, label %within
    i64 {op.UNEQUAL}, label %unequal
    i64 {op.SHIFT}, label %divisor
    i64 {op.MAGIC}, label %divisor
    i64 {op.PART}, label %part
    i64 {op.FIRST_LEAST}, label %first
    i64 {op.AT}, label %indirect
    i64 {op.LESS}, label %less.than
    i64 {op.STORE}, label %sum
    i64 {op.COST}, label %cost
  ]
product:
  %multiplied = call {{ i64, i1 }} @llvm.smul.with.overflow.i64(i64 %a, i64 %b)
  %times = extractvalue {{ i64, i1 }} %multiplied, 0
  %times.over = extractvalue {{ i64, i1 }} %multiplied, 1
  %added = call {{ i64, i1 }} @llvm.sadd.with.overflow.i64(i64 %times, i64 %c)
  %plus = extractvalue {{ i64, i1 }} %added, 0
  %plus.over = extractvalue {{ i64, i1 }} %added, 1
  %over = or i1 %times.over, %plus.over
  br i1 %over, label %end, label %onward
quotient:
  %positive = icmp sgt i64 %b, 0
  br i1 %positive, label %divide, label %end
divide:
  %toward.zero = sdiv i64 %a, %b
  %back = mul i64 %toward.zero, %b
  %rest = sub i64 %a, %back
  %negative = icmp slt i64 %rest, 0
  %less = sext i1 %negative to i64
  %down = add i64 %toward.zero, %less
  %some = icmp ne i64 %rest, 0
  %exact = icmp eq i64 %what, {op.EXACT}
  %not.whole = and i1 %exact, %some
  br i1 %not.whole, label %end, label %divided
divided:
  %more = zext i1 %some to i64
  %parts = add i64 %down, %more
  %multiple = mul i64 %parts, %b
  %upward = icmp eq i64 %what, {op.ROUNDED_UP}
  %either = select i1 %upward, i64 %multiple, i64 %down
  br label %onward
least:
  %smaller = icmp slt i64 %b, %a
  %low = select i1 %smaller, i64 %b, i64 %a
  br label %onward
greatest:
  %larger = icmp sgt i64 %b, %a
  %high = select i1 %larger, i64 %b, i64 %a
  br label %onward
within:
  %not.below = icmp sge i64 %a, %b
  %not.above = icmp sle i64 %a, %c
  %inside = and i1 %not.below, %not.above
  br i1 %inside, label %onward, label %end
unequal:
  %other.one = icmp ne i64 %a, %b
  br i1 %other.one, label %onward, label %end
divisor:
  %divides = icmp sgt i64 %a, 0
  br i1 %divides, label %bounded, label %onward
bounded:
  %short = icmp sle i64 %a, {1 << BITS}
  br i1 %short, label %magic, label %end
magic:
  %before = sub i64 %a, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %before, i1 false)
  %shift = sub i64 {64 + BITS}, %zeros
  %power = shl i64 1, %shift
  %above = add i64 %power, %before
  %number = udiv i64 %above, %a
  %is.shift = icmp eq i64 %what, {op.SHIFT}
  %found = select i1 %is.shift, i64 %shift, i64 %number
  br label %onward
part:
  %p = phi i64 [ 0, %step ], [ %p.next, %further ]
  %reached = icmp slt i64 %p, %c
  br i1 %reached, label %further, label %parted
further:
  %startat = getelementptr i64, ptr %bfrom, i64 %p
  %start = load i64, ptr %startat
  %p.next = add i64 %p, 1
  %at.most = icmp sle i64 %start, %a
  br i1 %at.most, label %part, label %parted
parted:
  %p.less = sub i64 %p, 1
  %p.none = icmp slt i64 %p.less, 0
  %p.found = select i1 %p.none, i64 0, i64 %p.less
  br label %onward
first:
  %f = phi i64 [ 0, %step ], [ %f.next, %compared ]
  %best = phi i64 [ 0, %step ], [ %best.next, %compared ]
  %f.more = icmp slt i64 %f, %c
  br i1 %f.more, label %compared, label %onward
compared:
  %bestat = getelementptr i64, ptr %bfrom, i64 %best
  %thisat = getelementptr i64, ptr %bfrom, i64 %f
  %best.value = load i64, ptr %bestat
  %this.value = load i64, ptr %thisat
  %better = icmp slt i64 %this.value, %best.value
  %best.next = select i1 %better, i64 %f, i64 %best
  %f.next = add i64 %f, 1
  br label %first
indirect:
  %saidat = getelementptr i64, ptr %bfrom, i64 %a
  %said = load i64, ptr %saidat
  %thereat = getelementptr i64, ptr %v, i64 %said
  %there = load i64, ptr %thereat
  br label %onward
less.than:
  %is.less = icmp slt i64 %a, %b
  %one.if = zext i1 %is.less to i64
  br label %onward
sum:
  %stored = add i64 %a, %b
  br label %onward
cost:
  %shared = icmp sgt i64 %a, 1
  br i1 %shared, label %argument, label %onward
argument:
  %n = phi i64 [ 0, %cost ], [ %n.next, %argument.read ]
  %all = phi double [ 0.0, %cost ], [ %all.next, %argument.read ]
  %large = phi double [ 0.0, %cost ], [ %large.next, %argument.read ]
  %middle = phi double [ 0.0, %cost ], [ %middle.next, %argument.read ]
  %small = phi double [ 0.0, %cost ], [ %small.next, %argument.read ]
  %n.more = icmp slt i64 %n, %b
  br i1 %n.more, label %argument.read, label %weighed
argument.read:
  %n.next = add i64 %n, 1
  %twice = shl i64 %n, 1
  %placeat.number = add i64 %twice, 1
  %placeat = getelementptr i64, ptr %bfrom, i64 %placeat.number
  %itemat = getelementptr i64, ptr %placeat, i64 1
  %place = load i64, ptr %placeat
  %item = load i64, ptr %itemat
  %bytesat = getelementptr i64, ptr %v, i64 %place
  %bytes.whole = load i64, ptr %bytesat
  %bytes = sitofp i64 %bytes.whole to double
  %item.bytes = sitofp i64 %item to double
  %elements = fdiv double %bytes, %item.bytes
  %all.next = fadd double %all, %bytes
  %over.large = fcmp ogt double %elements, %large
  %over.middle = fcmp ogt double %elements, %middle
  %over.small = fcmp ogt double %elements, %small
  %large.next = select i1 %over.large, double %elements, double %large
  %middle.if = select i1 %over.middle, double %elements, double %middle
  %middle.next = select i1 %over.large, double %large, double %middle.if
  %small.if = select i1 %over.small, double %elements, double %small
  %small.next = select i1 %over.middle, double %middle, double %small.if
  br label %argument
weighed:
  %moved = fmul double %all, {1 / op.BYTES_A_NS:.8f}
  %of.two = fmul double %large, %middle
  %of.three = fmul double %of.two, %small
  %multiply.adds = call double @llvm.sqrt.f64(double %of.three)
  %contraction = icmp sgt i64 %c, 0
  %rate = sitofp i64 %c to double
  %computed.if = fdiv double %multiply.adds, %rate
  %computed = select i1 %contraction, double %computed.if, double 0.0
  %slower = fcmp ogt double %computed, %moved
  %nanoseconds = select i1 %slower, double %computed, double %moved
  %countable = fcmp olt double %nanoseconds, 1.0e+15
  %bounded.cost = select i1 %countable, double %nanoseconds, double 1.0e+15
  %whole.cost = fptosi double %bounded.cost to i64
  br label %onward
onward:
  %result = phi i64 [ %plus, %product ], [ %either, %divided ], [ %low, %least ], [ %high, %greatest ], [ %a, %within ],
    [ %a, %unequal ], [ %a, %divisor ], [ %found, %magic ], [ %p.found, %parted ], [ %best, %first ], [ %there, %indirect ],
    [ %one.if, %less.than ], [ %stored, %sum ], [ 0, %cost ], [ %whole.cost, %weighed ]
  %stores = icmp eq i64 %what, {op.STORE}
  %words = select i1 %stores, ptr %other, ptr %v
  %target = getelementptr i64, ptr %words, i64 %to
  store i64 %result, ptr %target
  %left = icmp slt i64 %next, %count
  br i1 %left, label %step, label %end
end:
  %failed = phi i64 [ 0, %entry ], [ 0, %onward ], [ %next, %step ], [ %next, %product ], [ %next, %quotient ],
    [ %next, %divide ], [ %next, %within ], [ %next, %unequal ], [ %next, %bounded ]
  ret i64 %failed
}}
"""
